"""A recipe's run of the training engine, from its first update or from where it stopped, to its chosen weights."""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol

from torch import nn

from probattn.core.checks import NonFiniteError
from probattn.recipes.recipe import Run
from probattn.recipes.results import RowResult
from probattn.training import (
    Stage,
    Task,
    Trainer,
    TrainerSettings,
    TrainingFailure,
    TrainResult,
    is_main_process,
    load_weights,
    replay_failure,
)


def train_to_end(task: Task, run: Run, *, settings: TrainerSettings, stages: Sequence[Stage], seed: int) -> TrainResult:
    """Train, and load the chosen weights into the task's model.

    Args:
        task: What is trained.
        run: Where checkpoints and logs go.
        settings: Of the engine.
        stages: What is trained, in order.
        seed: Of all noise.

    Raises:
        SystemExit: The time was up, so that the run is to be continued; or this is not the process that evaluates; or
            the failed update was to be repeated, which is done.
        TrainingFailure: A loss or gradient was not finite, or the loss exploded.
    """
    if settings.seed not in (TrainerSettings.seed, seed):
        raise ValueError(f"trainer.seed={settings.seed} has no effect: the seed of weights and noise is seed={seed}")
    if run.is_replay:
        print(replayed(task, run.output / "failure", stages=stages))
        raise SystemExit(0)
    trainer = Trainer(
        task, replace(settings, seed=seed), stages=stages, output=run.output, show_progress=run.show_progress
    )
    try:
        result = trainer.run()
    except TrainingFailure as error:
        hint = f"On the command line: repeat your `probattn train` with --output {run.output} --replay."
        raise TrainingFailure(f"{error} {hint}") from error
    if not result.is_finished:
        raise SystemExit(f"the time was up after {result.updates} updates; run the same command again to go on")
    if not is_main_process():
        raise SystemExit(0)  # one process evaluates and writes
    if result.updates < settings.warmup_updates:
        print(
            f"The learning rate was still rising when training ended: {result.updates} updates, of which the first "
            f"{settings.warmup_updates} warm up. Train longer (epochs or updates, with a new --output), or lower "
            "trainer.warmup_updates.",
            file=sys.stderr,
        )
    load_weights(task.model, result.best)
    return result


def replayed(task: Task, folder: Path, *, stages: Sequence[Stage]) -> str:
    """Repeat the update that stopped a run, and say what came of it.

    Args:
        task: Of the run.
        folder: Where the failure was kept.
        stages: Of the run.
    """
    report = json.loads((folder / "rank-0.json").read_bytes())
    try:
        found = replay_failure(task, folder, stages=stages)
    except NonFiniteError as error:
        return f"update {report['update']} of stage {report['stage']!r}, repeated:\n{error}"
    gradients = {name: one.grad for name, one in task.model.named_parameters() if one.grad is not None}
    broken = [name for name, gradient in gradients.items() if not bool(gradient.isfinite().all())]
    return "\n".join(
        [
            f"{report['reason']} at update {report['update']} of stage {report['stage']!r}, repeated:",
            f"loss {', '.join(f'{loss:g}' for loss in found.losses)}; norm of the gradient {found.gradient_norm:g}",
            f"gradients that are not finite: {', '.join(broken) if broken else 'none'}",
            f"the batch is described in {folder / 'rank-0.json'}",
        ]
    )


def announce(corpus: object, run: Run) -> None:
    """Say what the text is, once, where progress is shown."""
    if run.show_progress and is_main_process():
        print(corpus, file=sys.stderr)


class RowSettings(Protocol):
    """What the settings of every recipe have."""

    row: str
    source: str
    seed: int


def row_result(
    settings: RowSettings,
    result: TrainResult,
    *,
    model: nn.Module,
    facts: Mapping[str, Any],
    metrics: Mapping[str, float],
    curve: str,
    examples: Sequence[dict[str, Any]],
) -> RowResult:
    """The result of a finished run.

    Args:
        settings: Name, source and seed of the row.
        result: Of the engine; its log has the curves, and it knows the time.
        model: Whose parameters are counted.
        facts: Bound, estimators and what else numbers need to be understood.
        metrics: Of the evaluation.
        curve: Which validation metric is the row's main curve.
        examples: For the report.
    """
    parameters = sum(parameter.numel() for parameter in model.parameters())
    numbers = {**metrics, "parameters": float(parameters), "train_seconds": result.train_seconds}
    curves = validation_curves(result.log)
    return RowResult(
        row=settings.row,
        source=settings.source,
        seed=settings.seed,
        facts=dict(facts),
        metrics=numbers,
        curve=curves.get(curve, []),
        curves=curves,
        examples=list(examples),
    )


def validation_curves(log: Path) -> dict[str, list[tuple[int, float]]]:
    """(update, value) pairs of every validation metric of a run's log."""
    return _curves(log, "validation")


def training_curves(log: Path, names: Mapping[str, str]) -> dict[str, list[tuple[int, float]]]:
    """(update, mean since the line before) pairs of what the steps logged.

    Args:
        log: Of the run.
        names: What is wanted, and what the curves are to be called; what was never logged is left out.
    """
    found = _curves(log, "train")
    return {curve: found[name] for name, curve in names.items() if name in found}


def _curves(log: Path, kind: str) -> dict[str, list[tuple[int, float]]]:
    curves: dict[str, list[tuple[int, float]]] = {}
    for entry in _entries(log):
        if entry["kind"] != kind:
            continue
        for name, value in entry.items():
            if name not in ("kind", "update", "stage", "epoch") and _is_finite(value):
                curves.setdefault(name, []).append((entry["update"], value))
    return curves


def last_logged(log: Path, name: str) -> dict[str, float]:
    """The last finite value of a training log's column, by its name; empty where there is none."""
    values = [entry[name] for entry in _entries(log) if _is_finite(entry.get(name))]
    return {name: values[-1]} if values else {}


def _is_finite(value: Any) -> bool:
    """A log writes what is not finite as text."""
    return isinstance(value, int | float) and math.isfinite(value)


def _entries(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def selecting(settings: TrainerSettings, modes: Mapping[str, Literal["min", "max"]]) -> TrainerSettings:
    """The same settings with the direction in which the metric that selects is good.

    Args:
        settings: Of the trainer; its `select_mode` is taken from `modes`.
        modes: What a validation gives.

    Raises:
        ValueError: A metric that a validation does not give.
    """
    if settings.select_by is None:
        return settings
    if settings.select_by not in modes:
        raise ValueError(f"trainer.select_by={settings.select_by}: a validation gives {', '.join(modes)}; or use null")
    return replace(settings, select_mode=modes[settings.select_by])
