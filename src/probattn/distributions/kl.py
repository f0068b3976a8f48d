"""Every KL divergence we add to torch's registry, each with its equation.

All are per unit, in nats, summed over the support and never averaged. Those that are a sum over entries are written
as entries, so that free bits can look at them (`kl_entries`); `torch.distributions.kl_divergence` gives the sum.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution
from torch.distributions.kl import register_kl as _register_kl

from probattn.distributions.base import WeightsDistribution, precise
from probattn.distributions.code_choice import CodeChoice
from probattn.distributions.code_delta import CodeDelta
from probattn.distributions.concrete import Concrete
from probattn.distributions.dirichlet import MaskedDirichlet
from probattn.distributions.gaussian import DiagonalGaussian
from probattn.distributions.normalised import NormalisedGamma, NormalisedLognormal, NormalisedWeibull
from probattn.distributions.one_hot import MaskedOneHot

__all__ = ["has_kl", "kl", "kl_entries", "register_kl", "register_kl_entries"]

_EULER = 0.5772156649015329
_Entries = Callable[[Any, Any], Tensor]
_Divergence = TypeVar("_Divergence", bound=Callable[[Any, Any], Tensor])
_ENTRIES: dict[object, _Entries] = {}
"""Terms of a divergence, by the function that adds them up and is in torch's registry."""


def kl_entries(q: Distribution, p: Distribution) -> Tensor | None:
    """(*unit, *factor) terms of KL(q || p) where it is a sum over factors, else None; zero at padded positions."""
    function = _ENTRIES.get(torch.distributions.kl._dispatch_kl(type(q), type(p)))  # a subclass may have its own KL
    return None if function is None else _without_padding(q, function(q, p))


def kl(q: Distribution, p: Distribution) -> Tensor:
    """(*unit) KL(q || p). The same as `torch.distributions.kl_divergence`.

    Raises:
        NotImplementedError: If nobody registered this pair; `has_kl` tells beforehand.
    """
    return torch.distributions.kl_divergence(q, p)


def has_kl(q: type[Distribution], p: type[Distribution]) -> bool:
    """Whether a closed form is registered for this pair of classes."""
    return torch.distributions.kl._dispatch_kl(q, p) is not NotImplemented


def register_kl(q: type[Distribution], p: type[Distribution]) -> Callable[[_Divergence], _Divergence]:
    """The decorator of torch, with types."""
    return cast("Callable[[_Divergence], _Divergence]", _register_kl(q, p))


def register_kl_entries(q: type[Distribution], p: type[Distribution]) -> Callable[[_Entries], _Entries]:
    """The decorator of a function that gives the terms of a KL, (*unit, *factor).

    The divergence is their sum over the support, or over the features of a vector, and `FreeBits(per="factor")` has
    terms to look at. What the function gives at padded positions does not count.
    """

    def decorate(function: _Entries) -> _Entries:
        @register_kl(q, p)
        def divergence(q_: Any, p_: Any) -> Tensor:
            entries = function(q_, p_)
            total: Tensor = q_.reduce(entries) if hasattr(q_, "reduce") else q_.attended.sum(entries)
            return total

        _ENTRIES[divergence] = function
        return function

    return decorate


@register_kl_entries(NormalisedWeibull, NormalisedGamma)
def _weibull_gamma(q: NormalisedWeibull, p: NormalisedGamma) -> Tensor:
    """BAM, Sec. 3.2; for S, so shifting the scores changes it (see `anchor` in families.py).

    gamma alpha / k - alpha log(lambda) + log k + beta lambda Gamma(1 + 1/k) - gamma - 1 - alpha log(beta) + log
    Gamma(alpha)
    """
    k, shape, log_rate = q.concentration, p.concentration, p.rate.log()
    # beta * E[S] is exponentiated last: beta = 1e-10 times exp(score) must not overflow before it is scaled
    expected = (log_rate + q.log_mean).exp()
    return shape * (_EULER / k - q.log_scale - log_rate) + k.log() + expected - (_EULER + 1.0) + torch.lgamma(shape)


@register_kl_entries(NormalisedLognormal, NormalisedLognormal)
def _lognormal_lognormal(q: NormalisedLognormal, p: NormalisedLognormal) -> Tensor:
    """BAM, Sec. 3.2: log(sigma_p / sigma_q) + (sigma_q² + (mu_q - mu_p)²) / (2 sigma_p²) - 1/2, for S.

    Ratios are formed before squaring: the paper uses sigma = 1e15 and 1e-15, whose squares leave little of float32.
    """
    ratio, distance = q.sigma / p.sigma, (q.location - p.location) / p.sigma
    entries = 0.5 * (ratio.square() + distance.square() - 1.0) + p.sigma.log() - q.sigma.log()
    return entries.expand(torch.broadcast_shapes(q.location.shape, p.location.shape))


