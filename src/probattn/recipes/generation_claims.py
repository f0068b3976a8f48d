"""What Bahuleyan et al. 2018 lead to expect of text generation, and whether it holds here."""

from collections.abc import Mapping, Sequence

from probattn.recipes.results import RowResult, Summary, summarise, verdict

__all__ = ["TOLERANCE", "claims", "sweep_claims"]

Table = tuple[list[str], list[list[str]]]

TOLERANCE = 0.3
"""BLEU that a row with random attention may lose."""
_HEADER = ["claim", "left", "right", "verdict"]
_DIVERSITY = {"entropy": "entropy", "dist1": "Dist-1", "dist2": "Dist-2"}
_PAIRS = (
    ("ved-vattn-0", "ved-dattn"),
    ("ved-vattn-h", "ved-dattn"),
    ("ved-vattn-0", "ved-dattn-2stage"),
    ("ved-vattn-h", "ved-dattn-2stage"),
    ("ved-vattn-h-released", "ved-dattn-released"),
    ("ved-dirichlet", "ved-dattn"),
    ("ved-weibull", "ved-dattn"),
)
"""Rows with random attention, and those with soft attention that they are held against; the last two are ours."""
_BYPASSED = (("vae", "vae-init", "entropy without hidden-state initialisation above that with it"),)


def claims(results: Sequence[RowResult]) -> Table:
    """More diverse samples at a BLEU that is hardly lower, noise between seeds considered; only rows that were run.

    Dialogue is judged by BLEU-2, as in the paper, everything else by BLEU-4.
    """
    order = 2 if str(results[0].facts["corpus"]) == "cornell" else 4
    bleu = f"sample_bleu{order}"
    found = {metric: summarise(results, metric) for metric in (*_DIVERSITY, bleu)}
    rows: list[list[str]] = []
    for variational, soft in _PAIRS:
        for metric, title in _DIVERSITY.items():
            rows += _above(f"{title} of {variational} above {soft}", found[metric], variational, soft)
        text = f"sample BLEU-{order} of {variational} at most {TOLERANCE:g} below {soft}"
        rows += _above(text, found[bleu], variational, soft, tolerance=TOLERANCE)
    for left, right, text in _BYPASSED:
        rows += _above(text, found["entropy"], left, right)
    return _HEADER, rows


def sweep_claims(sweep: Mapping[float, RowResult], soft: RowResult | None) -> Table:
    """That a lower weight of the attention's KL raises quality and costs diversity (Figure 5, Sec. 4.1).

    Args:
        sweep: Results of one row by gamma_a, at least two.
        soft: The row with soft attention, which the paper says is beaten in both by gamma_a = 0.01; None: not run.
    """
    lowest, highest = min(sweep), max(sweep)
    named = {f"{value:g}": result for value, result in sweep.items()} | ({} if soft is None else {"soft": soft})
    metrics = {"sample_bleu4": "sample BLEU-4", **_DIVERSITY}
    found = {metric: _single(named, metric) for metric in metrics}
    low, high = f"{lowest:g}", f"{highest:g}"
    rows = _above(f"sample BLEU-4 at gamma_a = {low} above {high}", found["sample_bleu4"], low, high)
    for metric, title in _DIVERSITY.items():
        rows += _above(f"{title} at gamma_a = {high} above {low}", found[metric], high, low)
    for metric, title in metrics.items():
        rows += _above(f"{title} at gamma_a = 0.01 above soft attention", found[metric], "0.01", "soft")
    return _HEADER, rows


def _single(results: Mapping[str, RowResult], metric: str) -> dict[str, Summary]:
    found = {name: summarise([result], metric) for name, result in results.items()}
    return {name: next(iter(one.values())) for name, one in found.items() if one}


def _above(
    text: str, found: Mapping[str, Summary], left: str, right: str, *, tolerance: float = 0.0
) -> list[list[str]]:
    """A line that says whether left is above right, or at most a tolerance below it; none where one was not run."""
    if left not in found or right not in found:
        return []
    one, other = found[left], found[right]
    said = verdict(other.mean - tolerance - one.mean, one, other)
    if tolerance > 0.0:
        said = {
            "no difference beyond noise": "undecided: too near to the limit for this noise",
            "sign as claimed (one seed)": "as claimed (one seed)",
            "opposite sign (one seed)": "not as claimed (one seed)",
        }.get(said, said)
    return [[text, f"{one.mean:.3f}", f"{other.mean:.3f}", said]]
