"""Plots as SVG text. matplotlib is imported when a plot is drawn, not with the package."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from probattn.viz.figure import COLOURS, colour_of, new_figure, new_grid, plain, to_svg

__all__ = [
    "AlignmentPicture",
    "alignment_plot",
    "bar_plot",
    "curve_plot",
    "interval_plot",
    "scatter_plot",
    "weights_plot",
]


@dataclass(frozen=True)
class AlignmentPicture:
    """Attention of one sentence pair.

    Attributes:
        title: Above the picture.
        source: S words, along the top.
        target: T words, along the side.
        weights: (T, S) between 0 and 1.
        gold: (source word, target word) links to mark.
    """

    title: str
    source: Sequence[str]
    target: Sequence[str]
    weights: Sequence[Sequence[float]]
    gold: Sequence[tuple[int, int]] = ()


def curve_plot(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    *,
    x: str,
    y: str,
    lowest: float | None = None,
    highest: float | None = None,
    is_log: bool = False,
) -> str:
    """Lines over a common axis, or a dot for a single point.

    What lies beyond `lowest` or `highest` is cut off, so that late differences show. Every second line is dashed, so
    that of two lines that run into each other both are seen. Values that are not finite leave gaps.

    Raises:
        ValueError: If there is no value to draw.
    """
    values = [value for points in curves.values() for _, value in points if math.isfinite(value)]
    if not values:
        raise ValueError(f"expected curves with finite values, got {len(curves)} curves without any")
    figure, axes = new_figure(8.4, 4.2)
    for number, (name, points) in enumerate(curves.items()):
        style = ("-", "--")[number % 2] if number < len(COLOURS) else ("-.", ":")[number % 2]
        marker = "o" if len(points) == 1 else ""  # one point makes no line
        places, heights = [place for place, _ in points], [height for _, height in points]
        axes.plot(places, heights, style, color=colour_of(number), label=plain(name), lw=1.7, marker=marker, ms=4)
    bottom, top = min(values) if lowest is None else lowest, max(values) if highest is None else highest
    if is_log:
        axes.set_yscale("log")
        axes.set_ylim(bottom / 1.05, top * 1.05)
        axes.yaxis.set_major_formatter("{x:.3g}")
        axes.yaxis.set_minor_formatter("{x:.3g}")
        axes.tick_params(axis="y", which="minor", labelsize=7)
    else:
        margin = 0.05 * max(top - bottom, 1e-9)
        axes.set_ylim(bottom - (margin if lowest is None else 0.0), top + (margin if highest is None else 0.0))
    axes.set(xlabel=x, ylabel=y)
    axes.legend(fontsize=9, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return to_svg(figure)


def scatter_plot(points: Mapping[str, tuple[float, float]], *, x: str, y: str) -> str:
    """Points with a legend; colour and shape together tell them apart."""
    figure, axes = new_figure(8.4, 4.6)
    for number, (name, (px, py)) in enumerate(points.items()):
        marker = "osD^v"[number // len(COLOURS) % 5]
        axes.plot(px, py, marker, color=colour_of(number), ms=6, label=plain(name))
    axes.set(xlabel=x, ylabel=y)
    axes.legend(fontsize=9, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return to_svg(figure)


def bar_plot(
    values: Mapping[str, Mapping[str, float]], *, x: str, is_log: bool = False, lowest: float | None = None
) -> str:
    """Horizontal bars from `lowest` on: one group per name, one bar per series; missing series leave a gap."""
    names = list(values)
    series = list(dict.fromkeys(key for group in values.values() for key in group))
    height = 0.8 / max(1, len(series))
    figure, axes = new_figure(8.4, 0.9 + 0.24 * len(names) * max(1, len(series)) ** 0.5)
    for j, key in enumerate(series):
        places = [i + j * height for i, name in enumerate(names) if key in values[name]]
        widths = [values[name][key] for name in names if key in values[name]]
        axes.barh(places, widths, height=height * 0.92, color=colour_of(j), label=plain(key))
    places = [i + height * (len(series) - 1) / 2 for i in range(len(names))]
    axes.set_yticks(places, [plain(name) for name in names], fontsize=8)
    # room for the whole of the first and of the last group, whichever bars they have; the first name on top
    axes.set_ylim(len(names) - 1 + height * (len(series) - 0.5) + 0.15, -height / 2 - 0.15)
    if is_log:
        axes.set_xscale("log")
    if lowest is not None:
        axes.set_xlim(left=lowest)
    axes.set(xlabel=x)
    if len(series) > 1:
        axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return to_svg(figure)


def interval_plot(series: Mapping[str, Mapping[str, tuple[float, float]]], *, x: str) -> str:
    """Points with horizontal intervals (centre, half width), one line per name, around a line at zero.

    Args:
        series: Name of the series to name of the line to interval.
        x: Label of the axis.
    """
    names = list(dict.fromkeys(name for one in series.values() for name in one))
    figure, axes = new_figure(8.4, 1.0 + 0.3 * len(names))
    axes.axvline(0.0, color="0.6", lw=1.0)
    for number, (label, intervals) in enumerate(series.items()):
        places = [names.index(name) + 0.22 * (number - (len(series) - 1) / 2) for name in intervals]
        centres, halves = [centre for centre, _ in intervals.values()], [half for _, half in intervals.values()]
        axes.errorbar(
            centres,
            places,
            xerr=halves,
            fmt="osD^"[number % 4],
            color=colour_of(number),
            ms=4,
            lw=1.2,
            label=plain(label),
        )
    axes.set_yticks(range(len(names)), [plain(name) for name in names], fontsize=8)
    axes.set_ylim(len(names) - 0.5, -0.5)  # the first name on top
    axes.set(xlabel=x)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return to_svg(figure)


def weights_plot(pictures: Mapping[str, Sequence[Sequence[float]]], gold: Sequence[int], *, columns: int = 5) -> str:
    """Heat maps of attention weights, one per name, with the right position of every row marked.

    Args:
        pictures: (T, S) weights by name.
        gold: (T) right positions.
        columns: Heat maps in a line.

    Raises:
        ValueError: If there is no picture.
    """
    if not pictures:
        raise ValueError("expected one picture or more, got none")
    lines = (len(pictures) + columns - 1) // columns
    figure, grid = new_grid(lines, columns, width=2.1 * columns, height=1.75 * lines)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, (name, weights) in zip(grid.flat, pictures.items(), strict=False):
        axes.set_axis_on()
        axes.imshow(weights, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
        axes.plot(gold, range(len(gold)), "x", color="#c2572b", ms=5)
        axes.set_title(plain(name), fontsize=8)
        axes.set_xticks([])
        axes.set_yticks([])
    figure.tight_layout()
    return to_svg(figure)


def alignment_plot(pictures: Sequence[AlignmentPicture], *, columns: int = 2) -> str:
    """Heat maps of word alignments with their words; gold links are ringed.

    Args:
        pictures: In reading order.
        columns: Pictures in a line.

    Raises:
        ValueError: If there is no picture.
    """
    if not pictures:
        raise ValueError("expected one picture or more, got none")
    lines = (len(pictures) + columns - 1) // columns
    figure, grid = new_grid(lines, columns, width=5.2 * columns, height=4.1 * lines)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, picture in zip(grid.flat, pictures, strict=False):
        axes.set_axis_on()
        axes.imshow(picture.weights, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
        axes.plot(
            [source for source, _ in picture.gold],
            [target for _, target in picture.gold],
            "o",
            ms=9,
            mfc="none",
            mec="#c2572b",
            mew=1.3,
        )
        axes.set_title(plain(picture.title), fontsize=10)
        source, target = ([plain(word) for word in words] for words in (picture.source, picture.target))
        axes.set_xticks(range(len(source)), source, rotation=40, ha="right", fontsize=9)
        axes.set_yticks(range(len(target)), target, fontsize=9)
        axes.tick_params(length=0)
    figure.tight_layout()
    return to_svg(figure)
