"""Scaled dot-product attention with random weights: torch's signature plus a family and a prior.

Size letters: B batch, H heads, T queries, S keys, D features.
"""

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from probattn.core.checks import require_finite, require_no_nan
from probattn.core.estimators import Estimator, Mean, Pathwise
from probattn.core.noise import fresh_seed
from probattn.core.protocols import LatentDistribution
from probattn.core.records import Draw, Given, Latent, Memory
from probattn.core.support import Dense
from probattn.distributions import Categorical, Family
from probattn.nn.conditionals import Conditional, FromScores
from probattn.nn.fused_attention import AttentionInputs, fused_attention
from probattn.nn.masks import hidden_by, with_infinities
from probattn.nn.parts import require_conditional, require_family
from probattn.nn.site import Replay, divergence

__all__ = ["AttentionResult", "draw_weights", "scaled_dot_product_attention"]


@dataclass(frozen=True)
class AttentionResult:
    """What one call of attention gives back.

    Attributes:
        context: (*lead, T, Dv).
        kl: (*lead, T) KL of the weights' posterior to their prior in nats; zero without a prior. Not reduced.
        weights: (*lead, T, S) the weights that were used, or None where they were not asked for.
        latent: The receipt, which `Elbo` and the other bounds read.
    """

    context: Tensor
    kl: Tensor
    weights: Tensor | None
    latent: Latent


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    family: Family | None = None,
    prior: Conditional | None = None,
    estimator: Estimator | None = None,
    need_weights: bool = False,
    query_mask: Tensor | None = None,
    seed: Tensor | None = None,
    name: str = "attention",
) -> AttentionResult:
    """`torch.nn.functional.scaled_dot_product_attention` with a distribution over the weights.

    Without a family this is torch's function. With one, weights are drawn from family(scores), and the KL to the
    prior is returned per query. A query that may see nothing reads zeros. Unlike torch's, `dropout_p` acts whenever
    it is positive, as documented there, so pass 0 in evaluation. Where weights are not asked for, a kernel does
    without a matrix of them (see `nn/fused_attention.py`); the receipt then has no draw, but the seed to draw it again.

    Args:
        query: (*lead, T, D).
        key: (*lead, S, D).
        value: (*lead, S, Dv).
        attn_mask: Bool (True: may look) or float (added to the scores), broadcastable to (*lead, T, S). Where weights
            are random, a float of -1e4 or less hides a position as -inf does: it is not in the KL.
        dropout_p: Dropout of the weights.
        is_causal: Query t sees keys up to t. Not together with `attn_mask`.
        scale: Factor of the scores; 1/sqrt(D) by default.
        enable_gqa: Fewer key heads than query heads (axis -3).
        family: Weibull(...), Lognormal(...), GumbelSoftmax(...), Dirichlet(), Categorical(); None for soft attention.
        prior: A conditional such as KeyPrior or Fixed; None for no KL.
        estimator: One particle: Pathwise() where there is a family, Mean() where there is none; ScoreFunction(1,
            NoBaseline()) for Categorical().
        need_weights: Return the weights.
        query_mask: Bool, broadcastable to (*lead, T); False for padded queries, whose KL is zero.
        seed: () int64; drawn from torch's generator if absent.
        name: Name of the site in the receipt.

    Example:
        >>> import probattn
        >>> q = k = v = torch.ones(1, 2, 3, 4)
        >>> result = scaled_dot_product_attention(q, k, v, family=probattn.Weibull(concentration=10.0))
        >>> result.context.shape, result.kl.shape
        (torch.Size([1, 2, 3, 4]), torch.Size([1, 2, 3]))
    """
    _check_inputs(query, key, value, attn_mask, is_causal, enable_gqa)
    _check_masks(query, query if enable_gqa else key, key.shape[-2], attn_mask=attn_mask, query_mask=query_mask)
    estimator = _chosen_estimator(estimator, family, prior)
    seed = fresh_seed(query.device) if seed is None else seed
    attn_mask, query_mask = _hiding(attn_mask, query_mask, family=family, keeps_rows=isinstance(estimator, Mean))
    if not need_weights and (enable_gqa or query.shape[:-2] == key.shape[:-2]):
        inputs = AttentionInputs(query, key, value, attn_mask, is_causal, scale, dropout_p)
        fused = fused_attention(inputs, family=family, prior=prior, estimator=estimator, seed=seed)
        if fused is not None:
            kl = _checked(fused.kl, prior, query_mask)
            log_weight = kl.detach().new_zeros(1, *kl.shape)
            draw = Draw(value=None, index=None, log_weight=log_weight)
            return AttentionResult(fused.context, kl, None, _receipt(name, draw, kl, seed, query_mask))
    if enable_gqa:
        key, value = _repeat_heads(key, query), _repeat_heads(value, query)
    support = Dense(_mask(query, key, attn_mask, is_causal))
    key, value = support.zero_unseen(key), support.zero_unseen(value)
    scale = 1.0 / math.sqrt(max(1, query.shape[-1])) if scale is None else scale
    scores = torch.matmul(query * scale, key.transpose(-2, -1))
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        scores = scores + support.fill_outside(attn_mask, 0.0)
    memory = Memory(keys=key, values=value, support=support)
    given = Given(memory=memory, query=query, scores=scores)
    made = draw_weights(given, Categorical() if family is None else family, prior, estimator, seed)
    weights = _single_weights(made.draw, memory, scores)
    if dropout_p > 0.0:
        weights = torch.nn.functional.dropout(weights, dropout_p)
    context = torch.matmul(weights.to(value.dtype), value)
    kl = _checked(divergence(made, name), prior, query_mask)
    latent = _receipt(name, made.draw, kl, seed, query_mask)
    return AttentionResult(context=context, kl=kl, weights=weights if need_weights else None, latent=latent)


