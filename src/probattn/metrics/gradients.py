"""How noisy a gradient estimator is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["GradientNoise", "gradient_noise"]


@dataclass(frozen=True)
class GradientNoise:
    """Spread of repeated gradient estimates at fixed parameters and data.

    Attributes:
        variance: Trace of the covariance of the gradient.
        squared_norm: Squared norm of the mean gradient, with the part that is due to noise taken out (at least 0).
    """

    variance: float
    squared_norm: float


def gradient_noise(loss: Callable[[], Tensor], parameters: Sequence[Tensor], *, repetitions: int = 20) -> GradientNoise:
    """Measure the noise of the gradient that `loss` gives.

    Args:
        loss: Called again for every repetition; draws its own noise; returns a scalar.
        parameters: What to differentiate with respect to; those the loss does not reach count as zero.
        repetitions: Number of gradients, at least 2.
    """
    if repetitions < 2:
        raise ValueError(f"gradient_noise needs at least 2 repetitions, got {repetitions}")
    gradients = []
    for _ in range(repetitions):
        grads = torch.autograd.grad(loss(), list(parameters), allow_unused=True)
        pieces = [
            torch.zeros_like(parameter) if grad is None else grad
            for grad, parameter in zip(grads, parameters, strict=True)
        ]
        gradients.append(torch.cat([piece.flatten() for piece in pieces]))
    stacked = torch.stack(gradients)  # (repetitions, parameters)
    variance = float(stacked.var(dim=0).sum())
    squared_norm = float(stacked.mean(dim=0).square().sum()) - variance / repetitions
    return GradientNoise(variance=variance, squared_norm=max(0.0, squared_norm))
