"""What one call of dense attention is made of, as tensors and numbers that both back ends take.

With phi = scale * query . key + bias, the weights of a draw are softmax(sharpness * phi + noise_scale * n), n noise.
The KL of a query is a sum over the keys it may see, of which the back ends make the part that needs scores, with L the
logsumexp of phi under the softmax anchor and 0 under the other:

    Gamma:      sum_j constant_j - weight_j (phi_ij - L_i),         then + beta sum_j E[S_ij]
    lognormal:  sum_j constant_j + (phi_ij - L_i - weight_j)² / 2,  then times the prior's precision

Everything per key, per head or per query is made here, in torch, and differentiated by it. A prior that is normalised
over the keys a query sees (`set_prior`) has a factor of the core and an addend for each query (Gamma), or a shift of L
(lognormal).

Size letters: B batch, H heads, T queries, S keys.
"""

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from probattn.distributions import (
    GammaPrior,
    GumbelSoftmax,
    Lognormal,
    LognormalPrior,
    NormalisedGamma,
    NormalisedLognormal,
    Weibull,
)
from probattn.kernels.set_prior import SetPrior, Sight, log_gamma_sums, running_sums

__all__ = [
    "GAMMA",
    "LOGNORMAL",
    "LOG_EXPONENTIAL",
    "NONE",
    "NORMAL",
    "AttentionLaw",
    "AttentionPlan",
    "DensePrior",
    "knows_kl",
    "plan",
]

NONE = 0
LOG_EXPONENTIAL, NORMAL = 1, 2
"""Kinds of raw noise, as the C++ code numbers them."""
GAMMA, LOGNORMAL = 1, 2
"""Kinds of prior, as the C++ code numbers them."""

_EULER = 0.5772156649015329

AttentionLaw = Weibull | Lognormal | GumbelSoftmax
DensePrior = NormalisedGamma | NormalisedLognormal | SetPrior


@dataclass(frozen=True)
class AttentionPlan:
    """Arguments of an attention operator beside query, key, value, mask and seeds.

    Attributes:
        noise_scale: (H) factor of the raw noise.
        weight: (B, H, S) alpha of a Gamma prior, mu + sigma²/2 of a lognormal one; None without a prior.
        constant: (B, H, S) what a key adds whatever its score; None without a prior.
        noise: Kind of noise.
        prior: Kind of prior.
        is_softmax_anchor: E[S] = softmax(phi), else exp(phi).
        sharpness: Factor of the scores where there is noise; 1 over the temperature of Gumbel-softmax.
        precision: (H, 1) 1 / sigma² of a lognormal prior, or one number.
        log_rate: (H, 1) log beta of a Gamma prior, or one number.
        factor: (B, H, T) of the back end's part, in float64; None: one.
        addend: (B, H, T) to the back end's part, in float64; None: nothing.
        shift: (B, H, T) taken off L; None: nothing.
    """

    noise_scale: Tensor
    weight: Tensor | None = None
    constant: Tensor | None = None
    noise: int = NONE
    prior: int = NONE
    is_softmax_anchor: bool = False
    sharpness: float = 1.0
    precision: Tensor = field(default_factory=lambda: torch.ones(()))
    log_rate: Tensor = field(default_factory=lambda: torch.zeros(()))
    factor: Tensor | None = None
    addend: Tensor | None = None
    shift: Tensor | None = None

    def kl(self, core: Tensor, log_normaliser: Tensor) -> Tensor:
        """(B, H, T) from the back end's part and the logsumexp of the scores; zero where a query sees nothing."""
        if self.prior == LOGNORMAL:
            return self.precision * core
        if self.factor is not None and self.addend is not None:
            core = (self.factor * core + self.addend).to(core.dtype)
        if self.is_softmax_anchor:
            return core + torch.where(log_normaliser > -torch.inf, self.log_rate.exp(), 0.0)
        return core + (log_normaliser + self.log_rate).exp()


def plan(
    family: AttentionLaw | None,
    prior: DensePrior | None,
    *,
    is_noisy: bool,
    shape: tuple[int, int, int],
    like: Tensor,
    sight: Sight | None = None,
) -> AttentionPlan | None:
    """The plan of a family and a prior.

    Args:
        family: None for soft attention.
        prior: Parameters broadcast to (B, H, 1, S): one row for all queries.
        is_noisy: Whether weights are drawn; otherwise they are S at its expectation.
        shape: B, H, S.
        like: Gives dtype and device.
        sight: What queries see, where that is causal up to hidden keys; a `SetPrior` needs it.

    Returns:
        None where parameters differ in more than batch, head and key, or where no KL is known: such laws need all
        scores at once.
    """
    heads = shape[1]
    if prior is not None and not knows_kl(family, prior):
        return None
    if family is None:
        return AttentionPlan(noise_scale=like.new_zeros(heads))
    if isinstance(family, GumbelSoftmax):
        inverse = 1.0 / family.temperature
        scale = like.new_full((heads,), -inverse)
        return AttentionPlan(scale, noise=LOG_EXPONENTIAL if is_noisy else NONE, sharpness=inverse)
    spread = family.concentration if isinstance(family, Weibull) else family.sigma
    per_head = _per_head(spread, heads, like)
    if per_head is None:
        return None
    if isinstance(family, Weibull):
        noise, scale = LOG_EXPONENTIAL, 1.0 / per_head
    else:
        noise, scale = NORMAL, per_head
    if prior is None:
        return AttentionPlan(scale, noise=noise if is_noisy else NONE)
    made = AttentionPlan(scale, noise=noise if is_noisy else NONE, is_softmax_anchor=family.anchor == "softmax")
    if isinstance(prior, SetPrior):
        return None if sight is None else _with_set_prior(made, per_head, prior, shape=shape, like=like, sight=sight)
    return _with_row(made, per_head, prior, shape=shape, like=like)


