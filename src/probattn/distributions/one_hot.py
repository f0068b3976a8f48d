"""A one-hot choice among the positions of a support (Deng et al., Sec. 2.1: categorical alignment)."""

import torch
from torch import Tensor

from probattn.core.noise import gumbel
from probattn.core.support import Support
from probattn.distributions.base import WeightsDistribution, at_least_float32

__all__ = ["MaskedOneHot"]


class MaskedOneHot(WeightsDistribution):
    """p(z = position i) = softmax(scores)_i over the support, in log space throughout.

    A set with nothing in it has the one outcome "nothing": probability one, no context, entropy zero.

    Args:
        scores: (*unit, S) or (E, H), unnormalised log-probabilities.
        support: Which positions compete.

    Example:
        >>> from probattn.core import Dense
        >>> p = MaskedOneHot(torch.zeros(3), Dense(torch.tensor([True, True, False])))
        >>> p.plug_in
        tensor([0.5000, 0.5000, 0.0000])
    """

    has_rsample = False
    has_enumerate_support = True
    raw_variable = "one-hot"

    def __init__(self, scores: Tensor, support: Support):
        scores = at_least_float32(scores)
        super().__init__(scores, support)
        self.log_probs = support.log_softmax(scores)
        """(*scores) normalised log-probabilities, -inf outside the support."""

    @property
    def plug_in(self) -> Tensor:
        """The probabilities: soft attention."""
        return self.log_probs.exp()

    def realise(self, raw: Tensor) -> Tensor:
        """One-hot vectors are weights already."""
        return raw

    def draw_raw(self, num_samples: int, seed: Tensor) -> Tensor:
        """(K, *scores) one-hot vectors."""
        return self.attended.scatter(self.draw_index(num_samples, seed), self.log_probs)

    def log_prob(self, value: Tensor) -> Tensor:
        """(K, *unit) log-probability of one-hot vectors; -inf outside the support, zero for sets that are empty."""
        inside = self.attended.sum(torch.where(torch.isfinite(self.log_probs), value, 0.0)) > 0
        log_prob = self.attended.sum(torch.where(value > 0, value * self._finite_log_probs(), 0.0))
        return log_prob.masked_fill(~inside & ~self.is_empty(), -torch.inf)

    def entropy(self) -> Tensor:
        """(*unit) in nats."""
        return -self.attended.sum(self.plug_in * self._finite_log_probs())

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """(largest set, *scores) every one-hot vector."""
        return self.attended.scatter(self.top_index(None), self.log_probs)

    def draw_index(self, num_samples: int, seed: Tensor, *, without: Tensor | None = None) -> Tensor:
        """(K, *unit) sampled positions by the Gumbel-max trick, none of those in `without`."""
        scores = self._require_positions(self.log_probs.detach())
        if without is not None:
            taken = self.attended.scatter(without, scores).sum(dim=0) > 0
            scores = scores.masked_fill(taken, -torch.inf)
        noise = gumbel(seed, self._noise_shape(num_samples), dtype=scores.dtype)
        draws = [self.attended.top_k(perturbed, 1)[0] for perturbed in (scores + noise)]
        return torch.stack(draws)

    def log_prob_index(self, index: Tensor) -> Tensor:
        """(K, *unit) log-probability of positions; zero for sets that are empty."""
        log_prob = self.attended.take(self.log_probs, index)
        log_prob = log_prob.masked_fill(~self.attended.contains(index), -torch.inf)
        return log_prob.masked_fill(self.is_empty(), 0.0)

    def top_index(self, k: int | None) -> Tensor:
        """(k, *unit) positions by falling probability."""
        scores = self._require_positions(self.log_probs.detach())
        size = self.attended.size(scores)
        return self.attended.top_k(scores, size if k is None else k)

    def log_rest(self, index: Tensor) -> Tensor:
        """(*unit) log-probability outside the given positions, -inf where none is left."""
        taken = self.attended.scatter(index, self.log_probs).sum(dim=0) > 0
        rest = self.log_probs.masked_fill(taken, -torch.inf)
        nothing_left = self.attended.sum(torch.isfinite(rest).to(rest.dtype)) == 0
        safe = torch.where(self.attended.spread(nothing_left), 0.0, rest)
        return self.attended.logsumexp(safe).masked_fill(nothing_left, -torch.inf)

    def is_empty(self) -> Tensor:
        """(*unit) True where there is nothing to attend to."""
        return self.attended.sum(torch.isfinite(self.log_probs).to(self.log_probs.dtype)) == 0

    def _finite_log_probs(self) -> Tensor:
        return self.log_probs.masked_fill(~torch.isfinite(self.log_probs), 0.0)

    def _require_positions(self, scores: Tensor) -> Tensor:
        if scores.numel() == 0 and self.attended.size(scores) == 0:  # the size of an edge list is data
            raise ValueError(
                f"a hard choice needs at least one position, but the memory is empty (scores {tuple(scores.shape)}). "
                "Give the memory a position, or use Mean, which reads a context of zeros."
            )
        return scores
