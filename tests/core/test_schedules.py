"""Schedules: values at their corners, monotonicity, the papers' numbers, errors."""

import itertools
import math

import pytest

from probattn.core import Constant, Cyclical, Linear, Logistic, Schedule, Sigmoid

SCHEDULES = [
    Constant(0.3),
    Linear(0.1, 2.0, steps=7, delay=3),
    Sigmoid(0.2),
    Logistic(midpoint=4500, width=1000),
    Cyclical(period=10, ramp=4),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: type(schedule).__name__)
def test_every_schedule_is_a_value_with_finite_weights(schedule: Schedule):
    assert isinstance(schedule, Schedule)
    assert schedule == type(schedule)(**vars(schedule)) and hash(schedule) == hash(type(schedule)(**vars(schedule)))
    for step in (0, 1, 10, 10**4, 10**9):
        weight = schedule(step)
        assert isinstance(weight, float) and math.isfinite(weight) and weight >= 0.0


def test_constant():
    assert Constant()(0) == 1.0 and {Constant(0.3)(step) for step in range(50)} == {0.3}


def test_linear():
    schedule = Linear(0.15, 5.0, steps=10, delay=2)
    assert [schedule(step) for step in (0, 1, 2)] == [0.15] * 3
    assert schedule(7) == pytest.approx(0.15 + 0.5 * 4.85)
    assert schedule(12) == schedule(1000) == 5.0
    assert Linear(1.0, 0.0, steps=4)(1) == 0.75  # downwards


def test_sigmoid_starts_at_one_half():
    """BAM, Algorithm 1: sigmoid(t * rho)."""
    schedule = Sigmoid(0.2)
    assert schedule(0) == 0.5
    for step in (1, 5, 20):
        assert schedule(step) == pytest.approx(1.0 / (1.0 + math.exp(-0.2 * step)))
    assert schedule(10**9) == 1.0


def test_sigmoid_with_a_falling_rate_does_not_overflow():
    assert Sigmoid(-1.0)(10**6) == pytest.approx(0.0)


def test_logistic_has_the_numbers_of_the_released_code():
    schedule = Logistic(midpoint=4500, width=1000)
    assert schedule(4500) == 0.5
    assert schedule(3000) == pytest.approx(0.047, abs=5e-4)  # where the code stops updating it
    assert schedule(0) < 2e-4 and schedule(20_000) == pytest.approx(1.0)


def test_cyclical():
    schedule = Cyclical(period=8, ramp=4, start=0.2, end=1.0)
    first = [schedule(step) for step in range(8)]
    assert first == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0, 1.0, 1.0])
    assert [schedule(step) for step in range(8, 16)] == first
    whole = Cyclical(period=5, ramp=5)
    assert whole(4) == pytest.approx(0.8) and whole(5) == 0.0


@pytest.mark.parametrize("schedule", [Linear(0.0, 1.0, steps=100), Sigmoid(0.05), Logistic(50, 10)])
def test_rising(schedule: Schedule):
    weights = [schedule(step) for step in range(0, 200, 5)]
    assert all(later >= earlier for earlier, later in itertools.pairwise(weights)) and weights[-1] > weights[0]


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Linear(0.0, 1.0, steps=0), r"Linear\(steps\) must be positive, got 0"),
        (lambda: Logistic(0.0, width=-1.0), r"Logistic\(width\) must be positive, got -1.0"),
        (lambda: Cyclical(period=5, ramp=0), r"Cyclical\(ramp\) must be positive, got 0"),
        (lambda: Cyclical(period=5, ramp=6), "Cyclical wants ramp <= period, got ramp=6 and period=5"),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()
