"""Several small plots in one picture, with one legend."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from probattn.viz.figure import COLOURS, colour_of, new_figure, plain, to_svg

__all__ = ["Panel", "panel_plot"]


@dataclass(frozen=True)
class Panel:
    """One of the plots.

    Attributes:
        x: Label of the horizontal axis.
        y: Label of the vertical axis.
        curves: Points by name; the same name has the same colour in all panels.
        title: Above it.
        is_log: Whether the horizontal axis is logarithmic, with a tick at every point.
        has_log_values: Whether the vertical axis is logarithmic; values are above zero.
        level: A horizontal line, e.g. what is to be beaten.
        spreads: Half widths of error bars, by name and point.
        has_markers: Whether points are marked; better not where there are many.
    """

    x: str
    y: str
    curves: Mapping[str, Sequence[tuple[float, float]]]
    title: str = ""
    is_log: bool = False
    has_log_values: bool = False
    level: float | None = None
    spreads: Mapping[str, Sequence[float]] = field(default_factory=dict)
    has_markers: bool = True


def panel_plot(panels: Sequence[Panel], *, columns: int = 3) -> str:
    """The panels in reading order.

    Args:
        panels: At least one.
        columns: Panels in a line.
    """
    if not panels:
        raise ValueError("panel_plot needs at least one panel, got none")
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    columns = min(columns, len(panels))
    lines = (len(panels) + columns - 1) // columns
    figure, grid = new_figure(3.6 * columns, 2.9 * lines, lines=lines, columns=columns)
    places = [grid] if lines == columns == 1 else list(grid.flat)
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    for axes, panel in zip(places, panels, strict=False):
        for name, points in panel.curves.items():
            number = names.index(name)
            style = {"color": colour_of(number), "lw": 1.3, "ms": 3.5, "label": plain(name)}
            marker = ("osD^v"[number // len(COLOURS) % 5] if panel.has_markers else "") + "-"
            axes.errorbar(*zip(*points, strict=True), yerr=panel.spreads.get(name), fmt=marker, **style)
        if panel.level is not None:
            axes.axhline(panel.level, color="0.5", lw=1.0, ls="--")
        if panel.is_log:
            ticks = sorted({point[0] for points in panel.curves.values() for point in points})
            axes.set_xscale("log")
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.minorticks_off()
        if panel.has_log_values:
            axes.set_yscale("log")
        axes.set(xlabel=panel.x, ylabel=panel.y, title=panel.title)
        axes.title.set_fontsize(9)
        axes.tick_params(labelsize=8)
    figure.tight_layout()
    if len(names) > 1:
        handles: dict[str, Any] = {}
        for axes in places[: len(panels)]:
            handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        order = [handles[name] for name in names]
        figure.legend(order, names, fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return to_svg(figure)
