"""The readout of `latent_readout_loss` as an operator of torch, so that autograd and torch.compile know it.

Gradients are formed with the values and kept. The backward pass scales them where what comes from above is a multiple
of what was expected, and else reads again.

Size letters: B examples, T targets of an example, S positions, D width, V words.
"""

from typing import Any

import torch
from torch import Tensor

from probattn.kernels.latent_readout_chunks import LatentReadout, ReadoutGradients
from probattn.kernels.row_readout import proportion
from probattn.kernels.second_derivative import refuse_second_derivative

__all__ = ["latent_readout_operator", "read_latent"]

_Four = tuple[Tensor, Tensor, Tensor, Tensor]
_Six = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def read_latent(
    query: Tensor,
    memory: Tensor,
    *,
    log_weight: Tensor,
    target: Tensor,
    target_weight: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    is_marginal: bool,
    skip_below: float,
) -> Tensor:
    """(B, T, S) log-likelihoods; see `latent_readout_operator`, which is taken where a compiler looks."""
    tensors = (query, memory, log_weight.detach(), target, target_weight, weight, bias)
    if not torch.compiler.is_compiling():
        log_lik: Tensor = _LatentReadout.apply(*tensors, is_marginal, skip_below, torch.is_grad_enabled())  # type: ignore[no-untyped-call]
        return log_lik
    learned = (query, memory, weight, bias)
    keeps = torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in learned)
    made: _Six = latent_readout_operator(*tensors, is_marginal, skip_below, keeps)
    return made[0]


@torch.library.custom_op("probattn::latent_readout", mutates_args=())
def latent_readout_operator(
    query: Tensor,
    memory: Tensor,
    log_weight: Tensor,
    target: Tensor,
    target_weight: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    is_marginal: bool,
    skip_below: float,
    keeps_gradients: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Log-likelihoods log softmax(tanh(query + memory) W^T + b)[target] of all positions.

    Args:
        query: (B, T, D).
        memory: (B, S, D).
        log_weight: (B, T, S); -inf: there is no such position. No gradient goes this way.
        target: (B, T) int64.
        target_weight: (B, T) factor of each target; zero: it is not read.
        weight: (V, D).
        bias: (V) or None.
        is_marginal: The bound is log sum_s w_s f_s, else sum_s w_s log f_s.
        skip_below: See `latent_readout_loss`.
        keeps_gradients: Form the gradients, too.

    Returns:
        Log-likelihoods (B, T, S), -inf where a position was not read; and for the backward pass the credits, (N, S),
        and the gradients of query, memory, weight and bias, or empty tensors.
    """
    readout = _problem(query, memory, log_weight, target, target_weight, weight, bias)
    made = readout.read(is_marginal=is_marginal, skip_below=skip_below, keeps_gradients=keeps_gradients)
    log_lik = made.log_lik.view_as(log_weight)
    if made.gradients is None:
        return log_lik, *(weight.new_empty(0) for _ in range(5))  # type: ignore[return-value]
    return log_lik, made.credit, *_four(made.gradients, query, memory, weight)


@torch.library.custom_op("probattn::latent_readout_backward", mutates_args=())
def _backward_operator(
    grad: Tensor,
    log_lik: Tensor,
    credit: Tensor,
    grad_query: Tensor,
    grad_memory: Tensor,
    grad_weight: Tensor,
    grad_bias: Tensor,
    query: Tensor,
    memory: Tensor,
    log_weight: Tensor,
    target: Tensor,
    target_weight: Tensor,
    weight: Tensor,
    bias: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, memory, weight and bias, the last one empty without a bias."""
    flat = grad.reshape(credit.shape)
    scale = proportion(flat, credit)
    if scale is not None:
        kept = (grad_query, grad_memory, grad_weight, grad_bias)
        return tuple(one * scale for one in kept)  # type: ignore[return-value]
    readout = _problem(query, memory, log_weight, target, target_weight, weight, bias)
    return _four(readout.differentiate(log_lik.reshape(credit.shape), flat), query, memory, weight)


@latent_readout_operator.register_fake
def _(
    query: Tensor,
    memory: Tensor,
    log_weight: Tensor,
    target: Tensor,
    target_weight: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    is_marginal: bool,
    skip_below: float,
    keeps_gradients: bool,
) -> _Six:
    log_lik = torch.empty_like(log_weight, memory_format=torch.contiguous_format)
    if not keeps_gradients:
        return log_lik, *(weight.new_empty(0) for _ in range(5))  # type: ignore[return-value]
    examples, steps, positions = log_weight.shape
    return log_lik, log_weight.new_empty(examples * steps, positions), *_fake_four(query, memory, weight, bias)


@_backward_operator.register_fake
def _(grad: Tensor, *tensors: Any) -> _Four:
    query, memory, _, _, _, weight, bias = tensors[6:]
    return _fake_four(query, memory, weight, bias)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: _Six) -> None:
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(*output, *inputs[:7])


