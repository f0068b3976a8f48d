"""The network that the settings of a text model describe."""

import zlib

import torch
from torch import nn

from probattn.models import MemoryVae, SentenceVae
from probattn.nn import (
    Additive,
    AutoregressiveCategorical,
    AutoregressiveGaussian,
    Bottleneck,
    CausalConvolutions,
    Codebook,
    Conditional,
    EvenReading,
    GaussianHead,
    LastReading,
    Placed,
    PooledReading,
    Score,
    Site,
    SoftCodebook,
    StandardNormal,
)
from probattn.recipes.text_settings import SITE, LatentSettings, NetworkSettings, TextSettings
from probattn.training.randomness import WEIGHTS, seeded

TextModel = SentenceVae | MemoryVae


def build_model(settings: TextSettings, num_words: int) -> TextModel:
    """The network with its initial weights, a function of the seed.

    What two rows with a latent share starts alike in both, whatever the number of codes and their width.
    """
    torch.manual_seed(settings.seed)
    sizes, latent = settings.network, settings.latent
    embedding = nn.Embedding(num_words, sizes.embedding_dim)
    nn.init.normal_(embedding.weight, std=0.1)
    if latent is None:
        decoder = nn.LSTM(sizes.embedding_dim, sizes.hidden_dim, batch_first=True)
        return SentenceVae(embedding, decoder, dropout=sizes.dropout)
    model = _with_latent(embedding, latent, sizes)
    for name, module in model.named_modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset) and module is not embedding:
            with seeded(WEIGHTS, settings.seed, zlib.crc32(name.encode())):  # a stream for each layer, by its name
                reset()
    return model


def _with_latent(embedding: nn.Embedding, latent: LatentSettings, sizes: NetworkSettings) -> TextModel:
    has_codes = latent.posterior != "gaussian"
    if latent.scope == "sentence":
        return SentenceVae(
            embedding,
            nn.LSTM(sizes.embedding_dim + sizes.latent_dim, sizes.hidden_dim, batch_first=True),
            encoder=nn.LSTM(sizes.embedding_dim, sizes.hidden_dim, batch_first=True),
            latent=_bottleneck(latent, sizes),
            latent_dim=sizes.latent_dim,
            dropout=sizes.dropout,
            project=nn.Linear(sizes.hidden_dim, sizes.latent_dim) if has_codes else None,
        )
    return MemoryVae(
        embedding,
        nn.LSTM(sizes.embedding_dim, sizes.hidden_dim, batch_first=True),
        project=_projection(latent, sizes),
        latent=_bottleneck(latent, sizes),
        values=nn.Linear(sizes.latent_dim, sizes.attention_dim),
        score=_score(latent, sizes),
        decoder_dim=sizes.hidden_dim,
        dropout=sizes.dropout,
    )


def _projection(latent: LatentSettings, sizes: NetworkSettings) -> nn.Module:
    """From states of the encoder to what the posterior reads."""
    has_codes = latent.posterior != "gaussian"
    if latent.reading != "even" and latent.positions is not None:
        width = sizes.latent_dim if has_codes else sizes.hidden_dim
        reading = LastReading if latent.reading == "last" else PooledReading
        return reading(latent.positions, nn.Linear(sizes.hidden_dim, latent.positions * width))
    project: nn.Module = nn.Linear(sizes.hidden_dim, sizes.latent_dim) if has_codes else nn.Identity()
    return project if latent.positions is None else EvenReading(latent.positions, project)


def _score(latent: LatentSettings, sizes: NetworkSettings) -> Score:
    score = Additive(sizes.hidden_dim, sizes.attention_dim, hidden_dim=sizes.attention_dim)
    return Placed(score) if latent.has_places else score


def _bottleneck(latent: LatentSettings, sizes: NetworkSettings) -> Bottleneck:
    prior: Conditional
    posterior: Conditional
    if latent.posterior == "codes":
        posterior = Codebook(latent.num_codes, sizes.latent_dim, decay=latent.decay, revive_below=latent.revive_below)
        prior = AutoregressiveCategorical(_convolutions(sizes, latent.num_codes), posterior)
    elif latent.posterior == "stochastic-codes":
        posterior = SoftCodebook(latent.num_codes, sizes.latent_dim, num_places=latent.positions)
        network = _convolutions(sizes, latent.num_codes)
        prior = AutoregressiveCategorical(network, posterior, detaches_value=False)
    else:
        posterior = GaussianHead(sizes.hidden_dim, sizes.latent_dim)
        prior = StandardNormal(sizes.latent_dim)
        if latent.prior == "autoregressive":
            prior = AutoregressiveGaussian(_convolutions(sizes, 2 * sizes.latent_dim), sizes.latent_dim)
    keeps_terms = latent.posterior == "gaussian"  # free bits per feature
    site = Site(SITE, prior=prior, posterior=posterior, unit="example", feeds_state=True, keeps_kl_terms=keeps_terms)
    return Bottleneck(site)


def _convolutions(sizes: NetworkSettings, output_dim: int) -> CausalConvolutions:
    return CausalConvolutions(
        sizes.latent_dim,
        output_dim,
        channels=sizes.prior_channels,
        num_layers=sizes.prior_layers,
        kernel_size=sizes.prior_kernel,
    )
