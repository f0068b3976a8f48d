"""From a running training to a checkpoint and back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from probattn.training.checkpoint import CheckpointStore, Snapshot, load_checkpoint
from probattn.training.distributed import Processes
from probattn.training.errors import say
from probattn.training.fingerprint import check_fingerprint, make_fingerprint
from probattn.training.journal import LogSums
from probattn.training.model_folder import load_weights
from probattn.training.randomness import RandomState, capture
from probattn.training.settings import TrainerSettings
from probattn.training.stage import Stage
from probattn.training.state import LoopState
from probattn.training.task import HasState, Task

__all__ = ["Keeper", "Restored"]


@dataclass(frozen=True)
class Restored:
    """What a checkpoint holds besides the weights.

    Attributes:
        loop: Counters and selection.
        updater: State of optimiser and update rule; None at the start of a stage.
        random: State of this rank's generators.
        sums: This rank's log sums.
    """

    loop: LoopState
    updater: dict[str, Any] | None
    random: RandomState
    sums: dict[str, tuple[float, float]]


class Keeper:
    """Saves and restores everything that a resumed run needs.

    Args:
        task: Its model and, if it has one, its own state.
        settings: Part of the fingerprint.
        stages: Part of the fingerprint; modules inside their estimators are saved.
        processes: Every rank has its own random state and log sums.
        store: Where checkpoints are.
    """

    def __init__(
        self,
        task: Task,
        settings: TrainerSettings,
        *,
        stages: Sequence[Stage],
        processes: Processes,
        store: CheckpointStore,
    ) -> None:
        self._task, self._processes, self._store = task, processes, store
        self._modules: dict[str, nn.Module] = {}
        for stage in stages:
            self._modules |= stage.modules()
        self._fingerprint = make_fingerprint(task, settings, stages=stages, num_ranks=processes.num_ranks)

    def save(self, loop: LoopState, sums: LogSums, updater: dict[str, Any] | None) -> None:
        """Write a checkpoint of this moment; all ranks call it, the main rank writes."""
        task_state = self._task.state_dict() if isinstance(self._task, HasState) else None
        ranks = self._processes.gather({"random": capture(), "sums": sums.state(), "task": task_state})
        training = {
            "updater": updater,
            "ranks": ranks,
            "modules": {name: module.state_dict() for name, module in self._modules.items()},
        }
        snapshot = Snapshot(
            update=loop.update,
            best=loop.selection.best_update,
            model=self._task.model,
            training=training,
            loop=loop.to_json(),
            fingerprint=self._fingerprint,
        )
        self._processes.on_main(lambda: self._store.save(snapshot))

    def restore(self) -> Restored | None:
        """Load the newest intact checkpoint into model and task; None if there is no checkpoint.

        Raises:
            CheckpointError: All checkpoints are damaged, or they belong to another run.
        """
        update = self._processes.on_main(self._store.open)
        if update is None:
            return None
        checkpoint = load_checkpoint(self._store.path(update))
        check_fingerprint(checkpoint.fingerprint, self._fingerprint, checkpoint.path)
        load_weights(self._task.model, checkpoint.path)
        for name, module in self._modules.items():
            module.load_state_dict(checkpoint.training["modules"][name])
        mine = checkpoint.training["ranks"][self._processes.rank]
        if isinstance(self._task, HasState):
            self._task.load_state_dict(mine["task"])
        if self._processes.is_main:
            say(f"Resuming from {checkpoint.path}.")
        loop = LoopState.from_json(checkpoint.loop)
        return Restored(loop, checkpoint.training["updater"], mine["random"], mine["sums"])
