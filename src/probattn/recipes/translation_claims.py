"""The papers' numbers on translation, and what became of their claims on another corpus.

Numbers of Deng et al. 2018 are those of Table 1 and Table 3 (IWSLT14 de-en, exact test perplexity, BLEU, entropy of the
attention), those of BAM 2020 of Sec. 4.4. They are not reproduced digit by digit here (another corpus, a smaller
network), so claims are compared as ratios and orders.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from probattn.recipes.report import as_markdown
from probattn.recipes.results import RowResult, Summary, summarise, verdict


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

ENTROPY_ORDER = ("hard-enum", "variational-enum", "marginal", "soft", "relaxed-dirichlet")


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
        "step / soft",
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
                _ratio(ppl.mean, ours["ppl"].get("soft")),
                _number(paper.ppl),
                "-" if paper.ppl is None else f"{paper.ppl / SOFT_PPL:.2f}",
                _spread(ours["bleu"][row]),
                _number(paper.bleu),
                _spread(ours["entropy"][row]),
                _number(paper.entropy),
                f"{ours['parameters'][row].mean / 1e6:.2f}M",
                f"{step_ratios[row]:.1f}" if row in step_ratios else "-",
            ]
        )
    return as_markdown(header, rows)


def claims_table(results: Sequence[RowResult]) -> str:
    """Each claim with the paper's figure, ours, and a verdict, as Markdown; claims without results are left out.

    Empty where there are results of one row only.
    """
    lines = [*_ppl_claims(results), *_entropy_claims(results), *_bleu_claims(results)]
    return as_markdown(["claim", "paper", "here", "verdict"], lines) if lines else ""


def _ppl_claims(results: Sequence[RowResult]) -> list[list[str]]:
    ppl = summarise(results, "ppl")
    soft = ppl.get("soft")
    lines = []
    for row in ("marginal", "variational-enum", "variational-sample", "hard-enum", "hard-sample", "relaxed-dirichlet"):
        if soft is None or row not in ppl:
            continue
        is_lower = row.startswith(("marginal", "variational"))
        sign = 1.0 if is_lower else -1.0
        paper = DENG[row].ppl or math.nan
        lines.append(
            [
                f"perplexity of {row} {'below' if is_lower else 'above'} soft's",
                f"x {paper / SOFT_PPL:.2f}",
                f"x {ppl[row].mean / soft.mean:.2f}",
                verdict(sign * (ppl[row].mean - soft.mean), ppl[row], soft),
            ]
        )
    return lines


def _entropy_claims(results: Sequence[RowResult]) -> list[list[str]]:
    entropy = summarise(results, "entropy")
    lines = []
    for low, high in pairwise(ENTROPY_ORDER):
        if low in entropy and high in entropy:
            lines.append(
                [
                    f"entropy: {low} < {high}",
                    f"{_number(DENG[low].entropy)} < {_number(DENG[high].entropy)}",
                    f"{entropy[low].mean:.2f}, {entropy[high].mean:.2f}",
                    verdict(entropy[low].mean - entropy[high].mean, entropy[low], entropy[high]),
                ]
            )
    return lines


def _bleu_claims(results: Sequence[RowResult]) -> list[list[str]]:
    bleu = summarise(results, "bleu")
    lines = []
    for row, papers in (("marginal", DENG), ("variational-enum", DENG), ("bayesian-wc", BAM)):
        if row in bleu and "soft" in bleu:
            gain = (papers[row].bleu or math.nan) - (papers["soft"].bleu or math.nan)
            lines.append(
                [
                    f"BLEU of {row} above soft's",
                    f"{gain:+.2f}",
                    f"{bleu[row].mean - bleu['soft'].mean:+.2f}",
                    verdict(bleu["soft"].mean - bleu[row].mean, bleu["soft"], bleu[row]),
                ]
            )
    return lines


def _ratio(value: float, reference: Summary | None) -> str:
    return "-" if reference is None else f"{value / reference.mean:.2f}"


def _spread(summary: Summary) -> str:
    return f"{summary.mean:.2f}" + (f" ± {summary.spread:.2f}" if summary.count > 1 else "")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
