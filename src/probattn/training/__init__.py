"""The training engine: loop, stages, checkpoints, exact resume, logs, several processes; nothing about attention."""

from probattn.training.aggressive import Aggressive
from probattn.training.checkpoint import Checkpoint, load_checkpoint
from probattn.training.diagnostics import CollapseWarning, effective_kl_gradient, warn_of_collapse
from probattn.training.distributed import is_main_process
from probattn.training.errors import CheckpointError, OutputError, TrainingFailure, TrainingInterrupted
from probattn.training.failure import Replay, replay_failure
from probattn.training.model_folder import load_weights, save_model_folder
from probattn.training.settings import TrainerSettings
from probattn.training.stage import EveryBatch, Stage, UpdateRule
from probattn.training.task import HasAfterUpdate, HasIdentity, HasState, StepOutput, Task
from probattn.training.trainer import Trainer, TrainResult

__all__ = [
    "Aggressive",
    "Checkpoint",
    "CheckpointError",
    "CollapseWarning",
    "EveryBatch",
    "HasAfterUpdate",
    "HasIdentity",
    "HasState",
    "OutputError",
    "Replay",
    "Stage",
    "StepOutput",
    "Task",
    "TrainResult",
    "Trainer",
    "TrainerSettings",
    "TrainingFailure",
    "TrainingInterrupted",
    "UpdateRule",
    "effective_kl_gradient",
    "is_main_process",
    "load_checkpoint",
    "load_weights",
    "replay_failure",
    "save_model_folder",
    "warn_of_collapse",
]
