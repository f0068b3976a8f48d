"""Refuses second derivatives of kernels that form their gradients themselves."""

from typing import Any

import torch
from torch import Tensor

__all__ = ["refuse_second_derivative"]


def refuse_second_derivative(gradients: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    """The gradients of a backward pass, so that differentiating them raises an error.

    torch's `once_differentiable` does this too, but only where what comes from above needs a gradient; else its result
    counts as a constant, and a penalty on it is silently without effect.
    """
    if not torch.is_grad_enabled():  # nobody asked for `create_graph`
        return gradients
    token = torch.zeros((), requires_grad=True)  # makes autograd record the call
    present = [one for one in gradients if one is not None]
    guarded = iter(_Refusal.apply(token, *present))  # type: ignore[no-untyped-call]
    return tuple(None if one is None else next(guarded) for one in gradients)


class _Refusal(torch.autograd.Function):
    """The identity, with a derivative that raises."""

    @staticmethod
    def forward(ctx: Any, token: Tensor, *gradients: Tensor) -> tuple[Tensor, ...]:
        """The gradients."""
        return tuple(one.view_as(one) for one in gradients)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Raises."""
        raise RuntimeError(
            "a kernel has no second derivative, as it does not keep what that would need; use torch's own "
            "operators where gradients of gradients are needed"
        )
