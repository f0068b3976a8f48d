"""Gaussian priors and posteriors of vectors: contexts, codes of sentences, memories.

Size letters: as in `probattn.core.records`.
"""

import torch
from torch import nn
from torch.distributions import Distribution

from probattn.core.records import Draw, Given
from probattn.distributions import DiagonalGaussian
from probattn.distributions.clamping import inward_clamp
from probattn.nn.conditionals import Conditional, require_given

__all__ = ["FromContext", "GaussianHead", "MeanMemory", "StandardNormal"]

# log sigma² is kept in this range: exp of an unbounded network output overflows.
_LOG_VARIANCE_BOUND = 10.0


class StandardNormal(Conditional):
    """N(0, 1) for every feature, shaped like the value it is a prior of (a code, a context or a memory).

    Args:
        dim: Number of features.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def forward(self, given: Given) -> Distribution:
        """Zeros and ones, shaped like the context where there is one, else like the memory's values."""
        like = given.memory.values if given.context is None else given.context
        zeros = torch.zeros(*like.shape[:-1], self.dim, dtype=like.dtype, device=like.device)
        return DiagonalGaussian(zeros, torch.zeros_like(zeros), mask=given.mask)


class MeanMemory(Conditional):
    """N(mean of the memory, 1): the prior of VAttn-h̄ (Bahuleyan et al., Sec. 3.2)."""

    def forward(self, given: Given) -> Distribution:
        """Mean over the positions that each query may see, padding left out."""
        context, values = require_given(given.context, "MeanMemory", "context"), given.memory.values
        scores = given.scores
        if scores is None:
            scores = values.new_zeros(*context.shape[:-1], values.shape[-2])
        uniform = given.memory.support.log_softmax(torch.zeros_like(scores)).exp().unsqueeze(0)
        mean = given.memory.support.read(Draw(value=uniform, index=None, log_weight=uniform[:0]), values)[0]
        return DiagonalGaussian(mean, torch.zeros_like(mean))


class FromContext(Conditional):
    """N(expected context, sigma²) with log sigma = linear(tanh(linear(context))) (Bahuleyan et al., Sec. 3.3).

    The mean is the soft context itself, without parameters; log sigma² is kept inside +-10.

    Args:
        dim: Width of the context.
        hidden_dim: Width of the hidden layer; `dim` by default.
    """

    def __init__(self, dim: int, hidden_dim: int | None = None):
        super().__init__()
        hidden_dim = dim if hidden_dim is None else hidden_dim
        self.log_sigma = nn.Sequential(nn.Linear(dim, hidden_dim), nn.Tanh(), nn.Linear(hidden_dim, dim))

    def forward(self, given: Given) -> Distribution:
        """The Gaussian at `given.context`."""
        context = require_given(given.context, "FromContext", "context")
        log_variance = 2.0 * self.log_sigma(context)
        bound = _LOG_VARIANCE_BOUND
        return DiagonalGaussian(context, inward_clamp(log_variance, -bound, bound), mask=given.mask)


class GaussianHead(Conditional):
    """N(linear(context), exp(linear(context))): the posterior of a code or of a memory (VED, GAVAM).

    log sigma² is kept inside +-10.

    Args:
        input_dim: Width of the encoding.
        latent_dim: Width of the code.
    """

    def __init__(self, input_dim: int, latent_dim: int):
        super().__init__()
        self.mean = nn.Linear(input_dim, latent_dim)
        self.log_variance = nn.Linear(input_dim, latent_dim)

    def forward(self, given: Given) -> Distribution:
        """The Gaussian at `given.context`, an encoding (*unit, D)."""
        context = require_given(given.context, "GaussianHead", "context")
        bound = _LOG_VARIANCE_BOUND
        log_variance = inward_clamp(self.log_variance(context), -bound, bound)
        return DiagonalGaussian(self.mean(context), log_variance, mask=given.mask)
