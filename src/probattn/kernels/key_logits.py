"""The network of a contextual prior on the nodes of a graph, without keeping its hidden layer.

Size letters: N nodes, H heads, D features of a key, M hidden features.
"""

from typing import Any

import torch
from torch import Tensor

from probattn.kernels import native
from probattn.kernels.second_derivative import refuse_second_derivative

__all__ = ["key_logits"]


def key_logits(keys: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> Tensor | None:
    """(N, H) out_h . relu(weight_h^T key + bias_h), in C++; None where the back end cannot do it.

    It can be differentiated once, and gives the same bits for any number of threads.

    Args:
        keys: (N, H, D) on the CPU, float32 or float64.
        weight: (H, D, M), or (1, D, M) for all heads alike; the same for the next two.
        bias: (H, M).
        out: (H, M).
    """
    is_known = keys.is_cpu and keys.dtype in (torch.float32, torch.float64) and keys.dtype == weight.dtype
    if not is_known or torch.compiler.is_compiling() or not native.is_active():
        return None
    heads = keys.shape[1]
    parameters = [one.expand(heads, *one.shape[1:]) for one in (weight, bias, out)]
    logits: Tensor = _KeyLogits.apply(keys, *parameters)  # type: ignore[no-untyped-call]
    return logits


class _KeyLogits(torch.autograd.Function):
    """See `key_logits`."""

    @staticmethod
    def forward(ctx: Any, keys: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> Tensor:
        """Logits of all nodes and heads."""
        inputs = [one.contiguous() for one in (keys, weight, bias, out)]
        ctx.save_for_backward(*inputs)
        logits: Tensor = torch.ops.probattn_native.key_logits(*inputs)
        return logits

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of all inputs."""
        with torch.no_grad():
            made = torch.ops.probattn_native.key_logits_backward(*ctx.saved_tensors, above.contiguous())
        return refuse_second_derivative(made)
