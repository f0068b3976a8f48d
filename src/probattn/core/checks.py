"""Checks of tensor contents: a NaN is reported where it enters, not three layers later.

Reading a tensor's contents waits for the device, and cannot be done while a graph is traced. So the checks are
skipped under `torch.compile`, on tensors without data (meta, fake), and where they were switched off.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

__all__ = [
    "NonFiniteError",
    "content_checks",
    "is_transformed",
    "require_constant",
    "require_finite",
    "require_no_nan",
]

_is_enabled = True


class NonFiniteError(ValueError):
    """A tensor holds a NaN or an infinity where it must not; the message names it."""


@contextmanager
def content_checks(enabled: bool) -> Iterator[None]:
    """Switch the checks of tensor contents on or off inside a `with` block; they are on by default.

    On an accelerator each check waits for the device once, so a tuned training loop switches them off.
    """
    global _is_enabled
    before = _is_enabled
    _is_enabled = enabled
    try:
        yield
    finally:
        _is_enabled = before


def require_no_nan(tensor: Tensor, name: str, advice: str) -> None:
    """Raise a `NonFiniteError` that names the tensor if it holds a NaN.

    Args:
        tensor: Any shape.
        name: How the tensor is called in the message.
        advice: What the reader of the message can do.
    """
    if _can_read(tensor) and not _has_finite_sum(tensor) and bool(torch.isnan(tensor).any()):
        count = int(torch.isnan(tensor).sum())
        raise NonFiniteError(f"{name} of shape {tuple(tensor.shape)} has {count} NaN value(s). {advice}")


def require_finite(tensor: Tensor, name: str, advice: str) -> None:
    """Raise a `NonFiniteError` if the tensor holds a NaN or an infinity. Arguments as for `require_no_nan`."""
    if _can_read(tensor) and not _has_finite_sum(tensor) and not bool(torch.isfinite(tensor).all()):
        count = int((~torch.isfinite(tensor)).sum())
        problem = f"has {count} value(s) that are not finite"
        raise NonFiniteError(f"{name} of shape {tuple(tensor.shape)} {problem}. {advice}")


def require_constant(tensor: Tensor, name: str, advice: str) -> None:
    """Raise a ValueError that names the tensor if its rows (K, N) are not constant. Arguments as above."""
    if _can_read(tensor) and not bool((tensor == tensor[:, :1]).all()):
        raise ValueError(f"{name} differ between variables. {advice}")


def _has_finite_sum(tensor: Tensor) -> bool:
    """True proves that all elements are finite, in one cheap pass; False proves nothing, as a sum may overflow."""
    return bool(torch.isfinite(tensor.detach().sum()))


def is_transformed() -> bool:
    """Whether a transform of `torch.func` (grad, vmap, ...) is at work; kernels with own gradients do not know them."""
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None


def _can_read(tensor: Tensor) -> bool:
    if not _is_enabled or torch.compiler.is_compiling() or tensor.is_meta:
        return False
    # Fake tensors and functorch wrappers have no contents to read.
    return type(tensor) in (Tensor, torch.nn.Parameter) and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
