"""Which attention modules of a `transformers` model can be reached.

transformers sends attention through a registry of functions (`AttentionInterface`), but not in every model, and where
it does not it logs a warning and goes on. Here that is an error.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from probattn.integrations.places import Place, kind_of, number_places

__all__ = ["REACHED", "AttentionClass", "attention_class", "find_places"]

REACHED = (
    *("BERT", "RoBERTa", "ELECTRA", "DistilBERT", "ALBERT", "GPT-2", "Llama", "ViT", "CLIP-vision"),
    *("T5", "BART", "Marian", "EncoderDecoder"),
)
"""The architectures that the tests cover. Others work if they pass the checks of `find_places`."""

# Names that an eager attention function may use. A function that uses others does more than mask, softmax, dropout and
# a product (it caps scores, adds sinks, ...), which drawn weights would leave out.
_PLAIN_NAMES = frozenset(
    [
        *("torch", "nn", "functional", "F", "matmul", "transpose", "softmax", "dropout", "training", "contiguous"),
        *("size", "shape", "dtype", "float32", "to", "type", "head_dim", "repeat_kv", "num_key_value_groups"),
    ]
)
_PLAIN_ARGUMENTS = frozenset(
    ["module", "query", "key", "value", "attention_mask", "scaling", "dropout", "position_bias", "kwargs"]
)
_REGISTRY, _EAGER = "ALL_ATTENTION_FUNCTIONS", "eager_attention_forward"


@dataclass(frozen=True)
class AttentionClass:
    """What one class of attention modules is like.

    Attributes:
        eager: The function that it falls back to: what attention is without us.
        swallows_output_attentions: Whether it takes that argument itself, so that its attention function never hears
            of it.
    """

    eager: Callable[..., Any]
    swallows_output_attentions: bool


_classes: dict[type[nn.Module], AttentionClass] = {}


def find_places(model: PreTrainedModel) -> dict[Place, nn.Module]:
    """All attention modules of a model, in order.

    Raises:
        ValueError: If there is none, or one that the registry does not reach, or that computes something of its own.
    """
    found = {path: module for path, module in model.named_modules() if _is_dispatching(module)}
    strangers = {type(module).__name__ for module in model.modules() if _has_own_softmax(module)}
    strangers |= {type(module).__name__ for module in found.values() if _is_peculiar(module)}
    if strangers or not found:
        what = (
            f"computes attention in its own way ({', '.join(sorted(strangers))})" if strangers else "has no attention"
        )
        raise ValueError(
            f"{type(model).__name__} {what} that transformers' attention interface could replace. These models work: "
            f"{', '.join(REACHED)}, and others whose attention goes through that interface. A part of a model can be "
            "converted by itself, e.g. make_stochastic(model.vision_model)."
        )
    kinds = [(path, kind_of(path, module)) for path, module in found.items()]
    numbers = number_places(kinds)
    return {
        Place(
            path=path,
            kind=kind,
            number=number,
            num_heads=_num_heads(module),
            head_dim=_head_dim(module),
            is_causal=bool(getattr(module, "is_causal", False)) or (kind == "self" and _is_masked(path, model)),
        ): module
        for (path, kind), number, module in zip(kinds, numbers, found.values(), strict=True)
    }


def attention_class(module: nn.Module) -> AttentionClass:
    """What the class of an attention module is like; looked up once, since this is asked in every forward pass."""
    kind = type(module)
    if kind not in _classes:
        eager = inspect.unwrap(kind.forward).__globals__[_EAGER]
        _classes[kind] = AttentionClass(eager, "output_attentions" in inspect.signature(kind.forward).parameters)
    return _classes[kind]


def _is_masked(path: str, model: PreTrainedModel) -> bool:
    """Whether a model around the module gives it causal masks and no others, as CLIP does to its text."""
    parents = [path[:place] for place, letter in enumerate(path) if letter == "."]
    for parent in [*reversed(parents), ""]:
        names = _names(type(model.get_submodule(parent)).forward)
        if "create_causal_mask" in names:
            return "create_bidirectional_mask" not in names
    return False


def _is_dispatching(module: nn.Module) -> bool:
    names = _names(inspect.unwrap(type(module).forward))
    return _REGISTRY in names and _EAGER in names


def _is_peculiar(module: nn.Module) -> bool:
    """Whether eager attention of this module is more than scores, mask, softmax, dropout and product."""
    if getattr(module, "reorder_and_upcast_attn", False):  # an option of GPT-2, which only "eager" itself obeys
        return True
    # Differential attention reads halves of the values with the same scores, in two calls: each would draw its own.
    if hasattr(module, "lambda_q1"):
        return True
    code = inspect.unwrap(attention_class(module).eager).__code__
    arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return not (set(code.co_names) <= _PLAIN_NAMES and set(arguments) <= _PLAIN_ARGUMENTS)


def _has_own_softmax(module: nn.Module) -> bool:
    """Whether this is attention, and neither it nor a part of it goes through the registry."""
    kind = type(module)
    if "attention" not in kind.__name__.lower() or any(_is_dispatching(part) for part in module.modules()):
        return False
    methods = (value for owner in kind.__mro__ if owner is not nn.Module for value in vars(owner).values())
    return any("softmax" in _names(method) for method in methods)


def _names(function: Any) -> frozenset[str]:
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    return frozenset(_names_of_code(code)) if isinstance(code, CodeType) else frozenset()


def _names_of_code(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_of_code(constant)


def _num_heads(module: nn.Module) -> int:
    return _size(module, ("num_heads", "num_attention_heads", "n_heads"))


def _head_dim(module: nn.Module) -> int:
    names = ("qk_head_dim", "head_dim", "attention_head_size", "key_value_proj_dim", "head_size")
    found = _first(module, names)
    keys = next((one for name in ("k_proj", "key") if isinstance(one := getattr(module, name, None), nn.Linear)), None)
    if found is None and keys is not None:  # a width in the configuration need not be that of this module (SAM)
        heads = _first(module, ("num_key_value_heads",)) or _num_heads(module)
        return keys.out_features // heads
    return _size(module, names) if found is None else found


def _size(module: nn.Module, names: tuple[str, ...]) -> int:
    found = _first(module, names)
    if found is None:
        raise ValueError(f"{type(module).__name__} says none of {', '.join(names)}, so its heads cannot be told")
    return found


def _first(module: nn.Module, names: tuple[str, ...]) -> int | None:
    """The first of these numbers that a module, or else its configuration, has."""
    for owner in (module, getattr(module, "config", None)):
        for name in names:
            value = getattr(owner, name, None)
            if isinstance(value, int):
                return value
    return None
