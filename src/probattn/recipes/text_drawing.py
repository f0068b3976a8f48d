"""Latents of sentences from scratch: how many, and from which law."""

from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor

from probattn.core import fold_seed
from probattn.core.noise import normal
from probattn.models import ReadText
from probattn.nn import AutoregressiveCategorical, AutoregressiveGaussian
from probattn.recipes.text_network import TextModel
from probattn.recipes.text_settings import TextSettings

LENGTHS = 2**31 - 1
"""The tag of the noise of lengths. The prior's noise of position i has the tag i, which they must not share."""


def check_numbers(*, count: int, length: int, seed: int) -> None:
    """Refuse what torch would refuse with a riddle.

    Raises:
        ValueError: If one is not whole, or out of its range.
    """
    for name, value, least in (("count", count, 1), ("length", length, 1), ("seed", seed, -(2**63))):
        if not isinstance(value, Integral) or isinstance(value, bool) or not least <= value < 2**63:
            raise ValueError(f"{name} must be a whole number from {least} to 2**63 - 1, got {value!r}")


def check_law(settings: TextSettings, *, temperature: float, top_p: float) -> None:
    """Refuse what cannot be, and what would have no effect.

    Args:
        settings: Of the row.
        temperature: Of draws.
        top_p: Of draws.
    """
    latent = settings.latent
    if not 0.0 <= temperature < float("inf") or not 0.0 < top_p <= 1.0:
        raise ValueError(f"wanted a finite temperature >= 0 and 0 < top_p <= 1, got {temperature} and {top_p}")
    if top_p < 1.0 and latent is not None and latent.posterior == "gaussian":
        raise ValueError(
            f"row '{settings.row}' has Gaussian latents, which have no most probable values: top_p = {top_p} "
            "would have no effect; lower the temperature instead"
        )


def drawn_lengths(counts: Sequence[int], count: int, seed: Tensor) -> Tensor:
    """(N) words of new sentences.

    Args:
        counts: How many training sentences have 1, 2, ... words.
        count: N.
        seed: () int64.
    """
    shares = torch.tensor(counts, dtype=torch.float64)
    draws = (normal(fold_seed(seed, LENGTHS), (count,)).double() / 2**0.5).erf() * 0.5 + 0.5  # uniform
    return 1 + torch.searchsorted(shares.cumsum(dim=0) / shares.sum(), draws.cpu()).clamp(max=len(shares) - 1)


def drawn_latents(
    model: TextModel, settings: TextSettings, lengths: Tensor, *, seed: Tensor, temperature: float, top_p: float
) -> ReadText:
    """Latents of the prior for sentences of some lengths; begin and end of a sentence have a latent each too.

    Args:
        model: The network.
        settings: Of its row.
        lengths: (N) words.
        seed: () int64.
        temperature: Of codes; Gaussians are scaled by it.
        top_p: Of codes.
    """
    count, device = len(lengths), lengths.device
    if model.latent is None or settings.latent is None:
        mask = torch.ones(count, 1, dtype=torch.bool, device=device)
        return ReadText(torch.zeros(1, count, 1, 0, device=device), mask)
    fixed = settings.latent.positions
    positions = lengths + 2 if fixed is None else torch.full_like(lengths, fixed)
    longest = int(positions.max())
    prior = model.latent.site.prior
    if isinstance(prior, AutoregressiveCategorical | AutoregressiveGaussian):
        value = prior.ancestral(count, longest, seed=seed, temperature=temperature, top_p=top_p)
    else:
        value = temperature * normal(seed, (count, longest, settings.network.latent_dim))
    return ReadText.drawn(value, torch.arange(longest, device=device) < positions.unsqueeze(1))
