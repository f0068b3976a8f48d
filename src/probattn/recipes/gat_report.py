"""Table and HTML report of a comparison of graph attention."""

from collections.abc import Sequence
from pathlib import Path

from probattn.recipes.gat_tables import (
    BASELINE,
    CHECKPOINT_RULES,
    accuracy_table,
    calibration_table,
    difference_table,
    gradient_table,
    uncertainty_table,
)
from probattn.recipes.report import as_markdown, difference_sections
from probattn.recipes.results import RowResult, summarise
from probattn.recipes.storage import write_atomically
from probattn.viz import Section, bar_plot, curve_plot, render_page, render_table

__all__ = ["write_report"]

_ACCURACY = (
    "Test accuracy in percent, mean and standard error over seeds, with plug-in weights, under two rules for choosing "
    "the epoch: GAT's own (validation loss and accuracy both at least as good as ever) and the lowest validation loss. "
    "Differences are paired by seed, p-values are of a two-sided t-test, 'Holm p' is adjusted for the number of rows."
)
_CALIBRATION = (
    "Plug-in predictions at the lowest validation loss; ECE with 15 bins, in percent. 'scaled': after one temperature "
    "fitted on the validation nodes. 'noisy': a share of the test-time feature entries is that of other nodes."
)
_UNCERTAINTY = (
    "The mean over draws, at the lowest validation loss; 'on' says what was random: dropout masks, attention noise, or "
    "both. AUROC: how well predictive entropy or mutual information tells wrong from right predictions. PAvPU: share "
    "of predictions that are right and certain, or wrong and uncertain; certain means p < 0.05 in a t-test of the two "
    "best classes: with independent samples as in the paper, or paired, and with the accuracy of plug-in weights, as "
    "in its code."
)
_GRADIENT = (
    "How much the KL can do: the norm of its weighted gradient over that of the likelihood, on the parameters that "
    "both reach; the median up to the lowest validation loss. 'through scores' is what regularises attention; "
    "'through keys' goes through a contextual prior into the shared projection."
)


def write_report(task: str, results: Sequence[RowResult], output: Path) -> str:
    """Write `report.html` and `table.md`; return the main table and where the report is, for the terminal."""
    main = as_markdown(*accuracy_table(results))
    gradients = gradient_table(results)
    tables = [main, as_markdown(*calibration_table(results)), as_markdown(*uncertainty_table(results))]
    differences = difference_table(results)
    tables += [as_markdown(*differences)] if differences[1] else []
    tables += [as_markdown(*gradients)] if gradients[1] else []
    write_atomically(output / "table.md", "\n".join(tables))
    write_atomically(output / "report.html", _page(task, results))
    return f"{main}\nReport: {output / 'report.html'}"


def _page(task: str, results: Sequence[RowResult]) -> str:
    facts = results[0].facts
    seeds = sorted({result.seed for result in results})
    lead = (
        f"Node classification on {facts['graph']} with {facts['train_nodes']} labelled nodes; seeds {seeds[0]} to "
        f"{seeds[-1]}. Network, optimiser and early stopping are the same for all rows; rows differ in the "
        "distribution of the attention weights, its prior and the weight of the KL."
    )
    sections = [Section("Accuracy", _ACCURACY, render_table(*accuracy_table(results)))]
    sections += _differences(results)
    sections.append(Section("Calibration", _CALIBRATION, render_table(*calibration_table(results))))
    differences = difference_table(results)
    if differences[1]:
        text = "Paired by seed, with p-values of a t-test; * where Holm's adjustment for the rows leaves p < 0.05."
        sections.append(Section("Calibration against plain attention", text, render_table(*differences)))
    sections.append(
        Section(
            "Uncertainty",
            _UNCERTAINTY,
            render_table(*uncertainty_table(results)),
            f"{facts['draws']} draws; {facts['feature_noise']:.0%} of the feature entries replaced under noise.",
        )
    )
    gradients = gradient_table(results)
    if gradients[1]:
        sections.append(Section("What the KL does", _GRADIENT, render_table(*gradients) + _gradient_bars(results)))
    curves = {result.row: result.curve for result in results if result.seed == seeds[0]}
    sections.append(
        Section("Training", "First seed.", curve_plot(curves, x="epoch", y="validation NLL (nats per node)"))
    )
    return render_page(f"probattn: {task}, {facts['graph']}", lead, sections)


def _differences(results: Sequence[RowResult]) -> list[Section]:
    return difference_sections(
        results,
        {label: f"{rule}/clean/mean/accuracy" for rule, label in CHECKPOINT_RULES.items()},
        baseline=BASELINE,
        text="Points of accuracy above plain graph attention with the same seeds; bars are 95% intervals. A row that "
        "wins under one rule only does not win.",
        x=f"accuracy minus {BASELINE} (points)",
    )


def _gradient_bars(results: Sequence[RowResult]) -> str:
    values: dict[str, dict[str, float]] = {}
    for metric, label in (("kl_gradient_scores", "through scores"), ("kl_gradient_keys", "through keys")):
        for row, summary in summarise(results, metric).items():
            if summary.mean > 0.0:
                values.setdefault(row, {})[label] = summary.mean
    return bar_plot(values, x="KL gradient / likelihood gradient", is_log=True) if values else ""
