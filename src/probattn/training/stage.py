"""Stages of a training run: which parameters move, for how long, under which bound and with which weights."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol, runtime_checkable

from torch import nn

from probattn.core import Bound, Estimator, Schedule
from probattn.core.arguments import require_choice

__all__ = ["EveryBatch", "HasLogs", "Stage", "UpdateRule", "check_stages", "matches"]


class UpdateRule(Protocol):
    """Decides which parameters the next optimiser step moves.

    The engine takes one optimiser step for every batch (or group of accumulated batches). An aggressive encoder (He et
    al. 2019) answers `moves` with the encoder's names during a burst; where it stands in the burst is its state, and
    goes into the checkpoint. The engine works on a copy, so one rule may serve several runs.
    """

    def moves(self) -> Sequence[str]:
        """Patterns of the parameters that the next step moves; the gradients of the others are dropped."""
        ...

    def after_update(self, loss: float) -> None:
        """Hears the loss (mean over ranks, divided by `StepOutput.unit_length`) that the step was taken on."""
        ...

    def after_validation(self, metrics: Mapping[str, float]) -> None:
        """Hears the result of a validation."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Position inside a burst: tensors, numbers, strings, containers."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        ...


@runtime_checkable
class HasLogs(Protocol):
    """An update rule that tells the log about its steps."""

    def logs(self) -> Mapping[str, float]:
        """Asked at every step, before `after_update`; the log has means over steps."""
        ...


@dataclass(frozen=True)
class EveryBatch:
    """The plain rule: every step moves every trainable parameter."""

    def moves(self) -> Sequence[str]:
        """All of them."""
        return ("*",)

    def after_update(self, loss: float) -> None:
        """Nothing to note."""

    def after_validation(self, metrics: Mapping[str, float]) -> None:
        """Nothing to note."""

    def state_dict(self) -> dict[str, Any]:
        """No state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """No state."""


@dataclass(frozen=True)
class Stage:
    """One stretch of training with its own optimiser state, learning-rate schedule, selection and early stop.

    Example:
        >>> from probattn.core import Linear
        >>> stage = Stage("anneal", updates=100, weights={"z": Linear(0.0, 1.0, steps=10)})
        >>> stage.weights_at(5)
        {'z': 0.5}
    """

    name: str
    """Name in logs and messages; different for each stage of a run."""
    updates: int | None = None
    """Length in optimiser steps; give this or `epochs`."""
    epochs: int | None = None
    """Length in passes over the data; give this or `updates`."""
    trainable: Sequence[str] = ("*",)
    """Patterns (as in file names) of the parameters that are trained; the others are frozen."""
    bound: Bound | None = None
    """What is maximised; the engine only hands it to the task."""
    estimators: Mapping[str, Estimator] = field(default_factory=dict)
    """Estimator of each site; the engine hands them to the task and keeps the state of modules inside them."""
    weights: Mapping[str, Schedule] = field(default_factory=dict)
    """Weight of each site's KL or penalty as a function of the update within the stage."""
    learning_rates: Mapping[str, float] = field(default_factory=dict)
    """Pattern of parameter names to learning rate, first match wins; the settings' rate for all others."""
    update_rule: UpdateRule = field(default_factory=EveryBatch)
    """Which parameters each step moves."""
    decays: bool = True
    """False: the learning rate stays at its peak, whatever the schedule; for a stage that the next one goes on from."""
    validate_every: int | None = None
    """Updates between validations in this stage, counted from its beginning; None: as the settings say."""
    hand_over: Literal["last", "best"] = "last"
    """Which weights the next stage starts from: those at the end, or the best of this stage by the selected metric."""

    def __post_init__(self) -> None:
        given = [length for length in (self.updates, self.epochs) if length is not None]
        if len(given) != 1 or given[0] < 1:
            raise ValueError(
                f"Stage {self.name!r} wants either updates >= 1 or epochs >= 1, "
                f"got updates={self.updates} and epochs={self.epochs}"
            )
        if self.validate_every is not None and self.validate_every < 1:
            raise ValueError(f"Stage {self.name!r}: validate_every must be at least 1, got {self.validate_every}")
        require_choice(f"hand_over of stage {self.name!r}", self.hand_over, ("last", "best"))

    def weights_at(self, update: int) -> dict[str, float]:
        """The weight of every KL or penalty at an update of this stage."""
        return {name: schedule(update) for name, schedule in self.weights.items()}

    def modules(self) -> dict[str, nn.Module]:
        """Modules inside the estimators (running-mean baselines), by "stage.site.field"."""
        found: dict[str, nn.Module] = {}
        for site, estimator in self.estimators.items():
            if not dataclasses.is_dataclass(estimator):
                continue
            for item in dataclasses.fields(estimator):
                value = getattr(estimator, item.name)
                if isinstance(value, nn.Module):
                    found[f"{self.name}.{site}.{item.name}"] = value
        return found


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a parameter's name matches one of the patterns.

    Example:
        >>> matches("encoder.lstm.weight", ["encoder.*", "prior.*"])
        True
    """
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def check_stages(stages: Sequence[Stage], model: nn.Module) -> None:
    """Raise a ValueError if names repeat or a pattern fits no parameter of the model."""
    names = [stage.name for stage in stages]
    if not names or len(set(names)) != len(names):
        raise ValueError(f"a run wants one stage or more with different names, got {names}")
    parameters = [name for name, _ in model.named_parameters()]
    for stage in stages:
        for field_name in ("trainable", "learning_rates"):
            for pattern in getattr(stage, field_name):
                if not any(fnmatchcase(name, pattern) for name in parameters):
                    raise ValueError(
                        f"stage {stage.name!r}: {field_name} pattern {pattern!r} fits no parameter of the model; "
                        f"its parameters are {', '.join(parameters[:8])}{', ...' if len(parameters) > 8 else ''}"
                    )
