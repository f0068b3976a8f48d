"""Where the logarithm goes: log-likelihoods and receipts in, a loss and the number to report out.

| bound | per unit of the particles | needs |
|---|---|---|
| `Elbo` | sum_k w_k log f_k - KL | any draw |
| `Marginal` | log sum_k p_k f_k | an enumerated draw, or `Mean` |
| `ImportanceWeighted` | log 1/K sum_k f_k p_k / q_k | K samples |
| `WakeSleep` | detached importance weights times both log-probabilities | K hard samples |

All results are nats per example, summed over steps, sites and heads, and never averaged: a recipe divides, nobody
else does.
A bound works in the unit of its particles: for `step` particles the sum over k is taken at each step, for `example`
particles after the log-likelihoods of all steps were added up.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from probattn.core.free_bits import FreeBits
from probattn.core.ledger import Ledger, weighted_sum
from probattn.core.records import Draw, Evaluation, Latent, Terms

__all__ = ["Bound", "Elbo", "ImportanceWeighted", "Marginal", "WakeSleep"]


class Bound(ABC):
    """Turns an evaluation into a loss per example and the bound it stands for."""

    @abstractmethod
    def credit(self, draw: Draw, log_lik: Tensor) -> Tensor:
        """(K, *unit) derivative of the bound with respect to each particle's log-likelihood.

        A chunked readout asks for it inside a chunk, so that gradients are formed there and logits are never kept.
        """

    @abstractmethod
    def __call__(self, evaluation: Evaluation, weights: Mapping[str, float] | None = None) -> Terms:
        """Evaluate.

        Args:
            evaluation: What the model returned.
            weights: Weight of each site's KL (and of "site/penalty") in the loss; one where absent.
        """


@dataclass(frozen=True)
class Elbo(Bound):
    """E_q[log f] - sum over sites of weight * KL(q || p).

    With q = p it is hard attention's Jensen bound, with `Mean` it is soft attention, with an inference network it is
    variational attention (Deng et al., eq. 1 and Algorithm 1). Draws with a score get the score-function term (log f
    - b) log q. Where the draw feeds the state its reward is everything from its step on, the KLs of later steps
    included.

    Attributes:
        free_bits: Per site, the nats below which its KL is not pressed (changes the loss, never the bound).
    """

    free_bits: Mapping[str, FreeBits] | None = None

    def credit(self, draw: Draw, log_lik: Tensor) -> Tensor:
        """The particles' weights."""
        return draw.log_weight.exp().expand_as(log_lik)

    def __call__(self, evaluation: Evaluation, weights: Mapping[str, float] | None = None) -> Terms:
        """See `Bound`."""
        for latent in evaluation.latents:
            if latent.draw.is_truncated:
                raise ValueError(
                    f"the positions that Enumerate(rest='drop') leaves out of site '{latent.name}' would raise the "
                    "ELBO, which then is no bound; use rest='renormalise', or Marginal as the bound"
                )
        ledger = Ledger(evaluation, weights or {}, self.free_bits or {})
        particles = ledger.particles() or ledger.single_enumerated()
        if particles is None:
            log_lik = ledger.to_examples(ledger.log_lik[0])
        else:
            particle_log_lik, draw = ledger.joint(particles)
            log_lik = ledger.to_bound(weighted_sum(draw.log_weight, particle_log_lik), particles)
        surrogate = torch.zeros((), dtype=log_lik.dtype, device=log_lik.device)
        for latent in evaluation.latents:
            if latent.draw.score is not None:
                surrogate = surrogate + ledger.to_examples(ledger.masked(_score_term(ledger, latent), latent), latent)
        return ledger.terms(log_lik=log_lik, surrogate=surrogate)


