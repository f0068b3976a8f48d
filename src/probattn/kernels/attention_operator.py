"""Dense attention as an operator of torch, so that autograd and torch.compile know it.

The work is done by C++ where it can be, else by `attention_chunked`.

Size letters: K draws, B batch, H heads, T queries.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from probattn.kernels import native
from probattn.kernels.attention_chunked import AttentionCall, attend_chunked, differentiate_chunked
from probattn.kernels.second_derivative import refuse_second_derivative

__all__ = ["attend", "attention_operator", "is_native"]

_Five = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
_Six = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_NUM_INPUTS = 12


def attend(call: AttentionCall) -> _Five:
    """The operator, by a shorter way where no compiler looks: it saves 0.2 ms a call.

    Args:
        call: All inputs.

    Returns:
        See `attention_operator`.
    """
    inputs = [getattr(call, name) for name in AttentionCall.__dataclass_fields__]
    if torch.compiler.is_compiling():
        made: _Five = attention_operator(*inputs[:-2], list(call.switches), list(call.numbers))
        return made
    made = _Attention.apply(*inputs)  # type: ignore[no-untyped-call]
    return made


def is_native(call: AttentionCall) -> bool:
    """Whether C++ does it: float32, bfloat16 or float16 on the CPU, no shift, where the back end is there."""
    rows = (call.query, call.key, call.value)
    fits = all(one.is_cpu and one.dtype == call.query.dtype and one.dtype in _DTYPES for one in rows)
    return fits and call.shift is None and native.is_active()


@torch.library.custom_op("probattn::attention", mutates_args=())
def attention_operator(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    constant: Tensor | None,
    noise_scale: Tensor,
    seed: Tensor | None,
    dropout_seed: Tensor | None,
    shift: Tensor | None,
    switches: Sequence[int],
    numbers: Sequence[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Attend; the inputs are those of `AttentionCall`.

    Returns:
        Context (K, B, H, T, Dv) in the values' dtype; logsumexp of phi and the KL's core, (B, H, T), empty without a
        prior; and for the backward pass logsumexp of the perturbed scores (K, B, H, T) and the KL's pull (B, H, T), its
        derivative with respect to what is taken off phi.
    """
    call = AttentionCall(
        query,
        key,
        value,
        mask,
        weight,
        constant,
        noise_scale,
        seed,
        dropout_seed,
        shift,
        tuple(switches),
        tuple(numbers),
    )
    return _forward(call)


