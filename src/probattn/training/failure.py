"""A loss that is not finite, or explodes: what is kept of it, and how to see it again."""

import io
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from probattn.training.batches import move
from probattn.training.errors import OutputError
from probattn.training.files import write_bytes, write_json, write_weights
from probattn.training.model_folder import load_weights
from probattn.training.optim import set_trainable
from probattn.training.randomness import RandomState, capture, restore
from probattn.training.stage import Stage
from probattn.training.task import HasState, Task

__all__ = ["Failure", "Replay", "find_failure", "replay_failure", "write_failure"]

WINDOW = 100
"""Losses that the median is taken over; the search for explosions starts when half of them are there."""


def find_failure(loss: float, gradient_norm: float, *, recent: Sequence[float], factor: float | None) -> str | None:
    """What is wrong with an update, or None.

    Example:
        >>> find_failure(9.0, 1.0, recent=[1.0] * 60, factor=5.0)
        'the loss 9 is more than 5 times the median 1 of the last 60'
        >>> find_failure(float("nan"), 1.0, recent=[], factor=None)
        'the loss is nan'
    """
    if not math.isfinite(loss):
        return f"the loss is {loss}"
    if not math.isfinite(gradient_norm):
        return f"the norm of the gradient is {gradient_norm}"
    if factor is not None and len(recent) >= WINDOW // 2:
        median = statistics.median(recent)
        if 0.0 < factor * median < loss:
            return f"the loss {loss:g} is more than {factor:g} times the median {median:g} of the last {len(recent)}"
    return None


@dataclass(frozen=True)
class Failure:
    """One update that went wrong, as one rank saw it, before the parameters moved.

    Attributes:
        reason: What `find_failure` said.
        stage: Name of the stage.
        update: Update within the stage.
        loss: Mean over all batches and ranks.
        gradient_norm: Of the gradient of that mean.
        precision: As in the settings.
        batches: What this rank worked on.
        random: State of the generators before each of them.
    """

    reason: str
    stage: str
    update: int
    loss: float
    gradient_norm: float
    precision: str
    batches: Sequence[Any]
    random: Sequence[RandomState]


def write_failure(folder: Path, failure: Failure, *, task: Task, stage: Stage, rank: int) -> str:
    """Keep everything that it takes to repeat the update; returns the message for the user."""
    how = (
        f"Reproduce it with probattn.training.replay_failure(task, {str(folder)!r}, stages=stages, rank={rank}), with "
        "the task and the stages of this run."
    )
    report = {
        "reason": failure.reason,
        "stage": failure.stage,
        "update": failure.update,
        "loss": repr(failure.loss),
        "gradient_norm": repr(failure.gradient_norm),
        "precision": failure.precision,
        "batches": [dict(task.describe_batch(batch)) for batch in failure.batches],
        "reproduce": how,
    }
    content = {
        "batches": failure.batches,
        "random": failure.random,
        "modules": {name: module.state_dict() for name, module in stage.modules().items()},
        "task": task.state_dict() if isinstance(task, HasState) else None,
    }
    buffer = io.BytesIO()
    torch.save(content, buffer)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(folder / f"rank-{rank}.pt", buffer.getvalue())
        write_json(folder / f"rank-{rank}.json", report)
        if rank == 0:
            write_weights(folder / "model.safetensors", task.model)
    except OSError as error:
        raise OutputError(f"{failure.reason}, and {folder} could not be written: {error.strerror}") from error
    return (
        f"{failure.reason} at update {failure.update} of stage {failure.stage!r}. The batch, the random state and the "
        f"weights before the step are in {folder}. {how} To go on from the last checkpoint, change the cause (learning "
        "rate, clipping, data) and train into a new folder from its weights."
    )


@dataclass(frozen=True)
class Replay:
    """What the repeated update gave on one rank: the loss of each batch, and the norm of their summed gradient."""

    losses: list[float]
    gradient_norm: float


def replay_failure(task: Task, folder: Path | str, *, stages: Sequence[Stage], rank: int = 0) -> Replay:
    """Repeat the update that stopped a run: same weights, batches and noise. Gradients are left on the parameters.

    The batches are unpickled, so only open folders that a run of yours has written.

    Args:
        task: Built as for the run; its model gets the weights before the failed step.
        folder: The folder `failure` of the run.
        stages: The stages of the run.
        rank: Whose batches to repeat.
    """
    folder = Path(folder)
    report: Mapping[str, Any] = json.loads((folder / f"rank-{rank}.json").read_bytes())
    saved = torch.load(folder / f"rank-{rank}.pt", map_location="cpu", weights_only=False)
    stage = {stage.name: stage for stage in stages}.get(report["stage"])
    if stage is None:
        raise ValueError(f"the failure is of stage {report['stage']!r}; pass the stages of that run")
    load_weights(task.model, folder)
    if isinstance(task, HasState):
        task.load_state_dict(saved["task"])
    for name, module in stage.modules().items():
        module.load_state_dict(saved["modules"][name])
    set_trainable(task.model, stage)
    task.model.train()
    device = next(task.model.parameters()).device
    before, losses = capture(), []
    try:
        for batch, random in zip(saved["batches"], saved["random"], strict=True):
            restore(random)
            with torch.autocast(device.type, torch.bfloat16, enabled=report["precision"] == "bf16"):
                output = task.step(move(batch, device), stage, report["update"])
            output.loss.backward()
            losses.append(float(output.loss.detach()))
    finally:
        restore(before)
    gradients = [parameter.grad for parameter in task.model.parameters() if parameter.grad is not None]
    return Replay(losses, float(torch.nn.utils.get_total_norm(gradients)))
