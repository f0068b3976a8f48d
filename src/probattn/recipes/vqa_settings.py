"""Settings of a row of visual question answering."""

from dataclasses import dataclass, field
from typing import Literal

from torch import nn

from probattn.core import Bound, Constant, Elbo, Estimator, Mean, Schedule
from probattn.distributions import Family
from probattn.nn.answer_posterior import AnswerPosterior
from probattn.recipes.blueprints import ConditionalBlueprint, SiteBlueprint, Sizes
from probattn.recipes.vqa_sources import CorpusSettings
from probattn.training import TrainerSettings

SITE = "weights"


@dataclass(frozen=True)
class VqaSizes(Sizes):
    """Widths that an inference network may need; `keys` are those of regions, `embedding` those of questions."""

    answers: int = 0
    """That the network can give."""
    answer_dim: int = 0
    """Of an answer's embedding."""
    hidden: int = 0
    """Of the score."""


@dataclass(frozen=True)
class AnswerAware(ConditionalBlueprint):
    """The inference network that sees the answer (`AnswerPosterior`; Deng et al., Appendix B)."""

    family: Family

    def build(self, sizes: Sizes) -> AnswerPosterior:
        """The module."""
        if not isinstance(sizes, VqaSizes):
            raise TypeError(f"AnswerAware is for visual question answering, got {type(sizes).__name__}")
        return AnswerPosterior(
            sizes.keys,
            sizes.embedding,
            answer_dim=sizes.answer_dim,
            hidden_dim=sizes.hidden,
            family=self.family,
            answer_encoder=nn.Embedding(sizes.answers, sizes.answer_dim),
        )


@dataclass(frozen=True)
class RegionSettings:
    """Sizes of Deng et al.'s network; those of the paper are the defaults."""

    embedding_dim: int = 300
    """Of words."""
    question_dim: int = 1024
    """Of the question's LSTM."""
    encoder_dim: int | None = None
    """Of a layer with ReLU over the regions' features, for features that are too raw; null for none (the paper)."""
    attention_dim: int = 1024
    """Hidden width of the scores, of the prior and of the inference network."""
    hidden_dim: int = 1024
    """Of the layer before the answer."""
    answer_dim: int = 256
    """Of the answers' embedding in the inference network."""
    dropout: float = 0.5
    """Of the layer before the answer."""


@dataclass(frozen=True)
class McanSettings:
    """Sizes of MCAN; those of the paper are the defaults."""

    embedding_dim: int = 300
    """Of words."""
    dim: int = 512
    """Of words and regions inside the network; twice that before the answer."""
    num_heads: int = 8
    """Of every attention."""
    num_layers: int = 6
    """Of encoder and decoder each."""
    hidden_dim: int = 2048
    """Of feed-forward layers."""
    encoder_dim: int | None = None
    """Of a layer with ReLU over the regions' features, as above."""
    dropout: float = 0.1
    """Of all units and of attention weights."""


@dataclass(frozen=True)
class EvaluationSettings:
    """What is measured after training."""

    draws: int = 20
    """Of dropout masks, and of attention weights where they are random."""
    noise_variances: tuple[float, ...] = (1.0, 5.0)
    """Of the Gaussian noise on features, in units of their own variance; the paper has 5 on features of its own."""
    max_drawn: int | None = 2000
    """Test questions that draws are made for, chosen at random; null for all."""
    batch_size: int = 128
    """Questions at once."""


@dataclass
class VqaSettings:
    """One row at one scale."""

    row: str
    """Name of the row in tables and file names."""
    source: str
    """Where the row comes from: paper, section, table."""
    network: Literal["regions", "mcan"]
    """Deng et al.'s network with one choice of region, or MCAN."""
    site: SiteBlueprint
    """The weights over regions, or those of every multi-head attention."""
    estimator: Estimator
    """How their expectation is approximated in training."""
    test_estimator: Estimator = field(default_factory=Mean)
    """How an answer is predicted."""
    bound: Bound = field(default_factory=Elbo)
    """What is maximised."""
    kl_weight: Schedule = field(default_factory=Constant)
    """Of the summed KL beside the log-likelihood, by update."""
    sees_picture: bool = True
    """False: all features are zero, so that only the question is left."""
    epochs: int = 20
    """Passes over the training questions."""
    batch_size: int = 64
    """Questions of an update."""
    regions: RegionSettings = field(default_factory=RegionSettings)
    """Sizes of the first network."""
    mcan: McanSettings = field(default_factory=McanSettings)
    """Sizes of the second."""
    corpus: CorpusSettings = field(default_factory=CorpusSettings)
    """Pictures and questions."""
    trainer: TrainerSettings = field(default_factory=TrainerSettings)
    """Optimiser, learning rate, checkpoints."""
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    """After training."""
    seed: int = 0
    """Of initial weights and noise; the data do not depend on it."""
