"""The loop: stages, epochs, updates, and what follows an update (log, validation, checkpoint)."""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import torch

from probattn.training.batches import Dealer, Group
from probattn.training.checkpoint import CheckpointStore
from probattn.training.distributed import Processes
from probattn.training.files import exclusive
from probattn.training.interrupt import Interrupt
from probattn.training.journal import Journal, LogSums, Progress
from probattn.training.model_folder import load_weights
from probattn.training.randomness import EVALUATION, NOISE, restore, seed_all, seeded
from probattn.training.resume import Keeper
from probattn.training.settings import TrainerSettings
from probattn.training.stage import Stage
from probattn.training.state import LoopState
from probattn.training.task import Task
from probattn.training.updater import Updater

__all__ = ["Run"]


class Run:
    """One process's part in a training run, from the newest checkpoint to the end or an interruption.

    Args:
        task: Model, data, step, validation.
        settings: How to train.
        stages: In this order.
        output: Folder of the run.
        show_progress: Whether the main rank shows a progress bar on a terminal.
    """

    def __init__(
        self, task: Task, settings: TrainerSettings, *, stages: Sequence[Stage], output: Path, show_progress: bool
    ) -> None:
        self._task, self._settings, self._stages, self._output = task, settings, stages, output
        self._processes = Processes()
        self.store = CheckpointStore(output / "checkpoints", settings.keep_last)
        self._keeper = Keeper(task, settings, stages=stages, processes=self._processes, store=self.store)
        self._show_progress = show_progress and self._processes.is_main
        self._dealer = Dealer(
            task, settings.seed, self._processes.rank, self._processes.num_ranks, accumulate=settings.accumulate
        )
        self._started_at = time.monotonic()
        self._sums = LogSums()
        self._journal: Journal | None = None
        self.loop = LoopState()
        self.interrupt = Interrupt()
        self.stop_reason: Literal["signal", "time"] | None = None

    @property
    def is_main(self) -> bool:
        """Whether this process speaks for the run."""
        return self._processes.is_main

    def execute(self) -> None:
        """Train until the stages are done, a signal arrives or the time is up."""
        with ExitStack() as stack:
            # two processes would write into one log and delete each other's checkpoints
            self._processes.on_main(lambda: stack.enter_context(exclusive(self._output)))
            restored = self._keeper.restore()
            if restored is not None:
                self.loop = restored.loop
                self._sums.load(restored.sums)
            stack.enter_context(self.interrupt)
            if self._processes.is_main:
                start, use_board = self.loop.log_bytes, self._settings.tensorboard
                journal = Journal(self._output, start, update=self.loop.update, use_tensorboard=use_board)
                self._journal = stack.enter_context(journal)
            if restored is None:
                # After the model was built: ranks share initial weights, but draw different noise from here on.
                seed_all(NOISE, self._settings.seed, self._processes.rank)
                self._save(None)
            else:
                restore(restored.random)
            state = None if restored is None else restored.updater
            while self.loop.stage < len(self._stages) and self.stop_reason is None:
                self._run_stage(self._stages[self.loop.stage], state)
                state = None

    def _run_stage(self, stage: Stage, state: dict[str, object] | None) -> None:
        updater = Updater(
            self._task,
            stage,
            settings=self._settings,
            processes=self._processes,
            failure_folder=self._output / "failure",
        )
        if state is not None:
            updater.load_state_dict(state)
        index = self.loop.stage
        with Progress(stage.name, self.loop.stage_update, is_shown=self._show_progress) as bar:
            while self.loop.stage == index and self.stop_reason is None:
                for group in self._dealer.groups(self.loop.epoch, self.loop.position):
                    self._update(updater, group)
                    bar.advance(self._expected_updates(stage, group))
                    self._after_update(stage, group, updater=updater, bar=bar)
                    if self.loop.stage != index or self.stop_reason is not None:
                        break

    def _update(self, updater: Updater, group: Group) -> None:
        begun = time.monotonic()
        signals, timeouts = updater.update(group, self.loop, sums=self._sums, wishes=self._wishes)
        if signals or timeouts:
            self.stop_reason = "signal" if signals else "time"
        seconds = time.monotonic() - begun
        self.loop.train_seconds += seconds
        self.loop.window_seconds += seconds
        self.loop.advance(group)

    def _wishes(self) -> list[float]:
        """Whether this rank has heard a signal, and whether its time is up; one rank's wish stops all."""
        limit = self._settings.max_seconds
        is_late = limit is not None and time.monotonic() - self._started_at > limit
        return [float(self.interrupt.signal is not None), float(is_late)]

    def _expected_updates(self, stage: Stage, group: Group) -> int | None:
        if stage.updates is not None or stage.epochs is None or group.total is None:
            return stage.updates
        return stage.epochs * math.ceil(group.total / self._dealer.width)

    def _after_update(self, stage: Stage, group: Group, *, updater: Updater, bar: Progress) -> None:
        """Log, validate, end the stage, save: in this order, so that a checkpoint holds the result of all of them."""
        settings, loop = self._settings, self.loop
        if loop.update % settings.log_every == 0:
            self._log(stage, updater, bar)
        is_over = loop.is_stage_over(stage)
        is_best = False
        every = settings.validate_every
        is_due = group.is_last if every == "epoch" else every is not None and loop.update % every == 0
        if stage.validate_every is not None and every is not None:
            is_due = loop.stage_update % stage.validate_every == 0
        if is_due or (is_over and every is not None):
            is_best = self._validate(updater)
            is_over = is_over or loop.selection.is_exhausted(settings)
        if is_over:
            if self._sums:
                self._log(stage, updater, bar)
            self._end_stage(stage)
        if is_over or is_best or self.stop_reason is not None or loop.update % settings.save_every == 0:
            self._save(None if is_over else updater)

    def _log(self, stage: Stage, updater: Updater, bar: Progress) -> None:
        merged: dict[str, tuple[float, float]] = {}
        for part in self._processes.gather(self._sums.state()):
            for name, (total, count) in part.items():
                before = merged.get(name, (0.0, 0.0))
                merged[name] = (before[0] + total, before[1] + count)
        averages = {name: total / count for name, (total, count) in merged.items() if count}
        weights = {f"weight/{name}": value for name, value in stage.weights_at(self.loop.stage_update - 1).items()}
        speed = {}
        if "tokens" in merged and self.loop.window_seconds:
            speed["tokens_per_second"] = merged["tokens"][0] / self.loop.window_seconds
        self._sums.load({})
        self.loop.window_seconds = 0.0
        rate = {"learning_rate": updater.learning_rate}
        values = {"stage": stage.name, "epoch": self.loop.epoch, **averages, **weights, **rate}
        self._write("train", values, speed)
        bar.show({**averages, **speed})

    def _validate(self, updater: Updater) -> bool:
        """Returns whether this validation is the stage's best."""
        model, loop, select_by = self._task.model, self.loop, self._settings.select_by
        model.eval()
        with torch.no_grad(), seeded(EVALUATION, self._settings.seed):
            metrics = {name: float(value) for name, value in self._task.validate().items()}
        model.train()
        loop.metrics = metrics = self._processes.from_main(metrics)
        if metrics:
            self._write("validation", metrics, {})
        updater.rule.after_validation(metrics)
        if select_by is None:
            return False
        if select_by not in metrics:
            raise ValueError(f"select_by is {select_by!r}, but task.validate() gave {sorted(metrics) or 'nothing'}")
        return loop.selection.observe(metrics[select_by], loop.update, self._settings)

    def _write(self, kind: str, values: Mapping[str, object], speed: Mapping[str, float]) -> None:
        def write() -> None:
            if self._journal is not None:
                self._journal.write(kind, self.loop.update, values, speed=speed)

        self._processes.on_main(write)

    def _end_stage(self, stage: Stage) -> None:
        loop = self.loop
        is_final = loop.stage + 1 == len(self._stages)
        best = loop.selection.best_update
        if stage.hand_over == "best" and best not in (None, loop.update) and not is_final:
            load_weights(self._task.model, self.store.path(best))
        loop.next_stage(len(self._stages))

    def _save(self, updater: Updater | None) -> None:
        self.loop.log_bytes = self._processes.on_main(lambda: self._journal.sync() if self._journal else 0)
        self._keeper.save(self.loop, self._sums, None if updater is None else updater.state_dict())
