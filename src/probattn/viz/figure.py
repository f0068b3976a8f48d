"""What all plots share: colours, an empty figure, SVG text. matplotlib is imported when a plot is drawn."""

import io
from typing import Any

__all__ = ["COLOURS", "new_figure", "to_svg"]

COLOURS = ("#2f5d9b", "#c2572b", "#3a8a5c", "#8b4fa0", "#a3812a", "#3f8f9e", "#b03a5b", "#5f6b7a")


def new_figure(width: float, height: float, *, lines: int = 1, columns: int = 1, **options: Any) -> tuple[Any, Any]:
    """A matplotlib figure and its axes; an array of them, (lines, columns), where there are several.

    Args:
        width: In inches.
        height: In inches.
        lines: Of axes.
        columns: Of axes.
        **options: For `matplotlib.pyplot.subplots`.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(lines, columns, figsize=(width, height), squeeze=False, **options)
    for axes in grid.flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.set_axisbelow(True)
    return figure, grid[0, 0] if lines == columns == 1 else grid


def to_svg(figure: Any) -> str:
    """The figure as SVG text, which is the same in every run; the figure is closed."""
    import matplotlib
    import matplotlib.pyplot as plt

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "probattn", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    text = buffer.getvalue()
    return text[text.index("<svg") :]
