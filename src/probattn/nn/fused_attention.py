"""When dot-product attention can do without a matrix of weights, and how.

`scaled_dot_product_attention` asks here first. The kernel serves one draw, or the plug-in weights, of laws that it
knows, where nobody wants to see the weights. Without the C++ back end the same work is done by torch a few queries at a
time, which saves memory but no time, so there it is used for large matrices alone.

Size letters: T queries, S keys, D features.
"""

import math
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from probattn.core.checks import is_transformed
from probattn.core.estimators import Estimator, Mean, Pathwise
from probattn.core.noise import fresh_seed
from probattn.core.records import Memory
from probattn.core.support import Dense
from probattn.distributions import (
    Family,
    GumbelSoftmax,
    Lognormal,
    NormalisedGamma,
    NormalisedLognormal,
    Weibull,
)
from probattn.kernels import Dropout, is_active
from probattn.kernels.attention import attend_planned, attention_plan, check_laws, check_shapes, sight_of
from probattn.kernels.attention_plan import AttentionLaw, DensePrior
from probattn.nn.conditionals import Conditional

__all__ = ["AttentionInputs", "fused_attention"]

# Scores in one call from which plain torch works through them in chunks: 64 MB in float32 for every tensor of theirs.
_MANY_SCORES = 2**24
_NATIVE_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class AttentionInputs:
    """Arguments of `scaled_dot_product_attention` that say what is attended to; see there."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    is_causal: bool
    scale: float | None
    dropout: float

    @property
    def lead(self) -> torch.Size:
        """Axes before queries and features."""
        return self.query.shape[:-2]

    def has_plain_shapes(self) -> bool:
        """Whether query, key and value have the same lead axes, up to grouped heads."""
        leads = {self.query.shape[:-3], self.key.shape[:-3], self.value.shape[:-3]}
        dims = {self.query.dim(), self.key.dim(), self.value.dim()}
        is_known = len(leads) == 1 and len(dims) == 1 and dims <= {3, 4}
        return is_known and (
            self.query.dim() == 4 or len({x.shape[0] for x in (self.query, self.key, self.value)}) == 1
        )

    def sees_alike(self) -> bool:
        """Whether all queries see the same keys."""
        return not self.is_causal and (self.mask is None or self.mask.dim() < 2 or self.mask.shape[-2] == 1)

    def seen_keys(self) -> Tensor | None:
        """Bool (*lead, 1, S), True for keys that some query sees; None: all."""
        queries, keys = self.query.shape[-2], self.key.shape[-2]
        seen = None
        if self.mask is not None:
            visible = self.mask if self.mask.dtype == torch.bool else self.mask > -torch.inf
            seen = visible.unsqueeze(0) if visible.dim() < 2 else visible.any(dim=-2, keepdim=True)
        if self.is_causal and queries < keys:
            reached = (torch.arange(keys, device=self.key.device) < queries).unsqueeze(0)
            seen = reached if seen is None else seen & reached
        return seen

    def readable_rows(self, seen: Tensor | None) -> tuple[Tensor, Tensor]:
        """Key and value with zeros where no query may look; the heads that share a head of keys look together.

        Args:
            seen: Of `seen_keys`.
        """
        heads, groups = self.query.shape[-3], self.key.shape[-3]
        if seen is not None and seen.dim() > 2 and seen.shape[-3] == heads != groups:
            seen = seen.unflatten(-3, (groups, heads // groups)).any(dim=-3)  # (*lead, G, 1, S)
        support = Dense(seen)
        return support.zero_unseen(self.key), support.zero_unseen(self.value)

    def with_causality(self) -> "AttentionInputs":
        """The same, with `is_causal` where the mask says just that, up to keys that are hidden from all queries.

        Models of others write causality into a mask. Said as a switch it saves half of the work, and running sums do
        for priors over what a query sees. Compiled code cannot look into a mask.
        """
        mask, size = self.mask, self.query.shape[-2]
        can_look = mask is not None and type(mask) is Tensor and not mask.is_meta and not torch.compiler.is_compiling()
        if mask is None or not can_look or self.is_causal or mask.dtype != torch.bool or mask.dim() < 2:
            return self
        if size < 2 or mask.shape[-2:] != (size, size) or self.key.shape[-2] != size or bool(mask[..., 0, 1:].any()):
            return self
        last = mask[..., -1:, :]
        is_causal = torch.equal(mask, last & torch.ones(size, size, dtype=torch.bool, device=mask.device).tril())
        return replace(self, mask=last, is_causal=True) if is_causal else self


@dataclass(frozen=True)
class FusedContext:
    """What the kernel gave: context (*lead, T, Dv) and KL (*lead, T)."""

    context: Tensor
    kl: Tensor


def fused_attention(
    inputs: AttentionInputs, *, family: Family | None, prior: Conditional | None, estimator: Estimator, seed: Tensor
) -> FusedContext | None:
    """Context and KL without weights; None where all scores are needed.

    Args:
        inputs: What is attended to.
        family: None for soft attention.
        prior: None for no KL.
        estimator: How to draw.
        seed: () int64.
    """
    if not (_knows(family, prior, estimator) and inputs.has_plain_shapes() and _pays(inputs)):
        return None
    inputs = inputs.with_causality()
    support = Dense(inputs.seen_keys())
    key, value = inputs.readable_rows(support.mask)
    p: DensePrior | None = None
    if prior is not None:
        p = _prior_of_keys(prior, inputs, key, support)
        if p is None:
            return None
    law, query = cast("AttentionLaw | None", family), _four(inputs.query)
    key, value = _four(key), _four(value)
    is_noisy = isinstance(estimator, Pathwise)
    mask = None if inputs.mask is None else _four_mask(inputs.mask, inputs.query.dim())
    sight = sight_of(query, mask, is_causal=inputs.is_causal)
    plan = attention_plan(query, key, family=law, prior=p, is_noisy=is_noisy, sight=sight)
    if plan is None or (plan.shift is not None and not _is_large(inputs)):  # which C++ does not know
        return None
    check_shapes(query, key, value, mask)
    check_laws(law, p, seed)
    made = attend_planned(
        (query, key, value),
        plan,
        seed=seed if is_noisy else None,
        mask=mask,
        is_causal=inputs.is_causal,
        scale=inputs.scale,
        dropout=Dropout(inputs.dropout, fresh_seed(query.device)) if inputs.dropout > 0.0 else None,
    )
    unit = (*inputs.lead, inputs.query.shape[-2])
    return FusedContext(made.context[0].reshape(*unit, value.shape[-1]), made.kl.reshape(unit))


def _prior_of_keys(prior: Conditional, inputs: AttentionInputs, key: Tensor, support: Dense) -> DensePrior | None:
    """The prior as numbers of keys alone; None where all scores are needed."""
    dims = inputs.query.dim()
    keys = key if key.dim() < 4 else _repeated(key, inputs.query.shape[-3])
    memory = Memory(keys=keys, values=keys, support=support)
    row = prior.of_keys(memory, is_shared=inputs.sees_alike())
    if isinstance(row, NormalisedGamma | NormalisedLognormal) and type(row) in (NormalisedGamma, NormalisedLognormal):
        return _as_four(row, dims)
    sets = prior.over_sets(memory) if row is None and inputs.is_causal else None
    if sets is None or dims == 4 or sets.logits.dim() < 2:
        return sets
    return replace(sets, logits=sets.logits.unsqueeze(1))  # one head


def _knows(family: Family | None, prior: Conditional | None, estimator: Estimator) -> bool:
    """Whether the kernel has this law: one draw by reparametrisation without log-densities, or the plug-in weights."""
    # by exact type, here and below: a subclass may do something else
    is_one_draw = type(estimator) is Pathwise and estimator.num_samples == 1 and not estimator.keeps_log_probs
    if not (is_one_draw or type(estimator) is Mean):
        return False
    if family is None:
        return prior is None and type(estimator) is Mean
    if type(family) is GumbelSoftmax:
        return prior is None
    return type(family) in (Weibull, Lognormal)


def _pays(inputs: AttentionInputs) -> bool:
    """Whether the kernel is faster, or the matrix too large."""
    if is_transformed() or (inputs.mask is not None and inputs.mask.requires_grad) or inputs.dropout == 1.0:
        return False
    dtypes = {inputs.query.dtype, inputs.key.dtype, inputs.value.dtype}
    is_for_native = len(dtypes) == 1 and dtypes <= set(_NATIVE_DTYPES) and inputs.query.is_cpu
    return (is_for_native and is_active(work=_num_scores(inputs))) or _is_large(inputs)


def _num_scores(inputs: AttentionInputs) -> int:
    return math.prod(inputs.lead) * inputs.query.shape[-2] * inputs.key.shape[-2]


def _is_large(inputs: AttentionInputs) -> bool:
    return _num_scores(inputs) >= _MANY_SCORES


def _four(x: Tensor) -> Tensor:
    """(B, H, rows, D), with one head where there is no axis of heads: the noise's counters stay the same."""
    return x if x.dim() == 4 else x.unsqueeze(1)


def _four_mask(mask: Tensor, dims: int) -> Tensor:
    return mask.unsqueeze(1) if dims == 3 and mask.dim() == 3 else mask


def _as_four(prior: NormalisedGamma | NormalisedLognormal, dims: int) -> NormalisedGamma | NormalisedLognormal:
    """A prior (B, 1, S) for (B, 1, 1, S)."""
    if dims == 4:
        return prior
    if isinstance(prior, NormalisedGamma):
        rows = prior.concentration
        return NormalisedGamma(rows.unsqueeze(1) if rows.dim() == 3 else rows, prior.rate, support=Dense())
    rows = prior.location
    return NormalisedLognormal(rows.unsqueeze(1) if rows.dim() == 3 else rows, prior.sigma, support=Dense())


def _repeated(key: Tensor, heads: int) -> Tensor:
    """Keys for each head of queries: a prior may differ between them."""
    return key if key.shape[-3] == heads else key.repeat_interleave(heads // key.shape[-3], dim=-3)
