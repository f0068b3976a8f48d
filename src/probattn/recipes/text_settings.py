"""Settings of a row of text modelling, and its stages (DAVAM; text VAEs and their remedies)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from probattn.core import Constant, Elbo, Estimator, FreeBits, Mean, Pathwise, Schedule
from probattn.nn import Unquantised
from probattn.recipes.later_settings import added
from probattn.recipes.text_data import CorpusSettings
from probattn.recipes.text_stages import StageSettings, Weight
from probattn.training import Aggressive, EveryBatch, Stage, TrainerSettings, UpdateRule

SITE = "latent"
_OF_CODES = ("num_codes", "decay", "revive_below")
"""Settings of a codebook; a learned one has the first alone."""


@dataclass(frozen=True)
class NetworkSettings:
    """Sizes of the network; those of DAVAM's code are the defaults."""

    embedding_dim: int = 256
    """Of words."""
    hidden_dim: int = 256
    """Of encoder and decoder."""
    latent_dim: int = 32
    """Of a latent vector or a code."""
    attention_dim: int = 256
    """Of projected latents and of the additive score."""
    prior_channels: int = 512
    """Of the autoregressive prior's convolutions."""
    prior_layers: int = 16
    """Of the autoregressive prior."""
    prior_kernel: int = 5
    """Positions that a convolution sees."""
    dropout: float = 0.5
    """Of the decoder's words and states."""


@dataclass(frozen=True)
class LatentSettings:
    """What is random."""

    scope: Literal["sentence", "memory"] | int
    """One vector per sentence, or one per word, which the decoder attends to; a number: so many per sentence."""
    posterior: Literal["gaussian", "codes", "stochastic-codes"] = "gaussian"
    """A Gaussian, the nearest code of a codebook, or a random choice among codes."""
    prior: Literal["normal", "autoregressive"] = "normal"
    """N(0, 1), or gated causal convolutions over earlier positions."""
    num_codes: int = 512
    """K of the codebook."""
    decay: float = 0.99
    """Of the codebook's moving averages."""
    revive_below: float = 0.1
    """Codes with a smaller average count per batch are put onto encoded vectors; 0 for never."""
    has_places: bool = False
    """Whether the attention to a memory also sees at which place a latent stands; not in the released code."""
    reading: Literal["even", "last", "pooled"] = added("even")
    """What a number of latents is read from: states at the ends of equal parts, the last one, or all of them."""

    def __post_init__(self) -> None:
        if self.posterior != "gaussian" and self.prior == "normal":
            raise ValueError("codes need a prior over codes: latent.prior=autoregressive")
        if self.has_places and self.scope == "sentence":
            raise ValueError("latent.has_places is about the places of a memory; one latent per sentence has none")
        if self.reading != "even" and not isinstance(self.scope, int):
            raise ValueError(
                f"latent.reading={self.reading} goes with a number of latents per sentence, got "
                f"latent.scope={self.scope}"
            )
        idle = {"gaussian": _OF_CODES, "stochastic-codes": _OF_CODES[1:], "codes": ()}[self.posterior]
        for name in idle:
            if getattr(self, name) != getattr(LatentSettings, name):
                raise ValueError(
                    f"latent.{name}={getattr(self, name)} would have no effect with latent.posterior={self.posterior}; "
                    "leave it out"
                )
        if isinstance(self.scope, int) and self.scope < 1:
            raise ValueError(f"latent.scope must be 'sentence', 'memory' or a number of at least 1, got {self.scope}")

    @property
    def positions(self) -> int | None:
        """Latents of every sentence; None where their number is that of its words."""
        return 1 if self.scope == "sentence" else self.scope if isinstance(self.scope, int) else None


@dataclass(frozen=True)
class SamplingSettings:
    """How text is generated from the prior for the evaluation."""

    num_samples: int = 200
    """Texts of each length."""
    lengths: Sequence[int] = (10, 20, 30)
    """Positions of a memory; words at most where there is none."""
    temperature: float = 1.0
    """Of draws from a prior over codes, and of words of a language model."""
    top_p: float = 1.0
    """Of the same."""
    num_importance: int = 500
    """Draws of the importance-weighted perplexity."""
    num_weighted: int = 500
    """Test sentences that it is measured on."""

    def __post_init__(self) -> None:
        counts = {name: getattr(self, name) for name in ("num_samples", "num_importance", "num_weighted")}
        counts |= {f"lengths[{place}]": length for place, length in enumerate(self.lengths)}
        for name, count in counts.items():
            if count < 1:
                raise ValueError(f"sampling.{name} must be at least 1, got {count}")


