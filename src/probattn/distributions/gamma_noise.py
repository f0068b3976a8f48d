"""Gamma samples as a pure function of a seed, in log space, with pathwise gradients.

Marsaglia and Tsang (2000) propose and reject; here a fixed number of proposals is made for every entry and the first
accepted one is kept, so that no loop depends on the data. The sampler draws Gamma(alpha + 1), where the acceptance
rate is above 0.95, and multiplies by U^(1/alpha), which gives Gamma(alpha) for every alpha > 0. In log space the
product does not underflow for small alpha, and its derivative is implicit differentiation (Figurnov et al. 2018) of
the first factor plus
-log(U) / alpha² of the second.
"""

import math
from typing import Any

import torch
from torch import Tensor

from probattn.core.noise import normal, uniform

__all__ = ["log_gamma_sample"]

# The chance that all are rejected is below 0.05^5 = 3e-7; the last proposal with a positive value is kept then.
_PROPOSALS = 5


def log_gamma_sample(concentration: Tensor, num_samples: int, seed: Tensor) -> Tensor:
    """Samples of log G, G ~ Gamma(concentration, 1), differentiable with respect to the concentration.

    Args:
        concentration: (*shape) positive; raised to 9e-19 in float32 (1e-153 in float64), where 1 / alpha² overflows.
        num_samples: K.
        seed: () int64.

    Returns:
        (K, *shape).
    """
    concentration = concentration.clamp(min=8.0 * math.sqrt(torch.finfo(concentration.dtype).tiny))
    shape = (num_samples, *concentration.shape)
    boosted = (concentration + 1.0).expand(shape)
    log_boost = uniform(seed, shape, stream=2 * _PROPOSALS, dtype=concentration.dtype).log() / concentration
    sample: Tensor = _LogGamma.apply(boosted, _propose(boosted.detach(), seed))  # type: ignore[no-untyped-call]
    return sample + log_boost


def _propose(concentration: Tensor, seed: Tensor) -> Tensor:
    """The first accepted of a fixed number of Marsaglia-Tsang proposals for concentrations above one."""
    offset = concentration - 1.0 / 3.0
    width = 1.0 / (9.0 * offset).sqrt()
    accepted = torch.zeros_like(concentration, dtype=torch.bool)
    result = offset
    for proposal in range(_PROPOSALS):
        z = normal(seed, concentration.shape, stream=2 * proposal, dtype=concentration.dtype)
        u = uniform(seed, concentration.shape, stream=2 * proposal + 1, dtype=concentration.dtype)
        cube = (1.0 + width * z).pow(3)
        is_positive = cube > 0
        safe = cube.masked_fill(~is_positive, 1.0)
        is_good = is_positive & (u.log() < 0.5 * z.square() + offset * (1.0 - safe + safe.log()))
        is_kept = ~accepted & (is_good | (is_positive & (proposal == _PROPOSALS - 1)))
        result = torch.where(is_kept, offset * safe, result)
        accepted = accepted | is_good
    return result


class _LogGamma(torch.autograd.Function):
    """log of a given Gamma(alpha, 1) sample, whose derivative with respect to alpha is the implicit one."""

    generate_vmap_rule = True

    @staticmethod
    def forward(concentration: Tensor, sample: Tensor) -> Tensor:
        return sample.log()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        concentration, sample = ctx.saved_tensors  # torch refuses a second derivative: there is none of its function
        return grad * torch._standard_gamma_grad(concentration, sample) / sample, None
