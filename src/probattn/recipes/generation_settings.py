"""Settings of a row of text generation, and the network they describe (Bahuleyan et al. 2018)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from probattn.core import Constant, Estimator, FreeBits, Logistic, Schedule
from probattn.data.bpe import UNK
from probattn.data.glove import glove_rows
from probattn.data.subwords import Subwords
from probattn.data.words import vocabulary_words
from probattn.models import DroppedEmbedding, Ved
from probattn.nn import Attention, Bilinear, BiLSTM, Bottleneck, LayerNormLSTMCell
from probattn.recipes.blueprints import SiteBlueprint, Sizes
from probattn.recipes.generation_data import CorpusSettings
from probattn.recipes.later_settings import added
from probattn.training import TrainerSettings


@dataclass(frozen=True)
class NetworkSettings:
    """Sizes of the network."""

    embedding_dim: int = 100
    """Of source and target words."""
    pretrained: Literal["glove50"] | None = None
    """Word vectors that the first 50 features of both embeddings start from; null for none."""
    encoder_dim: int = 100
    """Of one direction of the encoder."""
    decoder_dim: int = 200
    """Of the decoder."""
    code_dim: int = 100
    """Of z."""
    dropout: float = 0.0
    """Of embeddings, encoder states and the output layer's inputs; the paper has none."""
    word_dropout: float = 0.25
    """Probability that a word of the decoder's input is replaced by the unknown word."""


@dataclass(frozen=True)
class AttentionBlueprint:
    """What is random about attention; nothing is soft attention."""

    weights: SiteBlueprint | None = None
    """Site of the weights; null for softmax weights."""
    context: SiteBlueprint | None = None
    """Site of the attention vector; null for the vector that was read."""


@dataclass(frozen=True)
class Annealing:
    """Logistic annealing of all KL weights together, in shares of the training (Bahuleyan et al., Sec. 3.4)."""

    midpoint: float = 0.5
    """Where half of the weight is reached; the paper's code: after 4,500 iterations."""
    width: float = 0.1
    """How slowly it rises; the paper's code: 1,000 iterations."""
    is_frozen: bool = False
    """True: the released code, which stops updating 1.5 widths before the midpoint, at 0.047 of the weight."""

    def schedule(self, end: float, updates: int) -> Logistic:
        """The weight as a function of the update, for a training of so many."""
        midpoint, width = self.midpoint * updates, self.width * updates
        frozen_from = round(midpoint - 1.5 * width) if self.is_frozen else None
        return Logistic(midpoint=midpoint, width=width, end=end, frozen_from=frozen_from)


@dataclass(frozen=True)
class SamplingSettings:
    """How text is generated for the evaluation."""

    num_samples: int = 10
    """Of each source (the paper: 10)."""
    beam_size: int = 1
    """Of the search for the most probable text given a draw; 1 is greedy, as in the paper."""
    max_sources: int | None = None
    """Sources of the test split that text is generated for; null for all."""
    validation_sources: int = 300
    """Sources of the validation split that text is generated for after every epoch."""
    max_length: int = 20
    """Words of a text, end of sentence included."""

    def __post_init__(self) -> None:
        least = {"num_samples": 2, "beam_size": 1, "max_sources": 1, "validation_sources": 1, "max_length": 1}
        for name, minimum in least.items():
            value = getattr(self, name)
            if value is not None and value < minimum:
                why = "; diversity is measured between the samples of a source" if name == "num_samples" else ""
                raise ValueError(f"sampling.{name} must be at least {minimum}, got {value}{why}")


