"""The loss of a latent alignment in one function: marginal likelihood or enumerated ELBO of the target words.

A fused linear cross entropy for mixtures. The output layer is run once for every position that a target may be aligned
to; logits exist for one chunk at a time, hidden states too, and the gradients of everything are formed there.

Size letters: B examples, T targets of an example, S positions, D width, V words.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from probattn.kernels.latent_readout_operator import read_latent

__all__ = ["latent_readout_loss"]


def latent_readout_loss(
    query: Tensor,
    memory: Tensor,
    *,
    log_prior: Tensor,
    weight: Tensor,
    target: Tensor,
    log_posterior: Tensor | None = None,
    bias: Tensor | None = None,
    target_weight: Tensor | None = None,
    top_k: int | None = None,
    rest: Literal["renormalise", "drop"] = "renormalise",
    skip_below: float = 0.0,
) -> Tensor:
    """Loss of each target when the position it is aligned to is a latent variable (Deng et al. 2018, Sec. 3 and 4).

    With f_s = softmax(tanh(query + memory_s) W^T + b)[target], p the prior and q the posterior over positions:

        without log_posterior:  loss = -log sum_s p_s f_s
        with log_posterior:     loss = -sum_s q_s (log f_s - log q_s + log p_s)

    in nats, one number for each target, never summed. Query and memory are what a hidden layer adds up: for
    tanh(W_q h + W_m m_s) hand over W_q h and W_m m_s, which costs T + S products instead of T * S. For hidden states
    that are made otherwise see `latent_cross_entropy`.

    Gradients go to query, memory, log_prior, log_posterior, weight and bias. They are formed in the forward pass and
    only scaled in the backward pass if the losses are added up with equal factors, or with those of `target_weight`;
    with others they are formed again, which takes longer and is as exact. There is no second derivative. Arithmetic is
    float32 (float64 if query, memory and weight all are), also under autocast. It runs in C++ on the CPU where the back
    end is there (see `native`), and then gives the same bits for any number of threads.

    Args:
        query: (B, T, D).
        memory: (B, S, D).
        log_prior: (B, T, S) log p, normalised over S; -inf: there is no such position.
        weight: (V, D) output layer.
        target: (B, T) int64; anything where the target's weight is zero.
        log_posterior: (B, T, S) log q, normalised over S; None: the exact marginal likelihood.
        bias: (V) of the output layer, or None.
        target_weight: (B, T) factor of each loss, e.g. a mask or one over the length; zero: the target is not read. It
            is a constant: no gradient goes to it. None: all are one.
        top_k: Use the K most probable positions under q (or p) alone; None: all.
        rest: What happens to the probability outside them. "renormalise" (Deng et al.) spreads it over them. The
            marginal likelihood then is no bound; the ELBO is one, that of the shortened q. "drop" leaves it out,
            which makes the marginal likelihood a lower bound; it is not for the ELBO, which needs a q that sums to one.
        skip_below: Leave out positions whose share of a target is at most this; 0 is exact. With n positions left out:
            the share is q for the ELBO, whose value stays exact, and the posterior p f / sum p f for the marginal
            likelihood, where positions that cannot have more are not even read, and the loss is too large by at most
            -log(1 - n * skip_below). Gradients of query, memory, weight and bias are off by at most 2 * n *
            skip_below times the largest gradient of a log f.

    Returns:
        (B, T) losses times their `target_weight`. A target without a position, or with weight zero, has loss and
        gradient zero.

    Raises:
        TypeError: If a type does not fit.
        ValueError: If shapes do not fit each other, or an option is out of its range.

    Example:
        >>> query, memory, weight = torch.zeros(1, 1, 4), torch.zeros(1, 2, 4), torch.zeros(5, 4)
        >>> log_prior = torch.tensor([[[0.25, 0.75]]]).log()
        >>> latent_readout_loss(query, memory, log_prior=log_prior, weight=weight, target=torch.tensor([[3]])).exp()
        tensor([[5.]])
    """
    _check_shapes(query, memory, log_prior, log_posterior, weight, bias, target, target_weight)
    _check_options(top_k, rest, skip_below, has_posterior=log_posterior is not None)
    with torch.autocast(query.device.type, enabled=False):
        is_double = all(one.dtype == torch.float64 for one in (query, memory, weight))
        dtype = torch.float64 if is_double else torch.float32
        log_prior = log_prior.to(dtype)
        log_weight = log_prior
        if log_posterior is not None:
            log_weight = log_posterior.to(dtype)
            log_weight = log_weight.masked_fill(log_weight.exp() == 0, -math.inf)  # adds nothing, so is not read
        if top_k is not None and top_k < log_weight.shape[-1]:
            log_weight = _shortened(log_weight, top_k, is_renormalised=rest == "renormalise")
        factor = log_weight.new_ones(target.shape) if target_weight is None else target_weight.to(dtype)
        log_lik = read_latent(
            query,
            memory,
            log_weight=log_weight,
            target=target,
            target_weight=factor,
            weight=weight,
            bias=bias,
            is_marginal=log_posterior is None,
            skip_below=skip_below,
        )
        is_read = (log_weight > -math.inf) & (factor != 0).unsqueeze(-1)
        if log_posterior is None:
            bound = _logsumexp(log_weight + log_lik, is_read.any(dim=-1))
        else:
            gain = torch.where(is_read, log_lik - log_weight + log_prior, 0.0)
            bound = (log_weight.exp() * gain).sum(dim=-1)
        return -factor * bound


def _logsumexp(values: Tensor, has_any: Tensor) -> Tensor:
    """Over the last dimension; zero, with gradient zero, where `has_any` is False."""
    safe = torch.where(has_any.unsqueeze(-1), values, 0.0)
    return torch.where(has_any, torch.logsumexp(safe, dim=-1), 0.0)


def _shortened(log_weight: Tensor, top_k: int, *, is_renormalised: bool) -> Tensor:
    """The K largest of (B, T, S), -inf elsewhere."""
    best = log_weight.detach().topk(top_k, dim=-1).indices
    is_kept = torch.zeros_like(log_weight, dtype=torch.bool).scatter(-1, best, True)
    kept = log_weight.masked_fill(~is_kept, -math.inf)
    if not is_renormalised:
        return kept
    return kept - _logsumexp(kept, (kept > -math.inf).any(dim=-1)).unsqueeze(-1)


def _check_shapes(
    query: Tensor,
    memory: Tensor,
    log_prior: Tensor,
    log_posterior: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    target_weight: Tensor | None,
) -> None:
    found = {"query": query, "memory": memory, "log_prior": log_prior, "weight": weight}
    found |= {} if log_posterior is None else {"log_posterior": log_posterior}
    found |= {} if bias is None else {"bias": bias}
    for name, one in found.items():
        if not one.is_floating_point():
            raise TypeError(f"expected a floating-point {name}, got {one.dtype}; convert it with .float()")
    if target.dtype != torch.int64:
        raise TypeError(f"expected an int64 target (word numbers), got {target.dtype}; convert it with .long()")
    if target_weight is not None and target_weight.requires_grad:
        raise ValueError("target_weight is a constant and gets no gradient; detach it, or multiply the losses yourself")
    if query.dim() != 3 or memory.dim() != 3 or weight.dim() != 2:
        expected = {"query": "(B, T, D)", "memory": "(B, S, D)", "weight": "(V, D)"}
    else:
        (examples, steps, width), positions = query.shape, memory.shape[1]
        shape = f"({examples}, {steps}, {positions})"
        expected = {"memory": f"({examples}, {positions}, {width})", "weight": f"({len(weight)}, {width})"}
        expected |= {"log_prior": shape, "log_posterior": shape, "bias": f"({len(weight)},)"}
        expected |= {"target": f"({examples}, {steps})", "target_weight": f"({examples}, {steps})"}
    found |= {"target": target} | ({} if target_weight is None else {"target_weight": target_weight})
    for name, shape in expected.items():
        if name in found and shape != str(tuple(found[name].shape)):
            raise ValueError(
                f"expected {name} {shape}, got {tuple(found[name].shape)}; query is {tuple(query.shape)} (B, T, D), "
                f"memory {tuple(memory.shape)} (B, S, D) and weight {tuple(weight.shape)} (V, D)"
            )


def _check_options(top_k: int | None, rest: str, skip_below: float, *, has_posterior: bool) -> None:
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k must be at least 1, got {top_k}; None uses all positions")
    if rest not in ("renormalise", "drop"):
        raise ValueError(f"rest must be 'renormalise' or 'drop', got {rest!r}")
    if rest == "drop" and has_posterior:
        raise ValueError(
            "rest='drop' leaves a posterior that does not sum to one; use rest='renormalise' with the ELBO"
        )
    if not 0.0 <= skip_below < 1.0:
        raise ValueError(f"skip_below is a share of a target, at least 0 and below 1, got {skip_below}")
