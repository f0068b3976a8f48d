"""Bayesian attention as it is usually written: every quantity a tensor of queries x keys, differentiated by autograd.

The baseline of `attention`, written from the formulas of Bayesian Attention Modules (Fan et al., 2020, Sec. 3.2), not
from its released code: scores, softmax, uniform noise with two logs, normalised samples, a KL entry by entry. The prior
has one row for all queries, so that lgamma is taken once per key, which favours the baseline.

Size letters: B batch, H heads, T queries, S keys, D features.
"""

import math

import torch
from torch import Tensor

__all__ = ["materialised_attention"]

_EULER = 0.5772156649015329
_TINY = 1e-20
_HIDDEN_SCORE = -1e9


def materialised_attention(
    query: Tensor, key: Tensor, value: Tensor, *, alpha: Tensor, k: float, rate: float, hidden: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Context and KL, with Weibull weights of E[S] = softmax(scores) and a Gamma prior.

    Args:
        query: (B, H, T, D).
        key: (B, H, S, D).
        value: (B, H, S, D).
        alpha: (B, H, 1, S) concentrations of the prior.
        k: Concentration of the weights.
        rate: Of the prior.
        hidden: Broadcastable to (B, H, T, S), True where a query must not look.

    Returns:
        (B, H, T, D) and (B, H, T).
    """
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(query.shape[-1])
    if hidden is not None:
        scores = scores.masked_fill(hidden, _HIDDEN_SCORE)
    log_gamma = math.lgamma(1.0 + 1.0 / k)
    log_scale = scores.log_softmax(dim=-1) - log_gamma
    uniform = torch.rand_like(scores)
    noise = (-(1.0 - uniform + _TINY).log() + _TINY).log() / k
    context = torch.matmul((log_scale + noise).softmax(dim=-1), value)
    expected = rate * (log_scale + log_gamma).exp()
    entries = alpha * (_EULER / k - log_scale - math.log(rate)) + math.log(k) + expected - _EULER - 1.0
    entries = entries + torch.lgamma(alpha)
    if hidden is not None:
        entries = entries.masked_fill(hidden, 0.0)
    return context, entries.sum(dim=-1)
