"""Settings of a translation row, and the network they describe."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from probattn.core import Bound, Estimator, Schedule
from probattn.data.subwords import Subwords
from probattn.models import Readout, Seq2Seq
from probattn.nn import Additive, BiLSTM, StackedLSTMCell
from probattn.recipes.blueprints import SiteBlueprint, Sizes
from probattn.recipes.later_settings import added
from probattn.recipes.translation_data import CorpusSettings
from probattn.recipes.translation_search import DecodingSettings
from probattn.training import TrainerSettings


@dataclass(frozen=True)
class NetworkSettings:
    """Sizes of the network."""

    embedding_dim: int = 192
    """Of source and target words."""
    encoder_dim: int = 128
    """Of one direction of the encoder."""
    encoder_layers: int = 1
    """Of the encoder."""
    decoder_dim: int = 256
    """Of a layer of the decoder."""
    decoder_layers: int = added(1)
    """Of the decoder; the first is fed the context, the last one asks."""
    readout_dim: int | None = added(None)
    """Of the readout's hidden layer, with an output layer of its own; null: tied to the target embedding."""
    uniform_init: float | None = added(None)
    """All weights start uniform between plus and minus this; null: as torch starts them, embeddings smaller."""
    attention_dim: int = 128
    """Of the additive score's hidden layer."""
    dropout: float = 0.3
    """Of embeddings, encoder states and the readout."""
    skip_below: float = 0.0
    """Alignments whose share in a word's gradient is at most this are left out of it; 0 is exact."""

    def __post_init__(self) -> None:
        for name in ("dropout", "skip_below"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"network.{name} must be at least 0 and below 1, got {getattr(self, name)}")


@dataclass(frozen=True)
class StageSettings:
    """One stretch of training."""

    name: str
    """In logs."""
    estimators: Mapping[str, Estimator]
    """How each site's expectation is approximated."""
    bound: Bound
    """What is maximised."""
    weights: Mapping[str, Schedule] = field(default_factory=dict)
    """KL weight of each site as a function of the update; one where absent."""
    use_posterior: bool = True
    """False: q = p, although the site has a posterior (Deng et al., Algorithm 2)."""
    share: float = 1.0
    """Of the epochs, relative to the other stages."""
    trainable: Sequence[str] = ("*",)
    """Patterns of the parameters that are trained; the others are frozen."""


@dataclass
class TranslationSettings:
    """One row at one scale."""

    row: str
    """Name of the row in tables and file names."""
    source: str
    """Where the row comes from: paper, section, table."""
    site: SiteBlueprint
    """The site of the alignment."""
    stages: Sequence[StageSettings]
    """What is maximised, and how; they divide `epochs` by their shares."""
    test_estimator: Estimator
    """How the next word is predicted."""
    epochs: int = 15
    """Passes over the data, all stages together."""
    max_tokens: int = 1600
    """Tokens of a batch, the larger side counted."""
    network: NetworkSettings = field(default_factory=NetworkSettings)
    """Sizes of the network."""
    corpus: CorpusSettings = field(default_factory=CorpusSettings)
    """The text."""
    trainer: TrainerSettings = field(default_factory=TrainerSettings)
    """Optimiser, learning rate, checkpoints."""
    decoding: DecodingSettings = field(default_factory=DecodingSettings)
    """Search."""
    seed: int = 0
    """Of initial weights and noise; the text does not depend on it."""


def build_model(settings: TranslationSettings, subwords: Subwords) -> Seq2Seq:
    """The network with its initial weights, a function of the seed."""
    torch.manual_seed(settings.seed)
    sizes = settings.network
    target = nn.Embedding(len(subwords.outputs), sizes.embedding_dim)
    source = nn.Embedding(subwords.tokenizer.vocabulary_size, sizes.embedding_dim)
    for embedding in (source, target):  # tied to the readout: unit variance would make the first logits enormous
        nn.init.normal_(embedding.weight, std=sizes.embedding_dim**-0.5)
    context_dim = 2 * sizes.encoder_dim
    site = settings.site.build("weights", Sizes(keys=context_dim, embedding=sizes.embedding_dim, dropout=sizes.dropout))
    model = Seq2Seq(
        source,
        BiLSTM(sizes.embedding_dim, sizes.encoder_dim, num_layers=sizes.encoder_layers, dropout=sizes.dropout),
        score=Additive(sizes.decoder_dim, context_dim, hidden_dim=sizes.attention_dim),
        weights=site,
        readout=Readout(
            sizes.decoder_dim,
            context_dim,
            embedding=target,
            hidden_dim=sizes.readout_dim,
            dropout=sizes.dropout,
            skip_below=sizes.skip_below,
        ),
        decoder=_decoder(sizes, context_dim),
        dropout=sizes.dropout,
    )
    if sizes.uniform_init is not None:
        for parameter in model.parameters():
            nn.init.uniform_(parameter, -sizes.uniform_init, sizes.uniform_init)
    return model


def _decoder(sizes: NetworkSettings, context_dim: int) -> nn.LSTMCell | StackedLSTMCell:
    width = sizes.embedding_dim + context_dim
    if sizes.decoder_layers == 1:
        return nn.LSTMCell(width, sizes.decoder_dim)
    return StackedLSTMCell(width, sizes.decoder_dim, num_layers=sizes.decoder_layers, dropout=sizes.dropout)
