"""The front door: a task, settings and stages in; a trained model, a log and checkpoints out."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from probattn.training.errors import TrainingInterrupted, say
from probattn.training.run import Run
from probattn.training.settings import TrainerSettings
from probattn.training.stage import Stage, check_stages
from probattn.training.task import Task

__all__ = ["TrainResult", "Trainer"]


@dataclass(frozen=True)
class TrainResult:
    """How a run ended.

    Attributes:
        is_finished: False if the time was up before the last stage ended; run again to continue.
        updates: Optimiser steps done.
        epochs: Passes over the data completed.
        metrics: Result of the last validation.
        best_value: Best value of the selected metric in the last stage; None if nothing is selected by.
        best: Checkpoint of the best validation in the last stage; the last one if nothing is selected by.
        last: Newest checkpoint; the model in memory has its weights.
        log: The JSONL log.
        train_seconds: Time spent on updates, over all runs that were resumed.
    """

    is_finished: bool
    updates: int
    epochs: int
    metrics: Mapping[str, float]
    best_value: float | None
    best: Path
    last: Path
    log: Path
    train_seconds: float


class Trainer:
    """Trains a task through its stages, with checkpoints, and continues where an earlier run into `output` ended.

    A killed run that is started again ends with the same weights, on the CPU bit for bit, and the same log as one that
    was never interrupted. Ctrl-C and SIGTERM save and exit. Several processes are started by torchrun.

    Args:
        task: Model, data, step, validation. Build the model before, with its own seed.
        settings: How to train.
        stages: In this order; one for most models.
        output: Folder of the run: log.jsonl, tensorboard/, checkpoints/ and, if it comes to that, failure/.
        show_progress: Whether to show a progress bar on a terminal.

    Example:
        >>> import tempfile, torch
        >>> from probattn.training import StepOutput
        >>> class Line:
        ...     model = torch.nn.Linear(1, 1)
        ...     def batches(self, epoch):
        ...         return [torch.tensor([[float(n)]]) for n in range(4)]
        ...     def step(self, batch, stage, update):
        ...         loss = (self.model(batch) - 2.0 * batch).square().mean()
        ...         return StepOutput(loss, weight=len(batch), logs={"tokens": (len(batch), 1)})
        ...     def validate(self):
        ...         return {"error": float((self.model.weight - 2.0).abs())}
        ...     def describe_batch(self, batch):
        ...         return {"input": batch.tolist()}
        >>> settings = TrainerSettings(learning_rate=0.1, select_by="error", tensorboard=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = Trainer(Line(), settings, stages=[Stage("fit", epochs=5)], output=folder).run()
        >>> result.is_finished, result.updates, result.best.name.startswith("update-")
        (True, 20, True)
    """

    def __init__(
        self,
        task: Task,
        settings: TrainerSettings,
        *,
        stages: Sequence[Stage],
        output: Path | str,
        show_progress: bool = True,
    ) -> None:
        check_stages(stages, task.model)
        for stage in stages:
            if stage.hand_over == "best" and settings.select_by is None:
                raise ValueError(
                    f"stage {stage.name!r} hands over its best weights; say by which metric in `select_by`"
                )
        self._task, self._settings, self._stages = task, settings, tuple(stages)
        self._output, self._show_progress = Path(output), show_progress

    def run(self) -> TrainResult:
        """Train to the end.

        Raises:
            TrainingInterrupted: A signal came; everything is saved.
            TrainingFailure: The loss or its gradient was not finite, or the loss exploded.
            OutputError: The disk is full or not writable; the last checkpoint is intact.
            CheckpointError: The checkpoints in `output` are damaged or belong to another run.
        """
        run = Run(
            self._task, self._settings, stages=self._stages, output=self._output, show_progress=self._show_progress
        )
        run.execute()
        loop = run.loop
        last = run.store.path(loop.update)
        is_finished = loop.stage == len(self._stages)
        if not is_finished and run.is_main:
            reason = "A signal came" if run.stop_reason == "signal" else "The time is up"
            say(f"{reason}: saved {last}. Run the same command again to resume.")
        if run.stop_reason == "signal" or run.interrupt.signal is not None:
            raise TrainingInterrupted(128 + (run.interrupt.signal or signal.SIGTERM))
        best = loop.selection.best_update
        return TrainResult(
            is_finished=is_finished,
            updates=loop.update,
            epochs=loop.epoch,
            metrics=loop.metrics,
            best_value=loop.selection.best,
            best=last if best is None else run.store.path(best),
            last=last,
            log=self._output / "log.jsonl",
            train_seconds=loop.train_seconds,
        )
