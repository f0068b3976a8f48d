"""Settings of a fine-tuning row."""

from dataclasses import dataclass, field
from typing import Literal

from probattn.core import Constant, Schedule
from probattn.distributions import Family, Lognormal, PriorFamily, Weibull
from probattn.recipes.later_settings import added

__all__ = [
    "AttentionSettings",
    "EncoderSettings",
    "EvaluationSettings",
    "GlueSettings",
    "OptimiserSettings",
    "TaskSettings",
    "family_of",
]

TaskName = Literal[
    "mrpc", "cola", "rte", "stsb", "sst2", "mnli", "qnli", "qqp", "wnli", "generated", "generated-score",
    "squad", "squad-part", "squad-dev", "squad-generated",
]  # fmt: skip
_SPREAD = 1.28  # standard deviation of the logarithm of an exponential variable, pi / sqrt(6)


@dataclass(frozen=True)
class TaskSettings:
    """The data."""

    name: TaskName = "generated"
    """A task of `probattn.data.glue` or of `probattn.data.squad_answers`."""
    may_download: bool = False
    """Whether missing files may be fetched where their official address is known."""
    max_train: int | None = None
    """Only so many training examples, the first ones; null for all."""


@dataclass(frozen=True)
class EncoderSettings:
    """The network."""

    name: Literal["minilm", "tiny"] = "minilm"
    """MiniLM with its pretrained weights (extra `minilm`), or a small BERT with random ones for generated tasks."""
    dropout: float = 0.1
    """Of the encoder: hidden units and attention weights. The paper has 0 for most tasks; without it there is no
    dropout to compare uncertainty with, but that of the classifier."""
    classifier_dropout: float = 0.1
    """Of the vector that is classified; heads for spans have none."""
    max_tokens: int = 128
    """Longer inputs are cut, or, where they hold an answer, read in windows; the paper has 512, for SQuAD 384."""


@dataclass(frozen=True)
class AttentionSettings:
    """The distribution of the attention weights, alike in all layers and heads."""

    family: Literal["weibull", "lognormal"] | None = None
    """Of the weights; null for plain attention."""
    prior: PriorFamily | None = None
    """Contextual, from the keys, with five hidden units (the paper's d_mid); null for no KL."""
    anchor: Literal["softmax", "exp"] = "softmax"
    """What E[S] is: softmax(scores), or exp(scores) as the paper writes, whose KL explodes on pretrained scores."""
    k: float = 10.0
    """Of Weibull weights (Table 9). Lognormal weights get noise of the same standard deviation, sigma = 1.28 / k."""
    kl_weight: Schedule = field(default_factory=Constant)
    """Of the KL per attention weight, by update. Constant: the paper does not anneal here."""

    def __post_init__(self) -> None:
        if not self.k > 0.0:
            raise ValueError(f"k must be positive, got {self.k}")
        if self.family is None and self.prior is not None:
            raise ValueError("a prior needs random weights: set attention.family, or attention.prior to null")


@dataclass(frozen=True)
class OptimiserSettings:
    """AdamW with a linear schedule."""

    learning_rate: float = 5e-5
    """At the end of the warm-up; falls to zero at the last update."""
    batch_size: int = 16
    """Examples in an update."""
    epochs: int = 3
    """Passes over the training set."""
    warm_up: float = 0.1
    """Share of the updates in which the rate rises from zero."""
    weight_decay: float = 0.01
    """Of matrices; biases and normalisations have none."""
    max_norm: float = 1.0
    """Longer gradients are cut to it."""
    precision: Literal["no", "bf16"] = "no"
    """bf16 trains under autocast, faster where the processor multiplies bfloat16; weights, optimiser, attention noise,
    KLs and the whole evaluation stay in float32."""
    on_divergence: Literal["raise", "stop"] = "raise"
    """Where loss or gradient is not finite: an error, or the end of training with the weights before, for rows that
    are there to show it."""

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.epochs < 1 or not 0.0 <= self.warm_up <= 1.0:
            raise ValueError(
                "expected batch_size and epochs of at least 1 and warm_up between 0 and 1, got "
                f"{self.batch_size}, {self.epochs} and {self.warm_up}"
            )


@dataclass(frozen=True)
class EvaluationSettings:
    """What is measured after training."""

    draws: int = 20
    """Draws of weights and dropout masks for uncertainty."""
    max_drawn: int | None = None
    """Draws are made for so many test examples, the first of a fixed order; null for all of them."""
    corruption: float = 0.2
    """Share of the words with a typo or left out in the corrupted condition."""
    gradient_every: int = 50
    """Updates between two measurements of the KL's gradient; only where there is a KL."""
    batch_size: int = 64
    """Examples in a pass."""
    dropout_precision: Literal["no", "bf16"] = added("no")
    """bf16 runs draws with dropout under autocast: its rounding is a thirtieth of what masks do to a prediction, but as
    large as what attention noise with k = 100 does, so everything else stays in float32."""


@dataclass
class GlueSettings:
    """One row on one task."""

    row: str
    """Name of the row in tables and file names."""
    source: str
    """Where the row comes from: paper, section, table."""
    attention: AttentionSettings = field(default_factory=AttentionSettings)
    """The distribution of the attention weights."""
    task: TaskSettings = field(default_factory=TaskSettings)
    """The data."""
    encoder: EncoderSettings = field(default_factory=EncoderSettings)
    """The network."""
    optimiser: OptimiserSettings = field(default_factory=OptimiserSettings)
    """Training."""
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    """After training."""
    seed: int = 0
    """Of the new weights, the order of the examples, dropout and noise; the same in all rows."""


def family_of(settings: AttentionSettings) -> Family | None:
    """The family of the weights; None for plain attention.

    Example:
        >>> family_of(AttentionSettings("lognormal", k=10.0))
        Lognormal(sigma=0.128, anchor='softmax')
    """
    if settings.family is None:
        return None
    if settings.family == "weibull":
        return Weibull(settings.k, anchor=settings.anchor)
    return Lognormal(_SPREAD / settings.k, anchor=settings.anchor)