def draw_weights(given: Given, family: Family, prior: Conditional | None, estimator: Estimator, seed: Tensor) -> Replay:
    """Posterior, prior and draw of the weights, without building a site for every call.

    Args:
        given: Memory and scores.
        family: Of the posterior.
        prior: None for none.
        estimator: How to draw.
        seed: () int64.
    """
    posterior = FromScores.distribution(family, given)
    prior_distribution = None if prior is None else prior(given)
    p = cast("LatentDistribution | None", prior_distribution)
    return Replay(posterior, prior_distribution, estimator(cast(LatentDistribution, posterior), p, seed))


def _checked(kl: Tensor, prior: Conditional | None, query_mask: Tensor | None) -> Tensor:
    """The KL with zeros for padded queries; an overflow is told here."""
    kl = kl if query_mask is None else kl.masked_fill(~query_mask, 0.0)
    if prior is not None:
        require_finite(kl.detach(), "the KL of the attention weights", "Use anchor='softmax', or smaller scores.")
    return kl


def _receipt(name: str, draw: Draw, kl: Tensor, seed: Tensor, query_mask: Tensor | None) -> Latent:
    # In a stack of layers a draw can change every output of its example, so that is what it is credited with.
    mask = None if query_mask is None else query_mask.expand_as(kl)
    return Latent(name=name, unit="example", feeds_state=True, draw=draw, kl=kl, seed=seed, mask=mask)


def _chosen_estimator(estimator: Estimator | None, family: Family | None, prior: Conditional | None) -> Estimator:
    """The estimator, or the default one of a law that has been looked at."""
    require_family(family, "scaled_dot_product_attention(family)")
    require_conditional(prior, "scaled_dot_product_attention(prior)")
    if estimator is not None:
        return estimator
    return Mean() if family is None else Pathwise(keeps_log_probs=False)


