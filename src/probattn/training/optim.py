"""Optimisers, learning rates and the selection of the best validation."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from probattn.training.settings import TrainerSettings
from probattn.training.stage import Stage, matches

__all__ = ["Clock", "Selection", "build_optimizer", "decay_at", "set_learning_rate", "set_trainable"]

Named = dict[str, nn.Parameter]


def set_trainable(model: nn.Module, stage: Stage) -> Named:
    """Freeze what the stage does not train; returns what it does, by name."""
    chosen: Named = {}
    for name, parameter in model.named_parameters():
        is_trained = matches(name, stage.trainable)
        parameter.requires_grad_(is_trained)
        parameter.grad = None
        if is_trained:
            chosen[name] = parameter
    return chosen


def build_optimizer(parameters: Named, stage: Stage, settings: TrainerSettings) -> torch.optim.Optimizer:
    """The settings' optimiser with one group for each learning rate.

    Every group keeps its peak rate as "peak", from which `set_learning_rate` starts.
    """
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in parameters.items():
        rates = (rate for pattern, rate in stage.learning_rates.items() if matches(name, [pattern]))
        groups.setdefault(next(rates, settings.learning_rate), []).append(parameter)
    options: list[dict[str, Any]] = [{"params": group, "lr": rate, "peak": rate} for rate, group in groups.items()]
    if settings.optimizer == "sgd":
        return torch.optim.SGD(options, lr=1.0, momentum=settings.momentum, weight_decay=settings.weight_decay)
    kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.AdamW
    is_fused = all(_has_fused(parameter) for parameter in parameters.values())
    return kind(options, lr=1.0, betas=settings.betas, weight_decay=settings.weight_decay, fused=is_fused)


def _has_fused(parameter: nn.Parameter) -> bool:
    return parameter.is_floating_point() and parameter.device.type in ("cpu", "cuda", "xpu")


@dataclass(frozen=True)
class Clock:
    """How far a stage is; what learning-rate schedules look at.

    Attributes:
        update: Updates done in this stage.
        epochs: Epochs done in this stage.
        progress: Share of the stage that is done; None where the data has no length.
    """

    update: int
    epochs: int
    progress: float | None


def decay_at(clock: Clock, settings: TrainerSettings, plateau: float) -> float:
    """What the schedule multiplies the peak rate with, warm-up apart; `plateau` is the selection's factor.

    Example:
        >>> linear = TrainerSettings(lr_schedule="linear")
        >>> decay_at(Clock(update=25, epochs=2, progress=0.25), linear, plateau=1.0)
        0.75
    """
    if settings.lr_schedule == "linear":
        if clock.progress is None:
            raise ValueError(
                "lr_schedule: linear needs to know where the stage ends; give the stage `updates` instead of "
                "`epochs`, or let task.batches return something with a length"
            )
        return 1.0 - clock.progress
    if settings.lr_schedule == "epoch":
        return float(settings.decay_factor**clock.epochs)
    return plateau if settings.lr_schedule == "plateau" else 1.0


def set_learning_rate(
    optimizer: torch.optim.Optimizer, settings: TrainerSettings, *, clock: Clock, plateau: float, decays: bool = True
) -> float:
    """Set every group's rate to warm-up * max(decay * peak, floor), or without decay; returns the first group's."""
    warmup = min(1.0, (clock.update + 1) / settings.warmup_updates) if settings.warmup_updates else 1.0
    decay = decay_at(clock, settings, plateau) if decays else 1.0
    for group in optimizer.param_groups:
        floor = min(settings.min_learning_rate, group["peak"])
        group["lr"] = warmup * max(decay * group["peak"], floor)
    return float(optimizer.param_groups[0]["lr"])


@dataclass
class Selection:
    """The best validation of a stage, and how long ago it was."""

    best: float | None = None
    best_update: int | None = None
    stale: int = 0
    plateau_stale: int = 0
    plateau_factor: float = 1.0

    def observe(self, value: float, update: int, settings: TrainerSettings) -> bool:
        """Note a validation; returns whether it is the best so far. NaN never is."""
        sign = 1.0 if settings.select_mode == "min" else -1.0
        is_better = not math.isnan(value) and (self.best is None or sign * value < sign * self.best)
        if is_better:
            self.best, self.best_update, self.stale, self.plateau_stale = value, update, 0, 0
            return True
        self.stale += 1
        self.plateau_stale += 1
        if settings.lr_schedule == "plateau" and self.plateau_stale > settings.decay_patience:
            self.plateau_factor *= settings.decay_factor
            self.plateau_stale = 0
        return False

    def is_exhausted(self, settings: TrainerSettings) -> bool:
        """Whether it is time to stop early."""
        return settings.early_stop is not None and self.stale >= settings.early_stop
