"""Table and HTML report of a comparison."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from probattn.recipes.paired import paired_differences
from probattn.recipes.results import RowResult, Summary, summarise
from probattn.recipes.storage import write_atomically
from probattn.viz import (
    Section,
    bar_plot,
    curve_plot,
    interval_plot,
    render_page,
    render_table,
    scatter_plot,
    weights_plot,
)


@dataclass(frozen=True)
class Column:
    """A column of the table.

    Attributes:
        metric: Name in the results.
        title: Column title.
        best: "low", "high", or "" where neither is better.
        ceiling: Larger values are shown as being above it; None for no ceiling.
    """

    metric: str
    title: str
    best: str = ""
    ceiling: float | None = None

    def cell(self, value: Summary | None) -> str:
        """A value of this column as text."""
        if value is None:
            return "-"
        return str(value) if self.ceiling is None or value.mean <= self.ceiling else f"> {self.ceiling:,.0f}"


_KINDS = {"test_nll": "NLL is", "ppl_kind": "ppl is"}
"""Facts that say how the test likelihood was computed, and their column titles."""

COLUMNS = (
    Column("nll", "test NLL", "low"),
    Column("bound", "bound"),
    Column("kl", "KL"),
    Column("accuracy", "accuracy", "high"),
    Column("alignment", "alignment p", "high"),
    Column("posterior_alignment", "alignment q", "high"),
    Column("entropy", "entropy p"),
    Column("gradient_variance", "grad. variance"),
    Column("seconds", "seconds"),
)


def write_report(task: str, results: Sequence[RowResult], output: Path) -> str:
    """Write `report.html` and `table.md`; return the table and where the report is, for the terminal."""
    header, rows, best = table_cells(results, COLUMNS)
    text = render_markdown(results)
    write_atomically(output / "table.md", text)
    write_atomically(output / "report.html", _page(task, results, render_table(header, rows, best)))
    return f"{text}\nReport: {output / 'report.html'}"


def render_markdown(results: Sequence[RowResult], columns: Sequence[Column] = COLUMNS) -> str:
    """The table of a comparison as Markdown."""
    header, rows, _ = table_cells(results, columns)
    return as_markdown(header, rows)


def table_cells(
    results: Sequence[RowResult], columns: Sequence[Column], *, has_kinds: bool = True
) -> tuple[list[str], list[list[str]], list[tuple[int, int]]]:
    """Header, rows and the (row, column) places of the best values of a table.

    Where results say how their test likelihood was computed, the second column does, unless `has_kinds` is false.
    """
    names = list(dict.fromkeys(result.row for result in results))
    first = {result.row: result for result in reversed(results)}
    stated = {key for result in results for key in result.facts} if has_kinds else set()
    kinds = [(key, title) for key, title in _KINDS.items() if key in stated]
    header = ["row", *(title for _, title in kinds), *(column.title for column in columns)]
    rows = [[name, *(str(first[name].facts.get(key, "")) for key, _ in kinds)] for name in names]
    best = []
    for j, column in enumerate(columns, start=len(rows[0])):
        values = summarise(results, column.metric)
        for row, name in zip(rows, names, strict=True):
            row.append(column.cell(values.get(name)))
        if column.best and values:
            pick = min if column.best == "low" else max
            winner = pick(values, key=lambda name: values[name].mean)
            best.append((names.index(winner), j))
    return header, rows, best


def difference_sections(
    results: Sequence[RowResult], metrics: Mapping[str, str], *, baseline: str, text: str, x: str
) -> list[Section]:
    """Percentage points of every row above a baseline with the same seeds, as a plot with 95% intervals.

    Empty where no row shares two seeds with the baseline.

    Args:
        results: Of all rows and seeds.
        metrics: Names in the results, by label.
        baseline: A row.
        text: Below the heading.
        x: Label of the axis.
    """
    series = {}
    for label, metric in metrics.items():
        found = paired_differences(results, metric, baseline=baseline)
        series[label] = {row: (100.0 * one.mean, 100.0 * one.half_width) for row, one in found.items()}
    return [Section("Against plain attention", text, interval_plot(series, x=x))] if any(series.values()) else []


def as_markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that can also be read as text."""
    widths = [max(len(line[j]) for line in (header, *rows)) for j in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if j == 0 else cell.rjust(width)
            for j, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "| " + " | ".join(padded) + " |"

    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([line(header), rule, *(line(row) for row in rows)]) + "\n"


def _page(task: str, results: Sequence[RowResult], table: str) -> str:
    lead = (
        "Queries must find one of several noisy slots of a memory and name its symbol. The network, the data and "
        "the updates are the same for every row; rows differ in site, estimator and bound."
    )
    first_seed = [result for result in results if result.seed == results[0].seed]
    sections = [_table_section(results, table), _curves_section(first_seed), *_summary_sections(results)]
    pictures = Section(
        "The same example under every method",
        "One row per query, one column per slot; crosses mark the right slots. q marks inference networks.",
        weights_plot(_pictures(first_seed), first_seed[0].gold),
    )
    return render_page(f"probattn: {task}", lead, [*sections, pictures])


def _table_section(results: Sequence[RowResult], table: str) -> Section:
    facts = results[0].facts
    seeds = sorted({result.seed for result in results})
    return Section(
        "All methods",
        "Numbers are nats per query on one fixed test set, means over seeds with standard deviations. 'alignment p' is "
        "how often the largest expected weight is at the right slot when the answer is unknown, 'alignment q' the same "
        "for an inference network that has seen the answer. The bound counts every KL at weight one.",
        table,
        f"Seeds {seeds}, {facts.get('updates')} updates, KL: {facts.get('kl_reduction')}. 'NLL is' says how the test "
        "likelihood was computed: exact by enumeration, plug-in for deterministic weights, Monte Carlo with 32 draws.",
    )


def _curves_section(results: Sequence[RowResult]) -> Section:
    curves = {result.row: result.curve for result in results}
    return Section(
        "Training",
        "Bound on the training batches. Rows with different bounds are not on one scale: a hard or variational bound "
        "lies below the likelihood it bounds.",
        curve_plot(curves, x="update", y="bound (nats per query)", lowest=-3.5),
    )


def _summary_sections(results: Sequence[RowResult]) -> list[Section]:
    alignment = _groups(results, {"alignment": "p", "posterior_alignment": "q"})
    variance = _groups(results, {"gradient_variance": "variance"}, positive=True)
    sections = [
        Section(
            "Likelihood against entropy of the alignment",
            "How peaked the expected weights are, and how well the answer is predicted.",
            scatter_plot(_pairs(results, "entropy", "nll"), x="entropy of the expected weights (nats)", y="test NLL"),
        ),
        Section(
            "Prior and posterior alignment",
            "How often the largest weight is at the right slot, before (p) and after (q) the answer is seen.",
            bar_plot(alignment, x="share at the right slot", lowest=0.8),
        ),
    ]
    if variance:
        sections.append(
            Section(
                "Noise of the gradient estimators",
                "Trace of the covariance of the gradient over 20 repetitions, at the trained weights. Deterministic "
                "rows are left out.",
                bar_plot(variance, x="variance", is_log=True),
            )
        )
    return sections


def _pairs(results: Sequence[RowResult], x: str, y: str) -> dict[str, tuple[float, float]]:
    xs, ys = summarise(results, x), summarise(results, y)
    return {name: (xs[name].mean, ys[name].mean) for name in xs if name in ys}


def _groups(
    results: Sequence[RowResult], metrics: dict[str, str], *, positive: bool = False
) -> dict[str, dict[str, float]]:
    groups: dict[str, dict[str, float]] = {}
    for metric, label in metrics.items():
        for name, summary in summarise(results, metric).items():
            if math.isfinite(summary.mean) and (summary.mean > 0 or not positive):
                groups.setdefault(name, {})[label] = summary.mean
    return groups


def _pictures(results: Sequence[RowResult]) -> dict[str, Sequence[Sequence[float]]]:
    pictures: dict[str, Sequence[Sequence[float]]] = {}
    for result in results:
        for kind, weights in result.pictures.items():
            pictures[result.row if kind == "p" else f"{result.row} ({kind})"] = weights
    return pictures
