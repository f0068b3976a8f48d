"""Log-likelihoods of many alternatives per target, without ever keeping their logits.

A latent alignment multiplies the readout: K particles times N targets times V words. Here the product is worked
through in chunks of targets. A chunk holds all K particles of its targets, so the derivative of the bound with
respect to each log-likelihood (its *credit*, e.g. the posterior over alignments) is known inside the chunk, the
gradients are formed there, and the (K, n, V) tensor is thrown away. Nothing is computed twice, and memory is that of
one chunk plus the (K, N, D) gradient of the hidden states.

Size letters: K particles, N targets, n targets of a chunk, D width of the hidden states, V words.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from probattn.kernels import native
from probattn.kernels.row_readout import RowReadout, proportion, row_readout, rows_per_chunk
from probattn.kernels.second_derivative import refuse_second_derivative

__all__ = ["Credit", "half_products", "latent_cross_entropy"]

_MAY_HALVE: ContextVar[bool] = ContextVar("may_halve", default=False)

Credit = Callable[[Tensor, slice], Tensor]
"""From the log-likelihoods (K, n) of a chunk, and which targets it holds, to d bound / d log-likelihood (K, n)."""


@contextlib.contextmanager
def half_products(is_allowed: bool = True) -> Iterator[None]:
    """Inside this block `latent_cross_entropy` may round the factors of its products to bfloat16, where that is faster.

    For training with one particle per target, as autocast is: sums, logits, normalisers and gradients stay float32. On
    a processor that multiplies bfloat16, with the C++ back end, a product takes half of the time; elsewhere, and for
    several particles, nothing changes. There rounding is no small thing: what particles compete by is the difference of
    their log-likelihoods.

    Example:
        >>> with half_products():
        ...     log_lik = latent_cross_entropy(
        ...         torch.ones(1, 3, 4), torch.zeros(5, 4), bias=None, target=torch.tensor([0, 1, 2])
        ...     )
    """
    token = _MAY_HALVE.set(is_allowed)
    try:
        yield
    finally:
        _MAY_HALVE.reset(token)


def latent_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    *,
    bias: Tensor | None,
    target: Tensor,
    credit: Credit | None = None,
    skip_below: float = 0.0,
) -> Tensor:
    """Log-probability of each target under each particle: log softmax(hidden W^T + b)[target].

    Differentiable with respect to hidden, weight and bias. With a credit, gradients are formed in the forward pass
    and only scaled in the backward pass; if what comes from above is not a multiple of the credit, they are
    recomputed, so the gradient is right in any case. Logits and their normaliser are float32 also under autocast:
    half precision puts the score gradient off by tens of percent. `half_products` is for one particle.

    Args:
        hidden: (K, N, D).
        weight: (V, D).
        bias: (V) or None.
        target: (N) int64.
        credit: What the bound will ask for; None: recompute the logits in the backward pass.
        skip_below: Leave particles out of the backward pass whose credit is at most this. The gradient then misses at
            most `skip_below` times the number of particles left out times the largest gradient of a log-likelihood; 0
            is exact.

    Returns:
        (K, N) log-likelihoods.

    Example:
        >>> hidden, weight = torch.ones(2, 3, 4), torch.zeros(5, 4)
        >>> latent_cross_entropy(hidden, weight, bias=None, target=torch.tensor([0, 1, 2])).exp()[0]
        tensor([0.2000, 0.2000, 0.2000])
    """
    if hidden.dim() != 3 or target.shape != hidden.shape[1:2] or weight.shape[-1] != hidden.shape[-1]:
        raise ValueError(
            "expected hidden (K, N, D), weight (V, D) and target (N,), got "
            f"{tuple(hidden.shape)}, {tuple(weight.shape)} and {tuple(target.shape)}"
        )
    if 0 in hidden.shape[:2]:
        return 0.0 * hidden.float().sum(dim=-1)
    wanted = credit if torch.is_grad_enabled() else None
    may_halve = _MAY_HALVE.get() and hidden.shape[0] == 1
    with torch.autocast(hidden.device.type, enabled=False):
        result: Tensor = _LatentCrossEntropy.apply(hidden, weight, bias, target, wanted, (skip_below, may_halve))  # type: ignore[no-untyped-call]
    return result


class _LatentCrossEntropy(torch.autograd.Function):
    """See `latent_cross_entropy`."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        credit: Credit | None,
        options: tuple[float, bool],
    ) -> Tensor:
        """Chunk by chunk; keeps gradients instead of logits where there is a credit."""
        skip_below, ctx.may_halve = options
        is_kept = credit is not None and any(ctx.needs_input_grad)
        readout = _readout(hidden, weight, bias, has_gradients=is_kept, may_halve=ctx.may_halve)
        grad_hidden = torch.zeros(hidden.shape, dtype=torch.float32, device=hidden.device) if is_kept else None
        log_lik = torch.empty(hidden.shape[:2], dtype=torch.float32, device=hidden.device)
        given = torch.zeros_like(log_lik)
        for targets in _chunks(hidden, weight):
            log_lik[:, targets] = _read(readout, hidden, target, targets)
            if credit is not None and grad_hidden is not None:
                given[:, targets] = credit(log_lik[:, targets], targets)
                grad_hidden[:, targets] = _differentiate(readout, given[:, targets], skip_below)
        ctx.kept = None if grad_hidden is None else _Gradients(grad_hidden, readout.grad_weight, readout.grad_bias)
        ctx.save_for_backward(hidden, weight, bias, target, given)
        return log_lik

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the kept gradients, or recompute."""
        with torch.no_grad():
            made = _scaled(ctx, grad)
        return *refuse_second_derivative(made), None, None, None


@dataclass(frozen=True)
class _Gradients:
    """Of hidden states (K, N, D), weight (V, D) and bias (V), in float32."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None


