"""Panels: all curves are drawn, names have one colour, and the picture is the same in every run."""

import pytest

pytest.importorskip("matplotlib")

from probattn.viz.figure import COLOURS
from probattn.viz.panel_plots import Panel, panel_plot

PANELS = [
    Panel("K", "Rec", {"first": [(128, 2.0), (512, 1.0)]}, title="left", is_log=True, level=1.5),
    Panel(
        "update", "KL", {"second": [(0, 1.0), (5, 2.0)], "first": [(0, 3.0), (5, 1.0)]}, spreads={"first": [0.1, 0.2]}
    ),
]


def test_panels_share_colours_and_are_the_same_in_every_run() -> None:
    plot = panel_plot(PANELS)
    assert plot.startswith("<svg") and plot == panel_plot(PANELS)
    assert all(colour in plot for colour in COLOURS[:2]) and COLOURS[2] not in plot
    assert panel_plot(PANELS[:1]) != panel_plot([PANELS[1]])


def test_no_panels_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one panel"):
        panel_plot([])


def test_values_may_be_on_a_logarithmic_axis() -> None:
    curves = {"kl": [(1.0, 1000.0), (2.0, 0.01)]}
    assert panel_plot([Panel("epoch", "KL", curves, has_log_values=True)]) != panel_plot([Panel("epoch", "KL", curves)])
