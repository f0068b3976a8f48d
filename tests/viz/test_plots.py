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
