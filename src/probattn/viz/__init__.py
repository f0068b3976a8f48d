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
from probattn.viz.uncertainty_plots import reliability_plot, risk_coverage_plot

__all__ = [
    "AlignmentPicture",
    "Section",
    "alignment_plot",
    "bar_plot",
    "curve_plot",
    "interval_plot",
    "reliability_plot",
    "render_page",
    "render_table",
    "risk_coverage_plot",
    "scatter_plot",
    "weights_plot",
]
