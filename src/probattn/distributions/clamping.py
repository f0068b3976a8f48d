"""Bounds on parameters that training can come back from.

The gradient of `torch.clamp` is zero outside of the bounds. A concentration or variance that left them while the KL had
no weight yet would stay there for good, whatever the KL says later.
"""

from typing import Any

import torch
from torch import Tensor

__all__ = ["inward_clamp"]


def inward_clamp(x: Tensor, low: float, high: float) -> Tensor:
    """Keep x inside of [low, high]; outside, gradients pass where a step against them leads back.

    There is no forward-mode derivative: a function that has one cannot be compiled.

    Args:
        x: Of any shape.
        low: The smallest value.
        high: The largest value.

    Example:
        >>> x = torch.tensor([-3.0, 0.0, 3.0], requires_grad=True)
        >>> inward_clamp(x, -1.0, 1.0).sum().backward()  # minimised: all are to fall
        >>> x.grad
        tensor([0., 1., 1.])
    """
    clamped: Tensor = _InwardClamp.apply(x, low, high)  # type: ignore[no-untyped-call]
    return clamped


class _InwardClamp(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, low: float, high: float) -> Tensor:
        return x.clamp(low, high)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float, float], output: Tensor) -> None:
        x, ctx.low, ctx.high = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        leads_out = ((x > ctx.high) & (grad < 0)) | ((x < ctx.low) & (grad > 0))
        return grad.masked_fill(leads_out | x.isnan(), 0.0), None, None  # outside a support x may be no number
