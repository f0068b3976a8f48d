"""Graph attention with random weights and exact KL in one pass over the edges, without a tensor of size E x D.

Size letters: N target nodes, M source nodes, E edges, H heads, D features of a head.
"""

import math

import torch
from torch import Tensor

from probattn.core.support import Segments
from probattn.distributions import Lognormal, NormalisedGamma, NormalisedLognormal, Weibull
from probattn.kernels import native
from probattn.kernels.graph_operator import LOGNORMAL, WEIBULL, attend
from probattn.kernels.graph_reference import Dropout, GraphContext, graph_attention_reference

__all__ = ["graph_attention"]

_EULER = 0.5772156649015329
_PRIOR_OF: dict[type, type] = {Weibull: NormalisedGamma, Lognormal: NormalisedLognormal}


def graph_attention(
    target_scores: Tensor,
    source_scores: Tensor,
    *,
    values: Tensor,
    support: Segments,
    family: Weibull | Lognormal | None = None,
    prior: NormalisedGamma | NormalisedLognormal | None = None,
    seed: Tensor | None = None,
    dropout: Dropout | None = None,
    negative_slope: float = 0.2,
    keeps_weights: bool = False,
) -> GraphContext:
    """Attend to the sources of each target's edges (Veličković et al. 2018; BAM, Sec. 4.1).

    An edge from j to i has the score phi = leaky_relu(target_scores_i + source_scores_j). The family makes it the law
    of an unnormalised S; the weights are S over its sum over the edges of i, drawn from `seed` with the noise of
    `NormalisedWeibull.draw_raw` and `NormalisedLognormal.draw_raw`, number by number.

    Runs in C++ on the CPU in float32 and float64 where the back end is there (see `native`), and in plain torch
    otherwise. The C++ form keeps the weights (E, H) for the backward pass and nothing larger, can be differentiated
    once, and gives the same bits for any number of threads.

    Args:
        target_scores: (N, H), the part of a score that depends on the target.
        source_scores: (M, H), the part that depends on the source; (E, H) where the support has no `source`.
        values: (M, H, D) what is read from a source; (E, H, D) where the support has no `source`.
        support: The edges; N sets. It keeps their sorted form, so use one object for all calls.
        family: Law of the weights; its parameter is one number or (H). None: soft attention without a law.
        prior: Its parameters have one row for each *source*, (M, H) or what broadcasts to it: a `GammaPrior` or
            `LognormalPrior` called with the (M, H) log-weights of nodes and `Dense()`. None: no KL.
        seed: () int64 of the noise. None: weights from S at its expectation.
        dropout: Of the normalised weights.
        negative_slope: Of the leaky ReLU, not negative.
        keeps_weights: Return the weights, too.

    Returns:
        Context, KL and, on request, weights. A target without edges has context and KL zero.

    Raises:
        TypeError: If the prior is not of the family's kind.
        ValueError: If shapes do not fit each other, or something needs a family and there is none.

    Example:
        >>> support = Segments(torch.tensor([0, 0, 1]), 3, source=torch.tensor([0, 1, 2]))
        >>> scores, values = torch.zeros(3, 1), torch.tensor([1.0, 3.0, 5.0]).view(3, 1, 1)
        >>> graph_attention(scores, scores, values=values, support=support).context.flatten()
        tensor([2., 5., 0.])
    """
    _check_shapes(target_scores, source_scores, values, support)
    _check_law(family, prior, seed, negative_slope)
    _check_prior(prior, source_scores)
    if not _is_native(target_scores, source_scores, values, family, prior, len(support.index)):
        return graph_attention_reference(
            target_scores,
            source_scores,
            values=values,
            support=support,
            family=family,
            prior=prior,
            seed=seed,
            dropout=dropout,
            negative_slope=negative_slope,
            keeps_weights=keeps_weights,
        )
    lists = support.edge_lists
    if lists.num_sources > len(values):
        raise ValueError(
            f"an edge names source {lists.num_sources - 1}, but there are only {len(values)} rows of values"
        )
    context, divergence, weights, _, _ = attend(
        target_scores,
        source_scores,
        values,
        lists.tensors(),
        None if family is None else _terms(family, prior, target_scores),
        None if prior is None else _prior_rows(prior, source_scores),
        seed,
        None if dropout is None else dropout.seed,
        LOGNORMAL if isinstance(family, Lognormal) else WEIBULL,
        family is not None and family.anchor == "softmax",
        0.0 if dropout is None else dropout.rate,
        negative_slope,
    )
    return GraphContext(context, divergence, lists.in_callers_order(weights) if keeps_weights else None)


