"""A site: the place where a deterministic quantity of an attention model becomes a random one.

It holds a prior and a posterior, asks an estimator for particles, and returns a receipt with the KL. Combinations
that cannot work are refused when the site is built.
"""

from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from probattn.core.arguments import require_choice
from probattn.core.estimators import Estimator
from probattn.core.noise import fresh_seed
from probattn.core.protocols import LatentDistribution
from probattn.core.records import Draw, Given, Latent, Unit
from probattn.core.support import Support
from probattn.distributions import has_kl, kl, kl_entries
from probattn.nn.conditionals import Conditional
from probattn.nn.parts import require_conditional

__all__ = ["Replay", "Site", "divergence"]


@dataclass(frozen=True)
class Replay:
    """What a visit to a site was made of.

    Attributes:
        posterior: q, or p where there is no separate posterior.
        prior: p, or None.
        draw: The particles.
    """

    posterior: Distribution
    prior: Distribution | None
    draw: Draw


class Site(nn.Module):
    """One latent variable of a model.

    Args:
        name: Its name in receipts, KL weights and logs.
        prior: p. None: no KL (BAM's "no KL" rows).
        posterior: q. None: q = p (hard attention, exact marginalisation).
        predictive: Which of the two predicts when no target is known. Default: the prior where there is one that can
            stand alone, i.e. "prior" for posteriors that read the target, else "posterior".
        unit: Whether one draw belongs to a step or to an example.
        feeds_state: Whether the draw enters the recurrence.
        keeps_kl_terms: Keep the terms of the KL in the receipt, for free bits per factor.
    """

    def __init__(
        self,
        name: str,
        *,
        prior: Conditional | None,
        posterior: Conditional | None,
        predictive: Literal["prior", "posterior"] | None = None,
        unit: Unit = "step",
        feeds_state: bool = False,
        keeps_kl_terms: bool = False,
    ):
        super().__init__()
        require_conditional(prior, f"prior of site '{name}'")
        require_conditional(posterior, f"posterior of site '{name}'")
        if prior is None and posterior is None:
            raise ValueError(f"site '{name}' needs a prior, a posterior, or both; got neither")
        if predictive is None:
            reads_target = posterior is None or "target" in posterior.needs
            predictive = "prior" if reads_target else "posterior"
        self.name = name
        self.prior = prior
        self.posterior = posterior
        self.predictive = predictive
        self.unit: Unit = unit
        self.feeds_state = feeds_state
        self.keeps_kl_terms = keeps_kl_terms
        require_choice(f"unit of site '{name}'", unit, get_args(Unit))
        require_choice(f"predictive of site '{name}'", predictive, ("prior", "posterior"))
        self._check()

    def forward(self, given: Given, estimator: Estimator, *, seed: Tensor | None = None) -> Latent:
        """Visit the site with its posterior, as in training.

        Args:
            given: What prior and posterior may look at.
            estimator: How to turn the posterior into particles.
            seed: () int64; drawn from torch's generator if absent.

        Returns:
            The receipt: particles and KL(q || p), which is zero where q = p.
        """
        seed = _seed_on(given, seed)
        made = self.replay(given, estimator, seed)
        terms = _kl_terms(made) if self.keeps_kl_terms else None
        return self._receipt(made, seed, divergence(made, self.name), terms=terms, mask=given.mask)

    def predict(self, given: Given, estimator: Estimator, *, seed: Tensor | None = None) -> Latent:
        """Visit the site with its predictive distribution, as when no target is known.

        Arguments as for `forward`. The KL is that of the posterior where that is predictive (BAM), else zero.
        """
        if self.predictive == "posterior":
            latent: Latent = self(given, estimator, seed=seed)
            return latent
        self._require_estimator(estimator)
        seed = _seed_on(given, seed)
        prior = self._predictive_distribution(given)
        draw = estimator(cast(LatentDistribution, prior), cast(LatentDistribution, prior), seed)
        made = Replay(prior, prior, draw)
        return self._receipt(made, seed, torch.zeros_like(draw.log_weight[0]), terms=None, mask=given.mask)

    def replay(self, given: Given, estimator: Estimator, seed: Tensor) -> Replay:
        """Posterior, prior and draw of a visit, from its seed: the same numbers, differentiable anew."""
        self._require_estimator(estimator)
        if self.posterior is None:
            if self.prior is None:
                raise ValueError(f"site '{self.name}' has neither a prior nor a posterior")
            prior = self.prior.for_queries(given)
            latent = cast(LatentDistribution, prior)
            return Replay(prior, prior, estimator(latent, latent, seed))
        posterior = self._conditional(self.posterior, given)
        q = cast(LatentDistribution, posterior)
        own = self.prior if estimator.needs_prior else None
        if own is not None and "value" in own.needs:  # posterior, then draw, then prior
            draw = estimator(q, None, seed)
            prior = self._prior_of_value(given, draw)
            return Replay(posterior, prior, _with_log_prior(draw, posterior, prior))
        p: Distribution | None = None if own is None else own(given)
        return Replay(posterior, p, estimator(q, cast("LatentDistribution | None", p), seed))

    def _require_estimator(self, estimator: object) -> None:
        if not isinstance(estimator, Estimator):
            raise TypeError(
                f"expected an estimator for site '{self.name}', such as Mean() or Pathwise(), got {estimator!r}"
            )

    def expected(self, given: Given) -> Tensor:
        """(*unit, *event) plug-in value under the predictive distribution, for state paths and plots."""
        return cast(LatentDistribution, self._predictive_distribution(given)).plug_in

    def _predictive_distribution(self, given: Given) -> Distribution:
        if self.predictive == "prior" and self.prior is not None:
            return self.prior.for_queries(given)
        return self._conditional(self.posterior, given)

    def _conditional(self, conditional: Conditional | None, given: Given) -> Distribution:
        if conditional is None:
            raise ValueError(f"site '{self.name}' has no {self.predictive} to predict with")
        distribution: Distribution = conditional(given)
        return distribution

    def _prior_of_value(self, given: Given, draw: Draw) -> Distribution:
        if draw.value is None or draw.score is not None:
            raise ValueError(
                f"the prior of site '{self.name}' reads the draw, so the draw must be a differentiable value; "
                "use Pathwise or Mean as its estimator"
            )
        return self._conditional(self.prior, replace(given, value=draw.value))

    def _receipt(
        self, made: Replay, seed: Tensor, kl_per_unit: Tensor, *, terms: Tensor | None, mask: Tensor | None
    ) -> Latent:
        return Latent(
            name=self.name,
            unit=self.unit,
            feeds_state=self.feeds_state,
            draw=made.draw,
            kl=kl_per_unit,
            seed=seed,
            kl_terms=terms,
            kl_terms_mask=None if terms is None else _terms_mask(made.posterior, terms),
            penalties=getattr(made.posterior, "penalties", {}),
            mask=mask if mask is not None and mask.shape == kl_per_unit.shape else None,
        )

    def _check(self) -> None:
        if self.predictive == "prior" and self.prior is None:
            raise ValueError(f"site '{self.name}' is to predict with its prior, but has none")
        if self.predictive == "posterior":
            if self.posterior is None:
                raise ValueError(
                    f"site '{self.name}' is to predict with its posterior, but has none; use predictive='prior'"
                )
            if "target" in self.posterior.needs:
                raise ValueError(
                    f"site '{self.name}': {type(self.posterior).__name__} reads the target, which is unknown at test "
                    "time; use predictive='prior'"
                )
        if self.prior is not None and "target" in self.prior.needs:
            raise ValueError(
                f"site '{self.name}': {type(self.prior).__name__} reads the target, so it cannot be a prior"
            )
        if self.posterior is not None and "value" in self.posterior.needs:
            raise ValueError(
                f"site '{self.name}': {type(self.posterior).__name__} reads the draw, so it cannot be a posterior"
            )
        if self.predictive == "prior" and self.prior is not None and "value" in self.prior.needs:
            raise ValueError(
                f"site '{self.name}': {type(self.prior).__name__} reads the draw, so a site cannot predict with "
                "it; give the site a posterior and predictive='posterior', and generate with the prior's ancestral()"
            )


