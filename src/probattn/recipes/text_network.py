"""The network that the settings of a text model describe."""

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
    Placed,
    Score,
    Site,
    SoftCodebook,
    StandardNormal,
)
from probattn.recipes.text_settings import SITE, LatentSettings, NetworkSettings, TextSettings

TextModel = SentenceVae | MemoryVae


def build_model(settings: TextSettings, num_words: int) -> TextModel:
    """The network with its initial weights, a function of the seed."""
    torch.manual_seed(settings.seed)
    sizes, latent = settings.network, settings.latent
    embedding = nn.Embedding(num_words, sizes.embedding_dim)
    nn.init.normal_(embedding.weight, std=0.1)
    if latent is None:
        decoder = nn.LSTM(sizes.embedding_dim, sizes.hidden_dim, batch_first=True)
        return SentenceVae(embedding, decoder, dropout=sizes.dropout)
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
    encoder = nn.LSTM(sizes.embedding_dim, sizes.hidden_dim, batch_first=True)
    project: nn.Module = nn.Linear(sizes.hidden_dim, sizes.latent_dim) if has_codes else nn.Identity()
    return MemoryVae(
        embedding,
        encoder,
        project=project if latent.positions is None else EvenReading(latent.positions, project),
        latent=_bottleneck(latent, sizes),
        values=nn.Linear(sizes.latent_dim, sizes.attention_dim),
        score=_score(latent, sizes),
        decoder_dim=sizes.hidden_dim,
        dropout=sizes.dropout,
    )


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
        posterior = SoftCodebook(latent.num_codes, sizes.latent_dim)
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
