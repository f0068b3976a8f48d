"""Where a run stands: everything that a resumed run needs and that is not a tensor."""

from dataclasses import asdict, dataclass, field
from typing import Any

from probattn.training.batches import Group
from probattn.training.optim import Clock, Selection
from probattn.training.stage import Stage

__all__ = ["LoopState"]


@dataclass
class LoopState:
    """Counters of the loop and the selection of the current stage; fits into JSON."""

    stage: int = 0
    """Index of the current stage; the number of stages when the run is finished."""
    update: int = 0
    """Optimiser steps done, over all stages."""
    stage_update: int = 0
    """Optimiser steps done in this stage."""
    epoch: int = 0
    """Epoch that `task.batches` is asked for; goes on counting over stages."""
    stage_epoch: int = 0
    """Epochs completed in this stage."""
    position: int = 0
    """Batches of the current epoch that are done, over all ranks."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Result of the last validation."""
    selection: Selection = field(default_factory=Selection)
    """Best validation of this stage, plateau, early stop."""
    recent_losses: list[float] = field(default_factory=list)
    """Losses that the search for explosions compares with."""
    log_bytes: int = 0
    """Length of log.jsonl."""
    train_seconds: float = 0.0
    """Time spent on updates, over all runs that were resumed."""
    window_seconds: float = 0.0
    """The same since the last line of the log."""

    def clock(self, stage: Stage, total: int | None) -> Clock:
        """How far the stage is; `total` is the number of batches in this epoch."""
        if stage.updates is not None:
            progress: float | None = self.stage_update / stage.updates
        elif stage.epochs is not None and total is not None:
            progress = (self.stage_epoch + self.position / total) / stage.epochs
        else:
            progress = None
        return Clock(update=self.stage_update, epochs=self.stage_epoch, progress=progress)

    def advance(self, group: Group) -> None:
        """Count one update on `group`."""
        self.update += 1
        self.stage_update += 1
        self.position = group.end
        if group.is_last:
            self.epoch += 1
            self.stage_epoch += 1
            self.position = 0

    def is_stage_over(self, stage: Stage) -> bool:
        """Whether the stage has had its updates or epochs."""
        if stage.updates is not None:
            return self.stage_update >= stage.updates
        return stage.epochs is not None and self.stage_epoch >= stage.epochs

    def next_stage(self, num_stages: int) -> None:
        """Go to the start of the next stage, which begins with a new epoch; the last stage keeps its selection."""
        self.stage += 1
        if self.stage == num_stages:
            return
        if self.position > 0:
            self.epoch += 1
        self.stage_update = self.stage_epoch = self.position = 0
        self.selection = Selection()
        self.recent_losses = []

    def to_json(self) -> dict[str, Any]:
        """As plain containers."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "LoopState":
        """Back from what `to_json` returned."""
        return cls(**{**content, "selection": Selection(**content["selection"])})
