"""Graph attention as an operator of torch, so that autograd and torch.compile know it; C++ does the work.

Size letters: N target nodes, M source nodes, E edges, H heads, D features of a head.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from probattn.kernels.second_derivative import refuse_second_derivative

__all__ = ["LOGNORMAL", "WEIBULL", "attend", "graph_attention_operator"]

WEIBULL, LOGNORMAL = 0, 1
"""Laws of the weights, as the C++ code numbers them."""

_NUM_LISTS = 6  # of `EdgeLists.tensors()`
_Five = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def attend(*arguments: Any) -> _Five:
    """`graph_attention_operator`, by a shorter way where no compiler looks: it saves 0.2 ms a call.

    Args:
        arguments: Of the operator, by position.
    """
    function = graph_attention_operator if torch.compiler.is_compiling() else _GraphAttention.apply
    made: _Five = function(*arguments)  # type: ignore[no-untyped-call]
    return made


@torch.library.custom_op("probattn::graph_attention", mutates_args=(), device_types="cpu")
def graph_attention_operator(
    target_scores: Tensor,
    source_scores: Tensor,
    values: Tensor,
    edge_lists: Sequence[Tensor],
    terms: Tensor | None,
    prior: Tensor | None,
    seed: Tensor | None,
    dropout_seed: Tensor | None,
    law: int,
    is_softmax_anchor: bool,
    dropout: float,
    negative_slope: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Attend to the edges of each target.

    With m = log E[S] of an edge and the prior of its source, the KL of an edge is

        Weibull, Gamma:  alpha (offset - m) + log Gamma(alpha) + exp(m + log beta) + constant
        lognormal:       ((m - offset - mu) / sigma_p)² / 2 + constant

    so that what has neither edge nor source in it is a tensor that torch makes and differentiates.

    Args:
        target_scores: (N, H).
        source_scores: (M, H).
        values: (M, H, D).
        edge_lists: `EdgeLists.tensors()`.
        terms: (4, H) scale of the noise (1/k or sigma), offset, constant, and log beta or 1 / sigma_p.
        prior: (M, H), or (1, H) where it needs no gradient: alpha or mu. None: no KL.
        seed: () int64. None: no noise.
        dropout_seed: () int64. None: no dropout.
        law: WEIBULL or LOGNORMAL.
        is_softmax_anchor: E[S] = softmax(phi), else exp(phi).
        dropout: Share of the weights.
        negative_slope: Of the leaky ReLU.

    Returns:
        Context (N, H, D), KL (N, H), weights (E, H) in the order of targets; and for the backward pass the logsumexp
        of phi and the sum of d KL / d m, (N, H) each, or (0, H) where it needs neither.
    """
    return _forward(
        target_scores,
        source_scores,
        values,
        edge_lists,
        terms,
        prior,
        seed,
        dropout_seed,
        law,
        is_softmax_anchor,
        dropout,
        negative_slope,
    )


