"""Dense attention with random weights and its exact KL, with memory that is linear in the number of keys.

Size letters: K draws, B batch, H heads, G heads of keys, T queries, S keys, D features, Dv features of a value.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from probattn.core.checks import require_finite
from probattn.distributions import GumbelSoftmax, Lognormal, Weibull
from probattn.kernels.attention_chunked import AttentionCall, finite
from probattn.kernels.attention_flex import attend_flex, misfit
from probattn.kernels.attention_operator import attend
from probattn.kernels.attention_plan import AttentionLaw, AttentionPlan, DensePrior, knows_kl, plan
from probattn.kernels.graph_reference import Dropout
from probattn.kernels.set_prior import SetPrior, Sight

__all__ = [
    "SampledContext",
    "attend_planned",
    "attention_plan",
    "check_laws",
    "check_shapes",
    "sampled_attention",
    "sight_of",
]


@dataclass(frozen=True)
class SampledContext:
    """What one call gives.

    Attributes:
        context: (K, B, H, T, Dv) of each draw; zeros where a query sees nothing.
        kl: (B, H, T) KL(q || p) summed over the keys that a query sees; zero without a prior.
    """

    context: Tensor
    kl: Tensor


def sampled_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    family: AttentionLaw | None = None,
    prior: DensePrior | None = None,
    seed: Tensor | None = None,
    num_draws: int = 1,
    mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    dropout: Dropout | None = None,
) -> SampledContext:
    """Attend with weights softmax(phi + noise), phi = scale * query . key, without keeping a T x S matrix.

    Weights and KL are those of `family(scores, Dense(mask))` and of its registered KL to the prior; noise is that of
    `draw_raw`, number by number, as a function of (seed, draw, example, head, query, key) alone. Runs in C++ on the CPU
    in float32, bfloat16 and float16 (sums in float32), where the back end is there (see `native`); on CUDA by
    `flex_attention` where it fits (see `attention_flex`); and in plain torch a few queries at a time otherwise. It can
    be differentiated once, with respect to query, key, value, the parameters of the prior and those of the family, but
    not to a float mask, and gives the same bits for any number of threads.

    Several draws share the scores and the KL.

    Args:
        query: (B, H, T, D).
        key: (B, G, S, D); H is a multiple of G, and H / G heads of queries share a head of keys.
        value: (B, G, S, Dv).
        family: Weibull, Lognormal or GumbelSoftmax; its parameter is one number or (H, 1, 1). None: soft attention.
        prior: Its parameters broadcast to (B, H, 1, S), one row for all queries; or a `SetPrior`, where the mask is
            causal but for keys that are hidden from all queries. None: no KL.
        seed: () int64 of the noise. None: weights from S at its expectation.
        num_draws: K.
        mask: Bool (True: may look) or float (added to the scores), broadcastable to (B, H, T, S). Keys and values that
            no query sees must be finite nevertheless (see `Dense.zero_unseen`).
        is_causal: Query t sees keys up to t.
        scale: 1 / sqrt(D) by default.
        dropout: Of the normalised weights.

    Raises:
        TypeError: If the family or the prior is of a kind that this function does not know, or a dtype is.
        ValueError: If shapes do not fit, if a law needs all scores at once, or if a score is NaN or +inf.

    Example:
        >>> from probattn.distributions import Weibull
        >>> x = torch.ones(1, 2, 3, 4)
        >>> made = sampled_attention(x, x, x, family=Weibull(10.0), seed=torch.tensor(0), num_draws=5)
        >>> made.context.shape, made.kl.shape
        (torch.Size([5, 1, 2, 3, 4]), torch.Size([1, 2, 3]))
    """
    check_shapes(query, key, value, mask, num_draws=num_draws)
    check_laws(family, prior, seed)
    sight = sight_of(query, mask, is_causal=is_causal)
    made = attention_plan(query, key, family=family, prior=prior, is_noisy=seed is not None, sight=sight)
    if made is None:
        raise ValueError(
            "parameters of family and prior must be one number or (H, 1, 1), and a prior must have one row for all "
            "queries, (B, H, 1, S), or be a SetPrior under a causal mask; use probattn.scaled_dot_product_attention "
            "for laws that need all scores"
        )
    return attend_planned(
        (query, key, value),
        made,
        seed=seed,
        num_draws=num_draws,
        mask=mask,
        is_causal=is_causal,
        scale=scale,
        dropout=dropout,
    )


def attend_planned(
    rows: tuple[Tensor, Tensor, Tensor],
    made: AttentionPlan,
    *,
    seed: Tensor | None,
    num_draws: int = 1,
    mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    dropout: Dropout | None,
) -> SampledContext:
    """`sampled_attention` after its checks, with laws as a plan.

    Args:
        rows: Query, key and value.
        made: From `attention_plan`.
        seed: See `sampled_attention`; like the others.
        num_draws: K.
        mask: None: no mask.
        is_causal: Query t sees keys up to t.
        scale: None: 1 / sqrt(D).
        dropout: None: no dropout.
    """
    query, key, value = rows
    call = AttentionCall(
        query=query,
        key=key,
        value=value,
        mask=None if mask is None else _four_axes(mask),
        weight=made.weight,
        constant=made.constant,
        noise_scale=made.noise_scale,
        seed=seed,
        dropout_seed=None if dropout is None else dropout.seed,
        shift=made.shift,
        switches=(made.noise, made.prior, int(made.is_softmax_anchor), int(is_causal), num_draws),
        numbers=(
            1.0 / math.sqrt(max(1, query.shape[-1])) if scale is None else scale,
            made.sharpness,
            0.0 if dropout is None else dropout.rate,
        ),
    )
    context, log_normaliser, core, log_noisy = attend_flex(call) if misfit(call) is None else attend(call)[:4]
    # -inf is the sum of a query that sees nothing.
    advice = "Look for a NaN or an infinity in query, key or mask."
    require_finite(finite(log_noisy.detach()), "logsumexp of attention scores", advice)
    kl = made.kl(core, log_normaliser) if made.prior else query.new_zeros(query.shape[:3], dtype=log_noisy.dtype)
    return SampledContext(context, kl)


def sight_of(query: Tensor, mask: Tensor | None, *, is_causal: bool) -> Sight | None:
    """What queries see, where that is causal but for keys that are hidden from all of them; else None.

    Args:
        query: (B, H, T, D).
        mask: See `sampled_attention`.
        is_causal: Query t sees keys up to t.
    """
    if not is_causal:
        return None
    if mask is None:
        return Sight(query.shape[2])
    mask = _four_axes(mask)
    if mask.shape[2] != 1:
        return None
    return Sight(query.shape[2], (mask if mask.dtype == torch.bool else mask > -torch.inf).squeeze(2))


def _four_axes(mask: Tensor) -> Tensor:
    return mask.view(*([1] * (4 - mask.dim())), *mask.shape)


def attention_plan(
    query: Tensor,
    key: Tensor,
    *,
    family: AttentionLaw | None,
    prior: DensePrior | None,
    is_noisy: bool,
    sight: Sight | None = None,
) -> AttentionPlan | None:
    """What `sampled_attention` hands to its back ends; None where a law needs all scores at once.

    Args:
        query: (B, H, T, D).
        key: (B, G, S, D).
        family: See `sampled_attention`; like `prior`.
        prior: None for no KL.
        is_noisy: Whether weights are drawn.
        sight: Of `sight_of`; for a prior over sets.
    """
    like = torch.empty((), dtype=torch.promote_types(query.dtype, torch.float32), device=query.device)
    shape = (*query.shape[:2], key.shape[2])
    return plan(family, prior, is_noisy=is_noisy, shape=shape, like=like, sight=sight if shape[2] > 0 else None)


def check_shapes(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, num_draws: int = 1) -> None:
    """Raise where `sampled_attention` does because of tensors."""
    fits = query.dim() == key.dim() == value.dim() == 4 and query.shape[-1] == key.shape[-1]
    fits = fits and key.shape[:3] == value.shape[:3] and query.shape[0] == key.shape[0]
    if not fits or key.shape[1] == 0 or query.shape[1] % key.shape[1] != 0:
        raise ValueError(
            "expected query (B, H, T, D), key (B, G, S, D) and value (B, G, S, Dv) with H a multiple of G, got "
            f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}"
        )
    if not all(one.is_floating_point() for one in (query, key, value)):
        raise TypeError(f"query, key and value must be float, got {query.dtype}, {key.dtype} and {value.dtype}")
    if num_draws < 1:
        raise ValueError(f"num_draws must be at least 1, got {num_draws}")
    if mask is None:
        return
    sizes = zip(reversed(mask.shape), reversed((*query.shape[:3], key.shape[2])), strict=False)
    if mask.dim() > 4 or any(own not in (1, size) for own, size in sizes):
        raise ValueError(
            f"a mask must broadcast to (B, H, T, S) = {(*query.shape[:3], key.shape[2])}, got {tuple(mask.shape)}"
        )
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(f"a mask is bool (True: may look) or float (added to the scores), got {mask.dtype}")
    if mask.requires_grad:
        raise ValueError("a float mask gets no gradient here; use probattn.scaled_dot_product_attention for one")


def check_laws(family: object, prior: object, seed: Tensor | None) -> None:
    """Raise where `sampled_attention` does because of family, prior or seed."""
    if family is not None and not isinstance(family, AttentionLaw):
        raise TypeError(f"family must be Weibull, Lognormal, GumbelSoftmax or None, got {type(family).__name__}")
    if prior is not None and not knows_kl(family, prior):
        raise TypeError(
            "a KL is known for Weibull with a NormalisedGamma prior and for Lognormal with a NormalisedLognormal one, "
            f"got {type(family).__name__} and {type(prior.family if isinstance(prior, SetPrior) else prior).__name__}"
        )
    if isinstance(family, GumbelSoftmax) and not family.temperature > 0.0:
        raise ValueError(f"GumbelSoftmax(temperature) must be positive, got {family.temperature}")
    if isinstance(family, Weibull | Lognormal) and family.anchor not in ("exp", "softmax"):
        raise ValueError(f"anchor must be 'exp' or 'softmax', got {family.anchor!r}")
    if seed is not None and not (isinstance(seed, Tensor) and seed.dtype == torch.int64 and seed.numel() == 1):
        raise TypeError(f"a seed is an int64 tensor with one number, e.g. torch.tensor(3), got {seed!r}")
