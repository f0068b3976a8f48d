"""Rows against a baseline with the same seeds: paired differences and their significance."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from probattn.metrics.optional import import_for_eval
from probattn.recipes.results import RowResult

__all__ = [
    "LEVEL",
    "VERDICT_RULE",
    "Below",
    "PairedDifference",
    "by_seed",
    "difference_of",
    "holm",
    "paired_differences",
    "shared_means",
    "verdicts",
]

LEVEL = 0.05
"""Of a verdict."""
_ROUNDING, _NOTHING = 1e-9, 1e-12
VERDICT_RULE = (
    "Differences are paired by seed; a claim holds or fails at the 5% level of a t-test, adjusted (Holm) for the "
    "claims on one metric. One seed, or two that agree and are not significant, show a sign and no more."
)


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

    @property
    def is_sign_of_two(self) -> bool:
        """Whether there are two seeds which differ to the same side: a sign that a test of two can hardly confirm."""
        return self.count == 2 and abs(self.mean) > self.standard_error  # the error is half of what parts the two

    def text(self, digits: int = 2, scale: float = 1.0) -> str:
        """E.g. "+0.21 ± 0.10 (p = 0.04)"."""
        if math.isnan(self.p_value):
            p = "no p"
        else:
            p = "p < 0.001" if self.p_value < 0.001 else f"p = {self.p_value:.2g}"
        return f"{scale * self.mean:+.{digits}f} ± {scale * self.standard_error:.{digits}f} ({p})"


@dataclass(frozen=True)
class Below:
    """The claim that a row is below another in some metric.

    Attributes:
        low: Name of the row that is said to be below,
        high: and of the other.
        margin: How far above the other it may be all the same; 0 for a claim on the sign. Claims with a margin are
            tested one by one.
    """

    low: str
    high: str
    margin: float = 0.0


def verdicts(results: Sequence[RowResult], metric: str, claims: Sequence[Below]) -> dict[Below, str]:
    """What becomes of claims on one metric; those whose rows were not run are left out.

    "holds", "fails" or "no difference seen" where two seeds or more are shared; whether the sign is as claimed where it
    is one seed, or two that agree and are not significant.
    """
    tested: dict[Below, PairedDifference] = {}
    found: dict[Below, str] = {}
    for claim in claims:
        low, high = (by_seed(results, metric, row) for row in (claim.low, claim.high))
        shared = sorted(low.keys() & high.keys())
        if not low or not high:
            continue
        if len(shared) > 1:
            tested[claim] = difference_of([low[seed] - high[seed] - claim.margin for seed in shared])
            continue
        one, other = shared_means(results, metric, claim.low, claim.high)
        sign = "sign as claimed" if one - other < claim.margin else "opposite sign"
        found[claim] = f"{sign} ({'one seed' if shared else 'no seed in common'})"
    names = {str(place): claim for place, claim in enumerate(tested)}
    adjusted = holm({name: tested[claim].p_value for name, claim in names.items() if claim.margin == 0.0})
    for name, claim in names.items():
        found[claim] = _word(tested[claim], adjusted.get(name, tested[claim].p_value), has_margin=claim.margin > 0.0)
    return {claim: found[claim] for claim in claims if claim in found}


def _word(tested: PairedDifference, p_value: float, *, has_margin: bool) -> str:
    """The verdict on the claim that a difference is below zero."""
    if p_value < LEVEL:
        return "holds" if tested.mean < 0.0 else "fails"
    if tested.is_sign_of_two and not has_margin:
        return f"{'sign as claimed' if tested.mean < 0.0 else 'opposite sign'} (two seeds)"
    return "no difference seen"


def shared_means(results: Sequence[RowResult], metric: str, row: str, other: str) -> tuple[float, float]:
    """Means of two rows over the seeds that both have, so that they can be compared; over all where they share none."""
    values = [by_seed(results, metric, name) for name in (row, other)]
    shared = values[0].keys() & values[1].keys()
    first, second = (statistics.fmean(one[seed] for seed in shared or one) for one in values)
    return first, second


def paired_differences(results: Sequence[RowResult], metric: str, *, baseline: str) -> Mapping[str, PairedDifference]:
    """Of every other row that shares at least two seeds with the baseline and has the metric."""
    reference = by_seed(results, metric, baseline)
    found = {}
    for row in dict.fromkeys(result.row for result in results if result.row != baseline):
        values = by_seed(results, metric, row)
        differences = [values[seed] - reference[seed] for seed in sorted(values) if seed in reference]
        if len(differences) > 1:
            found[row] = difference_of(differences)
    return found


def by_seed(results: Sequence[RowResult], metric: str, row: str) -> dict[int, float]:
    """Finite values of a row."""
    values = {one.seed: one.metrics[metric] for one in results if one.row == row and metric in one.metrics}
    return {seed: value for seed, value in values.items() if math.isfinite(value)}


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
    # equal differences of rounded numbers differ in their last bits
    if spread <= max(_ROUNDING * max(abs(one) for one in differences), _NOTHING):
        return PairedDifference(mean, 0.0, 1.0 if abs(mean) <= _NOTHING else math.nan, len(differences))
    return PairedDifference(mean, error, float(stats.ttest_1samp(differences, 0.0).pvalue), len(differences))
