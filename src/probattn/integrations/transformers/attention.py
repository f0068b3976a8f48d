"""Attention of `transformers` with random weights, as a function of its registry.

A converted attention module carries its site as a child, so that parameters of the prior are in the model's state_dict
and in its optimizer. A module without one, and every module whose switch is off, runs the function of its own file.

Size letters: B batch, H query heads, G key heads, T queries, S keys, D features of a head.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, bidirectional_mask_function, sdpa_mask

from probattn.core.noise import fold_seed, fresh_seed
from probattn.distributions import Family
from probattn.integrations.places import Place
from probattn.integrations.transformers.calls import ForwardCall, Receipt, current_call
from probattn.integrations.transformers.reach import attention_class
from probattn.nn.conditionals import Conditional
from probattn.nn.functional import AttentionResult, scaled_dot_product_attention
from probattn.nn.learnt import HoldsFamily
from probattn.nn.masks import HIDES, with_infinities
from probattn.nn.recording import is_recomputing, is_recording, note_latent
from probattn.nn.sampling import Switchable

__all__ = ["CHILD", "IMPLEMENTATION", "StochasticAttention", "boolean_mask", "stochastic_attention"]

IMPLEMENTATION = "probattn"
"""The name of this attention in transformers' registry."""

CHILD = "stochastic"
"""The name of the site in its attention module."""

_HIDE_BY_100 = ("swin", "clap")  # models whose shifted windows hide by -100


class StochasticAttention(Switchable, HoldsFamily):
    """The site of one attention module.

    Args:
        place: Where it stands.
        family: Of the weights.
        prior: None for no KL.
        heads: The heads that draw; None for all.
        is_decoder: Whether queries are those of the decoder in an encoder-decoder model.
    """

    def __init__(
        self,
        place: Place,
        family: Family,
        *,
        prior: Conditional | None,
        heads: tuple[int, ...] | None = None,
        is_decoder: bool = False,
    ):
        super().__init__()
        self.place = place
        self.family = family
        self.prior = prior
        self.heads = heads
        self.is_decoder = is_decoder
        self.init_switch()

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        *,
        scaling: float | None,
        dropout: float,
        needs_weights: bool,
    ) -> AttentionResult:
        """Draw weights and read the values.

        The KL costs time and memory, so it is computed while training and while someone records, else it is zero.

        Args:
            query: (B, H, T, D).
            key: (B, G, S, D).
            value: (B, G, S, Dv).
            mask: Broadcastable to (B, H, T, S); bool (True: may look), or float with -inf where a query may not look.
            scaling: Of the scores.
            dropout: Of the weights.
            needs_weights: Return them.
        """
        wants_kl = self.training or is_recording()
        real_queries = self._real_queries(mask, query.shape[2]) if wants_kl else None
        result = scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            dropout_p=dropout,
            scale=scaling,
            enable_gqa=key.shape[1] != query.shape[1],
            family=self.family,
            prior=self.prior if wants_kl else None,
            need_weights=needs_weights,
            query_mask=real_queries,
            seed=self._seed(query.device),
            name=self.place.path,
        )
        call = current_call()
        if wants_kl and call is not None:
            num_weights = _num_weights(mask, real_queries, result.kl, key.shape[2])
            call.receipts.append(Receipt(result.kl, num_weights, self.is_decoder, self._is_cut_off(result.kl)))
        return result

    @property
    def switch(self) -> tuple[bool, Tensor | None]:
        """Whether it draws, and the fixed seed; in a pass that is repeated, those of the first one."""
        if torch.compiler.is_compiling():  # what is compiled is not repeated by calling it
            return self.is_sampling, self.sampling_seed
        call, own = current_call(), (self.is_sampling, self.sampling_seed)
        return own if call is None else call.switches.get(self.place.path, own)

    def _is_cut_off(self, kl: Tensor) -> bool:
        """Whether a KL without a gradient should have had one."""
        if self.prior is None or kl.requires_grad:
            return False
        is_trainable = any(parameter.requires_grad for parameter in self.parameters())
        return is_trainable or not torch.is_grad_enabled()

    def _real_queries(self, mask: Tensor | None, num_queries: int) -> Tensor | None:
        """(B, 1, T) False for padding: in self-attention a position that may not see itself."""
        if mask is None or self.place.kind == "cross" or not 1 < num_queries <= mask.shape[-1]:
            return None
        seen = _is_seen(mask).expand(-1, -1, num_queries, -1)
        offset, call = mask.shape[-1] - num_queries, current_call()
        if call is not None:  # a static cache has free places behind the queries; one of a window has lost some
            offset = min(offset, call.num_past)
        return seen.diagonal(offset, dim1=-2, dim2=-1)

    def _seed(self, device: torch.device) -> Tensor:
        """The seed of this visit.

        A fresh one is different on every rank. A fixed one is made different for every layer that shares this module,
        and for every step of generation.
        """
        _, seed = self.switch
        call = current_call()
        if call is None:
            return fresh_seed(device) if seed is None else seed
        visit = call.count_visit(self.place.path)
        if seed is None:
            drawn = fresh_seed(device)  # in a pass that is repeated, too: what is drawn after it stays the same
            return drawn if torch.compiler.is_compiling() else call.seeds.setdefault((self.place.path, visit), drawn)
        for number in (visit, call.num_past):
            seed = fold_seed(seed, number) if number > 0 else seed
        return seed