def divergence(made: Replay, name: str) -> Tensor:
    """(*unit) KL(q || p) of a visit: in closed form where one is registered, else from the draw; zero where q = p.

    Args:
        made: Posterior, prior and draw.
        name: The site's name, for messages.
    """
    q, p, draw = made.posterior, made.prior, made.draw
    if p is None or p is q:
        return torch.zeros_like(draw.log_weight[0])
    if has_kl(type(q), type(p)):
        return kl(q, p)
    kinds = [getattr(one, "raw_variable", type(one).__name__) for one in (q, p)]
    if kinds[0] != kinds[1]:
        raise ValueError(
            f"site '{name}': no closed-form KL is registered for ({type(q).__name__}, {type(p).__name__}), and their "
            f"densities cannot be compared at samples, which are {kinds[0]} for one and {kinds[1]} for the other."
        )
    if draw.log_posterior is None or draw.log_prior is None or draw.score is not None:
        raise ValueError(
            f"site '{name}': no closed-form KL is registered for ({type(q).__name__}, {type(p).__name__}), and this "
            "estimator gives no differentiable samples with densities to estimate it from. Register one (register_kl), "
            "or use Pathwise(keeps_log_probs=True); plug-in passes (Mean, sampling switched off) need a registered one."
        )
    return (draw.log_posterior - draw.log_prior).mean(dim=0)


def _kl_terms(made: Replay) -> Tensor | None:
    """(*unit, *factor) terms of the KL, zero outside the support and on padded units."""
    q, p = made.posterior, made.prior
    return None if p is None or p is q else kl_entries(q, p)


def _terms_mask(posterior: Distribution, terms: Tensor) -> Tensor | None:
    """(*unit, *factor) bool, which terms are of positions that are there; None for a vector, which has no positions."""
    support: Support | None = getattr(posterior, "attended", None)
    return None if support is None else support.fill_outside(torch.ones_like(terms), 0.0).bool()


def _with_log_prior(draw: Draw, posterior: Distribution, prior: Distribution) -> Draw:
    """The draw with log p, for a prior that is known only after it.

    A point mass on a code has no density, so it gets none; a random choice of a code has `log_prob_under`.
    """
    if draw.log_posterior is None or draw.value is None:
        return draw
    if prior.has_enumerate_support:
        log_prob_under = getattr(posterior, "log_prob_under", None)
        if log_prob_under is None:
            return replace(draw, log_posterior=None)
        return replace(draw, log_prior=log_prob_under(prior, draw.value))
    return replace(draw, log_prior=prior.log_prob(draw.value))


def _seed_on(given: Given, seed: Tensor | None) -> Tensor:
    return fresh_seed(given.memory.values.device) if seed is None else seed
