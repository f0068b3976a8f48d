"""Settings of one stretch of training of a text model, and of the weights that change in it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from probattn.core import Constant, Cyclical, Linear, Schedule
from probattn.recipes.later_settings import added

__all__ = ["StageSettings", "Weight"]


@dataclass(frozen=True)
class Weight:
    """A weight over a stage, in shares of its length."""

    end: float = 1.0
    """Where it ends."""
    start: float | None = None
    """Where it starts; null: constant."""
    rise: float = 1.0
    """Share of the stage, or of a cycle, over which it rises linearly."""
    cycles: int = 1
    """How often it starts anew."""

    def schedule(self, updates: int) -> Schedule:
        """The weight as a function of the update, for a stage of so many."""
        if self.start is None:
            return Constant(self.end)
        period = max(1, updates // self.cycles)
        ramp = max(1, round(self.rise * period))
        if self.cycles == 1:
            return Linear(self.start, self.end, steps=ramp)
        return Cyclical(period, ramp=min(ramp, period), start=self.start, end=self.end)


@dataclass(frozen=True)
class StageSettings:
    """One stretch of training."""

    name: str
    """In logs."""
    share: float = 1.0
    """Of the updates."""
    kl: Weight = field(default_factory=Weight)
    """Weight of the KL."""
    commitment: Weight = field(default_factory=Weight)
    """Weight of the commitment penalty, for codes."""
    free_nats: float | None = None
    """Nats of a sentence's KL that are free, divided evenly over its latents and features, or codes; null for none."""
    trainable: Sequence[str] = ("*",)
    """Patterns of the parameters that are trained."""
    resets: Sequence[str] = ()
    """Patterns of the modules whose weights are drawn anew before the stage (pretraining: the decoder)."""
    is_aggressive: bool = False
    """Bursts of encoder steps (He et al. 2019)."""
    max_burst: int = added(100)
    """Steps of a burst at most."""
    burst_window: int = added(15)
    """Steps over which the loss of a burst is averaged; it ends when that rises."""
    num_validations: int | None = added(None)
    """How often the stage is validated, evenly; null: as the trainer says."""
    is_noisy: bool = True
    """False: the latent is at its mean (an autoencoder)."""
    is_quantised: bool = added(True)
    """False: the latent is what the encoder gave, before codes take its place (an autoencoder that warms codes up)."""
    decays: bool = added(True)
    """False: the learning rate stays at its peak in this stage."""
    hand_over: Literal["last", "best"] = added("last")
    """Which weights the next stage starts from: those at the end, or the stage's best by `trainer.select_by`."""

    def __post_init__(self) -> None:
        for name in ("max_burst", "burst_window"):
            if not self.is_aggressive and getattr(self, name) != getattr(StageSettings, name):
                raise ValueError(f"stage {self.name!r}: {name} is about bursts, which is_aggressive: true switches on")
