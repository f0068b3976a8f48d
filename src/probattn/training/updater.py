"""One optimiser step: forward and backward over a group of batches, on all ranks, and the checks in between."""

import copy
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from probattn.core.checks import NonFiniteError
from probattn.training.batches import Group, move
from probattn.training.diagnostics import effective_kl_gradient
from probattn.training.distributed import Processes
from probattn.training.errors import TrainingFailure
from probattn.training.failure import WINDOW, Failure, find_failure, write_failure
from probattn.training.journal import LogSums
from probattn.training.optim import build_optimizer, set_learning_rate, set_trainable
from probattn.training.randomness import RandomState, capture
from probattn.training.settings import TrainerSettings
from probattn.training.stage import HasLogs, Stage, matches
from probattn.training.state import LoopState
from probattn.training.task import HasAfterUpdate, StepOutput, Task

__all__ = ["Updater"]


class _Step(nn.Module):
    """The task's step as a module, so that gradients of whatever it calls are averaged over ranks.

    Only the loss travels through the wrapper, whose search for unused parameters starts from what it sees.
    """

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.model = task.model
        self._task = task
        self._outputs: list[StepOutput] = []

    def forward(self, batch: Any, stage: Stage, update: int) -> Tensor:
        output = _checked(self._task.step(batch, stage, update))
        self._outputs.append(output)
        return output.loss

    def taken(self) -> StepOutput:
        """The output of the last forward pass, handed out once."""
        return self._outputs.pop()


@dataclass(frozen=True)
class _Pass:
    """One batch of an update, forward and backward."""

    batch: Any
    random: RandomState
    output: StepOutput
    is_counted: bool