def _hiding(
    attn_mask: Tensor | None, query_mask: Tensor | None, *, family: Family | None, keeps_rows: bool
) -> tuple[Tensor | None, Tensor | None]:
    """The masks with -inf where a float hides a position from a family.

    Plug-in weights are to be torch's to the last bit, also where large finite numbers hide all that a query could see
    (padding, most often): torch's softmax is even there. Such a row stays as it is then, and has no KL.
    """
    if family is None or attn_mask is None or attn_mask.dtype == torch.bool:
        return attn_mask, query_mask
    if not keeps_rows:
        return with_infinities(attn_mask), query_mask
    hidden = hidden_by(attn_mask)
    is_whole = hidden.all(dim=-1, keepdim=True) & (attn_mask > -torch.inf).any(dim=-1, keepdim=True)
    seen = ~is_whole.squeeze(-1)
    query_mask = seen if query_mask is None else query_mask & seen
    return attn_mask.masked_fill(hidden & ~is_whole, -torch.inf), query_mask


def _mask(query: Tensor, key: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor | None:
    """Bool, True where a query may look; None: everywhere."""
    if is_causal:
        return torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    if attn_mask is None or attn_mask.dtype == torch.bool:
        return attn_mask
    return attn_mask > -torch.inf


def _single_weights(draw: Draw, memory: Memory, scores: Tensor) -> Tensor:
    if draw.num_particles != 1:
        raise ValueError(
            f"scaled_dot_product_attention uses one particle, the estimator gave {draw.num_particles}. Use one sample "
            "without an extra baseline particle, or probattn.nn.Attention, whose readout runs over particles."
        )
    if draw.value is not None:
        return draw.value[0]
    if draw.index is None:
        raise ValueError("the draw has neither a value nor positions")
    return memory.support.scatter(draw.index, scores)[0]


def _check_masks(
    query: Tensor, other: Tensor, keys: int, *, attn_mask: Tensor | None, query_mask: Tensor | None
) -> None:
    """A mask with more axes, or larger ones, would give a context of another shape; other: with the keys' lead axes."""
    if attn_mask is None and query_mask is None:
        return
    unit = (*torch.broadcast_shapes(query.shape[:-2], other.shape[:-2]), query.shape[-2])
    if attn_mask is not None and not _broadcasts(attn_mask, (*unit, keys)):
        raise ValueError(f"attn_mask must broadcast to (*lead, T, S) = {(*unit, keys)}, got {tuple(attn_mask.shape)}")
    if query_mask is not None and not (query_mask.dtype == torch.bool and _broadcasts(query_mask, unit)):
        raise ValueError(
            f"query_mask must be bool, False for padded queries, and broadcast to (*lead, T) = {unit}, got "
            f"{query_mask.dtype} {tuple(query_mask.shape)}"
        )


def _broadcasts(mask: Tensor, shape: tuple[int, ...]) -> bool:
    sizes = zip(reversed(mask.shape), reversed(shape), strict=False)
    return mask.dim() <= len(shape) and all(own in (1, size) for own, size in sizes)


def _check_groups(query: Tensor, key: Tensor) -> None:
    heads, groups = query.shape[-3], key.shape[-3]
    if groups == 0 or heads % groups != 0:
        raise ValueError(f"enable_gqa needs query heads to be a multiple of key heads, got {heads} and {groups}")


def _repeat_heads(x: Tensor, query: Tensor) -> Tensor:
    return x.repeat_interleave(query.shape[-3] // x.shape[-3], dim=-3)


def _check_inputs(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, is_causal: bool, enable_gqa: bool
) -> None:
    if query.dim() < 2 or key.dim() < 2 or query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ValueError(
            "expected query (*lead, T, D), key (*lead, S, D) and value (*lead, S, Dv), got "
            f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}"
        )
    if enable_gqa:
        _check_groups(query, key)
    if attn_mask is not None and is_causal:
        raise ValueError("pass either attn_mask or is_causal=True, not both; fold the causal mask into attn_mask")
    if attn_mask is not None and not (attn_mask.dtype == torch.bool or attn_mask.is_floating_point()):
        raise TypeError(f"attn_mask must be bool or float, got {attn_mask.dtype}")
    if attn_mask is not None:
        require_no_nan(attn_mask.detach(), "attn_mask", "Use -inf for positions that may not be seen.")