def _scaled(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients of hidden states, weight and bias."""
    hidden, weight, bias, target, given = ctx.saved_tensors
    kept: _Gradients | None = ctx.kept
    scale = None if kept is None else proportion(grad, given)
    ctx.kept = None  # scaled in place below, so a second backward pass recomputes
    if kept is None or scale is None:
        readout = _readout(hidden, weight, bias, has_gradients=True, may_halve=ctx.may_halve)
        kept, scale = _recomputed(readout, hidden, weight, target, grad), grad.new_ones(())
    return (
        kept.hidden.mul_(scale).to(hidden.dtype),
        kept.weight.mul_(scale).to(weight.dtype),
        None if bias is None or kept.bias is None else kept.bias.mul_(scale).to(bias.dtype),
    )


def _recomputed(readout: RowReadout, hidden: Tensor, weight: Tensor, target: Tensor, grad: Tensor) -> _Gradients:
    """The gradients of sum grad * log-likelihood; nothing is left out, as no credit says what to skip."""
    grad_hidden = torch.empty(hidden.shape, dtype=torch.float32, device=hidden.device)
    for targets in _chunks(hidden, weight):
        _read(readout, hidden, target, targets)
        grad_hidden[:, targets] = _differentiate(readout, grad[:, targets], 0.0)
    return _Gradients(grad_hidden, readout.grad_weight, readout.grad_bias)


def _readout(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, *, has_gradients: bool, may_halve: bool
) -> RowReadout:
    is_asked = hidden.is_cpu and not native.is_active()
    norm = float(torch.linalg.vector_norm(hidden.detach().float(), dim=-1).max()) if is_asked else None
    rows = hidden.shape[0] * max(part.stop - part.start for part in _chunks(hidden, weight))
    output = None if bias is None else bias.detach().float()
    return row_readout(
        weight.detach().float(),
        output,
        max_rows=rows,
        hidden_norm=norm,
        has_gradients=has_gradients,
        may_halve=may_halve,
    )


def _read(readout: RowReadout, hidden: Tensor, target: Tensor, targets: slice) -> Tensor:
    """Log-likelihoods (K, n) of some targets."""
    part = hidden.detach()[:, targets].float()  # (K, n, D)
    words = target[targets].expand(part.shape[:2])
    return readout.read(part.flatten(0, 1), words.flatten()).view(part.shape[:2])


def _differentiate(readout: RowReadout, credit: Tensor, skip_below: float) -> Tensor:
    """The gradient (K, n, D) of the hidden states that were read last, for credits (K, n)."""
    return readout.gradients(credit.flatten(), skip_below=skip_below).view(*credit.shape, -1)


def _chunks(hidden: Tensor, weight: Tensor) -> list[slice]:
    particles, targets = hidden.shape[:2]
    size = -(-rows_per_chunk(len(weight)) // particles)
    return [slice(start, min(start + size, targets)) for start in range(0, targets, size)]
