"""From scores to a distribution: the object one swaps to swap a distribution.

A *family* is called with scores and a support and gives a distribution over weights; a *prior family* is called with
one log-weight per key. Both are small frozen dataclasses: `Weibull(concentration=10.0)` in Python, `class_path:
Weibull` in YAML.

Anchors. Normalised weights do not change when all scores of a set shift by a constant, but densities and KLs of the
unnormalised S do. `"exp"` takes E[S] = exp(scores) (BAM's paper), `"softmax"` takes E[S] = softmax(scores) (its
released code, and what pretrained models need, whose scores make exp(scores) astronomically large).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from probattn.core.arguments import require_choice
from probattn.core.support import Support
from probattn.distributions.base import WeightsDistribution, at_least_float32
from probattn.distributions.clamping import inward_clamp
from probattn.distributions.concrete import Concrete, StraightThroughConcrete
from probattn.distributions.dirichlet import MaskedDirichlet
from probattn.distributions.normalised import NormalisedGamma, NormalisedLognormal, NormalisedWeibull
from probattn.distributions.one_hot import MaskedOneHot

__all__ = [
    "Anchor",
    "Categorical",
    "Dirichlet",
    "DirichletPrior",
    "Family",
    "GammaPrior",
    "GumbelSoftmax",
    "Lognormal",
    "LognormalPrior",
    "PriorFamily",
    "StraightThroughGumbel",
    "Weibull",
]

Anchor = Literal["exp", "softmax"]
"""What E[S] is: exp(scores), or softmax(scores)."""

# exp(20) is 5e8: beyond it lgamma and digamma lose every digit that a score could change.
_LOG_CONCENTRATION_BOUND = 20.0


class Family(ABC):
    """Scores in, distribution over weights out."""

    @abstractmethod
    def __call__(self, scores: Tensor, support: Support) -> WeightsDistribution:
        """The distribution. Scores: (*unit, S) or (E, H)."""

    def usual_prior(self) -> "PriorFamily | None":
        """The prior family that "contextual" and "fixed" stand for in `make_stochastic`; None: there is none."""
        return None


class PriorFamily(ABC):
    """One log-weight per key in, prior over the weights out."""

    @abstractmethod
    def __call__(self, log_psi: Tensor, support: Support) -> WeightsDistribution:
        """The prior. log_psi broadcasts to the scores."""


@dataclass(frozen=True)
class Categorical(Family):
    """A hard choice of one position (Deng et al.): exact, sampled or enumerated."""

    def __call__(self, scores: Tensor, support: Support) -> MaskedOneHot:
        """See `Family`."""
        return MaskedOneHot(scores, support)


@dataclass(frozen=True)
class Dirichlet(Family):
    """Relaxed alignment with concentration exp(scores) (Deng et al., Sec. 4); scores are kept inside +-20.

    Where q = p, nothing holds the concentrations back: noise costs likelihood, so they grow until draws are constant,
    and the KL of a fresh inference network is enormous. `log_bound` keeps their logarithms inside +-log_bound.

    Attributes:
        log_bound: Scores are squashed to log_bound * tanh(score / log_bound); None leaves them as they are.
    """

    log_bound: float | None = None

    def __post_init__(self) -> None:
        if self.log_bound is not None and not self.log_bound > 0.0:
            raise ValueError(f"Dirichlet(log_bound) must be positive, got {self.log_bound}")

    def __call__(self, scores: Tensor, support: Support) -> MaskedDirichlet:
        """See `Family`."""
        bound = _LOG_CONCENTRATION_BOUND
        scores = at_least_float32(scores)
        if self.log_bound is not None:  # what stands outside the support may be no number, and so would its gradient
            scores = self.log_bound * torch.tanh(support.fill_outside(scores, 0.0) / self.log_bound)
        return MaskedDirichlet(inward_clamp(scores, -bound, bound).exp(), support=support)


@dataclass(frozen=True)
class Weibull(Family):
    """Bayesian attention with Weibull weights, E[S] = exp(scores) (BAM, Sec. 3.2).

    Attributes:
        concentration: k; the noise of a score has standard deviation 1.28 / k.
        anchor: See the module's text.
    """

    concentration: float | Tensor = 10.0
    anchor: Anchor = "exp"

    def __post_init__(self) -> None:
        _require_positive("Weibull(concentration)", self.concentration)

    def __call__(self, scores: Tensor, support: Support) -> NormalisedWeibull:
        """See `Family`."""
        log_mean = _anchored(scores, support, self.anchor)
        k = torch.as_tensor(self.concentration, dtype=log_mean.dtype, device=log_mean.device)
        return NormalisedWeibull(log_mean - torch.lgamma(1.0 + 1.0 / k), k, support=support)

    def usual_prior(self) -> "GammaPrior":
        """With the rate of BAM's fine-tuning runs (Sec. 4.5)."""
        return GammaPrior(rate=1e-2)


