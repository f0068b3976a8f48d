"""Ratios of times, on a clock that the contestants themselves move."""

from collections.abc import Callable

import pytest

from benchmarks.interleaved import Ratio, interleaved, ratios


class Clock:
    """Stands still but for what contestants add."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[str] = []

    def contestant(self, name: str, *seconds: float) -> Callable[[], None]:
        """Takes these seconds, one after another, the last one from then on."""
        left = list(seconds)

        def run() -> None:
            self.calls.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return run


def test_first_round_is_not_counted() -> None:
    clock = Clock()
    contestants = {"a": clock.contestant("a", 100.0, 2.0), "b": clock.contestant("b", 7.0, 3.0)}
    seconds = interleaved(contestants, rounds=3, clock=lambda: clock.now)
    assert seconds == {"a": pytest.approx([2.0] * 3), "b": pytest.approx([3.0] * 3)}


def test_every_round_runs_all_in_changing_order() -> None:
    clock = Clock()
    contestants = {name: clock.contestant(name, 1.0) for name in "abcd"}
    interleaved(contestants, rounds=9, clock=lambda: clock.now)
    orders = [tuple(clock.calls[start : start + 4]) for start in range(0, len(clock.calls), 4)]
    assert len(orders) == 10
    assert all(sorted(order) == list("abcd") for order in orders)
    assert len(set(orders)) > 3


def test_ratios_are_paired() -> None:
    """A machine that gets slower and slower: the ratio of every round is two, that of the medians would be too high."""
    seconds = {"reference": [1.0, 10.0, 100.0], "other": [2.0, 20.0, 200.0]}
    assert ratios(seconds, "reference") == {"reference": Ratio(1.0, 1.0, 1.0), "other": Ratio(2.0, 2.0, 2.0)}


def test_quartiles() -> None:
    seconds = {"reference": [1.0] * 5, "other": [5.0, 1.0, 3.0, 2.0, 4.0]}
    assert ratios(seconds, "reference")["other"] == Ratio(median=3.0, lower=2.0, upper=4.0)


def test_one_round() -> None:
    assert ratios({"reference": [2.0], "other": [3.0]}, "reference")["other"] == Ratio(1.5, 1.5, 1.5)