@torch.library.custom_op("probattn::graph_attention_backward", mutates_args=(), device_types="cpu")
def _backward_operator(
    target_scores: Tensor,
    source_scores: Tensor,
    values: Tensor,
    edge_lists: Sequence[Tensor],
    terms: Tensor | None,
    prior: Tensor | None,
    seed: Tensor | None,
    dropout_seed: Tensor | None,
    law: int,
    is_softmax_anchor: bool,
    dropout: float,
    negative_slope: float,
    outputs: Sequence[Tensor],
    grad_context: Tensor,
    grad_kl: Tensor | None,
    grad_weights: Tensor | None,
    needs_prior: bool,
    needs_terms: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of target scores, source scores, values, terms and prior; the last two empty unless needed."""
    return _differentiated(
        target_scores,
        source_scores,
        values,
        edge_lists,
        terms,
        prior,
        seed,
        dropout_seed,
        law,
        is_softmax_anchor,
        dropout,
        negative_slope,
        outputs,
        grad_context,
        grad_kl,
        grad_weights,
        needs_prior,
        needs_terms,
    )


@graph_attention_operator.register_fake
def _(
    target_scores: Tensor,
    source_scores: Tensor,
    values: Tensor,
    edge_lists: Sequence[Tensor],
    terms: Tensor | None,
    prior: Tensor | None,
    seed: Tensor | None,
    dropout_seed: Tensor | None,
    law: int,
    is_softmax_anchor: bool,
    *rest: float,
) -> _Five:
    nodes, heads = target_scores.shape
    kept = nodes if prior is not None and is_softmax_anchor else 0
    return (
        values.new_empty(nodes, heads, values.shape[-1]),
        values.new_empty(nodes, heads),
        values.new_empty(edge_lists[1].shape[0], heads),
        values.new_empty(kept, heads),
        values.new_empty(kept, heads),
    )


@_backward_operator.register_fake
def _(
    target_scores: Tensor,
    source_scores: Tensor,
    values: Tensor,
    edge_lists: Sequence[Tensor],
    terms: Tensor | None,
    prior: Tensor | None,
    *rest: Any,
) -> _Five:
    needs_prior, heads = rest[-2], values.shape[1]
    return (
        torch.empty_like(target_scores, memory_format=torch.contiguous_format),
        torch.empty_like(source_scores, memory_format=torch.contiguous_format),
        torch.empty_like(values, memory_format=torch.contiguous_format),
        values.new_empty(4, heads),
        values.new_empty(source_scores.shape[0] if needs_prior else 0, heads),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: _Five) -> None:
    target_scores, source_scores, values, edge_lists, terms, prior, seed, dropout_seed, *ctx.options = inputs
    context, _, weights, log_normaliser, pull = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(log_normaliser, pull)
    ctx.save_for_backward(
        target_scores,
        source_scores,
        values,
        terms,
        prior,
        seed,
        dropout_seed,
        context,
        weights,
        log_normaliser,
        pull,
        *edge_lists,
    )


def _gradients(
    ctx: Any, grads: tuple[Tensor | None, ...], differentiate: Callable[..., _Five]
) -> tuple[Tensor | None, ...]:
    """Of target scores, source scores, values, terms and prior."""
    target_scores, source_scores, values, terms, prior, seed, dropout_seed, *rest = ctx.saved_tensors
    outputs, edge_lists = rest[:4], rest[4:]
    grad_context, grad_kl, grad_weights = grads[:3]
    needs_terms, needs_prior = ctx.needs_input_grad[4:6]
    *made, of_terms, of_prior = differentiate(
        target_scores,
        source_scores,
        values,
        edge_lists,
        terms,
        prior,
        seed,
        dropout_seed,
        *ctx.options,
        outputs,
        torch.zeros_like(outputs[0]) if grad_context is None else grad_context,
        grad_kl,
        grad_weights,
        needs_prior,
        needs_terms,
    )
    return *made, of_terms if needs_terms else None, of_prior if needs_prior else None


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | list[None] | None, ...]:
    target, source, values, terms, prior = _gradients(ctx, grads, _backward_operator)
    return target, source, values, [None] * _NUM_LISTS, terms, prior, *[None] * 6


graph_attention_operator.register_autograd(_backward, setup_context=_setup_context)


class _GraphAttention(torch.autograd.Function):
    """The operator without torch's checks of what an operator may do."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> _Five:
        """See `graph_attention_operator`."""
        made = _forward(*arguments)
        _setup_context(ctx, arguments, made)
        return made

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients in the order of the arguments."""
        with torch.no_grad():
            made = _gradients(ctx, grads, _differentiated)
        target, source, values, terms, prior = refuse_second_derivative(made)
        return target, source, values, None, terms, prior, *[None] * 6


def _forward(*arguments: Any) -> _Five:
    """The C++ operator on contiguous tensors."""
    made: _Five = torch.ops.probattn_native.graph_attention(*_contiguous(arguments))
    return made


def _differentiated(*arguments: Any) -> _Five:
    """The C++ backward operator on contiguous tensors."""
    made: _Five = torch.ops.probattn_native.graph_attention_backward(*_contiguous(arguments))
    return made


def _contiguous(arguments: tuple[Any, ...]) -> list[Any]:
    return [one.contiguous() if isinstance(one, Tensor) else one for one in arguments]