@dataclass(frozen=True)
class Lognormal(Family):
    """Bayesian attention with lognormal weights, E[S] = exp(scores) (BAM, Sec. 3.2); logistic-normal weights.

    Attributes:
        sigma: Standard deviation of the noise of a score.
        anchor: See the module's text.
    """

    sigma: float | Tensor = 0.1
    anchor: Anchor = "exp"

    def __post_init__(self) -> None:
        _require_positive("Lognormal(sigma)", self.sigma)

    def __call__(self, scores: Tensor, support: Support) -> NormalisedLognormal:
        """See `Family`."""
        log_mean = _anchored(scores, support, self.anchor)
        sigma = torch.as_tensor(self.sigma, dtype=log_mean.dtype, device=log_mean.device)
        return NormalisedLognormal(log_mean - 0.5 * sigma.square(), sigma, support=support)

    def usual_prior(self) -> "LognormalPrior":
        """With E[S] = softmax(scores) the prior has to stand where log S does, as in BAM's released code."""
        return LognormalPrior(location="log_psi" if self.anchor == "softmax" else "psi")


@dataclass(frozen=True)
class GumbelSoftmax(Family):
    """A relaxed hard choice; Deng et al.'s code uses temperature 0.1."""

    temperature: float = 0.1

    def __post_init__(self) -> None:
        _require_positive("GumbelSoftmax(temperature)", self.temperature)

    def __call__(self, scores: Tensor, support: Support) -> Concrete:
        """See `Family`."""
        return Concrete(scores, self.temperature, support=support)


@dataclass(frozen=True)
class StraightThroughGumbel(Family):
    """A hard choice forward, a relaxed one backward."""

    temperature: float = 1.0

    def __post_init__(self) -> None:
        _require_positive("StraightThroughGumbel(temperature)", self.temperature)

    def __call__(self, scores: Tensor, support: Support) -> StraightThroughConcrete:
        """See `Family`."""
        return StraightThroughConcrete(scores, self.temperature, support=support)


@dataclass(frozen=True)
class GammaPrior(PriorFamily):
    """Gamma prior of Weibull attention.

    Attributes:
        rate: beta.
        concentration: "psi" sets alpha = Psi (BAM's paper), "psi_rate" alpha = Psi * beta (its code), where E[S] = Psi.
    """

    rate: float = 1.0
    concentration: Literal["psi", "psi_rate"] = "psi"

    def __post_init__(self) -> None:
        _require_positive("GammaPrior(rate)", self.rate)
        require_choice("GammaPrior(concentration)", self.concentration, ("psi", "psi_rate"))

    def __call__(self, log_psi: Tensor, support: Support) -> NormalisedGamma:
        """See `PriorFamily`."""
        shape = support.fill_outside(at_least_float32(log_psi), 0.0).exp()
        shape = shape * self.rate if self.concentration == "psi_rate" else shape
        # A key far from all others can underflow to concentration 0, which no Gamma has. A sum, which changes nothing
        # else, keeps no tensor for its gradient; a clamp would.
        return NormalisedGamma(shape + torch.finfo(shape.dtype).tiny, self.rate, support=support)


@dataclass(frozen=True)
class LognormalPrior(PriorFamily):
    """Lognormal prior of lognormal attention.

    Attributes:
        sigma: Standard deviation of log S under the prior.
        location: "psi" sets mu = Psi (BAM's paper), "log_psi" mu = log Psi (its code).
    """

    sigma: float = 1.0
    location: Literal["psi", "log_psi"] = "psi"

    def __post_init__(self) -> None:
        _require_positive("LognormalPrior(sigma)", self.sigma)
        require_choice("LognormalPrior(location)", self.location, ("psi", "log_psi"))

    def __call__(self, log_psi: Tensor, support: Support) -> NormalisedLognormal:
        """See `PriorFamily`."""
        log_psi = support.fill_outside(at_least_float32(log_psi), 0.0)
        location = log_psi.exp() if self.location == "psi" else log_psi
        return NormalisedLognormal(location, self.sigma, support=support)


@dataclass(frozen=True)
class DirichletPrior(PriorFamily):
    """Dirichlet prior of Dirichlet attention (Bahuleyan et al., Sec. 3.5, as future work), concentration scale * Psi.

    Attributes:
        scale: With a constant Psi = 1 and scale 1 all weights on the simplex are equally likely.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        if not self.scale > 0.0:
            raise ValueError(f"DirichletPrior(scale) must be positive, got {self.scale}")

    def __call__(self, log_psi: Tensor, support: Support) -> MaskedDirichlet:
        """See `PriorFamily`."""
        bound = _LOG_CONCENTRATION_BOUND
        log_psi = inward_clamp(support.fill_outside(at_least_float32(log_psi), 0.0), -bound, bound)
        return MaskedDirichlet(self.scale * log_psi.exp(), support=support)


def _anchored(scores: Tensor, support: Support, anchor: Anchor) -> Tensor:
    """Log E[S] of each position, zero outside the support."""
    scores = at_least_float32(scores)
    if anchor == "exp":
        return scores
    if anchor == "softmax":
        normalised = support.log_softmax(scores)
        return support.fill_outside(normalised.masked_fill(torch.isneginf(normalised), 0.0), 0.0)
    raise ValueError(f"anchor must be 'exp' or 'softmax', got {anchor!r}")


def _require_positive(name: str, value: float | Tensor) -> None:
    """Of a plain number; a tensor may be a parameter that is learnt, whose values are not read here."""
    if isinstance(value, int | float) and not 0.0 < value < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {value}")
