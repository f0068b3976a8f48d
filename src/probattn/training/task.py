"""What a recipe hands to the engine: a model, its batches, a training step and a validation."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from probattn.training.stage import Stage

__all__ = ["HasAfterUpdate", "HasIdentity", "HasState", "StepOutput", "Task"]


@dataclass(frozen=True)
class StepOutput:
    """What one training step returns.

    Attributes:
        loss: Scalar to differentiate, a mean over `weight` units.
        weight: Number of units (sentences, tokens) that `loss` is a mean over. Accumulated batches and the batches of
            several ranks are averaged with these weights, so that they give the gradient of one big batch.
        logs: Name to (sum, count). The log shows sum / count over all batches and ranks since the last line. The sum
            of "tokens" also gives the tokens per second.
        parts: Scalars whose gradients are compared: "likelihood" and "kl", as they stand in the loss. Only used to
            log the effective KL gradient.
        carry: Anything that `after_update` needs, such as the model's evaluation.
        unit_length: What the loss of a unit grows with, in the mean: words, where units are sentences. The stage's
            update rule sees the loss divided by it, so that it can compare batches.
    """

    loss: Tensor
    weight: float = 1.0
    logs: Mapping[str, tuple[Tensor | float, float]] = field(default_factory=dict)
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    carry: object = None
    unit_length: float = 1.0


class Task(Protocol):
    """One training problem. The engine knows nothing else about model and data."""

    @property
    def model(self) -> nn.Module:
        """The network; its state_dict is what a checkpoint keeps."""
        ...

    def batches(self, epoch: int) -> Iterable[Any]:
        """All batches of an epoch, a pure function of `epoch`; the engine deals them out to the ranks.

        A sequence (with `len` and indices) is resumed at once, any other iterable by skipping. Inside this call the
        global random generators are seeded with the settings' seed and the epoch, for tasks that shuffle with them.
        """
        ...

    def step(self, batch: Any, stage: Stage, update: int) -> StepOutput:
        """Loss and logs of one batch; `update` counts from 0 within the stage."""
        ...

    def validate(self) -> Mapping[str, float]:
        """Metrics on held-out data; called without gradients, in eval mode, with a random stream of its own."""
        ...

    def describe_batch(self, batch: Any) -> Mapping[str, Any]:
        """What the report of a failure says about a batch: shapes, indices, texts. Must fit into JSON."""
        ...


@runtime_checkable
class HasIdentity(Protocol):
    """A task that depends on more than its stages and the shapes of its model: data, dropout, priors.

    A checkpoint with another identity is refused, so that a run is never continued with something else.
    """

    def identity(self) -> Mapping[str, Any]:
        """Everything else that must be the same when a run is resumed, by name; values must fit into JSON."""
        ...


@runtime_checkable
class HasAfterUpdate(Protocol):
    """A task that moves something besides the parameters: running means, moving averages of a codebook.

    Buffers that it changes are averaged over the ranks.
    """

    def after_update(self, batch: Any, output: StepOutput) -> None:
        """Called once for every batch, after the optimiser's step, without gradients."""
        ...


@runtime_checkable
class HasState(Protocol):
    """A task with state outside its model; it goes into the checkpoint. Only tensors, numbers, strings, containers."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        ...
