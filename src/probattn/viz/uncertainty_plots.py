"""Plots of calibration and of abstention, from the records of `probattn.metrics`. Sizes: N examples, B bins."""

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor

from probattn.viz.figure import COLOURS, new_figure, plain, to_svg

__all__ = ["Bins", "Curve", "reliability_plot", "risk_coverage_plot"]

_MAX_POINTS = 400


class Bins(Protocol):
    """What is plotted of `metrics.ReliabilityBins`."""

    @property
    def edges(self) -> Tensor:
        """(B + 1)."""

    @property
    def count(self) -> Tensor:
        """(B)."""

    @property
    def confidence(self) -> Tensor:
        """(B)."""

    @property
    def accuracy(self) -> Tensor:
        """(B)."""


class Curve(Protocol):
    """What is plotted of `metrics.RiskCoverage`."""

    @property
    def coverage(self) -> Tensor:
        """(N)."""

    @property
    def risk(self) -> Tensor:
        """(N)."""

    @property
    def area(self) -> float:
        """Mean of the risk."""


def reliability_plot(bins: Mapping[str, Bins]) -> str:
    """Reliability diagrams side by side: accuracy over confidence, and below it how many predictions a bin holds.

    A bar that ends below the diagonal says that the model is more confident there than right. The number above is the
    expected calibration error of these bins.

    Args:
        bins: Of each prediction, by its name; all with the same bins, so that they can be compared.

    Returns:
        SVG text.
    """
    if not bins:
        raise ValueError("expected the bins of one prediction or more, got none; metrics.reliability_bins makes them")
    figure, grid = new_figure(
        max(3.4, 2.9 * len(bins)),
        4.2,
        lines=2,
        columns=len(bins),
        sharex=True,
        sharey="row",
        gridspec_kw={"height_ratios": [3.2, 1.0], "hspace": 0.08, "wspace": 0.14},
    )
    for column, (name, one) in enumerate(bins.items()):
        _draw_reliability(grid[0, column], grid[1, column], one, name)
    grid[0, 0].set_ylabel("share of right answers")
    grid[1, 0].set_ylabel("share of\nexamples")
    return to_svg(figure)


def risk_coverage_plot(curves: Mapping[str, Curve]) -> str:
    """Share of wrong answers among those that are given, over the share of questions that are answered.

    From right to left the least certain answers are withheld. A curve that falls fast knows its errors; a flat one
    does not. The legend has the area under each curve (AURC).

    Args:
        curves: By name.

    Returns:
        SVG text.
    """
    if not curves:
        raise ValueError("expected one curve or more, got none; metrics.risk_coverage makes them")
    figure, axes = new_figure(6.4, 4.0)
    from matplotlib.ticker import PercentFormatter

    for number, (name, curve) in enumerate(curves.items()):
        coverage, risk = _thinned(curve.coverage), _thinned(curve.risk)
        colour, style = COLOURS[number % len(COLOURS)], ("-", "--", ":")[number // len(COLOURS) % 3]
        axes.plot(coverage, risk, style, color=colour, lw=1.6, label=f"{plain(name)} (area {curve.area:.4f})")
    axes.set(xlabel="coverage: share of examples answered", ylabel="risk: share of wrong answers among them")
    axes.set_xlim(0.0, 1.0)
    axes.set_ylim(0.0, 1.1 * max(_highest_risk(curve) for curve in curves.values()))
    axes.xaxis.set_major_formatter(PercentFormatter(xmax=1.0))
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0))
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return to_svg(figure)


def _draw_reliability(upper: Any, lower: Any, bins: Bins, name: str) -> None:
    edges, accuracy, confidence = bins.edges.tolist(), bins.accuracy.tolist(), bins.confidence.tolist()
    counts, total = bins.count.tolist(), int(bins.count.sum())
    filled = [number for number, count in enumerate(counts) if count > 0]
    left = [edges[number] for number in filled]
    width = [edges[number + 1] - edges[number] for number in filled]
    share = [counts[number] / total for number in filled]
    gaps = [abs(accuracy[number] - confidence[number]) for number in filled]
    height = [accuracy[number] for number in filled]
    upper.bar(left, height, width, align="edge", color=COLOURS[0], edgecolor="white", lw=0.6, label="right")
    upper.plot([0.0, 1.0], [0.0, 1.0], "--", color="0.45", lw=1.0)
    points = [confidence[number] for number in filled]
    upper.plot(points, height, "o", color=COLOURS[1], ms=3.5, label="at the mean confidence")
    for x, y in zip(points, height, strict=True):
        upper.plot([x, x], [x, y], color=COLOURS[1], lw=1.4)  # the gap that the calibration error averages
    error = sum(weight * gap for weight, gap in zip(share, gaps, strict=True))
    upper.set_title(f"{plain(name)}\ncalibration error {error:.3f}", fontsize=9)
    upper.set_xlim(0.0, 1.0)
    upper.set_ylim(0.0, 1.0)
    lower.bar(left, share, width, align="edge", color="#9aa7ba", edgecolor="white", lw=0.6)
    lower.set_xticks([0.0, 0.5, 1.0], ["0", "0.5", "1"])  # few, or those of neighbours run into each other
    lower.set_xlabel("confidence")


def _highest_risk(curve: Curve) -> float:
    """Where a twentieth or more is answered: the first few answers can be all wrong, and would flatten the rest."""
    return max(float(curve.risk[curve.coverage >= 0.05].max()), 1e-3)


def _thinned(values: Tensor) -> list[float]:
    """At most `_MAX_POINTS` of a curve, its ends among them: thousands would only make the file large."""
    step = max(1, -(-len(values) // _MAX_POINTS))
    kept: list[float] = values[::step].tolist()
    return kept if (len(values) - 1) % step == 0 else [*kept, float(values[-1])]
