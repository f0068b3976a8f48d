"""Time and memory of contestants, and what they were measured with."""

import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from interleaved import Contestants, interleaved, ratios
from peak_memory import peak_megabytes

__all__ = ["Meter", "Row"]

Row = dict[str, Any]


@dataclass(frozen=True)
class Meter:
    """Measures contestants.

    Attributes:
        rounds: How often each is timed.
        clock: Seconds.
    """

    rounds: int
    clock: Callable[[], float]

    @classmethod
    def with_threads(cls, threads: int, *, rounds: int) -> "Meter":
        """Set torch's number of threads, and take the clock that fits it.

        The time of several threads adds up on the processor's clock, so that one serves one thread alone.
        """
        torch.set_num_threads(threads)
        return cls(rounds, time.process_time if threads == 1 else time.perf_counter)

    def about(self, threads: int) -> dict[str, Any]:
        """What belongs beside the numbers."""
        return {
            "machine": f"{platform.machine()} with {torch.backends.cpu.get_cpu_capability()}, {threads} thread(s)",
            "commit": _commit(),
            "torch": torch.__version__.split("+")[0],
            "rounds": self.rounds,
            "clock": self.clock.__name__,
        }

    def seconds(self, contestants: Contestants) -> dict[str, list[float]]:
        """By contestant and round."""
        return interleaved(contestants, rounds=self.rounds, clock=self.clock)

    def rows(self, contestants: Contestants, seconds: Mapping[str, Sequence[float]]) -> list[Row]:
        """Time over the first contestant's, and peak memory."""
        found = []
        for name, ratio in ratios(seconds, next(iter(contestants))).items():
            times = {"ratio": ratio.median, "lower": ratio.lower, "upper": ratio.upper}
            found.append({"name": name, **times, "megabytes": peak_megabytes(contestants[name])})
        return found


def _commit() -> str:
    """Of the checkout; "unknown" outside of one."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"