@dataclass
class TextSettings:
    """One row at one scale."""

    row: str
    """Name of the row in tables and file names."""
    source: str
    """Where the row comes from: paper, section, table."""
    latent: LatentSettings | None
    """Null for a language model."""
    stages: Sequence[StageSettings]
    """What is trained, and how; shares of the updates."""
    updates: int = 5000
    """Of all stages together, the same for every row."""
    batch_size: int = 32
    """Sentences of a batch, at most: those of one length."""
    fills_batches: bool = added(False)
    """Whether other lengths fill a batch up to half of that at least, however few sentences have a length."""
    readout_precision: Literal["no", "bf16"] = added("no")
    """bf16 rounds the factors of the readout's products in training to bfloat16, where the processor is faster with it:
    most of an update is the readout. Sums, logits and gradients stay float32, and so does the evaluation."""
    network: NetworkSettings = field(default_factory=NetworkSettings)
    """Sizes of the network."""
    corpus: CorpusSettings = field(default_factory=CorpusSettings)
    """The text."""
    trainer: TrainerSettings = field(default_factory=TrainerSettings)
    """Optimiser, learning rate, checkpoints."""
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    """Generation."""
    seed: int = 0
    """Of initial weights and noise; the text does not depend on it."""

    def __post_init__(self) -> None:
        total = sum(stage.share for stage in self.stages)
        if abs(total - 1.0) > 1e-6 or not self.stages:
            raise ValueError(f"the shares of the stages must add up to 1, got {total:g}")
        has_codes = self.latent is not None and self.latent.posterior != "gaussian"
        if not has_codes and not all(stage.is_quantised for stage in self.stages):
            raise ValueError("a stage with is_quantised=false goes with latent.posterior=codes or stochastic-codes")
        if not self.stages[-1].is_quantised:
            raise ValueError("the last stage must use the codes: is_quantised=false is for stages before")
        for stage in self.stages:
            if not stage.is_quantised and stage.kl != Weight(end=0.0):
                raise ValueError(f"stage {stage.name!r} has no codes yet, so no KL: write kl: {{end: 0.0}}")

    def stage_updates(self) -> list[int]:
        """Updates of every stage; the last one has what the division leaves."""
        lengths = [max(1, int(stage.share * self.updates + 1e-6)) for stage in self.stages[:-1]]
        rest = self.updates - sum(lengths)
        if rest < 1:
            raise ValueError(f"{self.updates} updates are too few for {len(self.stages)} stages")
        return [*lengths, rest]


def engine_stages(settings: TextSettings) -> list[Stage]:
    """The stages as the training engine takes them."""
    made = []
    for stage, updates in zip(settings.stages, settings.stage_updates(), strict=True):
        weights: dict[str, Schedule] = {}
        free_bits = None
        if settings.latent is not None:
            weights[SITE] = stage.kl.schedule(updates)
            if settings.latent.posterior == "codes":  # to codes that are not in use yet nothing is committed
                commitment = stage.commitment.schedule(updates) if stage.is_quantised else Constant(0.0)
                weights[f"{SITE}/commitment"] = commitment
            if stage.free_nats is not None:
                free_bits = {SITE: _free_bits(stage.free_nats, settings.latent, settings.network.latent_dim)}
        rule: UpdateRule = EveryBatch()
        if stage.is_aggressive:
            others = ("embedding.*", "decoder.*", "first_cell.*", "readout.*")
            rule = Aggressive(("encoder.*", "latent.*"), others, max_burst=stage.max_burst, window=stage.burst_window)
        made.append(
            Stage(
                stage.name,
                updates=updates,
                trainable=stage.trainable,
                bound=Elbo(free_bits),
                estimators={SITE: _estimator(stage)} if settings.latent else {},
                weights=weights,
                update_rule=rule,
                decays=stage.decays,
                hand_over=stage.hand_over,
                validate_every=None if stage.num_validations is None else max(1, updates // stage.num_validations),
            )
        )
    return made


def _estimator(stage: StageSettings) -> Estimator:
    if not stage.is_quantised:
        return Unquantised()
    return Pathwise() if stage.is_noisy else Mean()


def _free_bits(nats: float, latent: LatentSettings, latent_dim: int) -> FreeBits:
    if latent.positions is None:
        raise ValueError(
            "free_nats are divided over the latents of a sentence, whose number must be known: set latent.scope to a "
            "number, or leave free_nats out"
        )
    if latent.posterior == "gaussian":
        return FreeBits(nats / (latent.positions * latent_dim), per="factor")
    return FreeBits(nats / latent.positions)