@register_kl_entries(DiagonalGaussian, DiagonalGaussian)
def _gaussian_gaussian(q: DiagonalGaussian, p: DiagonalGaussian) -> Tensor:
    """Bahuleyan et al., eq. 3 and 8: one term per feature."""
    distance = (q.location - p.location).square() * (-p.log_variance).exp()
    log_ratio = q.log_variance - p.log_variance
    return 0.5 * (log_ratio.exp() + distance - 1.0 - log_ratio)


@register_kl(MaskedOneHot, MaskedOneHot)
def _one_hot_one_hot(q: MaskedOneHot, p: MaskedOneHot) -> Tensor:
    """Deng et al., Sec. 3; in log space, so a prior that underflows as a probability still has a finite KL."""
    return _categorical(q, p)


@register_kl(Concrete, MaskedOneHot)
def _concrete_one_hot(q: Concrete, p: MaskedOneHot) -> Tensor:
    """The categorical KL of the underlying choice, as Deng et al.'s code does: not the KL of the relaxed variable."""
    return _categorical(q, p)


@register_kl(MaskedDirichlet, MaskedDirichlet)
def _dirichlet_dirichlet(q: MaskedDirichlet, p: MaskedDirichlet) -> Tensor:
    """The usual Dirichlet KL, on the simplex of the positions that are there.

    Its terms cancel: at concentrations of 1e6 float32 leaves nothing of a KL of 1, so it is computed in float64.
    """
    support, a, b = q.attended, precise(q.concentration), precise(p.concentration)
    total_a, total_b = support.sum(a), support.sum(b)
    is_empty = total_a == 0
    total_a, total_b = total_a.masked_fill(is_empty, 1.0), total_b.masked_fill(is_empty, 1.0)
    entries = (a - b) * (torch.digamma(a) - support.spread(torch.digamma(total_a)))
    entries = entries + torch.lgamma(b) - torch.lgamma(a)
    divergence = support.sum(entries) + torch.where(is_empty, 0.0, torch.lgamma(total_a) - torch.lgamma(total_b))
    return divergence.to(q.concentration.dtype)


@register_kl(CodeDelta, MaskedOneHot)
def _delta_one_hot(q: CodeDelta, p: MaskedOneHot) -> Tensor:
    """DAVAM, eq. 7: cross-entropy of the chosen code under a prior over codes, per position."""
    return _padded_to_zero(-p.log_prob_index(q.index.unsqueeze(0))[0], q)


@register_kl(CodeChoice, MaskedOneHot)
def _choice_one_hot(q: CodeChoice, p: MaskedOneHot) -> Tensor:
    """Enumerated over the codes, per position: sum_k q_k (log q_k - log p_k)."""
    return q.reduce(q.log_probs.exp() * (q.log_probs - p.log_probs))


@register_kl(CodeDelta, Categorical)
def _delta_categorical(q: CodeDelta, p: Categorical) -> Tensor:
    """DAVAM, eq. 7, for torch's own categorical distribution."""
    return _padded_to_zero(-p.log_prob(q.index), q)


@register_kl_entries(DiagonalGaussian, torch.distributions.Normal)
def _gaussian_normal(q: DiagonalGaussian, p: torch.distributions.Normal) -> Tensor:
    """A torch Normal with the features in its batch shape."""
    prior = DiagonalGaussian(p.loc.expand_as(q.location), 2.0 * p.scale.log().expand_as(q.location))
    return _gaussian_gaussian(q, prior)


def _categorical(q: MaskedOneHot | Concrete, p: MaskedOneHot) -> Tensor:
    inside = torch.isfinite(q.log_probs)
    # log q - log p, with both sides finite before the subtraction: -inf - -inf has a NaN gradient
    difference = q.log_probs.masked_fill(~inside, 0.0) - p.log_probs.masked_fill(~inside, 0.0)
    return q.attended.sum(torch.where(inside, q.log_probs.exp() * difference, 0.0))


def _without_padding(q: Any, entries: Tensor) -> Tensor:
    """Entries with zeros outside the support, or in padded units of a vector."""
    if isinstance(q, WeightsDistribution):
        return q.attended.fill_outside(entries, 0.0)
    return entries if q.mask is None else entries.masked_fill(~q.mask.unsqueeze(-1), 0.0)


def _padded_to_zero(per_unit: Tensor, q: CodeDelta) -> Tensor:
    return per_unit if q.mask is None else per_unit.masked_fill(~q.mask, 0.0)
