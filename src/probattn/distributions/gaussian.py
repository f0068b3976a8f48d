"""Diagonal Gaussians over vectors: contexts (Bahuleyan et al.), codes of sentences, memories (GAVAM)."""

import math

import torch
from torch import Tensor

from probattn.core.noise import fresh_seed, normal
from probattn.distributions.base import SampleShape, VectorDistribution, at_least_float32

__all__ = ["DiagonalGaussian"]


class DiagonalGaussian(VectorDistribution):
    """N(mean, exp(log_variance)) with independent features in the last axis.

    Args:
        mean: (*unit, D).
        log_variance: (*unit, D) or anything that broadcasts to it; log of sigma².
        mask: (*unit) bool, False for padded units, whose density and KL are zero.
    """

    has_rsample = True

    def __init__(self, mean: Tensor, log_variance: Tensor, *, mask: Tensor | None = None):
        mean, log_variance = torch.broadcast_tensors(at_least_float32(mean), at_least_float32(log_variance))
        self.location, self.log_variance = mean, log_variance
        self.mask = mask
        super().__init__(mean.shape[:-1], mean.shape[-1:], validate_args=False)

    @property
    def mean(self) -> Tensor:
        """(*unit, D)."""
        return self.location

    @property
    def variance(self) -> Tensor:
        """(*unit, D)."""
        return self.log_variance.exp()

    @property
    def plug_in(self) -> Tensor:
        """The mean."""
        return self.location

    def rsample(self, sample_shape: SampleShape = (), *, seed: Tensor | None = None) -> Tensor:
        """Differentiable samples; `sample_shape` has at most one size."""
        if len(sample_shape) > 1:
            raise ValueError(f"sample_shape has at most one size (the particles), got {tuple(sample_shape)}")
        seed = fresh_seed(self.location.device) if seed is None else seed
        raw = self.draw_raw(sample_shape[0] if sample_shape else 1, seed)
        return raw if sample_shape else raw[0]

    def draw_raw(self, num_samples: int, seed: Tensor) -> Tensor:
        """(K, *unit, D) samples as a function of the seed."""
        noise = normal(seed, (num_samples, *self.location.shape), dtype=self.location.dtype)
        return self.location + (0.5 * self.log_variance).exp() * noise

    def log_prob(self, value: Tensor) -> Tensor:
        """(K, *unit)."""
        standard = (value - self.location) * (-0.5 * self.log_variance).exp()
        entries = -0.5 * (standard.square() + self.log_variance + math.log(2.0 * math.pi))
        return self.reduce(entries)

    def entropy(self) -> Tensor:
        """(*unit) in nats."""
        return self.reduce(0.5 * (1.0 + math.log(2.0 * math.pi) + self.log_variance))

    def reduce(self, entries: Tensor) -> Tensor:
        """Sum over features; zero for padded units."""
        total = entries.sum(dim=-1)
        return total if self.mask is None else total.masked_fill(~self.mask, 0.0)
