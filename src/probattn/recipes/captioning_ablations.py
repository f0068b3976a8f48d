"""What the paper tried and gave up: attention weights as unconstrained Gaussians (BAM, Sec. 4.3).

"It allows the attention weights to be negative and not sum to 1": the draw itself weighs the regions, without a
softmax. The mean is the score, log sigma² a linear map of the region, unbounded; the prior is N(0, 1).
"""

from dataclasses import dataclass

from torch import nn
from torch.distributions import Distribution

from probattn.core import Given
from probattn.distributions import DiagonalGaussian
from probattn.nn import Conditional
from probattn.recipes.blueprints import ConditionalBlueprint, Sizes

__all__ = ["GaussianWeights", "NormalWeights"]


class _GaussianScores(Conditional):
    """N(score, exp(linear(key))) for every region; N(0, 1) outside the support, so that it adds no KL."""

    def __init__(self, key_dim: int):
        super().__init__()
        self.log_variance = nn.Linear(key_dim, 1)
        nn.init.zeros_(self.log_variance.weight)
        nn.init.constant_(self.log_variance.bias, -2.0)

    def forward(self, given: Given) -> Distribution:
        """The Gaussian at `given.scores`, (*unit, R)."""
        if given.scores is None:
            raise ValueError("Gaussian weights read Given.scores, which is absent; pass it to the site")
        support = given.memory.support
        log_variance = self.log_variance(given.memory.keys).transpose(-2, -1).expand_as(given.scores)
        return DiagonalGaussian(support.fill_outside(given.scores, 0.0), support.fill_outside(log_variance, 0.0))


class _StandardWeights(Conditional):
    """N(0, 1) for every region."""

    def forward(self, given: Given) -> Distribution:
        """Zeros and ones, shaped like the scores."""
        if given.scores is None:
            raise ValueError("the prior of Gaussian weights is shaped like Given.scores, which is absent")
        zeros = given.scores.new_zeros(given.scores.shape)
        return DiagonalGaussian(zeros, zeros)


@dataclass(frozen=True)
class GaussianWeights(ConditionalBlueprint):
    """Weights that are Gaussian, with the score as their mean."""

    def build(self, sizes: Sizes) -> Conditional:
        """The module."""
        return _GaussianScores(sizes.keys)


@dataclass(frozen=True)
class NormalWeights(ConditionalBlueprint):
    """N(0, 1) for every weight."""

    def build(self, sizes: Sizes) -> Conditional:
        """The module."""
        return _StandardWeights()
