"""How an expectation over a latent is approximated: distribution in, weighted particles out.

| estimator | particles | gradient with respect to the posterior |
|---|---|---|
| `Mean` | the plug-in value | through the value (soft attention; MAP decoding) |
| `Pathwise` | K differentiable samples | through the value, unbiased |
| `ScoreFunction` | K samples, one-hot | score function with a baseline, unbiased |
| `Enumerate` | all positions, or the K most probable | through the weights, exact (K-max: biased) |
| `TopKAndSample` | the K most probable and one sample of the rest | both, unbiased |
| `WithoutPrior` | those of another estimator | that of the other one; the site has no KL |

An estimator looks at capabilities (`has_rsample`, `has_enumerate_support`), never at classes.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal, cast

import torch
from torch import Tensor

from probattn.core.arguments import require_choice
from probattn.core.baselines import Baseline, SoftAttention
from probattn.core.protocols import DiscreteDistribution, LatentDistribution
from probattn.core.records import Draw

__all__ = ["Enumerate", "Estimator", "Mean", "Pathwise", "ScoreFunction", "TopKAndSample", "WithoutPrior"]


class Estimator(ABC):
    """Turns a posterior into weighted particles.

    Attributes:
        needs_prior: False: the site leaves its prior alone, so that its KL is zero, unless the posterior is the prior.
    """

    needs_prior: ClassVar[bool] = True

    @abstractmethod
    def __call__(self, posterior: LatentDistribution, prior: LatentDistribution | None, seed: Tensor) -> Draw:
        """Draw.

        Args:
            posterior: q, or p where there is no separate posterior.
            prior: p, or None where there is none. The same object as `posterior` where q = p.
            seed: () int64, the source of all noise.
        """


@dataclass(frozen=True)
class Mean(Estimator):
    """One particle: the plug-in value. Soft attention for weights, "MAP" for Gaussians."""

    def __call__(self, posterior: LatentDistribution, prior: LatentDistribution | None, seed: Tensor) -> Draw:
        """See `Estimator`."""
        value = posterior.plug_in.unsqueeze(0)
        return Draw(value=value, index=None, log_weight=_zeros_like_unit(posterior).unsqueeze(0))


@dataclass(frozen=True)
class Pathwise(Estimator):
    """K reparameterised samples of equal weight.

    Attributes:
        num_samples: K.
        keeps_log_probs: Evaluate log q and log p at the samples. Importance weights and Monte Carlo KLs need them; an
            ELBO with a closed-form KL does not, and saves the time.
    """

    num_samples: int = 1
    keeps_log_probs: bool = True

    def __post_init__(self) -> None:
        _require_at_least("Pathwise(num_samples)", self.num_samples, 1)

    def __call__(self, posterior: LatentDistribution, prior: LatentDistribution | None, seed: Tensor) -> Draw:
        """See `Estimator`."""
        if not posterior.has_rsample:
            raise TypeError(
                f"Pathwise needs a distribution with differentiable samples, got {type(posterior).__name__}. "
                "Use ScoreFunction, Enumerate or TopKAndSample for it, or a relaxed family such as GumbelSoftmax."
            )
        raw = posterior.draw_raw(self.num_samples, seed)
        log_posterior = log_prior = None
        if self.keeps_log_probs:
            log_posterior = posterior.log_prob(raw)
            if prior is posterior:
                log_prior = log_posterior
            elif prior is not None and _have_one_variable(posterior, prior):
                log_prior = prior.log_prob(raw)
        unit = _zeros_like_unit(posterior)
        return Draw(
            value=posterior.realise(raw),
            index=None,
            log_weight=(unit - math.log(self.num_samples)).expand(self.num_samples, *unit.shape),
            log_posterior=log_posterior,
            log_prior=log_prior,
        )


@dataclass(frozen=True)
class ScoreFunction(Estimator):
    """K hard samples whose posterior learns from the score function, (log f - b) grad log q.

    Attributes:
        num_samples: K.
        baseline: The control variate b; soft attention under the prior by default (Deng et al., Algorithm 1).
    """

    num_samples: int = 1
    baseline: Baseline = field(default_factory=SoftAttention)

    def __post_init__(self) -> None:
        _require_at_least("ScoreFunction(num_samples)", self.num_samples, 1)
        if self.num_samples < self.baseline.min_samples:
            raise ValueError(
                f"{type(self.baseline).__name__} needs num_samples >= {self.baseline.min_samples}, "
                f"got {self.num_samples}"
            )

    def __call__(self, posterior: LatentDistribution, prior: LatentDistribution | None, seed: Tensor) -> Draw:
        """See `Estimator`."""
        discrete = _require_discrete(posterior, "ScoreFunction")
        index = discrete.draw_index(self.num_samples, seed)
        log_posterior = discrete.log_prob_index(index)
        log_prior = _log_prior(prior, posterior, index, log_posterior)
        log_weight = torch.full_like(log_posterior, -math.log(self.num_samples))
        score = log_posterior
        extra = self.baseline.particle(posterior, prior)
        if extra is not None:  # the baseline's readout: weight zero, no score, no importance weight
            log_weight = torch.cat([log_weight, torch.full_like(log_weight[:1], -math.inf)])
            score = torch.cat([score, torch.zeros_like(score[:1])])
        return Draw(
            value=extra,
            index=index,
            log_weight=log_weight,
            log_posterior=log_posterior,
            log_prior=log_prior,
            score=score,
            baseline_mixing=self.baseline.mixing(self.num_samples, log_posterior),
            baseline_offset=self.baseline.offset(),
            has_baseline=extra is not None,
        )


@dataclass(frozen=True)
class Enumerate(Estimator):
    """Every position as a particle, or the K most probable ones (K-max); only those branches are computed.

    Attributes:
        top_k: K, or None for all positions.
        rest: What happens to the probability outside the K positions. "renormalise" (Deng et al.) spreads it over them,
            which is no bound; "drop" leaves it out, which makes `Marginal` a lower bound. It is not for `Elbo`, where
            leaving out a log-likelihood, which is negative, would raise the number.
    """

    top_k: int | None = None
    rest: Literal["renormalise", "drop"] = "renormalise"

    def __post_init__(self) -> None:
        if self.top_k is not None:
            _require_at_least("Enumerate(top_k)", self.top_k, 1)
        require_choice("Enumerate(rest)", self.rest, ("renormalise", "drop"))

    def __call__(self, posterior: LatentDistribution, prior: LatentDistribution | None, seed: Tensor) -> Draw:
        """See `Estimator`."""
        discrete = _require_discrete(posterior, "Enumerate")
        index = discrete.top_index(self.top_k)
        log_posterior = _log_prob_enumerated(discrete, index)
        log_weight = log_posterior
        renormalises = self.top_k is not None and self.rest == "renormalise"
        if renormalises:
            log_weight = log_posterior - torch.logsumexp(log_posterior, dim=0)
        log_prior = log_posterior if prior is posterior else None
        if prior is not None and prior is not posterior:
            log_prior = _log_prob_enumerated(_require_discrete(prior, "a discrete posterior's prior"), index)
        return Draw(
            value=None,
            index=index,
            log_weight=log_weight,
            log_posterior=log_posterior,
            log_prior=log_prior,
            is_enumerated=True,
            is_renormalised=renormalises,
            is_truncated=self._drops_some(discrete, index),
        )

    def _drops_some(self, posterior: DiscreteDistribution, index: Tensor) -> bool:
        return self.top_k is not None and self.rest == "drop" and len(posterior.top_index(None)) > len(index)


@dataclass(frozen=True)
class TopKAndSample(Estimator):
    """The K most probable positions exactly, and one sample of the rest that carries all remaining probability.

    Unbiased, and its variance shrinks as the posterior peaks (Liu et al. 2019, "Rao-Blackwellized stochastic
    gradients for discrete distributions"). The sample's baseline is the mean log-likelihood of the enumerated
    positions.

    Attributes:
        top_k: K.
    """

    top_k: int = 3

    def __post_init__(self) -> None:
        _require_at_least("TopKAndSample(top_k)", self.top_k, 1)

    def __call__(self, posterior: LatentDistribution, prior: LatentDistribution | None, seed: Tensor) -> Draw:
        """See `Estimator`."""
        discrete = _require_discrete(posterior, "TopKAndSample")
        top = discrete.top_index(self.top_k)
        sample = discrete.draw_index(1, seed, without=top)
        index = torch.cat([top, sample])
        log_posterior = torch.cat([_log_prob_enumerated(discrete, top), discrete.log_prob_index(sample)])
        log_rest = discrete.log_rest(top)
        has_rest = torch.isfinite(log_rest)
        # log q(sample | not among the top K); zero where nothing is left
        score = torch.where(has_rest, log_posterior[-1] - log_rest.masked_fill(~has_rest, 0.0), 0.0)
        num_top = top.shape[0]
        mixing = torch.zeros(num_top + 1, num_top + 1, dtype=score.dtype, device=score.device)
        mixing[-1, :-1] = 1.0 / num_top
        return Draw(
            value=None,
            index=index,
            log_weight=torch.cat([log_posterior[:-1], log_rest.unsqueeze(0)]),
            log_posterior=log_posterior,
            log_prior=_log_prior(prior, posterior, index, log_posterior),
            score=torch.cat([torch.zeros_like(log_posterior[:-1]), score.unsqueeze(0)]),
            baseline_mixing=mixing,
        )


@dataclass(frozen=True)
class WithoutPrior(Estimator):
    """The particles of another estimator, and no prior: for training with a KL whose weight is zero.

    A prior may be a network of its own, which would be computed for nothing.

    Attributes:
        inner: The other estimator.
    """

    inner: Estimator
    needs_prior: ClassVar[bool] = False

    def __call__(self, posterior: LatentDistribution, prior: LatentDistribution | None, seed: Tensor) -> Draw:
        """See `Estimator`."""
        return self.inner(posterior, prior, seed)


def _log_prob_enumerated(discrete: DiscreteDistribution, index: Tensor) -> Tensor:
    """Log-probabilities of enumerated positions; on an empty set the first particle alone stands for "nothing"."""
    log_prob = discrete.log_prob_index(index)
    if log_prob.shape[0] == 0:
        raise ValueError("nothing to enumerate: the memory has no positions. Give it at least one, or use Mean.")
    later = torch.arange(index.shape[0], device=index.device).view(-1, *([1] * (index.dim() - 1))) > 0
    return log_prob.masked_fill(later & discrete.is_empty(), -math.inf)


def _log_prior(
    prior: LatentDistribution | None, posterior: LatentDistribution, index: Tensor, log_posterior: Tensor
) -> Tensor | None:
    if prior is None:
        return None
    if prior is posterior:
        return log_posterior
    return _require_discrete(prior, "a discrete posterior's prior").log_prob_index(index)


def _require_discrete(distribution: LatentDistribution, who: str) -> DiscreteDistribution:
    if not distribution.has_enumerate_support:
        raise TypeError(
            f"{who} needs a distribution over positions, got {type(distribution).__name__}. "
            "Use Pathwise for continuous families, or the family Categorical()."
        )
    return cast(DiscreteDistribution, distribution)


def _require_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def _zeros_like_unit(distribution: LatentDistribution) -> Tensor:
    plug_in = distribution.plug_in
    shape = cast(torch.distributions.Distribution, distribution).batch_shape
    return torch.zeros(shape, dtype=plug_in.dtype, device=plug_in.device)


def _have_one_variable(posterior: LatentDistribution, prior: LatentDistribution) -> bool:
    """Whether densities of the two can be compared at a sample: log weights are not positions, for one."""
    variables = {getattr(one, "raw_variable", None) for one in (posterior, prior)} - {None}
    return len(variables) < 2
