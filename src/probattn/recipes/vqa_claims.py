"""The papers' claims on visual question answering, and the page of the docs with all tables of a comparison."""

from collections.abc import Sequence
from dataclasses import replace

from probattn.recipes import picture_claims
from probattn.recipes.picture_claims import CLAIMS_NOTE, POINTING_NOTE, Claim
from probattn.recipes.report import as_markdown
from probattn.recipes.results import RowResult
from probattn.recipes.vqa_tables import (
    Table,
    attention_table,
    drawn_note,
    kind_table,
    main_table,
    row_names,
    uncertainty_table,
)

__all__ = ["CLAIMS", "QUESTIONS", "claims_table", "pointing_table", "vqa_page"]

_NLL = "clean/mean/nll"
_LOST = "noise5/mean/lost_accuracy"

CLAIMS = (
    Claim("the exact marginal has a lower NLL", "marginal", "soft", _NLL, -0.07, 1.0, 3),
    Claim("variational attention has a lower NLL, enumerated", "variational-enum", "soft", _NLL, -0.07, 1.0, 3),
    Claim("variational attention, sampled, has a lower NLL", "variational-sample", "soft", _NLL, -0.01, 1.0, 3),
    Claim("hard attention, enumerated, has a higher NLL", "hard-enum", "soft", _NLL, 0.02, 1.0, 3),
    Claim("the exact marginal answers better", "marginal", "soft", "clean/mean/accuracy", 1.40),
    Claim("Weibull attention answers as well on clean features", "mcan-wc", "mcan-soft", "clean/mean/accuracy", 0.07),
    Claim("Weibull attention answers better under noise", "mcan-wc", "mcan-soft", "noise5/mean/accuracy", 1.64),
    Claim("Weibull attention has a higher PAvPU", "mcan-wc", "mcan-soft", "clean/drawn/pavpu", 1.17),
    Claim("Weibull attention has a higher PAvPU under noise", "mcan-wc", "mcan-soft", "noise5/drawn/pavpu", 1.41),
)  # fmt: skip
"""Deng et al. 2018, Table 1; BAM 2020, Table 2."""

_OURS = (
    ("accuracy under noise", "noise5/mean/accuracy", 1.64),
    ("accuracy that noise takes away", _LOST, -1.57),
    ("PAvPU", "clean/drawn/pavpu", 1.17),
    ("PAvPU under noise", "noise5/drawn/pavpu", 1.41),
    ("how well entropy finds wrong answers (AUROC)", "clean/drawn/entropy_auroc", None),
    ("how well entropy finds wrong answers under noise (AUROC)", "noise5/drawn/entropy_auroc", None),
    ("calibration error", "clean/mean/ece", None),
)
QUESTIONS = tuple(
    Claim(f"{kind}: {text}", row, "mcan-soft", metric, paper)
    for kind, row in (("Weibull attention", "mcan-wc"), ("Weibull noise and KL that act", "mcan-wc-acting"))
    for text, metric, paper in _OURS
    if (row, metric) not in {(claim.row, claim.metric) for claim in CLAIMS}
)
"""Ours: is Bayesian attention more robust, does it know when it is wrong? A paper's number is that of its BAM-WC."""


def claims_table(results: Sequence[RowResult]) -> Table:
    """The papers' claims, then questions of our own; needs two seeds or more."""
    return picture_claims.claims_table([_with_loss(result) for result in results], CLAIMS, QUESTIONS)


def pointing_table(results: Sequence[RowResult]) -> Table:
    """Weight on the regions that hold the answer, against soft attention of the same network."""
    titles = {"clean/attention/mass": "mass on gold", "clean/attention/hit": "largest on gold"}
    looking = [row for row in row_names(results) if not row.endswith("question-only")]
    rows = {
        "soft": [row for row in looking if not row.startswith("mcan")],
        "mcan-soft": [row for row in looking if row.startswith("mcan")],
    }
    return picture_claims.pointing_table(results, titles, rows=rows)


def _with_loss(result: RowResult) -> RowResult:
    """With the accuracy that noise of variance 5 takes away."""
    clean, noisy = (result.metrics.get(f"{one}/mean/accuracy") for one in ("clean", "noise5"))
    if clean is None or noisy is None:
        return result
    return replace(result, metrics={**result.metrics, _LOST: clean - noisy})


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
    parts += [f"\n**{facts['draws']} draws**\n", as_markdown(*uncertainty_table(results)), drawn_note(facts)]
    claims, pointing = claims_table(results), pointing_table(results)
    parts += ["\n**The papers' claims, and ours**\n", as_markdown(*claims), CLAIMS_NOTE] if claims[1] else []
    if pointing[1]:
        parts += ["\n**Which attention points at the right object?**\n", as_markdown(*pointing), POINTING_NOTE]
    return "\n".join(parts).rstrip("\n") + "\n"
