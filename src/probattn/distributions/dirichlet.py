"""A Dirichlet on the simplex of the positions that are there (Deng et al., Sec. 2.1: relaxed alignment).

Padded positions are not given a small concentration: they are not part of the simplex. Samples are pathwise
differentiable.
"""

import torch
from torch import Tensor

from probattn.core.support import Support
from probattn.distributions.base import WeightsDistribution, at_least_float32, precise
from probattn.distributions.gamma_noise import log_gamma_sample

__all__ = ["MaskedDirichlet"]


class MaskedDirichlet(WeightsDistribution):
    """W ~ Dirichlet(concentration) over the positions of each set. Raw samples are log W.

    Args:
        concentration: (*scores) positive on the support.
        support: Which positions compete.
    """

    raw_variable = "W"

    def __init__(self, concentration: Tensor, *, support: Support):
        concentration = at_least_float32(concentration)
        super().__init__(concentration, support)
        self.concentration = support.fill_outside(concentration, 1.0)

    @property
    def total(self) -> Tensor:
        """(*unit) the summed concentration."""
        return self.attended.sum(self.concentration)

    @property
    def plug_in(self) -> Tensor:
        """The mean, alpha / sum alpha."""
        return self.realise(self.concentration.log())

    def draw_raw(self, num_samples: int, seed: Tensor) -> Tensor:
        """(K, *scores) samples of log W; zero outside the support."""
        log_gamma = log_gamma_sample(self.concentration, num_samples, seed)
        return self.attended.fill_outside(self.attended.log_softmax(log_gamma), 0.0)

    def log_prob(self, value: Tensor) -> Tensor:
        """(K, *unit) log-density of W on its simplex, given log W. Zero for an empty set and for one position.

        Computed in float64, with weights that sum to one there: at concentrations of 1e6 the rounding of log W in
        float32 alone would be worth tens of nats, most of it off the simplex.
        """
        concentration, log_weights = precise(self.concentration), precise(value)
        log_weights = self.attended.fill_outside(self.attended.log_softmax(log_weights), 0.0)
        entries = (concentration - 1.0) * log_weights - torch.lgamma(concentration)
        total = self.attended.sum(concentration)
        log_prob = self.attended.sum(entries) + torch.lgamma(total.masked_fill(total == 0, 1.0))
        return log_prob.to(self.concentration.dtype)