def _with_row(
    made: AttentionPlan,
    spread: Tensor,
    prior: NormalisedGamma | NormalisedLognormal,
    *,
    shape: tuple[int, int, int],
    like: Tensor,
) -> AttentionPlan | None:
    """The plan with a prior that has one row for all queries; spread: (H) k or sigma."""
    batch, heads, keys = shape
    is_gamma = isinstance(prior, NormalisedGamma)
    rows = prior.concentration if isinstance(prior, NormalisedGamma) else prior.location
    parameter = _per_head(prior.rate if isinstance(prior, NormalisedGamma) else prior.sigma, heads, like)
    if parameter is None or not _is_one_row(rows, shape):
        return None
    rows = rows.to(like.dtype).expand(batch, heads, 1, keys).squeeze(-2)
    if is_gamma:
        log_rate = parameter.log()
        constant = _gamma_constant(rows, spread, log_rate)
        return replace(made, weight=rows, constant=constant, prior=GAMMA, log_rate=log_rate.unsqueeze(-1))
    return _with_location(made, spread, rows, parameter)


def _with_location(made: AttentionPlan, spread: Tensor, rows: Tensor, sigma: Tensor) -> AttentionPlan:
    """The plan with a lognormal prior of locations (B, H, S); spread and sigma: (H) of posterior and prior."""
    ratio, variance = spread / sigma, sigma.square()
    # The prior's precision comes last: a factor of the whole sum may be learned, and no back end need know it.
    constant = (variance * (0.5 * (ratio.square() - 1.0) - ratio.log())).view(-1, 1).expand_as(rows)
    centre = rows + 0.5 * spread.square().unsqueeze(-1)
    precision = variance.reciprocal().unsqueeze(-1)
    return replace(made, weight=centre, constant=constant, prior=LOGNORMAL, precision=precision)


def _with_set_prior(
    made: AttentionPlan, spread: Tensor, prior: SetPrior, *, shape: tuple[int, int, int], like: Tensor, sight: Sight
) -> AttentionPlan | None:
    """The plan with a prior that is normalised over what a query sees; spread: (H) k or sigma.

    None where numbers would leave their range, as far as that may be looked at, where a concentration can pass one, or
    where a number of the family is learned.
    """
    family = prior.family
    if any(isinstance(one, Tensor) for one in vars(family).values()):
        return None
    if isinstance(family, LognormalPrior) and family.location != "log_psi":
        return None
    sums = running_sums(prior, sight)
    if not sums.are_in_range:
        return None
    units = (*shape[:2], sight.queries)
    if isinstance(family, LognormalPrior):
        rows = (sums.logits + math.log(prior.scale)).to(like.dtype).expand(shape)
        sigma = torch.as_tensor(family.sigma, dtype=like.dtype, device=like.device).expand(shape[1])
        shift = sums.log_normaliser.to(like.dtype).expand(units)
        return replace(_with_location(made, spread, rows, sigma), shift=shift)
    if not isinstance(family, GammaPrior):
        return None
    size = prior.scale * (family.rate if family.concentration == "psi_rate" else 1.0)
    if size > 1.0:
        return None
    k, log_rate = spread.double().unsqueeze(-1), math.log(family.rate)
    addend = log_gamma_sums(sums, size) + sums.count * (k.log() - (_EULER + 1.0))  # (B, H, T)
    addend = addend + torch.where(sums.is_empty, 0.0, size * (_EULER / k + torch.lgamma(1.0 + 1.0 / k) - log_rate))
    weight = (size * sums.weights).to(like.dtype).expand(shape)
    return replace(
        made,
        weight=weight,
        constant=torch.zeros_like(weight),
        prior=GAMMA,
        log_rate=like.new_full((1, 1), log_rate),
        factor=sums.factor.expand(units),
        addend=addend.expand(units),
    )


def knows_kl(family: object, prior: object) -> bool:
    """Whether the KL of this family to this prior is known here."""
    law = prior.family if isinstance(prior, SetPrior) else prior
    if type(family) is Weibull:  # by exact type: a subclass may be another law
        return type(law) in (NormalisedGamma, GammaPrior)
    return type(family) is Lognormal and type(law) in (NormalisedLognormal, LognormalPrior)


def _gamma_constant(alpha: Tensor, k: Tensor, log_rate: Tensor) -> Tensor:
    """(B, H, S) the KL of Weibull and Gamma without what depends on the score (see `distributions/kl.py`)."""
    offset = _EULER / k + torch.lgamma(1.0 + 1.0 / k) - log_rate  # (H)
    return alpha * offset.unsqueeze(-1) + torch.lgamma(alpha) + (k.log() - (_EULER + 1.0)).unsqueeze(-1)


def _per_head(parameter: Tensor | float, heads: int, like: Tensor) -> Tensor | None:
    """(H) from one number or from (H, 1, 1), which broadcasts to scores; None for other shapes."""
    tensor = torch.as_tensor(parameter, dtype=like.dtype, device=like.device)
    if tensor.numel() == 1:
        return tensor.reshape(1).expand(heads)
    is_per_head = tensor.dim() >= 3 and tensor.numel() == heads and tensor.shape[-3] == heads
    return tensor.reshape(heads) if is_per_head else None


def _is_one_row(rows: Tensor, shape: tuple[int, int, int]) -> bool:
    """Whether it broadcasts to (B, H, 1, S)."""
    sizes = zip(reversed(rows.shape), (shape[2], 1, shape[1], shape[0]), strict=False)
    return rows.dim() <= 4 and all(own in (1, size) for own, size in sizes)