class Updater:
    """The optimiser of one stage and all that an update does.

    Args:
        task: Gives the step.
        stage: Says what is trained.
        settings: Optimiser, clipping, checks.
        processes: The ranks.
        failure_folder: Where a failed update is kept.
    """

    def __init__(
        self, task: Task, stage: Stage, *, settings: TrainerSettings, processes: Processes, failure_folder: Path
    ) -> None:
        self._task, self._stage, self._settings, self._processes = task, stage, settings, processes
        self._failure_folder = failure_folder
        for module in stage.modules().values():
            module.to(processes.device)
        task.model.to(processes.device)
        self._parameters = set_trainable(task.model, stage)
        self._step = _Step(task)
        self._wrapped = processes.wrap(self._step)
        self._optimizer = build_optimizer(self._parameters, stage, settings)
        self.rule = copy.deepcopy(stage.update_rule)
        self.learning_rate = settings.learning_rate

    def state_dict(self) -> dict[str, Any]:
        """State of optimiser and update rule."""
        return {"optimizer": self._optimizer.state_dict(), "rule": self.rule.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self._optimizer.load_state_dict(state["optimizer"])
        self.rule.load_state_dict(state["rule"])

    def update(self, group: Group, loop: LoopState, *, sums: LogSums, wishes: Callable[[], list[float]]) -> list[float]:
        """Take one optimiser step.

        Args:
            group: This rank's batches.
            loop: Where the run stands before the step.
            sums: Gets what the steps log.
            wishes: Asked after the backward passes for numbers of this rank that all ranks must agree on.

        Returns:
            The sums of `wishes` over all ranks.

        Raises:
            TrainingFailure: Loss or gradient is not finite, or the loss exploded; no parameter was changed.
        """
        self._task.model.train()
        self.learning_rate = set_learning_rate(
            self._optimizer,
            self._settings,
            clock=loop.clock(self._stage, group.total),
            plateau=loop.selection.plateau_factor,
            decays=self._stage.decays,
        )
        versions = self._buffer_versions()
        passes = [self._run(group, place, loop.stage_update, sums) for place in range(len(group.batches))]
        loss, relative, agreed = self._share(passes, wishes())
        moved = self._moved_parameters()
        norm = get_total_norm([parameter.grad for parameter in moved if parameter.grad is not None])
        self._check(loss, float(norm), passes=passes, loop=loop)
        if self._settings.clip_norm is not None:
            clip_grads_with_norm_(moved, self._settings.clip_norm, norm)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._finish(passes, versions)
        if isinstance(self.rule, HasLogs):
            for name, value in self.rule.logs().items():
                sums.add(name, value, 1.0)
        self.rule.after_update(relative)
        sums.add("gradient_norm", float(norm), 1.0)
        return agreed

    def _run(self, group: Group, place: int, update: int, sums: LogSums) -> _Pass:
        """Forward and backward of one batch; gradients are averaged over ranks with the last one."""
        batch, is_counted = move(group.batches[place], self._processes.device), group.is_counted[place]
        random = capture()
        is_last = place == len(group.batches) - 1
        with nullcontext() if is_last else self._processes.without_sync(self._wrapped):
            with torch.autocast(
                self._processes.device.type, torch.bfloat16, enabled=self._settings.precision == "bf16"
            ):
                loss = self._forward(batch, update, random)
            output = replace(self._step.taken(), loss=loss.float())
            every = self._settings.kl_gradient_every
            has_parts = {"likelihood", "kl"} <= set(output.parts)
            is_measured = place == 0 and every > 0 and update % every == 0 and has_parts
            is_alone = len(group.batches) == 1 and self._processes.num_ranks == 1
            scaled = output.loss if is_alone else output.loss * (output.weight * is_counted)
            scaled.backward(retain_graph=is_measured)
            if is_measured:  # after the backward pass, which so does not depend on whether there is a measurement
                parts = output.parts
                ratio = effective_kl_gradient(self._parameters.values(), parts["likelihood"], parts["kl"])
                sums.add("effective_kl_gradient", ratio, 1.0)
        if is_counted:
            sums.add("loss", output.loss.detach().double() * output.weight, output.weight)
            for name, (total, count) in output.logs.items():
                sums.add(name, total, count)
        return _Pass(batch, random, replace(output, loss=output.loss.detach(), parts={}), is_counted)

    def _forward(self, batch: Any, update: int, random: RandomState) -> Tensor:
        """The loss of a batch; numbers that are not finite and were found on the way to it are a failure too."""
        try:
            loss: Tensor = self._wrapped(batch, self._stage, update)
        except NonFiniteError as error:
            raise self._failed(
                str(error), update=update, loss=math.nan, norm=math.nan, batches=[batch], random=[random]
            ) from error
        return loss

    def _share(self, passes: Sequence[_Pass], wishes: Sequence[float]) -> tuple[float, float, list[float]]:
        """Turn the summed gradients into those of the mean loss; returns that loss, it by length, the agreed wishes.

        With weights w_i the gradient is sum_i w_i grad_i / sum_i w_i over all batches of all ranks.
        """
        counted = [entry.output for entry in passes if entry.is_counted]
        weights = sum(output.weight for output in counted)
        losses = sum(float(output.loss) * output.weight for output in counted)
        lengths = sum(output.weight * output.unit_length for output in counted)
        weight, loss, length, *agreed = self._processes.sum([weights, losses, lengths, *wishes])
        if len(passes) > 1 or self._processes.num_ranks > 1:
            for parameter in self._parameters.values():
                if parameter.grad is not None:
                    parameter.grad.mul_(self._processes.num_ranks / weight)
        return loss / weight, loss / length, agreed

    def _moved_parameters(self) -> list[nn.Parameter]:
        """What the update rule moves in this step; all other gradients are dropped."""
        patterns = self.rule.moves()
        for name, parameter in self._parameters.items():
            if not matches(name, patterns):
                parameter.grad = None
        return [parameter for parameter in self._parameters.values() if parameter.grad is not None]

    def _check(self, loss: float, norm: float, *, passes: Sequence[_Pass], loop: LoopState) -> None:
        factor = self._settings.explosion_factor
        reason = find_failure(loss, norm, recent=loop.recent_losses, factor=factor)
        if reason is None:
            if factor is not None:
                loop.recent_losses = [*loop.recent_losses, loss][-WINDOW:]
            return
        batches, random = [entry.batch for entry in passes], [entry.random for entry in passes]
        raise self._failed(reason, update=loop.stage_update, loss=loss, norm=norm, batches=batches, random=random)

    def _failed(
        self,
        reason: str,
        *,
        update: int,
        loss: float,
        norm: float,
        batches: Sequence[Any],
        random: Sequence[RandomState],
    ) -> TrainingFailure:
        """Keep what it takes to repeat an update that went wrong; returns the error to raise."""
        failure = Failure(
            reason=reason,
            stage=self._stage.name,
            update=update,
            loss=loss,
            gradient_norm=norm,
            precision=self._settings.precision,
            batches=list(batches),
            random=list(random),
        )
        self._optimizer.zero_grad(set_to_none=True)
        return TrainingFailure(
            write_failure(self._failure_folder, failure, task=self._task, stage=self._stage, rank=self._processes.rank)
        )

    def _finish(self, passes: Sequence[_Pass], versions: dict[int, int]) -> None:
        """The task's own update of running means and the like, and their mean over ranks."""
        if isinstance(self._task, HasAfterUpdate):
            with torch.no_grad():
                for entry in passes:  # also one that does not count: all ranks must change the same buffers
                    self._task.after_update(entry.batch, entry.output)
        if self._processes.num_ranks > 1:
            changed = [buffer for buffer in self._buffers() if versions.get(id(buffer)) != buffer._version]
            self._processes.average_(changed)

    def _buffers(self) -> list[Tensor]:
        modules = [self._task.model, *self._stage.modules().values()]
        return [buffer for module in modules for buffer in module.buffers()]

    def _buffer_versions(self) -> dict[int, int]:
        return {id(buffer): buffer._version for buffer in self._buffers()}


def _checked(output: object) -> StepOutput:
    """The step's output, if it can be used."""
    if not isinstance(output, StepOutput):
        raise TypeError(f"task.step must return a StepOutput, got {type(output).__name__}")
    if output.loss.ndim != 0 or not output.loss.requires_grad:
        raise ValueError(
            f"StepOutput.loss must be a scalar that depends on trainable parameters, got shape "
            f"{tuple(output.loss.shape)} and requires_grad={output.loss.requires_grad}"
        )
    if not 0.0 < output.weight < float("inf"):
        raise ValueError(f"StepOutput.weight must be positive and finite, got {output.weight}")
    return output
