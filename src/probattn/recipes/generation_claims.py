"""What Bahuleyan et al. 2018 lead to expect of text generation, and whether it holds here."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from probattn.recipes.paired import Below, shared_means, verdicts
from probattn.recipes.results import RowResult

__all__ = ["TOLERANCE", "claims", "sweep_claims"]

Table = tuple[list[str], list[list[str]]]

TOLERANCE = 0.3
"""BLEU that a row with random attention may lose."""
_HEADER = ["claim", "left", "right", "verdict"]
_DIVERSITY = {"entropy": "entropy", "dist1": "Dist-1", "dist2": "Dist-2"}
_PAPER = (("ved-vattn-0", "ved-dattn"), ("ved-vattn-h", "ved-dattn"))
"""Rows with random attention, and those with soft attention that the paper holds them against,"""
_OTHERS = (
    ("ved-vattn-0", "ved-dattn-2stage"),
    ("ved-vattn-h", "ved-dattn-2stage"),
    ("ved-vattn-h-released", "ved-dattn-released"),
    ("ved-dirichlet", "ved-dattn"),
    ("ved-weibull", "ved-dattn"),
)
"""and more of them, which are adjusted for their number apart; the last two are ours."""
_WITHOUT_INITIALISATION = Below("vae-init", "vae")


def claims(results: Sequence[RowResult]) -> Table:
    """More diverse samples at a BLEU that is hardly lower, paired by seed; only rows that were run.

    Dialogue is judged by BLEU-2, as in the paper, everything else by BLEU-4.
    """
    order = 2 if str(results[0].facts["corpus"]) == "cornell" else 4
    rows: list[list[str]] = []
    for pairs in (_PAPER, _OTHERS):
        of_metric = {
            metric: _lines(results, metric, {f"{title} of {row} above {soft}": Below(soft, row) for row, soft in pairs})
            for metric, title in _DIVERSITY.items()
        }
        texts = {
            f"sample BLEU-{order} of {row} at most {TOLERANCE:g} below {soft}": Below(soft, row, TOLERANCE)
            for row, soft in pairs
        }
        of_metric["bleu"] = _lines(results, f"sample_bleu{order}", texts)
        rows += [lines[pair] for pair in pairs for lines in of_metric.values() if pair in lines]
    text = "entropy without hidden-state initialisation above that with it"
    rows += _lines(results, "entropy", {text: _WITHOUT_INITIALISATION}).values()
    return _HEADER, rows


def sweep_claims(sweep: Mapping[float, RowResult], soft: RowResult | None) -> Table:
    """That a lower weight of the attention's KL raises quality and costs diversity (Figure 5, Sec. 4.1).

    Args:
        sweep: Results of one row by gamma_a, at least two, with one seed.
        soft: The row with soft attention, which the paper says is beaten in both by gamma_a = 0.01; None: not run.
    """
    named = [replace(result, row=f"{value:g}", seed=0) for value, result in sweep.items()]
    named += [] if soft is None else [replace(soft, row="soft", seed=0)]
    low, high = f"{min(sweep):g}", f"{max(sweep):g}"
    metrics = {"sample_bleu4": "sample BLEU-4", **_DIVERSITY}
    rows: list[list[str]] = []
    rows += _lines(named, "sample_bleu4", {f"sample BLEU-4 at gamma_a = {low} above {high}": Below(high, low)}).values()
    for metric, title in _DIVERSITY.items():
        rows += _lines(named, metric, {f"{title} at gamma_a = {high} above {low}": Below(low, high)}).values()
    for metric, title in metrics.items():
        text = f"{title} at gamma_a = 0.01 above soft attention"
        rows += _lines(named, metric, {text: Below("soft", "0.01")}).values()
    return _HEADER, rows


def _lines(results: Sequence[RowResult], metric: str, texts: Mapping[str, Below]) -> dict[tuple[str, str], list[str]]:
    """Lines of claims on one metric, by the rows they are on, the higher one first; only rows that were run."""
    judged = verdicts(results, metric, list(texts.values()))
    lines = {}
    for text, claim in texts.items():
        if claim not in judged:
            continue
        said = judged[claim]
        if claim.margin > 0.0:
            said = said.replace("sign as claimed", "as claimed").replace("opposite sign", "not as claimed")
            said = said.replace("no difference seen", "undecided: too near to the limit for this noise")
        means = [f"{mean:.3f}" for mean in shared_means(results, metric, claim.high, claim.low)]
        lines[claim.high, claim.low] = [text, *means, said]
    return lines
