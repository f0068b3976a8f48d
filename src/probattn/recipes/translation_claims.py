"""The papers' numbers on translation, and what became of their claims on another corpus.

Numbers of Deng et al. 2018 are those of Table 1 and Table 3 (IWSLT14 de-en, exact test perplexity, BLEU, entropy of the
attention), those of BAM 2020 of Sec. 4.4 and Table 8. They are not reproduced digit by digit here (another corpus, a
smaller network), so claims are compared as ratios and orders.
"""

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from probattn.recipes.paired import Below, by_seed, shared_means, verdicts
from probattn.recipes.report import as_markdown
from probattn.recipes.results import RowResult, Summary, summarise


@dataclass(frozen=True)
class Published:
    """A row of a paper: perplexity, BLEU and entropy of the attention; None where it has none."""

    ppl: float | None
    bleu: float | None
    entropy: float | None


SOFT_PPL = 7.03
"""Of Deng et al.'s soft attention."""
DENG = {
    "soft": Published(SOFT_PPL, 32.31, 1.24),
    "marginal": Published(6.33, 33.08, 0.82),
    "hard-enum": Published(7.37, 31.40, 0.05),
    "hard-sample": Published(7.38, 31.00, 0.07),
    "variational-enum": Published(6.03, 33.10, 0.54),
    "variational-sample": Published(6.13, 33.09, 0.52),
    "relaxed-dirichlet": Published(7.58, 30.05, 2.02),
}
BAM = {"soft": Published(None, 32.77, None), "bayesian-wc": Published(None, 33.81, None)}

BAM_COST = {"variational-enum": (64.0, 0.12), "variational-sample": (64.0, 0.15), "bayesian-wc": (42.0, 0.10)}
"""Millions of parameters and seconds of a training step (BAM's Table 8)."""
LATENT = ("marginal", "variational-enum", "variational-sample")
"""Rows whose perplexity is claimed to be below soft attention's."""

ENTROPY_ORDER = ("hard-enum", "variational-enum", "marginal", "soft", "relaxed-dirichlet")


CLAIMS_HEADER = ["claim", "paper", "here", "verdict"]


def published_table(results: Sequence[RowResult], step_ratios: Mapping[str, float]) -> str:
    """Our perplexity, BLEU and entropy beside the paper's, both also as ratios to soft attention, as Markdown.

    Args:
        results: Of any rows and seeds.
        step_ratios: Time of a training step over soft attention's by row, as a benchmark measured it: the times of runs
            on a shared machine cannot be compared.
    """
    ours = {metric: summarise(results, metric) for metric in ("ppl", "bleu", "entropy", "parameters")}
    header = [
        "row",
        "seeds",
        "ppl",
        "/ soft",
        "paper",
        "/ soft",
        "BLEU",
        "paper",
        "entropy",
        "paper",
        "parameters",
        "paper",
        "step / soft",
        "paper",
    ]
    rows = []
    for row in ours["ppl"]:
        paper = DENG.get(row) or BAM.get(row) or Published(None, None, None)
        ppl = ours["ppl"][row]
        rows.append(
            [
                row,
                str(ppl.count),
                _spread(ppl),
                _to_soft(results, row),
                _number(paper.ppl),
                "-" if paper.ppl is None else f"{paper.ppl / SOFT_PPL:.2f}",
                _spread(ours["bleu"][row]),
                _number(paper.bleu),
                _spread(ours["entropy"][row]),
                _number(paper.entropy),
                f"{ours['parameters'][row].mean / 1e6:.2f}M",
                f"{BAM_COST[row][0]:.0f}M" if row in BAM_COST else "-",
                f"{step_ratios[row]:.1f}" if row in step_ratios else "-",
                f"{BAM_COST[row][1]:.2f} s" if row in BAM_COST else "-",
            ]
        )
    return as_markdown(header, rows)


def claims_table(
    results: Sequence[RowResult], step_ratios: Mapping[str, float] | None = None, *, least_bleu: float | None = None
) -> str:
    """Each claim with the paper's figure, ours, and a verdict, as Markdown; claims without results are left out.

    Empty where there are results of one row only. Arguments as for `claim_lines`.
    """
    lines = claim_lines(results, step_ratios, least_bleu=least_bleu)
    return as_markdown(CLAIMS_HEADER, lines) if lines else ""


def claim_lines(
    results: Sequence[RowResult], step_ratios: Mapping[str, float] | None = None, *, least_bleu: float | None = None
) -> list[list[str]]:
    """The cells of `claims_table`.

    Args:
        results: Of any rows and seeds.
        step_ratios: As for `published_table`; without them nothing is said of time.
        least_bleu: What soft attention was to reach on this corpus before anything is compared with it.
    """
    lines = [*_ppl_claims(results), *_entropy_claims(results), *_bleu_claims(results)]
    lines += _cost_claims(results, step_ratios or {})
    soft = summarise(results, "bleu").get("soft")
    if soft is not None and least_bleu is not None:
        is_reached = "holds" if soft.mean >= least_bleu else "fails"
        lines.append([f"BLEU of soft at least {least_bleu:g}", "-", f"{soft.mean:.2f}", is_reached])
    return lines