def _backward(ctx: Any, grad: Tensor | None, *rest: Any) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 10
    saved = ctx.saved_tensors  # can be read once under checkpointing
    query, memory, weight, bias = _backward_operator(grad, *saved)
    return query, memory, None, None, None, weight, None if saved[-1] is None else bias, None, None, None


latent_readout_operator.register_autograd(_backward, setup_context=_setup_context)


class _LatentReadout(torch.autograd.Function):
    """The operator for eager code: gradients are scaled in place, which saves a copy of each."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        """See `latent_readout_operator`."""
        *tensors, is_marginal, skip_below, is_enabled = arguments
        keeps = is_enabled and any(ctx.needs_input_grad)
        made = _problem(*tensors).read(is_marginal=is_marginal, skip_below=skip_below, keeps_gradients=keeps)
        ctx.kept = made.gradients
        ctx.save_for_backward(made.log_lik, made.credit, *tensors)
        return made.log_lik.view_as(tensors[2])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the kept gradients, or read again."""
        with torch.no_grad():
            made = _scaled(ctx, grad)
        query, memory, weight, bias = refuse_second_derivative(made)
        return query, memory, None, None, None, weight, bias, None, None, None


def _scaled(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients of query, memory, weight and bias."""
    log_lik, credit, *tensors = ctx.saved_tensors
    query, memory, _, _, _, weight, bias = tensors
    kept: ReadoutGradients | None = ctx.kept
    ctx.kept = None  # scaled in place below, so a second backward pass reads again
    flat = grad.reshape(credit.shape)
    scale = None if kept is None else proportion(flat, credit)
    if kept is None or scale is None:
        kept, scale = _problem(*tensors).differentiate(log_lik, flat), flat.new_ones(())
    for one in (kept.query, kept.memory, kept.weight, kept.bias):
        if one is not None:
            one.mul_(scale)
    *made, of_bias = _four(kept, query, memory, weight)
    return *made, None if bias is None else of_bias


def _problem(
    query: Tensor,
    memory: Tensor,
    log_weight: Tensor,
    target: Tensor,
    target_weight: Tensor,
    weight: Tensor,
    bias: Tensor | None,
) -> LatentReadout:
    """With examples and targets in one dimension, in the type of the log-weights."""
    dtype, (examples, steps) = log_weight.dtype, target.shape
    first_row = torch.arange(examples, device=target.device) * memory.shape[1]
    return LatentReadout(
        query=query.detach().to(dtype).flatten(0, 1),
        memory=memory.detach().to(dtype).flatten(0, 1),
        first_row=first_row.repeat_interleave(steps),
        log_weight=log_weight.flatten(0, 1),
        target=target.flatten(),
        target_weight=target_weight.to(dtype).flatten(),
        weight=weight.detach().to(dtype),
        bias=None if bias is None else bias.detach().to(dtype),
    )


def _four(made: ReadoutGradients, query: Tensor, memory: Tensor, weight: Tensor) -> _Four:
    """In the shapes and types of the inputs; the last one is empty without a bias."""
    bias = weight.new_empty(0) if made.bias is None else made.bias.to(weight.dtype)
    of_query, of_memory = made.query.view_as(query).to(query.dtype), made.memory.view_as(memory).to(memory.dtype)
    return of_query, of_memory, made.weight.to(weight.dtype), bias


def _fake_four(query: Tensor, memory: Tensor, weight: Tensor, bias: Tensor | None) -> _Four:
    like = [torch.empty_like(one, memory_format=torch.contiguous_format) for one in (query, memory, weight)]
    return like[0], like[1], like[2], weight.new_empty(0 if bias is None else len(bias))
