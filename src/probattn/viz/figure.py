"""What all plots share: colours, an empty figure, SVG text. matplotlib is imported when a plot is drawn."""

import io
from typing import Any

__all__ = ["COLOURS", "colour_of", "new_figure", "new_grid", "plain", "to_svg"]

COLOURS = ("#2f5d9b", "#c2572b", "#3a8a5c", "#8b4fa0", "#a3812a", "#3f8f9e", "#b03a5b", "#5f6b7a")


def colour_of(number: int) -> str:
    """Of a series; they come again after the last."""
    return COLOURS[number % len(COLOURS)]


def plain(text: str) -> str:
    """Text that is shown as it stands: between two dollar signs matplotlib would read a formula."""
    return text.replace("$", r"\$")


def new_grid(lines: int, columns: int, *, width: float, height: float, **options: Any) -> tuple[Any, Any]:
    """A matplotlib figure and its axes, (lines, columns). No backend is chosen, and none that is there is touched.

    Args:
        lines: Of axes.
        columns: Of axes.
        width: In inches.
        height: In inches.
        **options: For `matplotlib.figure.Figure.subplots`.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need matplotlib; install it with: pip install 'probattn[viz]'") from error

    figure = Figure(figsize=(width, height))
    return figure, figure.subplots(lines, columns, squeeze=False, **options)


def new_figure(width: float, height: float, *, lines: int = 1, columns: int = 1, **options: Any) -> tuple[Any, Any]:
    """A matplotlib figure and its axes; an array of them, (lines, columns), where there are several.

    Args:
        width: In inches.
        height: In inches.
        lines: Of axes.
        columns: Of axes.
        **options: For `matplotlib.figure.Figure.subplots`.
    """
    figure, grid = new_grid(lines, columns, width=width, height=height, **options)
    for axes in grid.flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.set_axisbelow(True)
    return figure, grid[0, 0] if lines == columns == 1 else grid


def to_svg(figure: Any) -> str:
    """The figure as SVG text, which is the same in every run."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "probattn", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