@torch.library.custom_op("probattn::attention_backward", mutates_args=())
def _backward_operator(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    constant: Tensor | None,
    noise_scale: Tensor,
    seed: Tensor | None,
    dropout_seed: Tensor | None,
    shift: Tensor | None,
    switches: Sequence[int],
    numbers: Sequence[float],
    outputs: Sequence[Tensor],
    grad_context: Tensor,
    grad_log: Tensor | None,
    grad_kl: Tensor | None,
    needs_noise_scale: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value, weight, constant (empty without a KL) and noise scale for each example."""
    call = AttentionCall(
        query,
        key,
        value,
        mask,
        weight,
        constant,
        noise_scale,
        seed,
        dropout_seed,
        shift,
        tuple(switches),
        tuple(numbers),
    )
    return _differentiate(call, outputs, grad_context, grad_log, grad_kl, needs_noise_scale)


@attention_operator.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> _Five:
    switches = rest[-2]
    draws, (batch, heads, queries) = switches[4], query.shape[:3]
    with_prior = batch if switches[1] else 0
    dtype = torch.promote_types(query.dtype, torch.float32)
    context = value.new_empty(draws, batch, heads, queries, value.shape[-1])
    log_noisy = query.new_empty(draws, batch, heads, queries, dtype=dtype)
    rows = [query.new_empty(with_prior, heads, queries, dtype=dtype) for _ in range(3)]
    return context, rows[0], rows[1], log_noisy, rows[2]


@_backward_operator.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> _Six:
    grad_kl, needs_noise_scale = rest[-2:]
    dtype = torch.promote_types(query.dtype, torch.float32)
    batch, heads = query.shape[:2]
    with_prior = 0 if grad_kl is None else batch
    prior = [query.new_empty(with_prior, heads, key.shape[2], dtype=dtype) for _ in range(2)]
    noise_scale = query.new_empty(batch if needs_noise_scale else 0, heads, dtype=dtype)
    rows = [torch.empty_like(one, dtype=dtype, memory_format=torch.contiguous_format) for one in (query, key, value)]
    return rows[0], rows[1], rows[2], prior[0], prior[1], noise_scale


def _forward(call: AttentionCall) -> _Five:
    if is_native(call):
        made = torch.ops.probattn_native.attention(*_for_native(call))
    else:
        with _full_precision(call):
            made = attend_chunked(call)
    context, log_noisy, log_normaliser, core, pull = made
    return context.to(call.value.dtype), log_normaliser, core, log_noisy, pull


def _differentiate(
    call: AttentionCall,
    outputs: Sequence[Tensor],
    grad_context: Tensor,
    grad_log: Tensor | None,
    grad_kl: Tensor | None,
    needs_noise_scale: bool,
) -> _Six:
    if not is_native(call):
        context, log_noisy, log_normaliser, pull = outputs
        with _full_precision(call):
            made = differentiate_chunked(
                call, (context, log_noisy, log_normaliser, pull), grad_context, grad_log, grad_kl
            )
        return *made[:-1], made[-1] if needs_noise_scale else made[-1][:0]
    grads = [None if one is None else one.contiguous() for one in (grad_log, grad_kl)]
    native_made: _Six = torch.ops.probattn_native.attention_backward(
        *_for_native(call), list(outputs), _side_by_side(grad_context), *grads, needs_noise_scale
    )
    return native_made


def _full_precision(call: AttentionCall) -> contextlib.AbstractContextManager[object]:
    """No autocast: it would round scores in the forward pass alone."""
    device = call.query.device.type
    is_known = torch.amp.is_autocast_available(device)
    return torch.autocast(device, enabled=False) if is_known else contextlib.nullcontext()


def _for_native(call: AttentionCall) -> list[Any]:
    """The inputs in the layout that C++ reads: features side by side, one mask of full size whose strides may be 0."""
    rows = [_side_by_side(one) for one in (call.query, call.key, call.value)]
    mask = call.mask
    if mask is not None:
        mask = mask if mask.dtype == torch.bool else mask.to(torch.float32)
        mask = mask.expand(*call.query.shape[:3], call.key.shape[2])
    prior = [None if one is None else one.to(torch.float32).contiguous() for one in (call.weight, call.constant)]
    scale = call.noise_scale.to(torch.float32).contiguous()
    return [*rows, mask, *prior, scale, call.seed, call.dropout_seed, list(call.switches), list(call.numbers)]


def _side_by_side(rows: Tensor) -> Tensor:
    """The same with features side by side and rows apart; gradients of sums over queries are expanded, for example."""
    is_apart = rows.shape[-2] <= 1 or rows.stride(-2) >= rows.shape[-1]
    if rows.stride(-1) == 1 and is_apart:
        return rows
    return rows.clone(memory_format=torch.contiguous_format)  # contiguous() leaves an empty tensor as it is


def _setup(ctx: Any, inputs: tuple[Any, ...], output: _Five) -> None:
    context, log_normaliser, _, log_noisy, pull = output
    ctx.switches, ctx.numbers = tuple(inputs[-2]), tuple(inputs[-1])
    ctx.mark_non_differentiable(log_noisy, pull)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:-2], context, log_noisy, log_normaliser, pull)


def _gradients(ctx: Any, operator: Any, grads: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors  # once: a checkpoint makes them again for every look
    inputs, outputs = saved[: _NUM_INPUTS - 2], saved[_NUM_INPUTS - 2 :]
    grad_context, grad_log, grad_kl = grads[:3]
    if grad_context is None:
        grad_context = torch.zeros_like(outputs[0])
    needs_noise_scale = bool(ctx.needs_input_grad[6])
    above = (grad_context, grad_log, grad_kl, needs_noise_scale)
    made = operator(*inputs, list(ctx.switches), list(ctx.numbers), list(outputs), *above)
    query, key, value, weight, constant, shift = (inputs[number] for number in (0, 1, 2, 4, 5, 9))
    has_kl = grad_kl is not None and weight is not None
    return (
        made[0].to(query.dtype),
        made[1].to(key.dtype),
        made[2].to(value.dtype),
        None,
        made[3].to(weight.dtype) if has_kl else None,
        made[4].to(constant.dtype) if has_kl else None,
        made[5].sum(dim=0).to(inputs[6].dtype) if needs_noise_scale else None,
        None,
        None,
        None if shift is None or grad_kl is None else (-grad_kl * outputs[3]).to(shift.dtype),
        None,
        None,
    )


def _run_backward(*arguments: Any) -> _Six:
    """`_backward_operator` without the dispatcher."""
    inputs = [*arguments[: _NUM_INPUTS - 2], tuple(arguments[_NUM_INPUTS - 2]), tuple(arguments[_NUM_INPUTS - 1])]
    call = AttentionCall(*inputs)
    return _differentiate(call, *arguments[_NUM_INPUTS:])


class _Attention(torch.autograd.Function):
    """The operator for eager code."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> _Five:
        """See `attention_operator`."""
        output = _forward(AttentionCall(*inputs))
        _setup(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients of all inputs."""
        with torch.no_grad():
            made = _gradients(ctx, _run_backward, grads)
        return refuse_second_derivative(made)


def _backward_compiled(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    return _gradients(ctx, _backward_operator, grads)


attention_operator.register_autograd(_backward_compiled, setup_context=_setup)
