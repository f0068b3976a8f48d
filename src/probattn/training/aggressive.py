"""Aggressive training of an inference network: many encoder steps for each decoder step (He et al. 2019)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Aggressive"]


@dataclass
class Aggressive:
    """An `UpdateRule`: bursts of steps that move the encoder alone, each followed by one step of everything else.

    A burst ends after `max_burst` steps, or when the mean loss of `window` steps is above that of the window before.
    When a validation's `metric` falls below its best value so far, the bursts end for good, and every step moves
    everything. An encoder that lags behind its decoder is one cause of a collapsed posterior; this is the remedy
    "+aggressive" of the text VAEs.

    Every step counts as an update, those of a burst too, and costs the same time. So a run with bursts takes the time
    of one without, and its decoder moves far less often.

    Attributes:
        encoder: Patterns of the parameters that a burst moves.
        others: Patterns of those that move between two bursts.
        max_burst: Steps of a burst at most (100).
        window: Steps over which the loss is averaged (15).
        metric: Validation metric that says how much the latent variable carries: mutual information.

    Example:
        >>> rule = Aggressive(encoder=("encoder.*",), others=("decoder.*",), max_burst=2)
        >>> moved = []
        >>> for _ in range(4):
        ...     moved.append(rule.moves()[0])
        ...     rule.after_update(1.0)
        >>> moved
        ['encoder.*', 'encoder.*', 'decoder.*', 'encoder.*']
    """

    encoder: Sequence[str]
    others: Sequence[str]
    max_burst: int = 100
    window: int = 15
    metric: str = "mutual_information"
    _state: dict[str, Any] = field(default_factory=lambda: dict(_START), repr=False)

    def __post_init__(self) -> None:
        if self.max_burst < 1 or self.window < 1:
            raise ValueError(f"max_burst and window must be at least 1, got {self.max_burst} and {self.window}")

    @property
    def is_over(self) -> bool:
        """Whether every step moves everything from now on."""
        return bool(self._state["is_over"])

    def moves(self) -> Sequence[str]:
        """Patterns of the parameters that the next step moves."""
        if self.is_over:
            return ("*",)
        return self.encoder if self._state["is_burst"] else self.others

    def logs(self) -> Mapping[str, float]:
        """For the log: 1 at a step that moves the encoder alone, else 0; the mean is the share of such steps."""
        return {"is_burst": float(not self.is_over and self._state["is_burst"])}

    def after_update(self, loss: float) -> None:
        """Count the step, and end the burst where it no longer helps."""
        state = self._state
        if self.is_over:
            return
        if not state["is_burst"]:
            self._begin_burst()
            return
        state["steps"] += 1
        state["total"] += loss
        is_stuck = False
        if state["steps"] % self.window == 0:
            mean = state["total"] / self.window
            is_stuck = state["last_mean"] is not None and mean > state["last_mean"]
            state["last_mean"], state["total"] = mean, 0.0
        if is_stuck or state["steps"] >= self.max_burst:
            state["is_burst"] = False

    def after_validation(self, metrics: Mapping[str, float]) -> None:
        """End the bursts for good when the metric falls.

        Raises:
            KeyError: If the validation does not measure it.
        """
        if self.metric not in metrics:
            raise KeyError(f"Aggressive wants the validation metric '{self.metric}', got {sorted(metrics)}")
        value, best = metrics[self.metric], self._state["best"]
        if best is not None and value < best:
            self._state["is_over"] = True
        self._state["best"] = value if best is None else max(value, best)

    def state_dict(self) -> dict[str, Any]:
        """Position inside a burst, the losses of its window, and the best metric."""
        return dict(self._state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self._state = dict(state)

    def _begin_burst(self) -> None:
        self._state |= {"is_burst": True, "steps": 0, "total": 0.0, "last_mean": None}


_START: Mapping[str, Any] = {
    "is_over": False,
    "is_burst": True,
    "steps": 0,
    "total": 0.0,
    "last_mean": None,
    "best": None,
}
