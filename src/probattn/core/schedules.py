"""Weights of KLs and penalties as functions of the training step.

Every schedule is a frozen dataclass that maps a step (counted from 0) to a float. What a step is, an update or an
epoch, the recipe says.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

__all__ = ["Constant", "Cyclical", "Linear", "Logistic", "Schedule", "Sigmoid"]


class Schedule(ABC):
    """Maps a step to a weight."""

    @abstractmethod
    def __call__(self, step: int) -> float:
        """The weight at `step`."""


@dataclass(frozen=True)
class Constant(Schedule):
    """Always the same weight.

    Example:
        >>> Constant(0.5)(1000)
        0.5
    """

    value: float = 1.0

    def __call__(self, step: int) -> float:
        """The weight at `step`."""
        return self.value


@dataclass(frozen=True)
class Linear(Schedule):
    """From `start` to `end` in `steps` steps after `delay`, then constant (DAVAM's and the text VAEs' annealing).

    Example:
        >>> [Linear(0.1, 1.0, steps=10)(t) for t in (0, 5, 10, 99)]
        [0.1, 0.55, 1.0, 1.0]
    """

    start: float
    end: float
    steps: int
    delay: int = 0

    def __post_init__(self) -> None:
        _require_positive("Linear(steps)", self.steps)

    def __call__(self, step: int) -> float:
        """The weight at `step`."""
        progress = min(max(step - self.delay, 0) / self.steps, 1.0)
        return self.start + (self.end - self.start) * progress


@dataclass(frozen=True)
class Sigmoid(Schedule):
    """sigmoid(step * rate): 0.5 at the start, towards 1 (BAM, Algorithm 1; `rate` is the paper's rho).

    The paper counts updates, its released code epochs; both start at 0.5.

    Example:
        >>> Sigmoid(0.2)(0)
        0.5
    """

    rate: float

    def __call__(self, step: int) -> float:
        """The weight at `step`."""
        return 1.0 / (1.0 + math.exp(min(max(-step * self.rate, -700.0), 700.0)))


@dataclass(frozen=True)
class Logistic(Schedule):
    """end * (tanh((step - midpoint) / width) + 1) / 2: from almost 0 to `end` (Bahuleyan et al.; 4500 and 1000).

    Attributes:
        midpoint: Step at which half of it is reached.
        width: How slowly it rises.
        end: Where it ends; the paper's gamma_a for attention, which is annealed together with the code.
        frozen_from: The weight stays as it is at this step; null for never. The released code does so at step 3000,
            where it is 0.047.

    Example:
        >>> Logistic(midpoint=4500, width=1000)(4500)
        0.5
        >>> round(Logistic(midpoint=4500, width=1000, frozen_from=3000)(9000), 3)
        0.047
    """

    midpoint: float
    width: float
    end: float = 1.0
    frozen_from: int | None = None

    def __post_init__(self) -> None:
        _require_positive("Logistic(width)", self.width)

    def __call__(self, step: int) -> float:
        """The weight at `step`."""
        step = step if self.frozen_from is None else min(step, self.frozen_from)
        return self.end * (math.tanh((step - self.midpoint) / self.width) + 1.0) / 2.0


@dataclass(frozen=True)
class Cyclical(Schedule):
    """A ramp from `start` to `end` over the first `ramp` steps of every `period`, then constant until the next one.

    Example:
        >>> [Cyclical(period=10, ramp=5)(t) for t in (0, 4, 5, 9, 10)]
        [0.0, 0.8, 1.0, 1.0, 0.0]
    """

    period: int
    ramp: int
    start: float = 0.0
    end: float = 1.0

    def __post_init__(self) -> None:
        _require_positive("Cyclical(ramp)", self.ramp)
        if self.ramp > self.period:
            raise ValueError(f"Cyclical wants ramp <= period, got ramp={self.ramp} and period={self.period}")

    def __call__(self, step: int) -> float:
        """The weight at `step`."""
        progress = min((step % self.period) / self.ramp, 1.0)
        return self.start + (self.end - self.start) * progress


def _require_positive(name: str, value: float) -> None:
    if value <= 0:
        raise ValueError(f"{name} must be positive, got {value}")
