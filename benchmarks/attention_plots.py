"""Plots of the attention benchmark as SVG text, from its JSON record: time and memory over n, both axes logarithmic."""

from collections.abc import Mapping
from typing import Any

from probattn.viz.figure import COLOURS, new_figure, to_svg

__all__ = ["attention_plots"]

Curves = Mapping[str, list[tuple[int, float]]]

_TIME = ("Train step, full", "Train step, causal")
_MEMORY = ("Forward, full", "Train step, full")


def attention_plots(record: Mapping[str, Any]) -> dict[str, str]:
    """SVG by name of the file."""
    return {
        "bench_attention_time": _plot(record, _TIME, "seconds", "seconds of processor time"),
        "bench_attention_memory": _plot(record, _MEMORY, "megabytes", "peak MB of tensors"),
    }


def _plot(record: Mapping[str, Any], titles: tuple[str, ...], quantity: str, label: str) -> str:
    """One panel a table, side by side on a common axis."""
    figure, grid = new_figure(9.6, 4.2, columns=len(titles), sharey=True)
    tables = {table["title"]: table for table in record["tables"]}
    for axes, title in zip(grid[0], titles, strict=True):
        for number, (name, points) in enumerate(_curves(tables[title], quantity).items()):
            axes.plot(
                *zip(*points, strict=True), "o-", color=COLOURS[number % len(COLOURS)], label=name, lw=1.3, ms=3.5
            )
        _guides(axes, _curves(tables[title], quantity))
        lengths = tables[title]["lengths"]
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(lengths, [str(n) for n in lengths], fontsize=8)
        axes.set_title(title, fontsize=10)
        axes.set(xlabel="n")
    grid[0][0].set(ylabel=label)
    grid[0][-1].legend(fontsize=7.5, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return to_svg(figure)


def _curves(table: Mapping[str, Any], quantity: str) -> Curves:
    return {row["name"]: [(int(n), cell[quantity]) for n, cell in row["cells"].items()] for row in table["rows"]}


def _guides(axes: Any, curves: Curves) -> None:
    """Slopes to compare with: proportional to n and to its square, from the end of the reference on backwards."""
    (end, top), start = next(iter(curves.values()))[-1], next(iter(curves.values()))[0][0]
    for power, style in ((1, ":"), (2, "--")):
        values = [top * (n / end) ** power for n in (start, end)]
        axes.plot([start, end], values, style, color="0.6", lw=0.9, zorder=0, label=f"∝ n{'²' if power == 2 else ''}")
