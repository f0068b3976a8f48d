"""Table and HTML report of a comparison of fine-tuned transformers."""

from collections.abc import Sequence
from pathlib import Path

from probattn.recipes.glue_gains import STAR, gain_table, published_comparison
from probattn.recipes.glue_tables import BASELINE, calibration_table, kl_table, main_table, uncertainty_table
from probattn.recipes.report import as_markdown, difference_sections
from probattn.recipes.results import RowResult
from probattn.recipes.storage import write_atomically
from probattn.viz import Section, curve_plot, render_page, render_table

__all__ = ["write_report"]

_MAIN = (
    "The task's metric in percent on the test set after the last epoch, mean and standard error over seeds, with "
    "plug-in weights. Differences are paired by seed, p-values are of a two-sided t-test, 'Holm p' is adjusted for the "
    "number of rows. 'paper' is another network on another test set: compare its differences, not its numbers."
)
_CALIBRATION = (
    "Plug-in predictions of the whole test set; ECE with 15 bins, in percent. 'scaled': after one temperature fitted "
    "on the validation set. 'corrupted': a share of the words has a typo or is left out. The NLL of scores is that of "
    "a Gaussian whose variance is the mean squared error on the validation set. That of answers is of all right spans "
    "together, and their ECE that of the best span's probability as a forecast of an exact match."
)
_UNCERTAINTY = (
    "The mean over draws; 'on' says what was random: nothing, dropout masks, attention noise, or both, on the same "
    "examples. AUROC, AUPR: how well predictive entropy, mutual information or the spread of scores tells wrong from "
    "right predictions (AUPR of chance is the share of wrong ones); risk area: mean share of errors over all "
    "coverages, in percent, lower is better; a score is wrong if it is off by more than one point, an answer "
    "if it is no exact match. PAvPU: share of predictions that are right and certain, or wrong and uncertain; certain "
    "means p < 0.05 in a t-test of the two best classes or spans, with independent samples as in the paper, or paired "
    "as in its code."
)
_GAINS = (
    "The mean over draws minus the plain prediction of the same model on the same examples, mean and standard error "
    f"over seeds; 'temperature' is the plain prediction after scaling, without draws. {STAR}."
)
_PUBLISHED_COMPARISON = (
    "As the paper compares: random weights with draws of noise and dropout against plain attention with draws of "
    f"dropout, by seed. {STAR}."
)
_KL = (
    "Nats per attention weight, and the norm of the weighted KL's gradient over that of the likelihood, on the "
    "parameters that both reach: the median over training, and the largest."
)


def write_report(task: str, results: Sequence[RowResult], output: Path) -> str:
    """Write `report.html` and `table.md`; return the main table and where the report is, for the terminal."""
    main = as_markdown(*main_table(results))
    kl = kl_table(results)
    tables = [main, as_markdown(*calibration_table(results)), as_markdown(*uncertainty_table(results))]
    tables += [as_markdown(*table) for table in (gain_table(results), published_comparison(results), kl) if table[1]]
    write_atomically(output / "table.md", "\n".join(tables))
    write_atomically(output / "report.html", _page(task, results))
    return f"{main}\nReport: {output / 'report.html'}"


def _page(task: str, results: Sequence[RowResult]) -> str:
    facts = results[0].facts
    seeds = sorted({result.seed for result in results})
    lead = (
        f"{facts['encoder']} fine-tuned on {facts['task']} with {facts['train_examples']} examples for "
        f"{facts['epochs']} epochs; seeds {seeds[0]} to {seeds[-1]}. Network, new weights, order of the examples and "
        "optimiser are the same for all rows; rows differ in the distribution of the attention weights and its prior."
    )
    sections = [Section("Test set", _MAIN, render_table(*main_table(results)))]
    sections += _differences(results)
    sections.append(Section("Calibration", _CALIBRATION, render_table(*calibration_table(results))))
    note = f"{facts['draws']} draws for {facts['drawn_examples']} of {facts['test_examples']} test examples; "
    note += f"{facts['corruption']:.0%} of the words are hit in the corrupted condition."
    sections.append(Section("Uncertainty", _UNCERTAINTY, render_table(*uncertainty_table(results)), note))
    further = {
        "What draws change": (_GAINS, gain_table(results)),
        "The paper's comparison": (_PUBLISHED_COMPARISON, published_comparison(results)),
        "What the KL does": (_KL, kl_table(results)),
    }
    sections += [Section(title, text, render_table(*table)) for title, (text, table) in further.items() if table[1]]
    curves = {result.row: result.curve for result in results if result.seed == seeds[0]}
    if any(curves.values()):  # a row may have diverged in its first update
        plot = curve_plot(curves, x="update", y="loss without KL")
        sections.append(Section("Training", "First seed, single batches.", plot))
    return render_page(f"probattn: {task}, {facts['task']}", lead, sections)


def _differences(results: Sequence[RowResult]) -> list[Section]:
    metric = str(results[0].facts["metric"])
    return difference_sections(
        results,
        {condition: f"{condition}/mean/{metric}" for condition in ("clean", "corrupted")},
        baseline=BASELINE,
        text="Points above plain attention with the same seeds; bars are 95% intervals.",
        x=f"{metric} minus {BASELINE} (points)",
    )
