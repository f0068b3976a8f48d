"""Plots of calibration and abstention: valid SVG, and the numbers that are in them."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from typing import Any

import pytest
import torch

from probattn import metrics
from probattn.viz import reliability_plot, risk_coverage_plot, uncertainty_plots

PROBS = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.3, 0.7], [0.4, 0.6]])
LABELS = torch.tensor([0, 1, 1, 1])
BINS = metrics.reliability_bins(PROBS, LABELS)
CURVE = metrics.risk_coverage(torch.tensor([0.1, 0.9, 0.4, 0.3]), torch.tensor([False, True, False, True]))


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that were drawn, to look into."""
    drawn: list[Any] = []
    original: Callable[[Any], str] = uncertainty_plots.to_svg
    monkeypatch.setattr(uncertainty_plots, "to_svg", lambda figure: (drawn.append(figure), original(figure))[1])
    return drawn


@pytest.mark.parametrize("names", ["a", "abc"])
def test_plots_are_valid_svg_and_reproducible(names: str) -> None:
    for plot, one in ((reliability_plot, BINS), (risk_coverage_plot, CURVE)):
        text = plot(dict.fromkeys(names, one))
        assert ElementTree.fromstring(text).tag.endswith("svg")
        assert plot(dict.fromkeys(names, one)) == text


def test_the_calibration_error_of_the_title_is_that_of_the_metric(figures: list[Any]) -> None:
    reliability_plot({"model": BINS})
    error = metrics.expected_calibration_error(PROBS, LABELS)
    upper, lower = figures[0].axes
    assert upper.get_title() == f"model\ncalibration error {error:.3f}"
    assert [bar.get_height() for bar in upper.patches] == BINS.accuracy[BINS.count > 0].tolist()
    assert sum(bar.get_height() for bar in lower.patches) == pytest.approx(1.0)


def test_curves_have_their_points_and_their_area(figures: list[Any]) -> None:
    risk_coverage_plot({"model": CURVE})
    (line,) = figures[0].axes[0].lines
    assert list(line.get_xdata()) == CURVE.coverage.tolist() and list(line.get_ydata()) == CURVE.risk.tolist()
    assert line.get_label() == f"model (area {CURVE.area:.4f})"


@pytest.mark.parametrize("examples", [399, 400, 401, 1000, 4321])
def test_long_curves_are_thinned_and_keep_their_ends(figures: list[Any], examples: int) -> None:
    is_wrong = torch.rand(examples) < 0.3
    curve = metrics.risk_coverage(torch.rand(examples), is_wrong)
    risk_coverage_plot({"model": curve})
    (line,) = figures[0].axes[0].lines
    assert len(line.get_xdata()) <= 401
    assert line.get_xdata()[0] == pytest.approx(1.0 / examples) and line.get_xdata()[-1] == 1.0
    assert line.get_ydata()[-1] == pytest.approx(float(is_wrong.double().mean()))


def test_a_model_without_errors_has_a_picture(figures: list[Any]) -> None:
    risk_coverage_plot({"perfect": metrics.risk_coverage(torch.rand(5), torch.zeros(5, dtype=torch.bool))})
    assert figures[0].axes[0].get_ylim()[1] > 0.0


def test_names_are_shown_as_they_stand(figures: list[Any]) -> None:
    name = r"5 $ or 6 $\nonsense"  # a formula, and one that there is not
    reliability_plot({name: BINS})
    risk_coverage_plot({name: CURVE})
    assert figures[0].axes[0].get_title().startswith(r"5 \$ or 6 \$")
    assert figures[1].axes[0].get_legend().get_texts()[0].get_text().startswith(r"5 \$ or 6 \$")


def test_nothing_to_plot_is_named() -> None:
    with pytest.raises(ValueError, match=r"one prediction or more, got none; metrics\.reliability_bins makes them"):
        reliability_plot({})
    with pytest.raises(ValueError, match=r"one curve or more, got none; metrics\.risk_coverage makes them"):
        risk_coverage_plot({})
