"""Rows against a baseline with the same seeds: paired differences and their significance."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from probattn.metrics.optional import import_for_eval
from probattn.recipes.results import RowResult

__all__ = ["PairedDifference", "difference_of", "holm", "paired_differences"]


@dataclass(frozen=True)
class PairedDifference:
    """A row minus the baseline, over the seeds that both have.

    Attributes:
        mean: Of the differences.
        standard_error: Of that mean.
        p_value: Of a two-sided paired t-test; 1 where all differences are zero, NaN where they are equal otherwise,
            because a spread of zero over few seeds is an accident.
        count: Number of seeds.
    """

    mean: float
    standard_error: float
    p_value: float
    count: int

    @property
    def half_width(self) -> float:
        """Of the 95% confidence interval."""
        stats = import_for_eval("scipy.stats")
        return float(stats.t.ppf(0.975, self.count - 1)) * self.standard_error

    def text(self, digits: int = 2, scale: float = 1.0) -> str:
        """E.g. "+0.21 ± 0.10 (p = 0.04)"."""
        if math.isnan(self.p_value):
            p = "no p"
        else:
            p = "p < 0.001" if self.p_value < 0.001 else f"p = {self.p_value:.2g}"
        return f"{scale * self.mean:+.{digits}f} ± {scale * self.standard_error:.{digits}f} ({p})"


def paired_differences(results: Sequence[RowResult], metric: str, *, baseline: str) -> Mapping[str, PairedDifference]:
    """Of every other row that shares at least two seeds with the baseline and has the metric."""
    by_row: dict[str, dict[int, float]] = {}
    for result in results:
        if metric in result.metrics and math.isfinite(result.metrics[metric]):
            by_row.setdefault(result.row, {})[result.seed] = result.metrics[metric]
    reference = by_row.pop(baseline, {})
    found = {}
    for row, values in by_row.items():
        differences = [values[seed] - reference[seed] for seed in sorted(values) if seed in reference]
        if len(differences) > 1:
            found[row] = difference_of(differences)
    return found


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """P-values adjusted for their number (Holm 1979): the family-wise error rate at which each would be rejected.

    A p-value that is NaN stays one and counts as 1.

    Example:
        >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
        {'a': 0.03, 'c': 0.06, 'b': 0.06}
    """
    adjusted: dict[str, float] = {}
    largest = 0.0
    known = {name: 1.0 if math.isnan(p) else p for name, p in p_values.items()}
    for rank, (name, p) in enumerate(sorted(known.items(), key=lambda item: item[1])):
        largest = max(largest, min(1.0, p * (len(known) - rank)))
        adjusted[name] = math.nan if math.isnan(p_values[name]) else largest
    return adjusted


def difference_of(differences: Sequence[float]) -> PairedDifference:
    """Mean, standard error and test of differences, one for each of two seeds or more."""
    stats = import_for_eval("scipy.stats")
    mean, spread = statistics.fmean(differences), statistics.stdev(differences)
    error = spread / math.sqrt(len(differences))
    if spread == 0.0:
        return PairedDifference(mean, 0.0, 1.0 if mean == 0.0 else math.nan, len(differences))
    return PairedDifference(mean, error, float(stats.ttest_1samp(differences, 0.0).pvalue), len(differences))
