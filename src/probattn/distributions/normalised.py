"""Positive random variables that become attention weights by division through their sum (BAM, Sec. 3.2).

The random variable is the unnormalised S, and densities and KLs live in S-space. It is carried as log S: W = S / sum S
is softmax(log S), which has an answer where exp(score) overflows. The mean of W is *not* softmax(scores), so
deterministic passes use `plug_in`, S at its expectation, which is.
"""

import math

import torch
from torch import Tensor

from probattn.core.noise import exponential, normal
from probattn.core.support import Support
from probattn.distributions.base import WeightsDistribution, at_least_float32
from probattn.distributions.gamma_noise import log_gamma_sample

__all__ = ["NormalisedGamma", "NormalisedLognormal", "NormalisedWeibull"]


class NormalisedWeibull(WeightsDistribution):
    """S ~ Weibull(k, lambda), W = S / sum S, so that W = softmax(log lambda + log(E) / k) with E exponential.

    Args:
        log_scale: (*scores) log lambda.
        concentration: k; float or a tensor that broadcasts to the scores. Large k is soft attention.
        support: Which positions compete.
    """

    def __init__(self, log_scale: Tensor, concentration: Tensor | float, *, support: Support):
        log_scale = at_least_float32(log_scale)
        super().__init__(log_scale, support)
        self.log_scale = support.fill_outside(log_scale, 0.0)
        self.concentration = _as_parameter(concentration, log_scale, "NormalisedWeibull(concentration)")

    @property
    def log_mean(self) -> Tensor:
        """(*scores) log E[S] = log lambda + log Gamma(1 + 1/k)."""
        return self.log_scale + torch.lgamma(1.0 + 1.0 / self.concentration)

    @property
    def plug_in(self) -> Tensor:
        """Weights from S at its expectation."""
        return self.realise(self.log_scale if self.concentration.dim() == 0 else self.log_mean)

    def draw_raw(self, num_samples: int, seed: Tensor) -> Tensor:
        """(K, *scores) samples of log S."""
        noise = exponential(seed, self._noise_shape(num_samples), dtype=self.log_scale.dtype).log()
        return self.log_scale + noise / self.concentration

    def log_prob(self, value: Tensor) -> Tensor:
        """(K, *unit) log-density of S, given log S."""
        standard = value - self.log_scale
        k = self.concentration
        entries = k.log() - self.log_scale + (k - 1.0) * standard - (k * standard).exp()
        return self.attended.sum(entries)


class NormalisedLognormal(WeightsDistribution):
    """S ~ Lognormal(location, sigma²), W = S / sum S: a logistic-normal distribution of the weights.

    Args:
        location: (*scores) mean of log S.
        sigma: Standard deviation of log S; float or a tensor that broadcasts. Small sigma is soft attention.
        support: Which positions compete.
    """

    def __init__(self, location: Tensor, sigma: Tensor | float, *, support: Support):
        location = at_least_float32(location)
        super().__init__(location, support)
        self.location = support.fill_outside(location, 0.0)
        self.sigma = _as_parameter(sigma, location, "NormalisedLognormal(sigma)")

    @property
    def log_mean(self) -> Tensor:
        """(*scores) log E[S] = location + sigma² / 2."""
        return self.location + 0.5 * self.sigma.square()

    @property
    def plug_in(self) -> Tensor:
        """Weights from S at its expectation. One sigma for all positions cancels; 1e15 would drown the location."""
        return self.realise(self.location if self.sigma.dim() == 0 else self.log_mean)

    def draw_raw(self, num_samples: int, seed: Tensor) -> Tensor:
        """(K, *scores) samples of log S."""
        return self.location + self.sigma * normal(seed, self._noise_shape(num_samples), dtype=self.location.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """(K, *unit) log-density of S, given log S."""
        standard = (value - self.location) / self.sigma
        entries = -0.5 * standard.square() - self.sigma.log() - 0.5 * math.log(2.0 * math.pi) - value
        return self.attended.sum(entries)


class NormalisedGamma(WeightsDistribution):
    """S ~ Gamma(alpha, beta), the prior of Weibull attention. With one rate for all positions, W is Dirichlet(alpha).

    Args:
        concentration: (*scores) alpha, positive on the support; may broadcast over queries.
        rate: beta; float or a tensor that broadcasts.
        support: Which positions compete.
    """

    def __init__(self, concentration: Tensor, rate: Tensor | float, *, support: Support):
        concentration = at_least_float32(concentration)
        super().__init__(concentration, support)
        self.concentration = support.fill_outside(concentration, 1.0)
        self.rate = _as_parameter(rate, concentration, "NormalisedGamma(rate)")

    @property
    def log_mean(self) -> Tensor:
        """(*scores) log E[S] = log alpha - log beta."""
        return self.concentration.log() - self.rate.log()

    @property
    def plug_in(self) -> Tensor:
        """Weights from S at its expectation."""
        return self.realise(self.log_mean)

    def draw_raw(self, num_samples: int, seed: Tensor) -> Tensor:
        """(K, *scores) samples of log S."""
        return log_gamma_sample(self.concentration, num_samples, seed) - self.rate.log()

    def log_prob(self, value: Tensor) -> Tensor:
        """(K, *unit) log-density of S, given log S."""
        shape = self.concentration
        entries = shape * self.rate.log() - torch.lgamma(shape) + (shape - 1.0) * value
        return self.attended.sum(entries - (value + self.rate.log()).exp())


def _as_parameter(value: Tensor | float, like: Tensor, name: str) -> Tensor:
    """A positive float or tensor in the dtype and on the device of the scores."""
    if not isinstance(value, Tensor):
        if not value > 0.0 or math.isinf(value):
            raise ValueError(f"{name} must be positive and finite, got {value}")
        return torch.full((), value, dtype=like.dtype, device=like.device)
    return value.to(like.dtype)
