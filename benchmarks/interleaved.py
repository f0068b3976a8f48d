"""Times of alternatives as ratios, measured so that a busy machine disturbs all of them alike.

Each round runs every contestant once, in random order, and divides by the round's time of a reference; what is
reported is the median ratio over rounds with its quartiles. Absolute times of a shared machine mean little.
"""

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Contestants", "Ratio", "interleaved", "ratios"]

Contestants = Mapping[str, Callable[[], object]]
"""What is timed, by name."""


@dataclass(frozen=True)
class Ratio:
    """A contestant's time over the reference's, over rounds."""

    median: float
    lower: float
    """First quartile."""
    upper: float
    """Third quartile."""


def interleaved(
    contestants: Contestants, *, rounds: int, seed: int = 0, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each contestant in each round, after a round that warms up and is not counted.

    Args:
        contestants: What is timed.
        rounds: How often.
        seed: Of the order inside a round.
        clock: `time.process_time` counts the processor's time alone: with one thread it does not run while other
            programs do.
    """
    order = list(contestants)
    shuffle = random.Random(seed)
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for round_number in range(rounds + 1):
        shuffle.shuffle(order)
        for name in order:
            started = clock()
            contestants[name]()
            elapsed = clock() - started
            if round_number > 0:
                seconds[name].append(elapsed)
    return seconds


def ratios(seconds: Mapping[str, Sequence[float]], reference: str) -> dict[str, Ratio]:
    """Each contestant's time over the reference's of the same round."""
    return {
        name: _ratio([mine / theirs for mine, theirs in zip(times, seconds[reference], strict=True)])
        for name, times in seconds.items()
    }


def _ratio(values: Sequence[float]) -> Ratio:
    if len(values) == 1:
        return Ratio(values[0], values[0], values[0])
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return Ratio(median, lower, upper)
