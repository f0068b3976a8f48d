"""Plots and pages."""

from probattn.viz.page import Section, render_page, render_table
from probattn.viz.plots import (
    AlignmentPicture,
    alignment_plot,
    bar_plot,
    curve_plot,
    interval_plot,
    scatter_plot,
    weights_plot,
)

__all__ = [
    "AlignmentPicture",
    "Section",
    "alignment_plot",
    "bar_plot",
    "curve_plot",
    "interval_plot",
    "render_page",
    "render_table",
    "scatter_plot",
    "weights_plot",
]
