"""Convert models that are built from `torch.nn.MultiheadAttention` or torch's transformer layers, and back."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from probattn.distributions import Family
from probattn.integrations.places import Kind, Only, Place, check_heads, choose, kind_of, number_places
from probattn.integrations.priors import PriorRecipe, check_family, default_family, make_prior
from probattn.nn.conditionals import Conditional
from probattn.nn.functional import AttentionResult, scaled_dot_product_attention
from probattn.nn.masks import hidden_by
from probattn.nn.multihead import MultiheadAttention
from probattn.nn.recording import is_recording

__all__ = ["ConvertedMultiheadAttention", "make_stochastic", "undo"]


class ConvertedMultiheadAttention(MultiheadAttention):
    """A stochastic stand-in for one `nn.MultiheadAttention`, with whose parameters it works.

    Because parameters are shared and not copied, an optimizer that holds them stays valid, and `undo` only has to put
    the original back. While nothing is drawn or recorded, the original itself runs. Made by `convert`.
    """

    original: nn.MultiheadAttention
    names: tuple[str, ...]
    """Of the parameters that the original has."""
    query_padding: Tensor | None = None
    """True for padded queries, where the layer around it was told; set while that layer runs."""
    heads: tuple[int, ...] | None = None
    """Those that draw; None for all."""

    @classmethod
    def convert(
        cls,
        module: nn.MultiheadAttention,
        family: Family,
        *,
        prior: Conditional | None,
        name: str,
        heads: tuple[int, ...] | None = None,
    ) -> Self:
        """The stand-in of a module.

        Args:
            module: The original.
            family: Of the weights.
            prior: None for no KL.
            name: Of the site in receipts.
            heads: Those that draw, in order; None for all.
        """
        own = cls.from_torch(module, family=family, prior=prior, name=name)
        own.heads = None if heads is None or len(heads) == module.num_heads else heads
        for key, parameter in module.named_parameters(recurse=False):
            setattr(own, key, parameter)
        own.out_proj = module.out_proj
        own.__dict__["original"] = module  # not a child: its parameters would be listed twice
        own.__dict__["names"] = tuple(module._parameters)
        module.__dict__["_parameters"] = own._parameters  # one table: whoever replaces a parameter does so in both
        return own

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        """Attend; arguments and result as for `torch.nn.MultiheadAttention.forward`."""
        # torch's attention reads the matrix of its last projection and does not call it, as an adapter there needs.
        is_plain = type(self.out_proj) in (nn.Linear, NonDynamicallyQuantizableLinear)
        if self.is_sampling or is_recording() or not is_plain:
            return super().forward(*args, **kwargs)
        self.original.training = self.training  # no child, so those who walk over modules do not find it
        self.original.out_proj = self.out_proj
        result: tuple[Tensor, Tensor | None] = self.original(*args, **kwargs)
        return result

    def forward_with_latents(self, *args: Any, **kwargs: Any) -> tuple[Tensor, AttentionResult]:
        """See `MultiheadAttention.forward_with_latents`; padded queries are known from the layer around it."""
        if kwargs.get("query_padding_mask") is None:
            kwargs["query_padding_mask"] = self.query_padding
        return super().forward_with_latents(*args, **kwargs)

    def _weigh(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: Tensor | None,
        query_mask: Tensor | None,
        need_weights: bool,
        prior: Conditional | None,
    ) -> AttentionResult:
        """Attention of all heads (B, H, ·, D), of which some draw; KL and receipt are theirs, (B, h, T)."""
        options: dict[str, Any] = {"query_mask": query_mask, "need_weights": need_weights, "prior": prior}
        if self.heads is None:
            return super()._weigh(query, key, value, mask=mask, **options)
        chosen = list(self.heads)
        others = [head for head in range(self.num_heads) if head not in self.heads]
        drawn = super()._weigh(
            query[:, chosen], key[:, chosen], value[:, chosen], mask=_of_heads(mask, chosen), **options
        )
        plain = scaled_dot_product_attention(
            query[:, others],
            key[:, others],
            value[:, others],
            attn_mask=_of_heads(mask, others),
            dropout_p=self.dropout if self.training else 0.0,
            need_weights=need_weights,
        )
        order = torch.tensor(chosen + others, device=query.device).argsort()
        context = torch.cat([drawn.context, plain.context.to(drawn.context.dtype)], dim=1)[:, order]
        if drawn.weights is None or plain.weights is None:
            return replace(drawn, context=context)
        weights = torch.cat([drawn.weights, plain.weights.to(drawn.weights.dtype)], dim=1)[:, order]
        return replace(drawn, context=context, weights=weights)

    def _may_skip_kl(self) -> bool:
        # padded queries, which this class knows of, matter for the KL alone
        return not torch.is_grad_enabled() and not is_recording()

    def watch(self, layer: nn.TransformerDecoderLayer) -> None:
        """Take the padding of the queries from a layer that tells it to its self-attention alone."""
        handles = (
            layer.register_forward_pre_hook(self._note_padding, with_kwargs=True),
            layer.register_forward_hook(self._forget_padding, always_call=True),
        )
        self.__dict__.setdefault("watches", []).extend(handles)

    def _note_padding(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        padding: Tensor | None = kwargs.get("tgt_key_padding_mask", args[4] if len(args) > 4 else None)
        if padding is not None and padding.dtype != torch.bool:
            padding = hidden_by(padding)
        self.query_padding = padding

    def _forget_padding(self, layer: nn.Module, args: Any, output: Any) -> None:
        self.query_padding = None

    def give_back(self) -> nn.MultiheadAttention:
        """The original, with the weights as they are now, and without what it did not have."""
        for watch in self.__dict__.pop("watches", ()):
            watch.remove()
        self.original.__dict__["_parameters"] = {name: self._parameters[name] for name in self.names}
        self.original.out_proj = self.out_proj
        return self.original

    def train(self, mode: bool = True) -> Self:
        """Switch dropout, in the original too."""
        if "original" in self.__dict__:
            self.original.train(mode)
        return super().train(mode)


def make_stochastic(
    model: nn.Module,
    family: Family | None = None,
    prior: PriorRecipe | None = "contextual",
    *,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    only: Only = "all",
) -> None:
    """`probattn.make_stochastic` for a model with torch's own attention; see there."""
    family = default_family() if family is None else family
    check_family(family, prior)
    found = _find(model)
    chosen = choose(list(found), layers, only)
    numbers = check_heads(heads, chosen)
    converted: dict[nn.Module, ConvertedMultiheadAttention] = {}  # a module that stands in two places stays one
    for place in chosen:
        module = found[place]
        if module not in converted:
            own_place = place if numbers is None else replace(place, num_heads=len(numbers))
            converted[module] = ConvertedMultiheadAttention.convert(
                module, family, prior=make_prior(prior, family, own_place), name=place.path, heads=numbers
            )
    watched: set[nn.Module] = set()  # a layer may be listed twice, too
    for place in chosen:
        model.set_submodule(place.path, converted[found[place]])
        layer = model.get_submodule(place.path.rpartition(".")[0])
        if place.kind == "cross" and isinstance(layer, nn.TransformerDecoderLayer) and layer not in watched:
            converted[found[place]].watch(layer)
            watched.add(layer)


