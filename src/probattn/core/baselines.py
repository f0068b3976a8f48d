"""Control variates of score-function gradients.

A baseline b_k must not depend on the draw z_k whose log-probability it multiplies; then E[b_k grad log q(z_k)] = 0 and
the gradient stays unbiased. Each baseline here is a linear function of the particles' log-likelihoods plus a
constant, so a draw can carry it as tensors.
"""

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from probattn.core.protocols import LatentDistribution
from probattn.core.records import Evaluation

__all__ = ["Baseline", "LeaveOneOut", "NoBaseline", "RunningMean", "SoftAttention"]


class Baseline(ABC):  # noqa: B024  (no method is abstract: the base is "no baseline")
    """A control variate; what it does not override is zero.

    Attributes:
        min_samples: The smallest number of samples it works with.
    """

    min_samples: ClassVar[int] = 1

    def particle(self, posterior: LatentDistribution, prior: LatentDistribution | None) -> Tensor | None:
        """(1, *unit, *event) an extra particle whose log-likelihood is the baseline, or None."""
        return None

    def mixing(self, num_samples: int, like: Tensor) -> Tensor | None:
        """(K, K) matrix from log-likelihoods to baselines, the extra particle included; None for zero."""
        return None

    def offset(self) -> Tensor | None:
        """A constant that is added, or None."""
        return None


@dataclass(frozen=True)
class NoBaseline(Baseline):
    """No control variate: the plain score-function gradient, for comparison."""


@dataclass(frozen=True)
class SoftAttention(Baseline):
    """The log-likelihood of soft attention under the prior (Deng et al., eq. 1): one extra readout, detached.

    The expectation is taken under p and not under q, so the baseline does not depend on the inference network. With no
    prior at hand the posterior's plug-in value serves.
    """

    def particle(self, posterior: LatentDistribution, prior: LatentDistribution | None) -> Tensor | None:
        """The prior's plug-in value."""
        if prior is None or prior is posterior:
            return posterior.plug_in.detach().unsqueeze(0)
        return prior.plug_in.detach().expand_as(posterior.plug_in).unsqueeze(0)  # a prior may be one for all queries

    def mixing(self, num_samples: int, like: Tensor) -> Tensor | None:
        """Every sample's baseline is the last particle's log-likelihood."""
        mixing = torch.zeros(num_samples + 1, num_samples + 1, dtype=like.dtype, device=like.device)
        mixing[:, -1] = 1.0
        return mixing


@dataclass(frozen=True)
class LeaveOneOut(Baseline):
    """The mean log-likelihood of the other samples (Kool et al. 2019). Needs two samples or more."""

    min_samples: ClassVar[int] = 2

    def mixing(self, num_samples: int, like: Tensor) -> Tensor | None:
        """(1 - I) / (K - 1)."""
        ones = torch.ones(num_samples, num_samples, dtype=like.dtype, device=like.device)
        return (ones - torch.eye(num_samples, dtype=like.dtype, device=like.device)) / (num_samples - 1)


class RunningMean(nn.Module, Baseline):
    """A moving average of past log-likelihoods per unit, kept in buffers and moved only by `update_`.

    The training loop calls `update_` once per step, after the backward pass, so that recomputation, evaluation and
    several particles cannot move it twice.
    """

    value: Tensor
    is_started: Tensor

    def __init__(self, decay: float = 0.99):
        super().__init__()
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"RunningMean(decay) must lie in [0, 1), got {decay}")
        self.decay = decay
        self.register_buffer("value", torch.zeros(()))
        self.register_buffer("is_started", torch.zeros((), dtype=torch.bool))

    def offset(self) -> Tensor | None:
        """The moving average."""
        return self.value.clone()

    @torch.no_grad()
    def update_(self, evaluation: Evaluation) -> None:
        """Move the average towards the mean log-likelihood of this batch.

        Args:
            evaluation: What the model returned; padded steps do not count.
        """
        log_lik = evaluation.log_lik
        if evaluation.mask is not None:
            log_lik = log_lik[:, evaluation.mask]
        if log_lik.numel() == 0:  # a batch of padding says nothing
            return
        mean = log_lik.mean().to(self.value.dtype)
        self.value.copy_(torch.where(self.is_started, self.decay * self.value + (1.0 - self.decay) * mean, mean))
        self.is_started.fill_(True)
