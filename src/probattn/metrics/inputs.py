"""What the metrics of predictions accept: shapes, probabilities, labels. Each error says what to do.

Sizes: K draws, N examples, C classes.
"""

import torch
from torch import Tensor

__all__ = [
    "require_draws",
    "require_flags",
    "require_labels",
    "require_log_probs",
    "require_per_example",
    "require_probs",
]


def require_draws(probs: Tensor) -> None:
    """Refuse anything but the probabilities of K draws, (K, N, C)."""
    _require_axes("probs", probs, "KNC", hint="one draw is probs.unsqueeze(0)")
    _require_distributions(probs)


def require_probs(probs: Tensor) -> None:
    """Refuse anything but probabilities, (N, C)."""
    _require_axes("probs", probs, "NC", hint="average K draws with probs.mean(0)")
    _require_distributions(probs)


def require_log_probs(log_probs: Tensor) -> None:
    """Refuse anything but log-probabilities, (N, C); -inf is a probability of zero."""
    _require_axes("log_probs", log_probs, "NC", hint="mix K draws with log_probs.logsumexp(0) - math.log(K)")
    _require_floats("log_probs", log_probs)
    totals = log_probs.detach().double().logsumexp(dim=-1).exp()
    _require_sums("log_probs", totals, tolerance=_tolerance(log_probs), hint="scores.log_softmax(-1) gives them")


def require_labels(labels: Tensor, predictions: Tensor) -> None:
    """Refuse anything but N whole numbers from 0 to C - 1, for N and C of the predictions (N, C)."""
    _require_tensor("labels", labels)
    examples, classes = predictions.shape
    if labels.shape != (examples,) or labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(
            f"expected labels as {examples} whole numbers, one for each example, got {labels.dtype} of shape "
            f"{tuple(labels.shape)}; turn one-hot rows into numbers with argmax(-1)"
        )
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= classes:
        raise ValueError(
            f"expected labels from 0 to {classes - 1}, got {lowest} to {highest}; leave out examples without a label"
        )


def require_per_example(name: str, values: Tensor) -> None:
    """Refuse anything but one number for each example, (N), without NaN."""
    _require_axes(name, values, "N", hint="one number for each example")
    if values.isnan().any():
        raise ValueError(f"expected {name} without NaN, got {int(values.isnan().sum())} in {len(values)} examples")


def require_flags(name: str, flags: Tensor, *, examples: int) -> None:
    """Refuse anything but booleans, (N)."""
    _require_tensor(name, flags)
    if flags.shape != (examples,) or flags.dtype != torch.bool:
        raise ValueError(
            f"expected {name} as {examples} booleans, one for each example, got {flags.dtype} of shape "
            f"{tuple(flags.shape)}; make them by a comparison, such as predicted != labels"
        )


def _require_tensor(name: str, values: object) -> None:
    if not isinstance(values, Tensor):
        raise TypeError(f"expected {name} as a tensor, got {type(values).__name__}; torch.as_tensor(...) makes one")


def _require_axes(name: str, tensor: Tensor, axes: str, *, hint: str) -> None:
    _require_tensor(name, tensor)
    if tensor.dim() != len(axes) or tensor.numel() == 0:
        raise ValueError(
            f"expected {name} of shape ({', '.join(axes)}), none of them 0, got {tuple(tensor.shape)}; {hint}"
        )


def _require_floats(name: str, tensor: Tensor) -> None:
    if not tensor.is_floating_point():
        raise ValueError(f"expected {name} in floating point, got {tensor.dtype}")
    if tensor.isnan().any():
        raise ValueError(f"expected {name} without NaN, got {int(tensor.isnan().sum())}; look for them in the model")


def _require_distributions(probs: Tensor) -> None:
    _require_floats("probs", probs)
    lowest = float(probs.detach().min())
    if lowest < 0.0:
        raise ValueError(f"expected probs of at least 0, got {lowest:.4g}; scores.softmax(-1) gives them")
    totals = probs.detach().double().sum(dim=-1)
    _require_sums("probs", totals, tolerance=_tolerance(probs), hint="scores.softmax(-1) gives them")


def _require_sums(name: str, totals: Tensor, *, tolerance: float, hint: str) -> None:
    # written so that an infinite sum fails too
    if not bool(((totals - 1.0).abs() <= tolerance).all()):
        raise ValueError(
            f"expected {name} of distributions, which sum to 1 over the last axis, got sums from "
            f"{float(totals.min()):.4g} to {float(totals.max()):.4g}; {hint}"
        )


def _tolerance(tensor: Tensor) -> float:
    """Room for rounding; half precision needs more."""
    return max(1e-3, 4.0 * torch.finfo(tensor.dtype).eps)
