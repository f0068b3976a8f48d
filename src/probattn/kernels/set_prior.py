"""Priors that differ by query and yet need one number a key: Psi is normalised over the keys that a query sees.

With l_j the logit of a key and L_i the logsumexp of those that query i sees, Psi_ij = scale exp(l_j - L_i). Where query
i sees keys up to i, sums over its keys are running sums. With alpha_ij = s exp(l_j - L_i) a KL of Weibull weights needs

    sum_j alpha_ij phi_ij       exp(-L_i) times a sum with one weight a key, which the back ends make;
    sum_j log Gamma(alpha_ij)   -sum_j log alpha_ij, and a polynomial in alpha_ij, whose powers are products too.

That of lognormal weights needs l_j as the weight of a key, and L_i taken off the anchor of a query.

Size letters: B batch, H heads, T queries, S keys.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from probattn.distributions import PriorFamily

__all__ = ["RunningSums", "SetPrior", "Sight", "log_gamma_sums", "running_sums"]

# log Gamma(1 + x) / x for x from 0 to 1, by interpolation at Chebyshev's points; the error is below 1e-9.
_LOG_GAMMA = (
    -0.5772156640561,
    0.8224668280656,
    -0.4006772654968,
    0.2704455985405,
    -0.2062423189743,
    0.1637597632238,
    -0.1249511442121,
    0.08234591098509,
    -0.04116841182163,
    0.01322865554407,
    -0.001991952243936,
)
# Of -L_i: eleventh powers of exp(-L_i) must stay inside float64.
_LARGEST_LOG_FACTOR = 60.0


@dataclass(frozen=True)
class SetPrior:
    """A prior Psi_ij = scale exp(l_j) / sum of exp(l) over the keys that query i sees.

    Attributes:
        logits: Broadcastable to (B, H, S), l.
        family: How Psi becomes a prior; GammaPrior and LognormalPrior are known here.
        scale: A factor of Psi.
    """

    logits: Tensor
    family: PriorFamily
    scale: float = 1.0


@dataclass(frozen=True)
class Sight:
    """Which keys the queries of a causal call see.

    Attributes:
        queries: T; query t sees keys up to t.
        is_seen: Bool, broadcastable to (B, H, S), False for keys that are hidden from all; None: all are seen.
    """

    queries: int
    is_seen: Tensor | None = None


@dataclass(frozen=True)
class RunningSums:
    """Sums over the keys that a query sees, in float64; sizes may be one where logits and mask are the same for all.

    Attributes:
        logits: (B, H, S) relative to the largest one that is seen; zero where no query may look.
        weights: (B, H, S) their exponentials; zero where no query may look.
        log_normaliser: (B, H, T) L, relative to the largest logit too; zero for a query that sees nothing.
        total: (B, H, T) sum of logits.
        count: (B, H, T) number of keys.
    """

    logits: Tensor
    weights: Tensor
    log_normaliser: Tensor
    total: Tensor
    count: Tensor

    @property
    def is_empty(self) -> Tensor:
        """(B, H, T) whether a query sees nothing."""
        return self.count == 0.0

    @property
    def factor(self) -> Tensor:
        """(B, H, T) exp(-L); NaN where that is too large for what is made of it, rather than a wrong number."""
        is_large = self.log_normaliser < -_LARGEST_LOG_FACTOR
        return (-self.log_normaliser).exp().masked_fill(is_large, torch.nan)

    @property
    def are_in_range(self) -> bool:
        """Whether no factor is NaN; compiled code cannot look, and takes it for granted."""
        found = self.log_normaliser.detach()
        if torch.compiler.is_compiling() or found.is_meta or type(found) is not Tensor or found.numel() == 0:
            return True
        return float(found.min()) >= -_LARGEST_LOG_FACTOR


def running_sums(prior: SetPrior, sight: Sight) -> RunningSums:
    """The sums of a prior over the keys of each query."""
    logits = prior.logits.double()
    logits = logits.view(*([1] * (3 - logits.dim())), *logits.shape)
    is_seen = torch.ones_like(logits[:1, :1], dtype=torch.bool) if sight.is_seen is None else sight.is_seen
    logits, is_seen = torch.broadcast_tensors(logits, is_seen)
    largest = logits.detach().masked_fill(~is_seen, -torch.inf).amax(dim=-1, keepdim=True)
    logits = (logits - largest).masked_fill(~is_seen, 0.0)
    weights = logits.exp().masked_fill(~is_seen, 0.0)
    running = (weights.cumsum(dim=-1), logits.cumsum(dim=-1), is_seen.double().cumsum(dim=-1))
    normaliser, total, count = (_at_queries(one, sight.queries) for one in running)
    # A sum that leaves float64 counts as a very small one.
    log_normaliser = normaliser.masked_fill(count == 0.0, 1.0).clamp(min=torch.finfo(torch.float64).tiny).log()
    return RunningSums(logits, weights, log_normaliser, total, count)


def log_gamma_sums(sums: RunningSums, size: float) -> Tensor:
    """(B, H, T) sum over seen keys of log Gamma(alpha_ij), alpha_ij = size * exp(l_j - L_i), for a size up to one."""
    found = sums.count * (sums.log_normaliser - math.log(size)) - sums.total  # of -log alpha
    powers, factors = torch.ones_like(sums.weights), torch.ones_like(sums.count)
    weights, factor = size * sums.weights, sums.factor
    for coefficient in _LOG_GAMMA:
        powers, factors = powers * weights, factors * factor
        found = found + coefficient * factors * _at_queries(powers.cumsum(dim=-1), sums.count.shape[-1])
    return found.masked_fill(sums.is_empty, 0.0)


def _at_queries(running: Tensor, queries: int) -> Tensor:
    """Running sums (..., S) at the last key of each query, (..., T)."""
    keys = running.shape[-1]
    if queries <= keys:
        return running[..., :queries]
    return torch.cat([running, running[..., -1:].expand(*running.shape[:-1], queries - keys)], dim=-1)
