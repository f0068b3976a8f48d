"""What estimators ask of a distribution.

A `torch.distributions.Distribution` with four additions: a plug-in value, sampling that is a pure function of a seed,
the map from its own random variable to the value that attention uses, and, for discrete families, positions instead
of one-hot vectors.
"""

from typing import Protocol

from torch import Tensor

__all__ = ["DiscreteDistribution", "LatentDistribution"]


class LatentDistribution(Protocol):
    """A distribution that a site can draw from. Its own random variable is called `raw`.

    For weights on the simplex `raw` holds (unnormalised) log-weights, because exp(score) overflows where its normalised
    weight does not; `realise` turns it into the weights. For vectors the two are the same.
    """

    has_rsample: bool
    has_enumerate_support: bool

    @property
    def plug_in(self) -> Tensor:
        """(*unit, *event) what a deterministic pass uses in place of a draw."""
        ...

    def draw_raw(self, num_samples: int, seed: Tensor) -> Tensor:
        """(K, *unit, *event) samples, differentiable where `has_rsample`."""
        ...

    def realise(self, raw: Tensor) -> Tensor:
        """The value that attention uses: normalised weights, or the vector itself."""
        ...

    def log_prob(self, value: Tensor) -> Tensor:
        """(K, *unit) log-density of `raw`."""
        ...


class DiscreteDistribution(LatentDistribution, Protocol):
    """A distribution over the positions of a support."""

    def draw_index(self, num_samples: int, seed: Tensor, *, without: Tensor | None = None) -> Tensor:
        """(K, *unit) sampled positions, none of those in `without`."""
        ...

    def log_prob_index(self, index: Tensor) -> Tensor:
        """(K, *unit) log-probability of positions; zero where there is nothing to attend to."""
        ...

    def top_index(self, k: int | None) -> Tensor:
        """(k, *unit) the most probable positions, all of them for None."""
        ...

    def log_rest(self, index: Tensor) -> Tensor:
        """(*unit) log of the probability outside the given positions."""
        ...

    def is_empty(self) -> Tensor:
        """(*unit) bool, True where there is nothing to attend to."""
        ...
