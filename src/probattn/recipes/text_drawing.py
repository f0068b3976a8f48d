"""Latents of sentences from scratch: how many, and from which law."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

import torch
from torch import Tensor

from probattn.core import fold_seed
from probattn.core.noise import normal
from probattn.models import ReadText
from probattn.nn import AutoregressiveCategorical, AutoregressiveGaussian, Codebook, SoftCodebook
from probattn.recipes.text_network import TextModel
from probattn.recipes.text_settings import LatentSettings, TextSettings

LENGTHS = 2**31 - 1
"""The tag of the noise of lengths. The prior's noise of position i has the tag i, which they must not share."""
WORDS = 2**31 - 2
"""The tag of the noise of words, for the same reason."""


def check_numbers(*, count: int, length: int | None, longest: int, min_words: int, seed: int) -> None:
    """Refuse what torch would refuse with a riddle.

    Args:
        count: Sentences.
        length: Of each; None for those of training,
        longest: which have at most so many words.
        min_words: Of each at least.
        seed: Of the draws.

    Raises:
        ValueError: If one is not whole, or out of its range.
    """
    most = longest if length is None else length
    wanted = (("count", count, 1), ("length", most, 1), ("min_words", min_words, 1), ("seed", seed, -(2**63)))
    for name, value, least in wanted:
        if not isinstance(value, Integral) or isinstance(value, bool) or not least <= value < 2**63:
            raise ValueError(f"{name} must be a whole number from {least} to 2**63 - 1, got {value!r}")
    if min_words > most:
        whose = f"a length of {length}" if length is not None else f"the {longest} of training"
        raise ValueError(f"min_words = {min_words} is more than {whose}; give a length of at least {min_words}")


@dataclass(frozen=True)
class Law:
    """Where chance enters a sentence from scratch.

    Attributes:
        temperature: Of codes; Gaussian latents are scaled by it.
        top_p: Of codes, and of words that are drawn.
        word_temperature: Of words given the latents; 0 for the most probable ones, None for what the row has by itself.
        has_unknown: Whether the unknown word may come, as it does in training text; no reader wants to see it.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    word_temperature: float | None = None
    has_unknown: bool = False

    def of_words(self, latent: LatentSettings | None) -> float:
        """The temperature that words have; 0 for the most probable ones.

        Example:
            >>> Law(temperature=0.7).of_words(None), Law().of_words(LatentSettings("sentence"))
            (0.7, 0.0)
        """
        if self.word_temperature is not None:
            return self.word_temperature
        return self.temperature if draws_words(latent) else 0.0

    def check(self, settings: TextSettings) -> None:
        """Refuse what cannot be, and what would have no effect on a row.

        Raises:
            ValueError: If a number is out of its range, or chooses among values that have no order.
        """
        latent, words = settings.latent, self.of_words(settings.latent)
        if not 0.0 <= self.temperature < float("inf") or not 0.0 < self.top_p <= 1.0:
            raise ValueError(
                f"wanted a finite temperature >= 0 and 0 < top_p <= 1, got {self.temperature} and {self.top_p}"
            )
        if not 0.0 <= words < float("inf"):
            raise ValueError(f"wanted a finite word_temperature >= 0, got {words}")
        if latent is None and self.word_temperature is not None and self.temperature != 1.0:
            raise ValueError(
                f"row '{settings.row}' has no latent, so all its chance is in the words: give temperature or "
                f"word_temperature, got {self.temperature} and {self.word_temperature}"
            )
        if self.top_p < 1.0 and words == 0.0 and latent is not None and latent.posterior == "gaussian":
            raise ValueError(
                f"row '{settings.row}' has Gaussian latents, which have no most probable values: top_p = {self.top_p} "
                "would have no effect; lower the temperature instead, or draw the words with word_temperature = 1"
            )


def draws_words(latent: LatentSettings | None) -> bool:
    """Whether a row draws its words where nothing else is asked for: without latents, or with codes that say little."""
    return latent is None or latent.posterior == "stochastic-codes"


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


def drawn_latents(model: TextModel, settings: TextSettings, lengths: Tensor, *, law: Law, seed: Tensor) -> ReadText:
    """Latents of the prior for sentences of some lengths; begin and end of a sentence have a latent each too.

    Args:
        model: The network.
        settings: Of its row.
        lengths: (N) words.
        law: Of codes or Gaussians.
        seed: () int64.
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
        value = prior.ancestral(count, longest, seed=seed, temperature=law.temperature, top_p=law.top_p)
    else:
        value = law.temperature * normal(seed, (count, longest, settings.network.latent_dim))
    return ReadText.drawn(value, torch.arange(longest, device=device) < positions.unsqueeze(1))


def word_seed(own: Tensor, given: int | None, *, has_latent: bool) -> int:
    """The seed of the words of a block: never one that the block's latents use.

    Args:
        own: () int64, the seed of the block.
        given: The seed of the call, for its first block.
        has_latent: Language models, whose blocks have no other noise, go by the seeds that they were given.
    """
    if has_latent:
        return int(fold_seed(own, WORDS))
    return int(own) if given is None else given  # a sum would be the seed of another call


def stretched(value: Tensor, length: int) -> Tensor:
    """(length, Z): positions taken evenly from (S, Z)."""
    places = torch.linspace(0, len(value) - 1, length, device=value.device).round().long()
    return value[places]


def between(model: TextModel, first: Tensor, second: Tensor, share: float) -> ReadText:
    """Latents of a sentence on the way from one to another; codes are replaced by the nearest ones.

    Args:
        model: The network.
        first: (S, Z) latents of one sentence,
        second: (S', Z) and of the other.
        share: Of the other, from 0 to 1.
    """
    length = round((1.0 - share) * len(first) + share * len(second))
    mixed = (1.0 - share) * stretched(first, length) + share * stretched(second, length)
    book = None if model.latent is None else model.latent.site.posterior
    if isinstance(book, Codebook | SoftCodebook):
        mixed = book.codes[torch.cdist(mixed, book.codes).argmin(dim=-1)]
    return ReadText.drawn(mixed.unsqueeze(0))