@dataclass(frozen=True)
class Marginal(Bound):
    """log sum_k p(z_k) f_k: the exact log-likelihood of a categorical latent (Deng et al., Sec. 2.1).

    Works with `Enumerate` (with `top_k` it is K-max) and, as soft attention, with `Mean`. Sites other than the
    enumerated one enter by their KL.
    """

    def credit(self, draw: Draw, log_lik: Tensor) -> Tensor:
        """The posterior over particles given the target, p_k f_k / sum."""
        return torch.softmax(_log_prior_weight(draw) + log_lik, dim=0)

    def __call__(self, evaluation: Evaluation, weights: Mapping[str, float] | None = None) -> Terms:
        """See `Bound`."""
        ledger = Ledger(evaluation, weights or {}, {})
        particles = ledger.particles(exact=True)
        _require_no_other_score(evaluation, particles, "Marginal")
        if particles is None:
            return ledger.terms(log_lik=ledger.to_examples(ledger.log_lik[0]))
        if not particles.draw.is_enumerated:
            raise ValueError(
                f"Marginal sums over enumerated positions, but site '{particles.name}' holds samples. "
                "Use the Enumerate estimator, or ImportanceWeighted for samples."
            )
        log_lik, draw = ledger.joint(particles)
        total = torch.logsumexp(_log_prior_weight(draw) + log_lik, dim=0)
        return ledger.terms(log_lik=ledger.to_bound(total, particles), without_kl_of=particles)


@dataclass(frozen=True)
class ImportanceWeighted(Bound):
    """log 1/K sum_k f_k p(z_k) / q(z_k) (Burda et al. 2016); rises with K from the ELBO to the marginal.

    Pathwise draws are differentiated through their values. Discrete draws get VIMCO's credit (Mnih and Rezende 2016):
    each sample's score is multiplied by how much the bound would lose without it. A KL weight other than one scales the
    log-ratio of prior and posterior.
    """

    def credit(self, draw: Draw, log_lik: Tensor) -> Tensor:
        """The normalised importance weights."""
        return torch.softmax(_log_ratio(draw) + log_lik, dim=0)

    def __call__(self, evaluation: Evaluation, weights: Mapping[str, float] | None = None) -> Terms:
        """See `Bound`."""
        ledger = Ledger(evaluation, weights or {}, {})
        particles = _require_samples(ledger, "ImportanceWeighted")
        log_lik, draw = ledger.joint(particles)
        bound = _log_mean_exp(log_lik + _log_ratio(draw))
        scaled = log_lik + ledger.weight(particles.name) * _log_ratio(draw)
        surrogate = None
        if draw.score is not None:
            signal = _vimco_signal(scaled.detach()) - ledger.later_cost(particles)
            surrogate = ledger.to_bound((signal * draw.score).sum(dim=0), particles)
        return ledger.terms(
            log_lik=ledger.to_bound(bound, particles),
            loss_log_lik=ledger.to_bound(_log_mean_exp(scaled), particles),
            surrogate=surrogate,
            without_kl_of=particles,
        )


@dataclass(frozen=True)
class WakeSleep(Bound):
    """Reweighted wake-sleep (Bornschein and Bengio 2015): one loss for the model and the inference network.

    loss = - sum_k v_k (log f_k + log p(z_k)) - sum_k v_k log q(z_k), with v_k the normalised importance weights,
    detached. Biased for finite K; the number it reports is the importance-weighted bound of the same samples. There is
    no KL in it, so the KL weight of the sampled site has no effect.
    """

    def credit(self, draw: Draw, log_lik: Tensor) -> Tensor:
        """The normalised importance weights."""
        return torch.softmax((_log_ratio(draw) + log_lik).detach(), dim=0)

    def __call__(self, evaluation: Evaluation, weights: Mapping[str, float] | None = None) -> Terms:
        """See `Bound`."""
        ledger = Ledger(evaluation, weights or {}, {})
        particles = _require_samples(ledger, "WakeSleep")
        log_lik, draw = ledger.joint(particles)
        if draw.score is None or draw.log_prior is None or draw.log_posterior is None:
            raise ValueError(
                f"WakeSleep wants hard samples, but the draw of site '{particles.name}' is differentiable; "
                "use ScoreFunction(num_samples, NoBaseline()) as its estimator."
            )
        share = self.credit(draw, log_lik)
        log_joint = weighted_sum(share.log(), log_lik + draw.log_prior)
        log_posterior = weighted_sum(share.log(), draw.log_posterior)
        bound = _log_mean_exp(log_lik + _log_ratio(draw))
        return ledger.terms(
            log_lik=ledger.to_bound(bound, particles),
            loss_log_lik=ledger.to_bound(log_joint + log_posterior, particles),
            without_kl_of=particles,
        )


def _log_prior_weight(draw: Draw) -> Tensor:
    """Log p(z_k) of enumerated particles, which sum to one under p where they were renormalised."""
    if draw.log_prior is None:
        return draw.log_weight
    if not draw.is_renormalised:
        return draw.log_prior
    total = torch.logsumexp(draw.log_prior, dim=0)
    return draw.log_prior - total.masked_fill(~torch.isfinite(total), 0.0)  # -inf - -inf is NaN


