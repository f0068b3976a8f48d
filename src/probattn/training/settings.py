"""Settings of a training run, as a flat dataclass that a command line or a YAML file can fill."""

from dataclasses import dataclass
from typing import Literal, get_args

from probattn.core.arguments import require_choice

__all__ = ["FREE_SETTINGS", "TrainerSettings"]

FREE_SETTINGS = frozenset(
    {"explosion_factor", "keep_last", "kl_gradient_every", "log_every", "max_seconds", "save_every", "tensorboard"}
)
"""What may differ when a run is resumed, because the weights do not depend on it."""
_Optimizer = Literal["adam", "adamw", "sgd"]
_LearningRateSchedule = Literal["constant", "linear", "plateau", "epoch"]
_Mode = Literal["min", "max"]
_Precision = Literal["no", "bf16"]
_CHOICES = {
    "optimizer": get_args(_Optimizer),
    "lr_schedule": get_args(_LearningRateSchedule),
    "select_mode": get_args(_Mode),
    "precision": get_args(_Precision),
}


@dataclass(frozen=True)
class TrainerSettings:
    """How to train; what to train is the task's business, in which order the stages'."""

    seed: int = 0
    """Seed of all noise; each rank derives its own. Initial weights are drawn before, by the recipe."""
    optimizer: _Optimizer = "adam"
    """Adam and AdamW are fused where the device allows it."""
    learning_rate: float = 1e-3
    """Peak learning rate; a stage may override it for some parameters."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of Adam's moments; not used by sgd."""
    momentum: float = 0.0
    """Momentum of sgd; not used by Adam."""
    weight_decay: float = 0.0
    """Weight decay of all parameters, decoupled with adamw."""
    clip_norm: float | None = 5.0
    """Largest norm of the gradient over all parameters; null for no clipping."""
    lr_schedule: _LearningRateSchedule = "constant"
    """constant; linear to zero at the stage's end; plateau: times `decay_factor` when the validation stops improving;
    epoch: times `decay_factor` after every epoch."""
    warmup_updates: int = 0
    """Updates over which the learning rate rises from zero, at the start of every stage; on top of any schedule."""
    decay_factor: float = 0.5
    """Factor of the schedules plateau and epoch."""
    decay_patience: int = 0
    """plateau: validations without improvement that are forgiven before the rate falls."""
    min_learning_rate: float = 0.0
    """No schedule takes the rate below it; warm-up does."""
    accumulate: int = 1
    """Batches for one update on each rank; the gradient is that of one batch with all of them."""
    select_by: str | None = None
    """Validation metric that chooses the best checkpoint and drives plateau and early stop; null for none."""
    select_mode: _Mode = "min"
    """Whether small or large values of the metric are good."""
    early_stop: int | None = None
    """End the stage after this many validations in a row without improvement; null for never."""
    validate_every: int | Literal["epoch"] | None = "epoch"
    """Updates between validations, or "epoch"; null for never. A stage always ends with one unless null."""
    log_every: int = 50
    """Updates between lines of the log."""
    kl_gradient_every: int = 100
    """Updates between measurements of the effective KL gradient, which cost two backward passes; 0 for never."""
    save_every: int = 500
    """Updates between checkpoints; improved validations, ends of stages and interruptions save too."""
    keep_last: int = 2
    """Checkpoints that are kept besides the best one; two, so that a damaged one has a predecessor."""
    precision: _Precision = "no"
    """bf16 runs the step under autocast; weights and optimiser stay in float32."""
    explosion_factor: float | None = None
    """Stop when a loss exceeds this many times the median of the last hundred (if that is positive); null for never.
    Losses and gradients that are not finite always stop the run."""
    max_seconds: float | None = None
    """Save and stop after this time; the next run continues. Null for no limit."""
    tensorboard: bool = True
    """Write TensorBoard files too, if it is installed."""

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            require_choice(f"TrainerSettings.{name}", getattr(self, name), choices)
        positive = {name: getattr(self, name) for name in ("accumulate", "log_every", "save_every", "keep_last")}
        if isinstance(self.validate_every, int):
            positive["validate_every"] = self.validate_every
        for name in ("clip_norm", "early_stop", "explosion_factor", "max_seconds"):
            if getattr(self, name) is not None:
                positive[name] = getattr(self, name)
        for name, value in {**positive, "learning_rate": self.learning_rate}.items():
            if value <= 0:
                raise ValueError(f"TrainerSettings.{name} must be positive, got {value}")
        for name in ("warmup_updates", "decay_patience", "min_learning_rate", "kl_gradient_every", "weight_decay"):
            if getattr(self, name) < 0:
                raise ValueError(f"TrainerSettings.{name} must not be negative, got {getattr(self, name)}")
        if not 0.0 < self.decay_factor <= 1.0:
            raise ValueError(f"TrainerSettings.decay_factor must lie in (0, 1], got {self.decay_factor}")
        needs_metric = {
            "lr_schedule: plateau": self.lr_schedule == "plateau",
            "early_stop": self.early_stop is not None,
        }
        for name, is_used in needs_metric.items():
            if is_used and (self.select_by is None or self.validate_every is None):
                raise ValueError(f"{name} needs `select_by` (a validation metric) and `validate_every`")
