"""The papers' claims on visual question answering, and the page of the docs with all tables of a comparison."""

from collections.abc import Sequence
from dataclasses import dataclass

from probattn.recipes.paired import PairedDifference, paired_differences
from probattn.recipes.report import as_markdown
from probattn.recipes.results import RowResult
from probattn.recipes.vqa_tables import Table, attention_table, kind_table, main_table, uncertainty_table

__all__ = ["claims_table", "vqa_page"]

_LEVEL = 0.05
_NLL = "clean/mean/nll"


@dataclass(frozen=True)
class Claim:
    """A difference that a paper reports.

    Attributes:
        text: What is claimed.
        row: Which row,
        baseline: against which.
        metric: Of the results.
        paper: The paper's difference, in our units.
        scale: From our units to the table's.
    """

    text: str
    row: str
    baseline: str
    metric: str
    paper: float
    scale: float = 100.0


CLAIMS = (
    Claim("the exact marginal has a lower NLL", "marginal", "soft", _NLL, -0.07, 1.0),
    Claim("variational attention has a lower NLL, enumerated", "variational-enum", "soft", _NLL, -0.07, 1.0),
    Claim("variational attention, sampled, has a lower NLL", "variational-sample", "soft", _NLL, -0.01, 1.0),
    Claim("hard attention, enumerated, has a higher NLL", "hard-enum", "soft", _NLL, 0.02, 1.0),
    Claim("the exact marginal answers better", "marginal", "soft", "clean/mean/accuracy", 1.40),
    Claim("Weibull attention answers as well on clean features", "mcan-wc", "mcan-soft", "clean/mean/accuracy", 0.07),
    Claim("Weibull attention answers better under noise", "mcan-wc", "mcan-soft", "noise5/mean/accuracy", 1.64),
    Claim("Weibull attention has a higher PAvPU", "mcan-wc", "mcan-soft", "clean/drawn/pavpu", 1.17),
    Claim("Weibull attention has a higher PAvPU under noise", "mcan-wc", "mcan-soft", "noise5/drawn/pavpu", 1.41),
    Claim("the same with noise and KL that act: accuracy under noise", "mcan-wc-acting", "mcan-soft",
          "noise5/mean/accuracy", 1.64),
    Claim("the same with noise and KL that act: PAvPU under noise", "mcan-wc-acting", "mcan-soft",
          "noise5/drawn/pavpu", 1.41),
)  # fmt: skip
"""Deng et al. 2018, Table 1; BAM 2020, Table 2."""


def claims_table(results: Sequence[RowResult]) -> Table:
    """Each claim with the paper's difference, ours paired by seed, and a verdict; needs two seeds or more."""
    rows = []
    for claim in CLAIMS:
        found = paired_differences(results, claim.metric, baseline=claim.baseline).get(claim.row)
        if found is not None:
            digits = 3 if claim.scale == 1.0 else 2
            name = f"{claim.row} minus {claim.baseline}, {claim.metric}"
            cells = [f"{claim.paper:+.2f}", found.text(digits, claim.scale), verdict(claim, found)]
            rows.append([claim.text, name, *cells])
    return ["claim", "difference", "paper", "ours", "verdict"], rows


def verdict(claim: Claim, found: PairedDifference) -> str:
    """Whether our difference has the paper's sign, and is told from none at the 5% level."""
    if not found.p_value < _LEVEL:
        return "no difference seen"
    return "as in the paper" if (found.mean > 0.0) == (claim.paper > 0.0) else "the other way round"


def vqa_page(scale: str, results: Sequence[RowResult]) -> str:
    """All tables of a comparison, as Markdown."""
    if not results:
        return f"No results on {scale} yet.\n"
    facts = results[0].facts
    seeds = max(result.seed for result in results) + 1
    unknown = 100.0 * results[0].metrics["unknown_answers"]
    note = (
        f"{facts['train_questions']} training and {facts['test_questions']} test questions, {facts['answers']} "
        f"answers, {facts['epochs']} epochs ({facts['updates']} updates) for every row; percent but for the NLL, mean "
        f"and standard error over seeds. {unknown:.1f} % of the test questions have an answer that training never saw: "
        "they count as wrong, and the NLL is that of the others. 'paper' is VQA 2.0. Made by "
        f"`probattn compare vqa --scale {scale} --num_seeds {seeds} --output results/vqa_{scale}`."
    )
    parts = [as_markdown(*main_table(results)), note, "\n**By type of answer**\n", as_markdown(*kind_table(results))]
    parts += ["\n**Attention over regions**\n", as_markdown(*attention_table(results))]
    parts += [f"\n**{facts['draws']} draws**\n", as_markdown(*uncertainty_table(results))]
    claims = claims_table(results)
    parts += ["\n**The papers' claims**\n", as_markdown(*claims)] if claims[1] else []
    return "\n".join(parts).rstrip("\n") + "\n"
