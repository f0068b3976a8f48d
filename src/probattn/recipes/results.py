"""Results of a comparison: one record per row and seed, and their summary over seeds."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class RowResult:
    """The outcome of one row with one seed.

    Attributes:
        row: Name of the row.
        source: Paper, section, table.
        seed: Of weights and noise.
        facts: What makes rows comparable: bound, estimators, reduction, updates.
        metrics: Numbers by name.
        curve: (update, bound) pairs of training.
        curves: Further (update, value) pairs by metric, e.g. of validations.
        pictures: Attention weights of one example, (T, S) by name, for the report.
        gold: (T) right positions in those pictures.
        examples: Sentence pairs with word alignments, for the report: see `translation_pictures`.
    """

    row: str
    source: str
    seed: int
    facts: Mapping[str, Any]
    metrics: Mapping[str, float]
    curve: Sequence[tuple[int, float]] = field(default_factory=list)
    curves: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    pictures: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    gold: Sequence[int] = field(default_factory=list)
    examples: Sequence[Mapping[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Summary:
    """A metric over seeds."""

    mean: float
    spread: float
    """Standard deviation over seeds; 0 for one seed."""
    count: int

    def __str__(self) -> str:
        """The mean with three significant digits, or all before the point; the spread where there are several seeds."""
        if 1e3 <= abs(self.mean) < 1e9:
            return f"{self.mean:,.0f}" + (f" ± {self.spread:,.0f}" if self.spread > 0.0 else "")
        if self.count == 1:
            return f"{self.mean:.3g}"
        is_plain = 9.5 <= self.spread < 1e6  # not 2e+01
        spread = f"{self.spread:.0f}" if is_plain else f"{self.spread:.1g}"
        return f"{self.mean:.3g} ± {spread}"


def summarise(results: Sequence[RowResult], metric: str) -> Mapping[str, Summary]:
    """Mean and spread of one metric per row, for rows that have it, in the order of the results."""
    values: dict[str, list[float]] = {}
    for result in results:
        if metric in result.metrics:
            values.setdefault(result.row, []).append(result.metrics[metric])
    return {
        row: Summary(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else 0.0, len(numbers))
        for row, numbers in values.items()
    }