def _log_ratio(draw: Draw) -> Tensor:
    """Log p(z_k) - log q(z_k)."""
    if draw.log_prior is None or draw.log_posterior is None:
        return torch.zeros_like(draw.log_weight)
    return draw.log_prior - draw.log_posterior


def _log_mean_exp(log_weight: Tensor) -> Tensor:
    return torch.logsumexp(log_weight, dim=0) - math.log(log_weight.shape[0])


def _vimco_signal(log_weight: Tensor) -> Tensor:
    """(K, *unit) gain of the bound over the bound with sample k replaced by the geometric mean of the others."""
    num_samples = log_weight.shape[0]
    bound = _log_mean_exp(log_weight)
    if num_samples == 1:
        return bound.unsqueeze(0)
    is_nothing = torch.isneginf(log_weight)  # a sample under which the target is impossible; -inf - -inf is NaN
    finite = log_weight.masked_fill(is_nothing, 0.0)
    others = (finite.sum(dim=0) - finite) / (num_samples - 1)  # (K, *unit)
    others = others.masked_fill((is_nothing.sum(dim=0) - is_nothing.long()) > 0, -math.inf)
    eye = torch.eye(num_samples, dtype=torch.bool, device=log_weight.device)
    eye = eye.view(num_samples, num_samples, *([1] * (log_weight.dim() - 1)))
    replaced = torch.where(eye, others.unsqueeze(1), log_weight.unsqueeze(0))  # (K, K, *unit): row k without sample k
    without = torch.logsumexp(replaced, dim=1) - math.log(num_samples)
    return bound - without.masked_fill(torch.isneginf(without), 0.0)  # where all others are, any baseline is right


def _score_term(ledger: Ledger, latent: Latent) -> Tensor:
    """(*unit) sum_k w_k (reward_k - baseline_k) score_k, rewards and weights detached."""
    draw = latent.draw
    if draw.score is None:
        raise ValueError(f"site '{latent.name}' has no score")
    reward = ledger.reward(latent)
    baseline = torch.zeros_like(reward[:1])
    if draw.baseline_mixing is not None:
        log_lik = ledger.in_unit_of(latent).detach()
        # any baseline is right, and 0 * -inf is NaN
        log_lik = log_lik.masked_fill(~torch.isfinite(log_lik), 0.0)
        baseline = torch.tensordot(draw.baseline_mixing.to(log_lik.dtype), log_lik, dims=1)
    if draw.baseline_offset is not None:
        baseline = baseline + draw.baseline_offset
    return weighted_sum(draw.log_weight.detach(), (reward - baseline) * draw.score)


def _require_samples(ledger: Ledger, who: str) -> Latent:
    particles = ledger.particles(exact=True)
    if particles is None or particles.draw.log_posterior is None:
        raise ValueError(
            f"{who} needs a site with sampled particles and their log-probabilities; use ScoreFunction, or Pathwise "
            "with keeps_log_probs=True, as its estimator."
        )
    draw = particles.draw
    if draw.is_enumerated:
        raise ValueError(f"{who} weights samples, but site '{particles.name}' is enumerated; use Marginal for it.")
    if draw.has_baseline or draw.baseline_mixing is not None or draw.baseline_offset is not None:
        raise ValueError(
            f"{who} has a baseline of its own; give site '{particles.name}' the estimator "
            "ScoreFunction(num_samples, NoBaseline())."
        )
    if draw.log_prior is None:
        raise ValueError(f"{who} weights samples by p / q, but the draw of site '{particles.name}' has no log p")
    if draw.score is not None and particles.feeds_state and ledger.is_per_step(particles):
        raise ValueError(
            f"{who} credits a hard sample with its own step, but site '{particles.name}' feeds the recurrence, so its "
            "draws change later steps too. Use Elbo, which credits them with those, or feed the expected context "
            "(feeds_state=False)."
        )
    _require_no_other_score(ledger.evaluation, particles, who)
    return particles


def _require_no_other_score(evaluation: Evaluation, particles: Latent | None, who: str) -> None:
    """The score-function terms of a second site belong to an expectation of logarithms."""
    for latent in evaluation.latents:
        if latent is not particles and latent.draw.score is not None:
            raise ValueError(
                f"{who} gives the hard samples of site '{latent.name}' no gradient; use Elbo, or another estimator"
            )
