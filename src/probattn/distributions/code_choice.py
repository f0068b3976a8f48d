"""A random choice among the codes of a codebook: hard samples, relaxed gradients."""

import torch
from torch import Tensor

from probattn.core.noise import fresh_seed, gumbel
from probattn.distributions.base import SampleShape, VectorDistribution, at_least_float32
from probattn.distributions.one_hot import MaskedOneHot

__all__ = ["CodeChoice"]


class CodeChoice(VectorDistribution):
    """z = code k with probability softmax(scores)_k.

    Raw samples are one-hot; `realise` gives the code. Their gradient is that of the Concrete relaxation
    softmax((log q + Gumbel noise) / relaxation), straight through (Jang et al. 2017): biased. Codes get the exact
    gradient of the sample. The KL to a prior over the same codes is enumerated.

    Args:
        scores: (*unit, C) unnormalised log-probabilities.
        codes: (C, D) the codebook.
        relaxation: Temperature of the relaxation that gradients are taken from; it does not change the samples.
        mask: (*unit) bool, False for padded units, which cost nothing.
        encoded: (*unit, D) what the scores were made from, among the codes; None where there is no such thing.
    """

    has_rsample = True
    raw_variable = "one-hot"

    def __init__(
        self,
        scores: Tensor,
        codes: Tensor,
        *,
        relaxation: float = 1.0,
        mask: Tensor | None = None,
        encoded: Tensor | None = None,
    ):
        if relaxation <= 0.0:
            raise ValueError(f"CodeChoice(relaxation) must be positive, got {relaxation}")
        if codes.dim() != 2 or scores.shape[-1] != len(codes):
            raise ValueError(
                f"expected one score for each code, got scores {tuple(scores.shape)} and codes {tuple(codes.shape)}"
            )
        if encoded is not None and encoded.shape != (*scores.shape[:-1], codes.shape[-1]):
            raise ValueError(
                f"expected encoded vectors {(*scores.shape[:-1], codes.shape[-1])}, one for each choice, got "
                f"{tuple(encoded.shape)}"
            )
        self.log_probs = torch.log_softmax(at_least_float32(scores), dim=-1)
        """(*unit, C) normalised log-probabilities."""
        self.codes = at_least_float32(codes)
        self.relaxation, self.mask, self.encoded = relaxation, mask, encoded
        super().__init__(scores.shape[:-1], self.codes.shape[-1:], validate_args=False)

    @property
    def plug_in(self) -> Tensor:
        """(*unit, D) the most probable codes forward, the gradient of the expected code backward."""
        return self.realise(_straight_through(self.log_probs))

    def rsample(self, sample_shape: SampleShape = (), *, seed: Tensor | None = None) -> Tensor:
        """One-hot samples (*sample_shape, *unit, C) with relaxed gradients."""
        if len(sample_shape) > 1:
            raise ValueError(f"sample_shape has at most one size (the particles), got {tuple(sample_shape)}")
        raw = self.draw_raw(
            sample_shape[0] if sample_shape else 1, fresh_seed(self.codes.device) if seed is None else seed
        )
        return raw if sample_shape else raw[0]

    def draw_raw(self, num_samples: int, seed: Tensor) -> Tensor:
        """(K, *unit, C) one-hot samples by the Gumbel-max trick."""
        noise = gumbel(seed, (num_samples, *self.log_probs.shape), dtype=self.log_probs.dtype)
        return _straight_through(torch.log_softmax((self.log_probs + noise) / self.relaxation, dim=-1))

    def realise(self, raw: Tensor) -> Tensor:
        """(K, *unit, D) the chosen codes."""
        return raw @ self.codes

    def log_prob(self, value: Tensor) -> Tensor:
        """(K, *unit) log-probability of one-hot vectors; zero for padded units."""
        log_probs = self.log_probs.expand(value.shape)
        return self.reduce(log_probs.gather(-1, value.detach().argmax(dim=-1, keepdim=True)))

    def log_prob_under(self, prior: MaskedOneHot, value: Tensor) -> Tensor:
        """(K, *unit) log-probability of codes (K, *unit, D) under a prior over the same codebook; zero for padding."""
        distance = self.codes.square().sum(dim=-1) - 2.0 * value @ self.codes.T
        return self.reduce(prior.log_prob_index(distance.argmin(dim=-1)).unsqueeze(-1))

    def entropy(self) -> Tensor:
        """(*unit) in nats; zero for padded units."""
        return self.reduce(-self.log_probs.exp() * self.log_probs)

    def reduce(self, entries: Tensor) -> Tensor:
        """Sum over the last axis; zero for padded units."""
        total = entries.sum(dim=-1)
        return total if self.mask is None else total.masked_fill(~self.mask, 0.0)


def _straight_through(log_weights: Tensor) -> Tensor:
    """One-hot at the largest, with the gradient of the weights."""
    soft = log_weights.exp()
    hard = torch.zeros_like(soft).scatter_(-1, log_weights.detach().argmax(dim=-1, keepdim=True), 1.0)
    return hard + (soft - soft.detach())