def undo(model: nn.Module) -> None:
    """Put the original modules back; trained weights stay.

    Raises:
        ValueError: If there is nothing to undo.
    """
    found = [
        (path, module)
        for path, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, ConvertedMultiheadAttention)
    ]
    if not found:
        raise ValueError(f"{type(model).__name__} was not converted: there is nothing to undo")
    for path, module in found:
        model.set_submodule(path, module.give_back())


def _find(model: nn.Module) -> dict[Place, nn.MultiheadAttention]:
    named = dict(model.named_modules(remove_duplicate=False))
    if any(isinstance(module, ConvertedMultiheadAttention) for module in named.values()):
        raise ValueError(f"{type(model).__name__} has stochastic attention already; undo(model) first")
    found = {path: module for path, module in named.items() if type(module) is nn.MultiheadAttention}
    if not found:
        raise ValueError(
            f"{type(model).__name__} has no torch.nn.MultiheadAttention and is no model of transformers, so there is "
            "no attention that make_stochastic knows; use probattn.MultiheadAttention or "
            "probattn.scaled_dot_product_attention in its code"
        )
    if "" in found:
        raise ValueError(
            "a MultiheadAttention cannot be replaced inside itself; use probattn.MultiheadAttention.from_torch"
        )
    kinds = [(path, _kind(path, named)) for path in found]
    return {
        Place(path, kind, number, module.num_heads, module.head_dim, is_causal=_is_causal(path, named)): module
        for (path, kind), number, module in zip(kinds, number_places(kinds), found.values(), strict=True)
    }


def _of_heads(mask: Tensor | None, heads: list[int]) -> Tensor | None:
    """What some heads see of a mask that is broadcast to (B, H, T, S)."""
    has_heads = mask is not None and mask.dim() == 4 and mask.shape[1] > 1
    return mask[:, heads] if mask is not None and has_heads else mask


def _kind(path: str, named: dict[str, nn.Module]) -> Kind:
    if isinstance(_parent(path, named), nn.TransformerDecoderLayer):
        return "cross" if path.endswith("multihead_attn") else "self"
    return kind_of(path, named[path])


def _is_causal(path: str, named: dict[str, nn.Module]) -> bool:
    """Whether torch's layers give it a causal mask; in other layers nobody can tell."""
    return isinstance(_parent(path, named), nn.TransformerDecoderLayer) and path.endswith("self_attn")


def _parent(path: str, named: dict[str, nn.Module]) -> nn.Module:
    return named[path.rpartition(".")[0]]