def _terms(family: Weibull | Lognormal, prior: NormalisedGamma | NormalisedLognormal | None, like: Tensor) -> Tensor:
    """(4, H) what law and KL have per head; see `graph_attention_operator`."""
    if isinstance(family, Weibull):
        inverse = 1.0 / _number(family.concentration)
        log_rate = _log(_number(prior.rate)) if isinstance(prior, NormalisedGamma) else 0.0
        offset = _EULER * inverse + _lgamma(1.0 + inverse) - log_rate
        rows = (inverse, offset, -_log(inverse) - (_EULER + 1.0), log_rate)
    else:
        sigma = _number(family.sigma)
        sigma_of_prior = _number(prior.sigma) if isinstance(prior, NormalisedLognormal) else 1.0
        ratio = sigma / sigma_of_prior
        rows = (sigma, 0.5 * sigma**2, 0.5 * (ratio**2 - 1.0) - _log(ratio), 1.0 / sigma_of_prior)
    if not any(isinstance(row, Tensor) for row in rows):
        return like.new_tensor(rows).unsqueeze(-1).expand(-1, like.shape[-1])
    return torch.stack([torch.as_tensor(row, dtype=like.dtype).expand(like.shape[-1]) for row in rows])


def _number(parameter: Tensor | float) -> Tensor | float:
    """A single number as a float, which is faster to reckon with; not in compiled code, which cannot read a tensor."""
    is_learned_or_many = isinstance(parameter, Tensor) and (parameter.requires_grad or parameter.dim() > 0)
    return parameter if is_learned_or_many or torch.compiler.is_compiling() else float(parameter)


def _log(number: Tensor | float) -> Tensor | float:
    return number.log() if isinstance(number, Tensor) else math.log(number)


def _lgamma(number: Tensor | float) -> Tensor | float:
    return torch.lgamma(number) if isinstance(number, Tensor) else math.lgamma(number)


def _prior_rows(prior: NormalisedGamma | NormalisedLognormal, like: Tensor) -> Tensor:
    """(M, H), or (1, H) where all sources share a prior that is not learned."""
    rows = prior.concentration if isinstance(prior, NormalisedGamma) else prior.location
    is_shared = not rows.requires_grad and (rows.dim() < 2 or len(rows) == 1)
    return rows.expand(1 if is_shared else len(like), like.shape[1])


def _is_native(
    target_scores: Tensor,
    source_scores: Tensor,
    values: Tensor,
    family: Weibull | Lognormal | None,
    prior: NormalisedGamma | NormalisedLognormal | None,
    num_edges: int,
) -> bool:
    """Whether C++ can do it: one floating type on the CPU, and parameters that have one row per head."""
    tensors = [target_scores, source_scores, values]
    parameters: list[Tensor | float] = []
    if family is not None:
        parameters.append(family.concentration if isinstance(family, Weibull) else family.sigma)
    if isinstance(prior, NormalisedGamma):
        tensors.append(prior.concentration)
        parameters.append(prior.rate)
    elif prior is not None:
        tensors.append(prior.location)
        parameters.append(prior.sigma)
    heads = values.shape[1]
    num_numbers = num_edges * heads * values.shape[2]
    per_head = all(not isinstance(one, Tensor) or one.shape in ((), (1,), (heads,)) for one in parameters)
    dtypes = {one.dtype for one in tensors}
    is_known = dtypes in ({torch.float32}, {torch.float64})
    return per_head and is_known and all(one.is_cpu for one in tensors) and native.is_active(work=num_numbers)


def _check_shapes(target_scores: Tensor, source_scores: Tensor, values: Tensor, support: Segments) -> None:
    num_rows = len(support.index) if support.source is None else None
    fits = values.dim() == 3 and source_scores.shape == values.shape[:2]
    fits = fits and target_scores.shape == (support.num_segments, values.shape[1])
    if not fits or (num_rows is not None and len(values) != num_rows):
        raise ValueError(
            f"expected target_scores ({support.num_segments}, H), source_scores ({num_rows or 'M'}, H) and values "
            f"({num_rows or 'M'}, H, D), got {tuple(target_scores.shape)}, {tuple(source_scores.shape)} and "
            f"{tuple(values.shape)}"
        )


def _check_law(
    family: Weibull | Lognormal | None,
    prior: NormalisedGamma | NormalisedLognormal | None,
    seed: Tensor | None,
    negative_slope: float,
) -> None:
    if negative_slope < 0.0:
        raise ValueError(f"negative_slope must not be negative, got {negative_slope}")
    if family is None:
        if prior is not None or seed is not None:
            raise ValueError("a prior or a seed needs a family: soft attention has no law to compare or draw from")
        return
    if type(family) not in _PRIOR_OF:
        raise TypeError(f"family must be Weibull, Lognormal or None, got {type(family).__name__}")
    if family.anchor not in ("exp", "softmax"):
        raise ValueError(f"anchor must be 'exp' or 'softmax', got {family.anchor!r}")
    expected = _PRIOR_OF[type(family)]
    if prior is not None and not isinstance(prior, expected):
        raise TypeError(
            f"the KL of {type(family).__name__} weights is known for a {expected.__name__} prior, got "
            f"{type(prior).__name__}"
        )


def _check_prior(prior: NormalisedGamma | NormalisedLognormal | None, like: Tensor) -> None:
    if prior is None:
        return
    rows = prior.concentration if isinstance(prior, NormalisedGamma) else prior.location
    sizes = zip(reversed(rows.shape), reversed(like.shape), strict=False)
    if rows.dim() > 2 or any(own not in (1, size) for own, size in sizes):
        raise ValueError(
            f"the prior has one row for each source, {tuple(like.shape)} or what broadcasts to it, got "
            f"{tuple(rows.shape)}; call its family with the log-weights of nodes and Dense()"
        )