@dataclass
class GenerationSettings:
    """One row at one scale."""

    row: str
    """Name of the row in tables and file names."""
    source: str
    """Where the row comes from: paper, section, table."""
    code: SiteBlueprint | None
    """The site of z; null for none."""
    attention: AttentionBlueprint | None
    """Null for none."""
    estimators: Mapping[str, Estimator]
    """How each site's expectation is approximated while training, and how samples are drawn."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Weight of each site's KL at the end of annealing; the attention's is the paper's gamma_a."""
    annealing: Annealing | None = field(default_factory=Annealing)
    """Null: the weights are constant."""
    free_nats: Mapping[str, float] | None = added(None)
    """KL of a site that costs nothing, against collapse: nats of a sentence for the code, of a step for attention."""
    starts_from: Literal["zeros", "encoder"] = "zeros"
    """encoder: hidden-state initialisation, by which the source gets around the code (the paper's pilot)."""
    attention_from: float = 0.0
    """Share of the training before which the attention vector is zero (two-stage training: 6 epochs)."""
    kl_steps: Literal["all", "last"] = "all"
    """Which steps' KL the loss counts: eq. 8 sums over all; the released code took the last one."""
    likelihood: Literal["sum", "token-mean"] = "sum"
    """token-mean: the released code, which divides the likelihood by the words of a sentence, but no KL; in the loss,
    KLs are multiplied by the mean number of words instead, which has the same gradient up to a factor."""
    epochs: int = 20
    """Passes over the data."""
    batch_size: int = 100
    """Sentence pairs of a batch."""
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
        if not 0.0 <= self.attention_from < 1.0:
            raise ValueError(f"attention_from is a share of the training below one, got {self.attention_from}")
        free_nats = self.free_nats or {}
        for setting, named in {"weights": self.weights, "free_nats": free_nats}.items():
            unknown = sorted(set(named) - set(self.stochastic_sites))
            if unknown:
                known = ", ".join(self.stochastic_sites) or "no site with a KL"
                raise ValueError(f"{setting}.{unknown[0]}: row '{self.row}' has {known}")
        for name, nats in free_nats.items():
            if not nats > 0.0:
                raise ValueError(f"free_nats.{name} must be positive, got {nats}; leave the site out for none")

    @property
    def stochastic_sites(self) -> tuple[str, ...]:
        """Names of the sites that have a prior, i.e. that are random."""
        attention = () if self.attention is None else (self.attention.weights, self.attention.context)
        found = [("code", self.code), *(("attention", site) for site in attention)]
        return tuple(name for name, site in found if site is not None and site.prior is not None)

    @property
    def free_bits(self) -> dict[str, FreeBits] | None:
        """The same for a bound."""
        return None if not self.free_nats else {name: FreeBits(nats) for name, nats in self.free_nats.items()}

    def schedules(self, updates: int) -> dict[str, Schedule]:
        """The weight of every site's KL, for a training of so many updates."""
        ends = {name: self.weights.get(name, 1.0) for name in self.stochastic_sites}
        if self.annealing is None:
            return {name: Constant(end) for name, end in ends.items()}
        return {name: self.annealing.schedule(end, updates) for name, end in ends.items()}


def build_model(settings: GenerationSettings, words: Subwords, *, starts: bool = True) -> Ved:
    """The network with its initial weights, a function of the seed.

    Args:
        settings: Of the row.
        words: Of the text.
        starts: False: weights will be read from a file, so word vectors are not looked for.
    """
    torch.manual_seed(settings.seed)
    sizes = settings.network
    context_dim = 2 * sizes.encoder_dim
    source = nn.Embedding(words.tokenizer.vocabulary_size, sizes.embedding_dim)
    target = DroppedEmbedding(len(words.outputs), sizes.embedding_dim, rate=sizes.word_dropout, unknown=UNK)
    for embedding in (source, target):
        nn.init.normal_(embedding.weight, std=0.1)
    if sizes.pretrained is not None and starts:
        types = vocabulary_words(words.tokenizer)
        _start_from_glove(source, types)
        _start_from_glove(target, [types[number] for number in words.outputs.full_ids.tolist()])
    code = None if settings.code is None else settings.code.build("code", Sizes(context_dim, latent=sizes.code_dim))
    attention = _attention(settings.attention, Sizes(context_dim, latent=context_dim), sizes.decoder_dim)
    width = sizes.embedding_dim + (context_dim if attention else 0) + (sizes.code_dim if code else 0)
    return Ved(
        source,
        target,
        encoder=BiLSTM(sizes.embedding_dim, sizes.encoder_dim),
        decoder=LayerNormLSTMCell(width, sizes.decoder_dim),
        code=None if code is None else Bottleneck(code),
        attention=attention,
        bridge=nn.Linear(context_dim, 2 * sizes.decoder_dim) if settings.starts_from == "encoder" else None,
        dropout=sizes.dropout,
    )


def _attention(blueprint: AttentionBlueprint | None, sizes: Sizes, query_dim: int) -> Attention | None:
    if blueprint is None:
        return None
    if blueprint.weights is not None and blueprint.context is not None:
        raise ValueError("attention has one site here: give it weights or a context, and null for the other")
    weights = None if blueprint.weights is None else blueprint.weights.build("attention", sizes)
    context = None if blueprint.context is None else blueprint.context.build("attention", sizes)
    return Attention(Bilinear(query_dim, sizes.keys), weights=weights, context=context)


def _start_from_glove(embedding: nn.Embedding, types: Sequence[str]) -> None:
    """Put word vectors into the first features, scaled to the spread of the others; unknown words keep their start."""
    vectors, is_known = glove_rows(types)
    if vectors.shape[1] > embedding.embedding_dim:
        raise ValueError(
            f"network.embedding_dim must be at least {vectors.shape[1]}, the width of the word vectors, got "
            f"{embedding.embedding_dim}"
        )
    known: Tensor = vectors[is_known]
    with torch.no_grad():
        embedding.weight[is_known, : vectors.shape[1]] = 0.1 * known / known.std()
