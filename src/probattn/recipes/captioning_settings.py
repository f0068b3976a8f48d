"""Settings of a captioning row, and the network they describe (BAM, Sec. 4.3 and Appendix B.3)."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import nn

from probattn.core import Constant, Elbo, Estimator, Schedule
from probattn.models.captioner import Captioner
from probattn.models.regions import RegionEncoder
from probattn.nn import Additive
from probattn.recipes.blueprints import SiteBlueprint, Sizes
from probattn.recipes.captioning_data import CorpusSettings
from probattn.training import Stage, TrainerSettings

SITE = "weights"


@dataclass(frozen=True)
class NetworkSettings:
    """Sizes of the network."""

    embedding_dim: int = 256
    """Of words."""
    region_dim: int = 256
    """Of regions as the attention sees them."""
    hidden_dim: int = 256
    """Of the recurrence."""
    attention_dim: int = 128
    """Of the additive score's hidden layer."""
    starts_from: Literal["zeros", "regions"] = "regions"
    """The first state: zeros (Luo et al.'s code), or a linear map of the mean region (Xu et al. 2015)."""
    dropout: float = 0.5
    """Of embedded words, regions and the output layer's input."""


@dataclass(frozen=True)
class DecodingSettings:
    """How captions are found."""

    beam_size: int = 5
    """Of the beam search; greedy captions are reported too."""
    max_length: int = 20
    """Words of a caption, end of sentence included."""
    num_samples: int = 5
    """Captions that are sampled for each picture, to measure diversity."""
    has_meteor: bool = False
    """Whether greedy captions are scored by METEOR too, which needs Java and about half a minute."""


@dataclass
class CaptioningSettings:
    """One row at one scale."""

    row: str
    """Name of the row in tables and file names."""
    source: str
    """Where the row comes from: paper, section, table."""
    site: SiteBlueprint
    """The site of the attention weights."""
    estimator: Estimator
    """How the expectation over weights is approximated while training; captions use plug-in weights."""
    kl_weight: Schedule = field(default_factory=Constant)
    """Of the KL, as a function of the update."""
    kl: Literal["closed", "sampled"] = "closed"
    """sampled: log q - log p at the draw, in place of the closed form (the paper's ablation)."""
    baseline: Literal["estimator", "soft"] = "estimator"
    """Of hard draws: the estimator's own, or what soft attention gains on the rest of the caption."""
    on_failure: Literal["raise", "report"] = "raise"
    """report: a run that stops with a loss that is not finite, or explodes, is a result, and the table says so."""
    epochs: int = 20
    """Passes over the captions."""
    batch_size: int = 64
    """Captions of a batch."""
    network: NetworkSettings = field(default_factory=NetworkSettings)
    """Sizes of the network."""
    corpus: CorpusSettings = field(default_factory=CorpusSettings)
    """Pictures and captions."""
    trainer: TrainerSettings = field(default_factory=TrainerSettings)
    """Optimiser, learning rate, checkpoints."""
    decoding: DecodingSettings = field(default_factory=DecodingSettings)
    """Search and sampling."""
    seed: int = 0
    """Of initial weights and noise; pictures and captions do not depend on it."""

    @property
    def has_kl(self) -> bool:
        """Whether the site has a prior beside a posterior."""
        return self.site.prior is not None and self.site.posterior is not None

    def stage(self) -> Stage:
        """The training."""
        weights = {SITE: self.kl_weight} if self.has_kl else {}
        return Stage("main", epochs=self.epochs, bound=Elbo(), estimators={SITE: self.estimator}, weights=weights)


@dataclass(frozen=True)
class InputSizes:
    """What a network must fit: words and features; kept with a trained model."""

    num_words: int
    feature_dim: int
    feature_scale: float = 1.0


def build_model(settings: CaptioningSettings, inputs: InputSizes) -> Captioner:
    """The network with its initial weights, a function of the seed."""
    torch.manual_seed(settings.seed)
    sizes = settings.network
    embedding = nn.Embedding(inputs.num_words, sizes.embedding_dim)
    nn.init.normal_(embedding.weight, std=0.1)
    bridge = nn.Linear(sizes.region_dim, 2 * sizes.hidden_dim) if sizes.starts_from == "regions" else None
    return Captioner(
        embedding,
        RegionEncoder(inputs.feature_dim, sizes.region_dim, scale=inputs.feature_scale),
        score=Additive(sizes.hidden_dim, sizes.region_dim, hidden_dim=sizes.attention_dim),
        weights=settings.site.build(SITE, Sizes(keys=sizes.region_dim)),
        hidden_dim=sizes.hidden_dim,
        bridge=bridge,
        dropout=sizes.dropout,
    )
