"""Plots: valid SVG, the same text for the same numbers."""

import xml.etree.ElementTree as ElementTree

import pytest

from probattn.viz import (
    AlignmentPicture,
    alignment_plot,
    bar_plot,
    curve_plot,
    interval_plot,
    scatter_plot,
    weights_plot,
)
from probattn.viz.figure import COLOURS

PLOTS = {
    "curve": lambda: curve_plot({"a": [(0, 1.0), (1, 2.0)], "b": [(0, -1e7), (1, 0.5)]}, x="x", y="y", lowest=-3.0),
    "log curve": lambda: curve_plot({"a": [(0, 90.0), (1, 6.0)]}, x="x", y="y", highest=30.0, is_log=True),
    "alignment": lambda: alignment_plot(
        [AlignmentPicture("t", ["ein", "Hund"], ["a", "dog"], [[0.9, 0.1], [0.2, 0.8]], [(0, 0), (1, 1)])]
    ),
    "intervals": lambda: interval_plot({"s": {"a": (0.1, 0.2), "b": (-0.3, 0.1)}}, x="difference"),
    "scatter": lambda: scatter_plot({str(i): (float(i), 1.0) for i in range(20)}, x="x", y="y"),
    "bars": lambda: bar_plot({"a": {"p": 0.5, "q": 0.9}, "b": {"p": 0.7}}, x="share", lowest=0.2),
    "log bars": lambda: bar_plot({"a": {"v": 1e-4}, "b": {"v": 10.0}}, x="variance", is_log=True),
    "weights": lambda: weights_plot({"a": [[0.1, 0.9], [1.0, 0.0]], "b": [[0.5, 0.5], [0.2, 0.8]]}, [1, 0]),
}


@pytest.mark.parametrize("name", PLOTS)
def test_plot_is_valid_svg_and_reproducible(name: str) -> None:
    first = PLOTS[name]()
    assert ElementTree.fromstring(first).tag.endswith("svg")
    assert PLOTS[name]() == first


def test_a_single_point_is_a_dot() -> None:
    dot, line = (curve_plot({"a": points}, x="x", y="y") for points in ([(1, 2.0)], [(1, 2.0), (2, 2.0)]))
    assert f"fill: {COLOURS[0]}" in dot and f"fill: {COLOURS[0]}" not in line


def test_nine_series_and_more_are_drawn() -> None:
    many = {str(number): 1.0 + number for number in range(11)}
    assert ElementTree.fromstring(bar_plot({"a": many}, x="x")).tag.endswith("svg")
    intervals = interval_plot({name: {"a": (value, 0.1)} for name, value in many.items()}, x="x")
    assert ElementTree.fromstring(intervals).tag.endswith("svg")


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
@pytest.mark.parametrize("is_log", [False, True])
def test_a_run_that_diverged_is_drawn_as_far_as_it_went(odd: float, is_log: bool) -> None:
    drawn = curve_plot({"a": [(0, odd), (1, 2.0), (2, odd)], "b": []}, x="x", y="y", is_log=is_log)
    assert ElementTree.fromstring(drawn).tag.endswith("svg")


def test_nothing_to_draw_is_told() -> None:
    for nothing in ({}, {"a": []}, {"a": [(0, float("nan"))]}):
        with pytest.raises(ValueError, match="expected curves with finite values"):
            curve_plot(nothing, x="x", y="y")
    for made in (lambda: weights_plot({}, []), lambda: alignment_plot([])):
        with pytest.raises(ValueError, match="expected one picture or more, got none"):
            made()


def test_dollars_are_no_formulas() -> None:
    text = "it cost $5 and not \\$6 {but} $7_"
    bar_plot({text: {text: 1.0}, "b": {"c": 2.0}}, x="x")
    alignment_plot([AlignmentPicture(text, [text, "$"], [text], [[0.9, 0.1]])])
    curve_plot({text: [(0, 1.0)]}, x="x", y="y")


def test_the_users_backend_and_figures_are_left_alone() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    import matplotlib

    before = matplotlib.get_backend()
    try:
        matplotlib.use("svg")
        for plot in PLOTS.values():
            plot()
        assert matplotlib.get_backend() == "svg" and not pyplot.get_fignums()
    finally:
        matplotlib.use(before)
