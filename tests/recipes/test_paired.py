"""Paired differences over seeds."""

import math

import pytest
from scipy import stats

from probattn.recipes.paired import (
    Below,
    PairedDifference,
    difference_of,
    holm,
    paired_differences,
    shared_means,
    verdicts,
)
from probattn.recipes.results import RowResult


def results(values: dict[str, dict[int, float]]) -> list[RowResult]:
    return [
        RowResult(row=row, source="", seed=seed, facts={}, metrics={"x": value})
        for row, by_seed in values.items()
        for seed, value in by_seed.items()
    ]


def test_differences_are_taken_over_common_seeds() -> None:
    found = paired_differences(
        results({"base": {0: 1.0, 1: 2.0, 2: 4.0}, "row": {0: 2.0, 1: 2.5, 2: 6.0, 7: 100.0}, "lone": {9: 1.0}}),
        "x",
        baseline="base",
    )
    assert set(found) == {"row"}
    assert found["row"].count == 3
    assert found["row"].mean == pytest.approx(3.5 / 3)
    expected = stats.ttest_rel([2.0, 2.5, 6.0], [1.0, 2.0, 4.0])
    assert found["row"].p_value == pytest.approx(expected.pvalue)
    assert found["row"].text() == f"+1.17 ± 0.44 (p = {expected.pvalue:.2g})"


def test_equal_rows_have_p_value_one() -> None:
    found = paired_differences(results({"base": {0: 1.0, 1: 2.0}, "row": {0: 1.0, 1: 2.0}}), "x", baseline="base")
    assert (found["row"].mean, found["row"].p_value) == (0.0, 1.0)


def test_equal_differences_have_no_p_value() -> None:
    found = paired_differences(results({"base": {0: 1.0, 1: 2.0}, "row": {0: 1.5, 1: 2.5}}), "x", baseline="base")
    assert math.isnan(found["row"].p_value) and "no p" in found["row"].text()
    assert math.isnan(holm({"a": math.nan, "b": 0.01})["a"]) and holm({"a": math.nan, "b": 0.01})["b"] == 0.02


def test_intervals_are_wider_with_few_seeds() -> None:
    three, two = PairedDifference(1.0, 0.5, 0.1, 3), PairedDifference(1.0, 0.5, 0.1, 2)
    assert three.half_width == pytest.approx(0.5 * 4.3027, rel=1e-3) and two.half_width > three.half_width


def test_metrics_that_are_not_numbers_are_left_out() -> None:
    values = {"base": {0: 1.0, 1: 2.0, 2: 1.0}, "row": {0: float("nan"), 1: 2.5, 2: 1.0}}
    assert paired_differences(results(values), "x", baseline="base")["row"].count == 2


def test_holm_never_falls_and_is_at_most_one() -> None:
    adjusted = holm({"a": 0.001, "b": 0.6, "c": 0.02, "d": 0.9})
    assert adjusted == {"a": 0.004, "c": pytest.approx(0.06), "b": 1.0, "d": 1.0}


@pytest.mark.parametrize(
    ("soft", "row", "expected"),
    [
        ([6.0, 6.1, 6.2], [5.0, 5.11, 5.19], "holds"),
        ([5.0, 5.11, 5.19], [6.0, 6.1, 6.2], "fails"),
        ([6.0, 6.5, 5.5], [5.9, 5.6, 6.3], "no difference seen"),
        ([6.0, 6.1], [5.0, 5.5], "sign as claimed (two seeds)"),  # four standard errors are not significant
        ([5.0, 5.5], [6.0, 6.1], "opposite sign (two seeds)"),
        ([6.0, 6.1], [5.0, 6.2], "no difference seen"),  # one of each
        ([6.0], [5.0], "sign as claimed (one seed)"),
        ([5.0], [6.0], "opposite sign (one seed)"),
        ([5.0, 7.0, 9.0], [6.0], "opposite sign (one seed)"),  # of the seed that both have
    ],
)
def test_verdicts(soft: list[float], row: list[float], expected: str) -> None:
    given = results({"soft": dict(enumerate(soft)), "row": dict(enumerate(row))})
    claim = Below("row", "soft")
    assert verdicts(given, "x", [claim, Below("absent", "soft")]) == {claim: expected}


def test_rows_without_a_common_seed_are_compared_and_said_to_have_none() -> None:
    given = results({"soft": {0: 6.0, 1: 6.2}, "row": {2: 5.0}})
    claim = Below("row", "soft")
    assert verdicts(given, "x", [claim]) == {claim: "sign as claimed (no seed in common)"}


def test_verdicts_are_adjusted_for_the_claims_on_a_metric() -> None:
    base, better = {0: 6.0, 1: 6.1, 2: 6.2}, {0: 5.0, 1: 5.4, 2: 5.0}
    given = results({"soft": base, **{name: better for name in "abc"}})
    p_value = paired_differences(given, "x", baseline="soft")["a"].p_value
    assert 0.05 / 3 < p_value < 0.05
    alone, together = Below("a", "soft"), [Below(name, "soft") for name in "abc"]
    assert verdicts(given, "x", [alone]) == {alone: "holds"}
    assert set(verdicts(given, "x", together).values()) == {"no difference seen"}
    limited = [Below(name, "soft", 0.1) for name in "abc"]
    assert set(verdicts(given, "x", limited).values()) == {"holds"}  # limits are tested one by one


def test_a_margin_is_how_far_a_row_may_be_above() -> None:
    given = results({"soft": {0: 5.0, 1: 5.1, 2: 5.2}, "row": {0: 5.2, 1: 5.31, 2: 5.4}})
    limits = [Below("row", "soft", margin) for margin in (0.3, 0.2, 0.1)]
    assert list(verdicts(given, "x", limits).values()) == ["holds", "no difference seen", "fails"]


def test_means_are_taken_over_shared_seeds() -> None:
    given = results({"soft": {0: 5.0, 1: 7.0}, "row": {0: 4.0}, "later": {5: 1.0}})
    assert shared_means(given, "x", "row", "soft") == (4.0, 5.0)
    assert shared_means(given, "x", "later", "soft") == (1.0, 6.0)  # none is shared


def test_differences_that_are_equal_up_to_rounding_prove_nothing() -> None:
    equal = [0.823 - 0.820, 0.815 - 0.812]
    assert equal[0] != equal[1]
    assert math.isnan(difference_of(equal).p_value) and difference_of(equal).standard_error == 0.0
    assert difference_of([1e-17, -1e-17]).p_value == 1.0
    assert difference_of([0.003, 0.0031, 0.0029]).p_value < 0.01
