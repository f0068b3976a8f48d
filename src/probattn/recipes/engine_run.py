"""A recipe's run of the training engine, from its first update or from where it stopped, to its chosen weights."""

import sys
from collections.abc import Sequence
from dataclasses import replace

from probattn.recipes.recipe import Run
from probattn.training import Stage, Task, Trainer, TrainerSettings, TrainResult, is_main_process, load_weights


def train_to_end(task: Task, run: Run, *, settings: TrainerSettings, stages: Sequence[Stage], seed: int) -> TrainResult:
    """Train, and load the chosen weights into the task's model.

    Args:
        task: What is trained.
        run: Where checkpoints and logs go.
        settings: Of the engine.
        stages: What is trained, in order.
        seed: Of all noise.

    Raises:
        SystemExit: The time was up, so that the run is to be continued; or this is not the process that evaluates.
    """
    trainer = Trainer(
        task, replace(settings, seed=seed), stages=stages, output=run.output, show_progress=run.show_progress
    )
    result = trainer.run()
    if not result.is_finished:
        raise SystemExit(f"the time was up after {result.updates} updates; run the same command again to go on")
    if not is_main_process():
        raise SystemExit(0)  # one process evaluates and writes
    load_weights(task.model, result.best)
    return result


def announce(corpus: object, run: Run) -> None:
    """Say what the text is, once, where progress is shown."""
    if run.show_progress and is_main_process():
        print(corpus, file=sys.stderr)
