"""The Concrete (Gumbel-softmax) relaxation of a one-hot choice (Maddison et al. 2017, Jang et al. 2017)."""

import torch
from torch import Tensor

from probattn.core.noise import gumbel
from probattn.core.support import Support
from probattn.distributions.base import WeightsDistribution, at_least_float32

__all__ = ["Concrete", "StraightThroughConcrete"]


class Concrete(WeightsDistribution):
    """W = softmax((scores + Gumbel noise) / temperature). Raw samples are log W, whose density is used throughout.

    Args:
        scores: (*scores) unnormalised log-probabilities of the choice.
        temperature: Positive; towards 0 the samples become one-hot.
        support: Which positions compete.
    """

    raw_variable = "log W"

    def __init__(self, scores: Tensor, temperature: float, *, support: Support):
        if temperature <= 0:
            raise ValueError(f"{type(self).__name__}(temperature) must be positive, got {temperature}")
        scores = at_least_float32(scores)
        super().__init__(scores, support)
        self.log_probs = support.log_softmax(scores)
        """(*scores) normalised log-probabilities of the choice, -inf outside the support."""
        self.temperature = temperature

    @property
    def plug_in(self) -> Tensor:
        """The probabilities of the choice: soft attention."""
        return self.log_probs.exp()

    def draw_raw(self, num_samples: int, seed: Tensor) -> Tensor:
        """(K, *scores) samples of log W; zero outside the support."""
        scores = self._finite_log_probs()
        noise = gumbel(seed, self._noise_shape(num_samples), dtype=scores.dtype)
        least = torch.finfo(scores.dtype).min  # a score of about that, which hides a position, would overflow
        raw = self.attended.log_softmax(((scores + noise) / self.temperature).clamp(min=least))
        return self.attended.fill_outside(raw.clamp(min=least), 0.0)

    def log_prob(self, value: Tensor) -> Tensor:
        """(K, *unit) log-density of log W (ExpConcrete), given log W."""
        shifted = self._finite_log_probs() - self.temperature * value
        normalised = self.attended.log_softmax(shifted)
        entries = self.attended.sum(normalised.masked_fill(~torch.isfinite(normalised), 0.0))
        count = self.attended.sum(torch.ones_like(self.log_probs)).clamp(min=1.0)
        temperature = torch.full_like(count, self.temperature)
        return entries + torch.lgamma(count) + (count - 1.0) * temperature.log()

    def _finite_log_probs(self) -> Tensor:
        return self.attended.fill_outside(self.log_probs, 0.0)


class StraightThroughConcrete(Concrete):
    """One-hot forward, Concrete backward (Jang et al. 2017): `realise` rounds the weights and keeps their gradient.

    The gradient is biased, more so than the soft Concrete's.
    """

    def realise(self, raw: Tensor) -> Tensor:
        """One-hot weights whose gradient is that of the soft ones."""
        soft = super().realise(raw)
        if raw.numel() == 0:  # nothing to choose from
            return soft
        ranked = raw.detach().reshape(-1, *self._value_shape)  # (K, *scores), also for one sample without its axis
        hard = torch.stack([self.attended.scatter(self.attended.top_k(one, 1), one)[0] for one in ranked])
        return hard.view(raw.shape) + soft - soft.detach()
