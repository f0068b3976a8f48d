"""A visit to a site of graph attention in one pass over the edges, where a kernel can do it.

The receipt then holds no weights: the kernel forms context and KL without keeping them. Everything else (other
families and priors, several particles, densities of the draws, no C++ back end) goes the way of all sites.
"""

import math

import torch
from torch import Tensor

from probattn.core.checks import require_finite
from probattn.core.estimators import Estimator, Mean, Pathwise
from probattn.core.noise import fresh_seed
from probattn.core.records import Draw, Latent
from probattn.core.support import Dense, Segments
from probattn.distributions import Categorical, Lognormal, NormalisedGamma, NormalisedLognormal, Weibull
from probattn.kernels import native
from probattn.kernels.graph_attention import graph_attention
from probattn.kernels.graph_reference import Dropout as DropoutOfWeights
from probattn.kernels.key_logits import key_logits
from probattn.nn.conditionals import Conditional, Fixed, FromScores, KeyPrior
from probattn.nn.dropout import Dropout
from probattn.nn.scores import GraphAdditive
from probattn.nn.site import Site

__all__ = ["dropout_factors", "visit_fused"]

_ADVICE = "Look for a NaN or an infinity in the features, or for a learning rate that is too large."


def visit_fused(
    site: Site,
    estimator: Estimator,
    *,
    nodes: Tensor,
    support: Segments,
    score: GraphAdditive,
    dropout: Dropout,
    seed: Tensor | None,
    has_kl: bool = True,
) -> tuple[Tensor, Latent] | None:
    """Context and receipt of a visit with the site's posterior; None where no kernel fits.

    Args:
        site: Of the attention weights.
        estimator: `Mean`, or `Pathwise` with one particle whose densities are not asked for.
        nodes: (N, H, D) queries, keys and values at once.
        support: Edges between them.
        score: Of an edge.
        dropout: Of the weights; its mask is a function of the seed.
        seed: () int64; drawn from torch's generator if absent.
        has_kl: False: predictions, which need no KL; the receipt's is zero.
    """
    has_noise = isinstance(estimator, Pathwise)
    law = _law(site, has_noise=has_noise)
    if law is None or not _is_simple(estimator) or not _fits(nodes, support, dropout):
        return None
    if not native.is_active(work=len(support.index) * math.prod(nodes.shape[1:])):
        return None
    family, prior = law
    rows = None if prior is None or not has_kl else _prior_of_nodes(prior, nodes)
    seed = fresh_seed(nodes.device) if seed is None else seed
    is_dropping = dropout.training and dropout.p > 0.0
    target, source = score.parts(nodes, nodes)
    for part in (target, source):
        require_finite(part.detach(), "attention scores", _ADVICE)
    made = graph_attention(
        target,
        source,
        values=nodes,
        support=support,
        family=family,
        prior=rows,
        seed=seed if has_noise else None,
        dropout=DropoutOfWeights(dropout.p, seed) if is_dropping else None,
        negative_slope=score.negative_slope,
    )
    draw = Draw(value=None, index=None, log_weight=torch.zeros_like(made.kl).unsqueeze(0))
    receipt = Latent(name=site.name, unit=site.unit, feeds_state=site.feeds_state, draw=draw, kl=made.kl, seed=seed)
    return made.context, receipt


def dropout_factors(like: Tensor, rate: float, seed: Tensor) -> Tensor:
    """(E, H) factors of dropped and kept weights, the same as in the kernel: a function of the seed.

    Args:
        like: (E, H) weights.
        rate: Share that is dropped; 1 drops all.
        seed: () int64 of the visit.
    """
    return torch.zeros_like(like) if rate == 1.0 else DropoutOfWeights(rate, seed).factors(like)


def _law(site: Site, *, has_noise: bool) -> tuple[Weibull | Lognormal | None, Conditional | None] | None:
    """Family and prior of the weights, if the kernel knows them; (None, None) is soft attention."""
    if site.keeps_kl_terms:
        return None
    if site.posterior is None:
        # by exact type, here and below: a subclass may do something else
        is_soft = type(site.prior) is FromScores and type(site.prior.family) is Categorical
        return (None, None) if is_soft and not has_noise else None
    family = site.posterior.family if type(site.posterior) is FromScores else None
    if not isinstance(family, Weibull | Lognormal) or type(family) not in (Weibull, Lognormal):
        return None
    prior = site.prior
    is_of_sources = type(prior) is KeyPrior and prior.normalises == "memory"
    return (family, prior) if prior is None or type(prior) is Fixed or is_of_sources else None


def _is_simple(estimator: Estimator) -> bool:
    if type(estimator) is Pathwise:
        return estimator.num_samples == 1 and not estimator.keeps_log_probs
    return type(estimator) is Mean


def _fits(nodes: Tensor, support: Segments, dropout: Dropout) -> bool:
    is_known = nodes.is_cpu and nodes.dtype in (torch.float32, torch.float64)
    return is_known and support.source is not None and not (dropout.training and dropout.p == 1.0)


def _prior_of_nodes(prior: Conditional, nodes: Tensor) -> NormalisedGamma | NormalisedLognormal:
    """(N, H), or what broadcasts to it: the prior of a weight depends on its source alone."""
    if isinstance(prior, KeyPrior):
        keys = nodes.detach() if prior.detaches_keys else nodes
        logits = key_logits(keys, prior.hidden_weight, prior.hidden_bias, prior.out_weight)
        logits = prior.logits(keys, head_axis=-2) if logits is None else logits
        log_psi = torch.log_softmax(logits, dim=0)
        log_psi = log_psi if prior.scale == 1.0 else log_psi + math.log(prior.scale)
    elif isinstance(prior, Fixed):
        log_psi = nodes.new_full((1, nodes.shape[1]), prior.psi).log()
    else:
        raise TypeError(f"{type(prior).__name__} is no prior of nodes")
    made = prior.family(log_psi, Dense())
    if not isinstance(made, NormalisedGamma | NormalisedLognormal):
        raise TypeError(f"{type(made).__name__} is no prior of Weibull or lognormal weights")
    return made
