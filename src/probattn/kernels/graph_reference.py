"""Graph attention in plain torch: the meaning of `graph_attention`, and what runs without a compiler.

Size letters: N target nodes, M source nodes, E edges, H heads, D features of a head.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from probattn.core.noise import uniform
from probattn.core.records import Draw
from probattn.core.support import Segments
from probattn.distributions import Lognormal, NormalisedGamma, NormalisedLognormal, Weibull, kl

__all__ = ["Dropout", "GraphContext", "graph_attention_reference"]

# Stream 0 is the noise of the weights.
_DROPOUT_STREAM = 1


@dataclass(frozen=True)
class Dropout:
    """Dropout of weights as a function of a seed and a position, so that it can be made again.

    Attributes:
        rate: Share of the weights that is set to zero.
        seed: () int64; may be that of the noise, from which the mask is independent.
    """

    rate: float
    seed: Tensor

    def __post_init__(self) -> None:
        if not 0.0 <= self.rate < 1.0:
            raise ValueError(f"Dropout(rate) is a share of the weights, at least 0 and below 1, got {self.rate}")

    def factors(self, like: Tensor) -> Tensor:
        """(E, H) zero for what is dropped, else 1 / (1 - rate), in the dtype of weights (E, H)."""
        numbers = uniform(self.seed, (1, *like.shape), stream=_DROPOUT_STREAM)[0]
        return (numbers >= self.rate).to(like.dtype) / (1.0 - self.rate)


@dataclass(frozen=True)
class GraphContext:
    """What one call of graph attention gives.

    Attributes:
        context: (N, H, D).
        kl: (N, H) KL(q || p) summed over the edges of a target; zero without a prior.
        weights: (E, H) before dropout, in the caller's order of edges; None unless asked for.
    """

    context: Tensor
    kl: Tensor
    weights: Tensor | None


def graph_attention_reference(
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
    """The same as `graph_attention`, argument by argument, from supports, families and the registered KLs."""
    own_source = _to_edges(source_scores, support)
    scores = torch.nn.functional.leaky_relu(support.spread(target_scores) + own_source, negative_slope)  # (E, H)
    divergence = torch.zeros_like(target_scores)
    if family is None:
        weights = support.log_softmax(scores).exp()
    else:
        posterior = family(scores, support)
        weights = posterior.plug_in if seed is None else posterior.realise(posterior.draw_raw(1, seed))[0]
        if prior is not None:
            divergence = kl(posterior, prior_of_edges(prior, source_scores, support))
    kept = weights if dropout is None else weights * dropout.factors(weights)
    draw = Draw(value=kept.unsqueeze(0), index=None, log_weight=kept.new_zeros(1))
    return GraphContext(support.read(draw, values)[0], divergence, weights if keeps_weights else None)


def prior_of_edges(
    prior: NormalisedGamma | NormalisedLognormal, like: Tensor, support: Segments
) -> NormalisedGamma | NormalisedLognormal:
    """The prior of each source, (M, H) or what broadcasts to it, as a prior of the edges.

    Args:
        prior: One row for each source.
        like: (M, H).
        support: The edges.
    """
    if isinstance(prior, NormalisedGamma):
        shape = _to_edges(prior.concentration.expand_as(like), support)
        return NormalisedGamma(shape, prior.rate, support=support)
    return NormalisedLognormal(_to_edges(prior.location.expand_as(like), support), prior.sigma, support=support)


def _to_edges(rows: Tensor, support: Segments) -> Tensor:
    """(E, H) the rows of each edge's source."""
    return rows if support.source is None else rows.index_select(0, support.source)
