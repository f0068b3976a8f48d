"""Dense attention with random weights in plain torch, a few queries at a time: memory linear in the number of keys.

It runs on every device, and gives what the C++ back end gives. Scores and noise are made again in the backward pass.

Size letters: K draws, B batch, H heads, G heads of keys, R heads that share keys, T queries, t of a chunk, S keys.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from probattn.core.noise import exponential, normal, uniform
from probattn.kernels.attention_plan import GAMMA, LOG_EXPONENTIAL, NONE

__all__ = ["AttentionCall", "attend_chunked", "differentiate_chunked", "finite"]

# Scores that exist at a time: 4 MB in float32 for each of the few tensors of their size.
_CHUNK_SCORES = 1_000_000
_DROPOUT_STREAM = 1


@dataclass(frozen=True)
class AttentionCall:
    """The inputs of an attention operator.

    Attributes:
        query: (B, H, T, D).
        key: (B, G, S, D), with H a multiple of G.
        value: (B, G, S, Dv).
        mask: Broadcastable to (B, H, T, S), bool (True: may look) or float (added to the scores); None: no mask.
        weight: See `AttentionPlan`; like the next ones.
        constant: (B, H, S).
        noise_scale: (H).
        seed: () int64 of the noise.
        dropout_seed: () int64.
        shift: (B, H, T) see `AttentionPlan`; C++ knows none.
        switches: Kind of noise, kind of prior, softmax anchor, causal, number of draws.
        numbers: Scale, sharpness, dropout rate.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    weight: Tensor | None
    constant: Tensor | None
    noise_scale: Tensor
    seed: Tensor | None
    dropout_seed: Tensor | None
    shift: Tensor | None
    switches: tuple[int, ...]
    numbers: tuple[float, ...]

    @property
    def noise(self) -> int:
        """Kind of noise."""
        return self.switches[0]

    @property
    def prior(self) -> int:
        """Kind of prior."""
        return self.switches[1]

    @property
    def is_softmax_anchor(self) -> bool:
        """Whether E[S] = softmax(phi)."""
        return bool(self.switches[2])

    @property
    def num_draws(self) -> int:
        """K."""
        return self.switches[4]

    @property
    def hides(self) -> bool:
        """Whether a query may be kept from looking at a key."""
        return self.mask is not None or bool(self.switches[3])

    def chunks(self) -> Iterator["_Chunk"]:
        """All queries, some at a time."""
        batch, heads, queries = self.query.shape[:3]
        per_query = max(1, self.num_draws * batch * heads * self.key.shape[2])
        size = max(1, _CHUNK_SCORES // per_query)
        for start in range(0, queries, size):
            yield _Chunk(self, slice(start, min(start + size, queries)))


class _Chunk:
    """Some queries of a call."""

    def __init__(self, call: AttentionCall, rows: slice):
        self.call = call
        self.rows = rows
        self.dtype = torch.promote_types(call.query.dtype, torch.float32)
        self.query = call.query[:, :, rows].to(self.dtype)
        heads, key_heads = call.query.shape[1], call.key.shape[1]
        self.group = heads // max(1, key_heads)
        self.scores = self._scores()

    def _scores(self) -> Tensor:
        """(B, H, t, S) phi, -inf where a query may not look."""
        call = self.call
        key = call.key.to(self.dtype)
        grouped = (self.query * call.numbers[0]).unflatten(1, (key.shape[1], self.group))  # (B, G, R, t, D)
        scores = torch.matmul(grouped, key.unsqueeze(2).transpose(-2, -1)).flatten(1, 2)
        if call.mask is not None:
            mask = call.mask if call.mask.shape[-2] == 1 else call.mask[..., self.rows, :]
            is_bool = mask.dtype == torch.bool
            scores = scores.masked_fill(~mask, -torch.inf) if is_bool else scores + mask.to(self.dtype)
        if call.switches[3]:
            row = torch.arange(self.rows.start, self.rows.stop, device=scores.device).unsqueeze(-1)
            scores = scores.masked_fill(torch.arange(scores.shape[-1], device=scores.device) > row, -torch.inf)
        return scores

    def raw_noise(self) -> Tensor:
        """(K, B, H, t, S)."""
        call = self.call
        if call.seed is None:
            raise ValueError("noise needs a seed, got None")
        shape = (call.num_draws, *self.scores.shape)
        if call.noise == LOG_EXPONENTIAL:
            return exponential(call.seed, shape, first_row=self.rows.start, dtype=self.dtype).log_()
        return normal(call.seed, shape, first_row=self.rows.start, dtype=self.dtype)

    def perturbed(self, noise: Tensor | None) -> Tensor:
        """(K, B, H, t, S) exponents of the weights."""
        if noise is None:
            return self.scores.expand(self.call.num_draws, *self.scores.shape)
        sharpness = self.call.numbers[1]
        sharpened = self.scores if sharpness == 1.0 else sharpness * self.scores
        return torch.addcmul(sharpened, self.call.noise_scale.to(self.dtype).view(-1, 1, 1), noise)

    def dropout_factors(self) -> Tensor | None:
        """(K, B, H, t, S) zero for what is dropped; None without dropout."""
        call, rate = self.call, self.call.numbers[2]
        if rate == 0.0 or call.dropout_seed is None:
            return None
        shape = (call.num_draws, *self.scores.shape)
        kept = uniform(call.dropout_seed, shape, stream=_DROPOUT_STREAM, first_row=self.rows.start) >= rate
        return kept.to(self.dtype) / (1.0 - rate)

    def anchor(self, log_normaliser: Tensor) -> Tensor:
        """(B, H, t, 1) what is taken off phi in the KL."""
        anchor = finite(log_normaliser) if self.call.is_softmax_anchor else torch.zeros_like(log_normaliser)
        if self.call.shift is not None:
            anchor = anchor - self.call.shift[..., self.rows].to(self.dtype)
        return anchor.unsqueeze(-1)

    def core(self, log_normaliser: Tensor) -> tuple[Tensor, Tensor]:
        """(B, H, t) the KL's core of every query, and the sum of its derivatives with respect to phi."""
        call = self.call
        if call.prior == GAMMA and not call.hides and call.weight is not None and call.constant is not None:
            weight, constant = call.weight.to(self.dtype), call.constant.to(self.dtype)
            centred = self.scores - self.anchor(log_normaliser)
            pulled = torch.matmul(centred, weight.unsqueeze(-1)).squeeze(-1)  # (B, H, t)
            return constant.sum(dim=-1, keepdim=True) - pulled, -weight.sum(dim=-1, keepdim=True).expand_as(pulled)
        entries, slope = self.prior_entries(log_normaliser)
        return entries.sum(dim=-1), slope.sum(dim=-1)

    def prior_entries(self, log_normaliser: Tensor) -> tuple[Tensor, Tensor]:
        """(B, H, t, S) terms of the KL's core, and their derivatives with respect to phi; zero outside."""
        call = self.call
        if call.weight is None or call.constant is None:
            raise ValueError("a KL needs weights and constants, got None")
        weight, constant = call.weight.to(self.dtype).unsqueeze(-2), call.constant.to(self.dtype).unsqueeze(-2)
        is_seen = self.scores > -torch.inf
        centred = self.scores.masked_fill(~is_seen, 0.0) - self.anchor(log_normaliser)
        if call.prior == GAMMA:
            entries, slope = constant - weight * centred, (-weight).expand_as(centred)
        else:
            distance = centred - weight
            entries, slope = constant + 0.5 * distance.square(), distance
        return entries.masked_fill(~is_seen, 0.0), slope.masked_fill(~is_seen, 0.0)


def attend_chunked(call: AttentionCall) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Forward pass.

    Returns:
        Context (K, B, H, T, Dv) and logsumexp of the perturbed scores (K, B, H, T); and with a prior the logsumexp of
        phi, the KL's core and its derivative with respect to the anchor, (B, H, T) each, else empty.
    """
    batch, heads, queries = call.query.shape[:3]
    dtype = torch.promote_types(call.query.dtype, torch.float32)
    context = call.query.new_empty(call.num_draws, batch, heads, queries, call.value.shape[-1], dtype=dtype)
    log_noisy = context.new_empty(context.shape[:-1])
    log_normaliser, core, pull = (context.new_zeros(batch if call.prior else 0, heads, queries) for _ in range(3))
    value = call.value.to(dtype).unsqueeze(2)  # (B, G, 1, S, Dv)
    for chunk in call.chunks():
        rows = chunk.rows
        exponents = chunk.perturbed(None if call.noise == NONE else chunk.raw_noise())
        shares, total, log_noisy[..., rows] = _exponentials(exponents)
        factors = chunk.dropout_factors()
        shares = shares if factors is None else shares.mul_(factors)
        grouped = shares.unflatten(2, (call.key.shape[1], chunk.group))  # (K, B, G, R, t, S)
        context[..., rows, :] = torch.matmul(grouped, value).flatten(2, 3).div_(total)
        if call.prior:
            log_normaliser[..., rows] = chunk.scores.logsumexp(dim=-1)
            core[..., rows], slope = chunk.core(log_normaliser[..., rows])
            if call.is_softmax_anchor or call.shift is not None:
                pull[..., rows] = -slope
    return context, log_noisy, log_normaliser, core, pull


@dataclass(frozen=True)
class _Totals:
    """Gradients that are added to by every chunk: key (B, G, S, D), value, weight, constant and noise scale."""

    key: Tensor
    value: Tensor
    weight: Tensor
    constant: Tensor
    noise_scale: Tensor


def differentiate_chunked(
    call: AttentionCall,
    outputs: tuple[Tensor, Tensor, Tensor, Tensor],
    grad_context: Tensor,
    grad_log: Tensor | None,
    grad_kl: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Backward pass.

    Args:
        call: As in the forward pass.
        outputs: Context, and the second, third and fifth of the forward pass.
        grad_context: (K, B, H, T, Dv).
        grad_log: (B, H, T) gradient of the logsumexp of phi.
        grad_kl: (B, H, T) gradient of the KL's core.

    Returns:
        Gradients of query, key, value, weight and constant (empty without a KL), and of the noise's scale for every
        example, (B, H).
    """
    context, log_noisy, log_normaliser, pull = outputs
    dtype = log_noisy.dtype
    batch, heads = call.query.shape[:2]
    with_kl = batch if call.prior and grad_kl is not None else 0
    totals = _Totals(
        key=log_noisy.new_zeros(call.key.shape),
        value=log_noisy.new_zeros(call.value.shape),
        weight=log_noisy.new_zeros(with_kl, heads, call.key.shape[2]),
        constant=log_noisy.new_zeros(with_kl, heads, call.key.shape[2]),
        noise_scale=log_noisy.new_zeros(batch, heads),
    )
    grad_query = log_noisy.new_empty(call.query.shape)
    for chunk in call.chunks():
        rows = chunk.rows
        above = grad_context[..., rows, :].to(dtype)
        inner = (above * context[..., rows, :].to(dtype)).sum(dim=-1)
        slopes = _through_context(chunk, log_noisy[..., rows], above, inner, totals)
        if call.prior and (grad_kl is not None or grad_log is not None):
            of_log = None if grad_log is None else grad_log[..., rows]
            of_kl = None if grad_kl is None else grad_kl[..., rows]
            _add_through_kl(slopes, chunk, log_normaliser[..., rows], pull[..., rows], of_log, of_kl, totals)
        grouped = slopes.unflatten(1, (call.key.shape[1], chunk.group))  # (B, G, R, t, S)
        of_query = torch.matmul(grouped, call.key.to(dtype).unsqueeze(2)).flatten(1, 2)
        grad_query[..., rows, :] = of_query.mul_(call.numbers[0])
        queries = (call.numbers[0] * chunk.query).unflatten(1, (call.key.shape[1], chunk.group))
        totals.key.add_(torch.matmul(grouped.transpose(-2, -1), queries).sum(dim=2))
    return grad_query, totals.key, totals.value, totals.weight, totals.constant, totals.noise_scale


def _through_context(chunk: _Chunk, log_noisy: Tensor, above: Tensor, inner: Tensor, totals: _Totals) -> Tensor:
    """(B, H, t, S) gradient of phi through what was read, added up over draws."""
    call = chunk.call
    noise = None if call.noise == NONE else chunk.raw_noise()
    weights = (chunk.perturbed(noise) - finite(log_noisy).unsqueeze(-1)).exp_()
    value = call.value.to(chunk.dtype)
    grouped = above.unflatten(2, (value.shape[1], chunk.group))  # (K, B, G, R, t, Dv)
    grad_weights = torch.matmul(grouped, value.unsqueeze(2).transpose(-2, -1)).flatten(2, 3)
    factors = chunk.dropout_factors()
    used = weights if factors is None else weights * factors
    used = used.unflatten(2, (value.shape[1], chunk.group))
    totals.value.add_(torch.matmul(used.transpose(-2, -1), grouped).sum(dim=(0, 3)))
    grad_weights = grad_weights if factors is None else grad_weights.mul_(factors)
    slopes = grad_weights.sub_(inner.unsqueeze(-1)).mul_(weights)
    if noise is not None:
        totals.noise_scale.add_(torch.linalg.vecdot(slopes.flatten(-2), noise.flatten(-2)).sum(dim=0))
    total = slopes.squeeze(0) if call.num_draws == 1 else slopes.sum(dim=0)
    return total if noise is None or call.numbers[1] == 1.0 else total.mul_(call.numbers[1])


def _add_through_kl(
    slopes: Tensor,
    chunk: _Chunk,
    log_normaliser: Tensor,
    pull: Tensor,
    grad_log: Tensor | None,
    grad_kl: Tensor | None,
    totals: _Totals,
) -> None:
    """Adds to (B, H, t, S) slopes the gradient of phi through the KL's core and through the logsumexp of phi."""
    call = chunk.call
    factor = torch.zeros_like(log_normaliser) if grad_log is None else grad_log
    if grad_kl is not None:
        _add_through_core(slopes, chunk, log_normaliser, grad_kl.unsqueeze(-1), totals)
        factor = factor + grad_kl * pull if call.is_softmax_anchor else factor
    share = (chunk.scores - finite(log_normaliser).unsqueeze(-1)).exp_()
    slopes.addcmul_(factor.unsqueeze(-1), share)


def _add_through_core(slopes: Tensor, chunk: _Chunk, log_normaliser: Tensor, above: Tensor, totals: _Totals) -> None:
    """Adds the gradient of phi through the KL's core, and those of weight and constant to their totals.

    Args:
        slopes: (B, H, t, S) added to.
        chunk: Some queries.
        log_normaliser: (B, H, t) logsumexp of phi.
        above: (B, H, t, 1) gradient of the core.
        totals: Added to.
    """
    call = chunk.call
    if call.prior == GAMMA and not call.hides and call.weight is not None:
        centred = chunk.scores - chunk.anchor(log_normaliser)
        totals.weight.sub_(torch.matmul(above.transpose(-2, -1), centred).squeeze(-2))
        totals.constant.add_(above.sum(dim=-2))
        slopes.addcmul_(above, call.weight.to(chunk.dtype).unsqueeze(-2), value=-1.0)
        return
    is_seen = chunk.scores > -torch.inf
    _, slope = chunk.prior_entries(log_normaliser)
    if call.prior == GAMMA:
        centred = chunk.scores.masked_fill(~is_seen, 0.0) - chunk.anchor(log_normaliser)
        totals.weight.sub_((above * centred).masked_fill(~is_seen, 0.0).sum(dim=-2))
    else:
        totals.weight.sub_((above * slope).sum(dim=-2))
    totals.constant.add_(above.expand_as(is_seen).masked_fill(~is_seen, 0.0).sum(dim=-2))
    slopes.addcmul_(above, slope)


def _exponentials(exponents: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weights before they are divided by their sum, that sum (..., 1), one where all are zero, and its logarithm.

    The logarithm is that of the sum of exponentials, -inf where all exponents are.
    """
    if exponents.shape[-1] == 0:  # no keys have no largest one
        return exponents, exponents.new_ones(*exponents.shape[:-1], 1), exponents.logsumexp(dim=-1)
    top = finite(exponents.amax(dim=-1, keepdim=True))
    shares = (exponents - top).exp_()
    total = shares.sum(dim=-1, keepdim=True)
    log_sum = (total.log() + top).squeeze(-1)
    return shares, total.masked_fill_(total == 0.0, 1.0), log_sum


def finite(log_sum: Tensor) -> Tensor:
    """The same, with zero for the -inf of a query that sees nothing."""
    return log_sum.masked_fill(torch.isneginf(log_sum), 0.0)