def _ppl_claims(results: Sequence[RowResult]) -> list[list[str]]:
    published = {row: (DENG[row].ppl or math.nan) / SOFT_PPL for row in DENG}
    low, high = (round(pick(published[row] for row in LATENT), 2) for pick in (min, max))
    claims = {row: Below(row, "soft") if row in LATENT else Below("soft", row) for row in DENG if row != "soft"}
    judged = verdicts(results, "ppl", list(claims.values()))
    lines = []
    for row in (*LATENT, "hard-enum", "hard-sample", "relaxed-dirichlet"):
        if claims[row] not in judged:
            continue
        ours, plain = shared_means(results, "ppl", row, "soft")
        ratio = ours / plain
        is_inside = low <= round(ratio, 2) <= high
        span = f", {'inside' if is_inside else 'outside'} {low:.2f} to {high:.2f}" if row in LATENT else ""
        lines.append(
            [
                f"perplexity of {row} {'below' if row in LATENT else 'above'} soft's",
                f"x {published[row]:.2f}",
                f"x {ratio:.2f}{span}",
                judged[claims[row]],
            ]
        )
    return lines


def _entropy_claims(results: Sequence[RowResult]) -> list[list[str]]:
    """Every two neighbours in the order, and the order as a whole where all of it is there."""
    judged = verdicts(results, "entropy", [Below(low, high) for low, high in pairwise(ENTROPY_ORDER)])
    lines = [
        [
            f"entropy: {claim.low} < {claim.high}",
            f"{_number(DENG[claim.low].entropy)} < {_number(DENG[claim.high].entropy)}",
            ", ".join(f"{mean:.2f}" for mean in shared_means(results, "entropy", claim.low, claim.high)),
            text,
        ]
        for claim, text in judged.items()
    ]
    if len(judged) == len(ENTROPY_ORDER) - 1:
        lines.append(
            [
                f"entropy: {' < '.join(ENTROPY_ORDER)}",
                " < ".join(_number(DENG[row].entropy) for row in ENTROPY_ORDER),
                _common_means(results, "entropy", ENTROPY_ORDER),
                _whole_order(judged),
            ]
        )
    return lines


def _common_means(results: Sequence[RowResult], metric: str, rows: Sequence[str]) -> str:
    """Means of rows over the seeds that all of them have, "-" where there is none."""
    values = [by_seed(results, metric, row) for row in rows]
    shared = set.intersection(*(set(one) for one in values))
    return ", ".join(f"{fmean(one[seed] for seed in shared):.2f}" for one in values) if shared else "-"


def _whole_order(judged: Mapping[Below, str]) -> str:
    """What the verdicts on neighbours say of the order: as weak as the weakest of them."""
    is_shown = {claim: text.startswith(("holds", "sign as claimed")) for claim, text in judged.items()}
    broken = [f"{claim.low} < {claim.high}" for claim, shows in is_shown.items() if not shows]
    if broken:
        return f"not shown for {'; '.join(broken)}"
    return "holds" if set(judged.values()) == {"holds"} else "order as claimed (some rows: one or two seeds)"


def _bleu_claims(results: Sequence[RowResult]) -> list[list[str]]:
    gains = {row: (DENG[row].bleu or math.nan) - (DENG["soft"].bleu or math.nan) for row in DENG if row != "soft"}
    gains["bayesian-wc"] = (BAM["bayesian-wc"].bleu or math.nan) - (BAM["soft"].bleu or math.nan)
    claims = {row: Below("soft", row) if gain > 0.0 else Below(row, "soft") for row, gain in gains.items()}
    judged = verdicts(results, "bleu", list(claims.values()))
    return [
        [
            f"BLEU of {row} {'above' if gains[row] > 0.0 else 'below'} soft's",
            f"{gains[row]:+.2f}",
            f"{operator.sub(*shared_means(results, 'bleu', row, 'soft')):+.2f}",
            judged[claim],
        ]
        for row, claim in claims.items()
        if claim in judged
    ]


def _cost_claims(results: Sequence[RowResult], step_ratios: Mapping[str, float]) -> list[list[str]]:
    """BAM's Table 8: variational attention needs more parameters and more time than Bayesian attention."""
    reference, lines = "bayesian-wc", []
    parameters = {row: summary.mean for row, summary in summarise(results, "parameters").items()}
    for place, (what, ours) in enumerate({"parameters": parameters, "time of a step": step_ratios}.items()):
        for row in ("variational-enum", "variational-sample"):
            if row in ours and reference in ours:
                ratio = ours[row] / ours[reference]
                published = BAM_COST[row][place] / BAM_COST[reference][place]
                is_more = "holds" if ratio > 1.0 else "fails"
                lines.append([f"{what} of {row} above {reference}'s", f"x {published:.2f}", f"x {ratio:.2f}", is_more])
    return lines


def _to_soft(results: Sequence[RowResult], row: str) -> str:
    """Perplexity over soft attention's, of the seeds that both have."""
    if not by_seed(results, "ppl", row) or not by_seed(results, "ppl", "soft"):
        return "-"
    return f"{operator.truediv(*shared_means(results, 'ppl', row, 'soft')):.2f}"


def _spread(summary: Summary) -> str:
    return f"{summary.mean:.2f}" + (f" ± {summary.spread:.2f}" if summary.count > 1 else "")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
