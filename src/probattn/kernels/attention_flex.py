"""Dense attention with random weights by torch's `flex_attention`, whose kernels make scores and noise tile by tile.

It is for CUDA: there torch compiles the function that changes a score, noise included, into one kernel with a backward
pass. On the CPU torch has no such backward pass and no logsumexp of compiled calls, so it runs there only when asked
for, without gradients, to be tested. What does not fit (see `misfit`) is left to `attention_chunked`.

The KL needs no scores beside their logsumexp: what it sums over keys is linear in phi = scale * query . key for a Gamma
prior and quadratic for a lognormal one, so sums of keys, or of their products, are enough.

Size letters: K draws, B batch, H heads, G heads of keys, T queries, S keys, D features.
"""

import functools
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as flex

from probattn.core.noise import _philox
from probattn.kernels.attention_chunked import AttentionCall, finite
from probattn.kernels.attention_plan import GAMMA, LOG_EXPONENTIAL, LOGNORMAL, NONE

__all__ = ["attend_flex", "flex_summary", "misfit"]

_VARIABLE = "PROBATTN_FLEX"
_MODES = ("auto", "on", "off")
_mode = os.environ.get(_VARIABLE, "auto") or "auto"
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Triton multiplies no smaller matrices; features of zeros change no score.
_LEAST_FEATURES = 16
# torch has the backward pass of `flex_attention` for CUDA alone.
_WITHOUT_GRADIENTS = ("cpu",)
_ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def flex_summary() -> str:
    """Where `flex_attention` is used, in one sentence."""
    _require_mode()
    if _mode == "off":
        return f"dense attention never uses flex_attention: {_VARIABLE} is off"
    if _mode == "on":
        return f"dense attention uses flex_attention on CUDA and, without gradients, on the CPU: {_VARIABLE} is on"
    if not torch.cuda.is_available():
        return "dense attention would use flex_attention on CUDA, but there is no such device"
    return (
        "dense attention uses flex_attention on CUDA, but plain torch in chunks for dropout, learned k or sigma, "
        "float64, a KL under a mask that differs by query, and a causal lognormal KL"
    )


def misfit(call: AttentionCall) -> str | None:
    """Why `flex_attention` cannot do this call; None where it can."""
    _require_mode()
    if _mode == "off" or not (call.query.is_cuda or (call.query.is_cpu and _mode == "on")):
        return "it is for CUDA, or the CPU where asked for"
    leaves = (call.query, call.key, call.value, call.weight, call.constant)
    has_gradients = torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in leaves)
    if has_gradients and call.query.device.type in _WITHOUT_GRADIENTS:
        return f"it has no gradients on {call.query.device.type}"
    rows = (call.query, call.key, call.value)
    if any(one.dtype != call.query.dtype or one.dtype not in _DTYPES for one in rows):
        return f"it takes one of {_DTYPES}, the same for query, key and value"
    if any(one.numel() == 0 for one in rows):
        return "there is nothing to attend to"
    if call.numbers[2] > 0.0:
        return "dropout of normalised weights is no function of one score"
    if call.noise_scale.requires_grad and torch.is_grad_enabled():
        return "every score would add to the gradient of one k or sigma"
    return _misfit_of_kl(call)


def _misfit_of_kl(call: AttentionCall) -> str | None:
    if call.prior != NONE and call.mask is not None and call.mask.shape[-2] != 1:
        return "the KL needs sums over keys that are the same for all queries"
    if call.prior == LOGNORMAL and (call.switches[3] or call.shift is not None):
        return "a causal lognormal KL needs a matrix of features for every query"
    return None


def _require_mode() -> None:
    if _mode not in _MODES:
        raise ValueError(f"{_VARIABLE} must be one of {', '.join(_MODES)}; got {_mode!r}")