def stochastic_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """The function that transformers calls for every attention module of a converted model.

    Args:
        module: The attention module.
        query: (B, H, T, D).
        key: (B, G, S, D).
        value: (B, G, S, Dv).
        attention_mask: (B, 1, T, S) bool from `boolean_mask`, or float from the model or its caller.
        **kwargs: `scaling`, `dropout`, T5's `position_bias`, and what is meant for others.

    Returns:
        (B, T, H, Dv), and the weights, (B, H, T, S), where they are wanted.
    """
    _check_mask(attention_mask)
    site = getattr(module, CHILD, None)
    if site is None or not site.switch[0]:
        return _eager(module, query, key, value, attention_mask, kwargs)
    drawn = _draw(module, site, query, key, value, attention_mask, kwargs)
    output = drawn.context.transpose(1, 2).contiguous()  # (B, T, H, Dv)
    if site.heads is None:
        return output, drawn.weights
    output_of_all, weights = _eager(module, query, key, value, attention_mask, kwargs)
    heads = torch.tensor(site.heads, device=query.device)
    output = output_of_all.index_copy(2, heads, output.to(output_of_all.dtype))
    if weights is not None and drawn.weights is not None:
        weights = weights.index_copy(1, heads, drawn.weights.to(weights.dtype))
    return output, weights


def boolean_mask(**kwargs: Any) -> Tensor | None:
    """The mask that transformers makes for this attention: (B, 1, T, S) bool, True where a query may look.

    Unlike the mask of torch's attention it is there for causal attention too, since no flag stands in for it. A mask of
    padding alone is one row, repeated for every query by a stride of 0.

    Args:
        **kwargs: Those of transformers' `sdpa_mask`.
    """
    num_queries = kwargs["q_length"]
    is_alike = kwargs.get("mask_function") is bidirectional_mask_function
    rows = 1 if is_alike else num_queries
    mask: Tensor | None = sdpa_mask(**{**kwargs, "q_length": rows, "allow_is_causal_skip": False})
    return mask.expand(-1, -1, num_queries, -1) if mask is not None and is_alike else mask


def _check_mask(mask: Tensor | None) -> None:
    """A mask that the caller made for every head goes through transformers as it is."""
    if mask is not None and mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(
            f"an attention_mask with {mask.dim()} axes must be bool (True: may look) or float (added to the scores), "
            f"got {mask.dtype}; pass attention_mask.bool()"
        )


def _eager(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, kwargs: dict[str, Any]
) -> tuple[Tensor, Tensor | None]:
    """What the module computes without us, in the very same operations."""
    if mask is not None and mask.dtype == torch.bool:
        zero = torch.zeros((), dtype=query.dtype, device=query.device)
        mask = torch.where(mask, zero, torch.finfo(query.dtype).min)
    result: tuple[Tensor, Tensor | None] = attention_class(module).eager(module, query, key, value, mask, **kwargs)
    return result


def _draw(
    module: nn.Module,
    site: StochasticAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    kwargs: dict[str, Any],
) -> AttentionResult:
    bias = kwargs.get("position_bias")
    if site.heads is not None:
        group = query.shape[1] // key.shape[1]
        query = query[:, list(site.heads)]
        key, value = (x[:, [head // group for head in site.heads]] for x in (key, value))
        mask, bias = (x if x is None or x.shape[1] == 1 else x[:, list(site.heads)] for x in (mask, bias))
    result: AttentionResult = site(
        query,
        key,
        value,
        _merge(mask, bias, limit=-100.0 if _hides_by_100(module) else HIDES),
        scaling=kwargs.get("scaling"),
        dropout=kwargs.get("dropout", 0.0) if module.training else 0.0,
        needs_weights=_needs_weights(module, current_call(), kwargs),
    )
    note_latent(module, result.latent)
    return result


def _needs_weights(module: nn.Module, call: ForwardCall | None, kwargs: dict[str, Any]) -> bool:
    if getattr(getattr(module, "config", None), "output_attentions", False):
        return True
    if attention_class(module).swallows_output_attentions:  # only the caller of the whole model knows
        # A pass that checkpointing repeats, when the call is closed, has to repeat the way without weights.
        return not is_recomputing() if call is None else call.needs_weights
    return bool(kwargs.get("output_attentions", False))


def _hides_by_100(module: nn.Module) -> bool:
    return any(name in type(module).__module__ for name in _HIDE_BY_100)


def _merge(mask: Tensor | None, bias: Tensor | None, *, limit: float = HIDES) -> Tensor | None:
    """One mask from a mask, whose numbers up to a limit hide, and what is added to the scores.

    transformers hides a position by the smallest number of a dtype, which is finite; a support needs to know it. Of a
    row that is repeated for every query one is kept, which says that all queries see the same keys.
    """
    if mask is not None and mask.stride(-2) == 0:
        mask = mask[:, :, :1]
    if mask is not None and mask.dtype != torch.bool:
        mask = with_infinities(mask, limit=limit)
        return mask if bias is None or mask is None else mask + bias
    if bias is None or mask is None:
        return mask if bias is None else bias
    return bias.masked_fill(~mask, -torch.inf)


def _num_weights(mask: Tensor | None, real_queries: Tensor | None, kl: Tensor, num_keys: int) -> Tensor:
    """(B, H, T) keys that each query may see, zero for padded queries."""
    if mask is None:
        return torch.full_like(kl, num_keys)
    number = _is_seen(mask).sum(dim=-1).to(kl.dtype)
    number = number if real_queries is None else number * real_queries
    return number.expand_as(kl)


def _is_seen(mask: Tensor) -> Tensor:
    return mask if mask.dtype == torch.bool else mask > -torch.inf


AttentionInterface.register(IMPLEMENTATION, stochastic_attention)
AttentionMaskInterface.register(IMPLEMENTATION, boolean_mask)