def attend_flex(call: AttentionCall) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `attention_operator` gives, differentiated by torch.

    Args:
        call: Of which `misfit` says None.

    Returns:
        Context (K, B, H, T, Dv); logsumexp of phi and the KL's core, (B, H, T), empty without a prior; logsumexp of the
        perturbed scores (K, B, H, T).
    """
    with torch.autocast(call.query.device.type, enabled=False):
        made = [_attend(call, call.value, _score_mod(call, draw)) for draw in range(call.num_draws)]
        context, log_noisy = torch.stack([one[0] for one in made]), torch.stack([one[1] for one in made])
        if call.prior == NONE:
            empty = log_noisy[0, :0]
            return context, empty, empty, log_noisy
        if call.noise == NONE:
            log_normaliser = log_noisy[0]
        else:
            _, log_normaliser = _attend(call, call.value[..., :1], _score_mod(call, None))
        return context, log_normaliser, _kl_core(call, log_normaliser), log_noisy


def _attend(call: AttentionCall, value: Tensor, score_mod: _ScoreMod | None) -> tuple[Tensor, Tensor]:
    """Context (B, H, T, Dv) and logsumexp of what `score_mod` made of the scores, (B, H, T)."""
    query, key = _widened(call.query), _widened(call.key)
    block_mask = _causal(query.shape[2], key.shape[2], query.device) if call.switches[3] else None
    is_compiled = query.is_cuda and not torch.compiler.is_compiling()
    attend: Any = _compiled() if is_compiled else flex.flex_attention
    context, aux = attend(
        query,
        key,
        _widened(value),
        score_mod=score_mod,
        block_mask=block_mask,
        scale=call.numbers[0],
        enable_gqa=query.shape[1] != key.shape[1],
        return_aux=flex.AuxRequest(lse=True),
    )
    return context[..., : value.shape[-1]], aux.lse


@functools.cache
def _compiled() -> Any:
    """Outside a compiled model `flex_attention` would make all scores."""
    return torch.compile(flex.flex_attention)


@functools.lru_cache(maxsize=32)
def _causal(queries: int, keys: int, device: torch.device) -> Any:
    """Lets a kernel skip tiles that no query sees."""

    def is_seen(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return query >= key

    return flex.create_block_mask(is_seen, None, None, queries, keys, device=device)


def _widened(rows: Tensor) -> Tensor:
    missing = _LEAST_FEATURES - rows.shape[-1]
    return torch.nn.functional.pad(rows, (0, missing)) if missing > 0 else rows


def _score_mod(call: AttentionCall, draw: int | None) -> _ScoreMod | None:
    """Mask and noise of one draw as a function of a score and its place; `draw` None: without noise.

    Only tensors are captured, so that other numbers compile nothing again.
    """
    mask = _mask_mod(call.mask)
    if call.noise == NONE or draw is None:
        return mask
    batch, heads = call.query.shape[:2]
    device = call.query.device
    if call.seed is None:
        raise ValueError("noise needs a seed, got None")
    seed = call.seed.reshape(()).to(device)
    lead = torch.arange(batch * heads, device=device).view(batch, heads)
    particle = torch.full((), draw, dtype=torch.int64, device=device)
    sharpness = torch.full((), call.numbers[1], device=device)
    noise_scale = call.noise_scale.detach().float()
    is_log_exponential = call.noise == LOG_EXPONENTIAL

    def score_mod(score: Tensor, b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        if mask is not None:
            score = mask(score, b, h, query, key)
        u = _uniform(seed, (particle, lead[b, h], query, key))
        noise = (-u.log()).log() if is_log_exponential else 2.0**0.5 * torch.erfinv(2.0 * u - 1.0)
        return sharpness * score + noise_scale[h] * noise

    return score_mod


def _mask_mod(mask: Tensor | None) -> _ScoreMod | None:
    if mask is None:
        return None
    # An axis of size one is read at zero; which axes these are must be known before, as places are tensors.
    whole = [int(size > 1) for size in mask.shape]

    def mask_mod(score: Tensor, b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        entry = mask[b * whole[0], h * whole[1], query * whole[2], key * whole[3]]
        return torch.where(entry, score, -torch.inf) if mask.dtype == torch.bool else score + entry

    return mask_mod


def _uniform(seed: Tensor, place: tuple[Tensor, Tensor, Tensor, Tensor]) -> Tensor:
    """One number of `core.noise.uniform` in float32, to the last bit.

    Args:
        seed: () int64.
        place: Draw, number of example and head, query, key.
    """
    particle, lead, query, key = place
    nothing = seed & 0  # makes 64-bit data of places, which a compiler would multiply in 32 bits
    query, key = query.to(torch.int64) + nothing, key.to(torch.int64) + nothing
    block, lane = key >> 2, key & 3
    words = _philox(seed, (block, query, lead, particle))
    word = torch.where(
        lane == 0, words[0], torch.where(lane == 1, words[1], torch.where(lane == 2, words[2], words[3]))
    )
    return ((word >> 9).to(torch.float32) + 0.5) * 2.0**-23


def _kl_core(call: AttentionCall, log_normaliser: Tensor) -> Tensor:
    """(B, H, T) the part of the KL that needs scores (see `attention_plan`), from sums over keys in float64."""
    if call.weight is None or call.constant is None:
        raise ValueError("a KL needs weights and constants, got None")
    weight, constant = call.weight.double(), call.constant.double()  # (B, H, S)
    bias, is_seen = _bias(call.mask, weight)
    weight, constant = weight.masked_fill(~is_seen, 0.0), constant.masked_fill(~is_seen, 0.0)
    group = call.query.shape[1] // call.key.shape[1]
    key = call.key.double().repeat_interleave(group, dim=1)  # (B, H, S, D)
    query = call.query.double() * call.numbers[0]
    is_empty = torch.isneginf(log_normaliser)
    anchor = finite(log_normaliser).double() if call.switches[2] else torch.zeros_like(log_normaliser.double())
    if call.prior == GAMMA:
        over_keys = functools.partial(_over_keys, queries=query.shape[2], is_causal=bool(call.switches[3]))
        of_scores = (query * over_keys(weight.unsqueeze(-1) * key)).sum(dim=-1) + over_keys(weight * bias, dim=-1)
        core = over_keys(constant, dim=-1) - of_scores + anchor * over_keys(weight, dim=-1)
    else:
        # The distance phi - weight is query . key less what is known of a key.
        known = weight - bias
        key = key * is_seen.unsqueeze(-1)
        projected = query @ (key.mT @ key)  # (B, H, T, D)
        squares = ((projected - 2.0 * (known.unsqueeze(-2) @ key)) * query).sum(dim=-1)
        squares = squares + known.square().sum(dim=-1, keepdim=True)
        distances = (query * key.sum(dim=-2, keepdim=True)).sum(dim=-1) - known.sum(dim=-1, keepdim=True)
        count = is_seen.expand_as(weight).sum(dim=-1, keepdim=True)
        core = constant.sum(dim=-1, keepdim=True) + 0.5 * (squares - 2.0 * anchor * distances + count * anchor.square())
    return core.masked_fill(is_empty, 0.0).to(log_normaliser.dtype)


def _bias(mask: Tensor | None, like: Tensor) -> tuple[Tensor, Tensor]:
    """What is added to the scores of a key, and whether it is seen, (B, H, S) or what broadcasts to it."""
    if mask is None:
        return like.new_zeros(()), torch.ones((), dtype=torch.bool, device=like.device)
    row = mask.squeeze(-2)
    if row.dtype == torch.bool:
        return like.new_zeros(()), row
    is_seen = row > -torch.inf
    return row.to(like.dtype).masked_fill(~is_seen, 0.0), is_seen


def _over_keys(entries: Tensor, *, queries: int, is_causal: bool, dim: int = -2) -> Tensor:
    """Sums over the keys that a query sees, on the same axis: one for all queries, or one for each."""
    if not is_causal:
        return entries.sum(dim=dim, keepdim=True)
    last = torch.arange(queries, device=entries.device).clamp(max=entries.shape[dim] - 1)
    return entries.cumsum(dim=dim).index_select(dim, last)
