"""Where attention stands in someone else's model, and which of these places are to become stochastic."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import nn

__all__ = ["Kind", "Only", "Place", "check_heads", "choose", "kind_of", "number_places", "whole_numbers"]

Kind = Literal["self", "cross"]
"""Self-attention, or attention of a decoder to an encoder."""

Only = Literal["self", "cross", "all"]
"""Which kinds are converted."""

_CROSS = re.compile(r"cross|encdec|encoder_attn", re.IGNORECASE)
_DECODER = re.compile(r"(?:^|\.)(?:\w+_)?decoder(?:\.|$)")
_FIRST_NUMBER = re.compile(r"(?:^|\.)\d+(?:\.|$)")
_NUMBERED_NAME = re.compile(r"\d+(?:\.|$)")


@dataclass(frozen=True)
class Place:
    """One attention module of a model: what a prior may be built from.

    Attributes:
        path: Of the module in the model; the name of its site in receipts.
        kind: Self- or cross-attention.
        number: Of the layer: 0, 1, ... among the places of one kind in one stack (an encoder, a decoder).
        num_heads: Query heads that become stochastic: all of them, or those that `heads` chooses.
        head_dim: Width of one key.
        is_causal: Whether a query may look at no later key.
    """

    path: str
    kind: Kind
    number: int
    num_heads: int
    head_dim: int
    is_causal: bool = False

    @property
    def is_decoder(self) -> bool:
        """Whether a part of the path is called decoder, or some decoder."""
        return _DECODER.search(self.path) is not None


def kind_of(path: str, module: nn.Module) -> Kind:
    """Self or cross, from what libraries call them: `crossattention`, `EncDecAttention`, `encoder_attn`, ...

    Args:
        path: Of the module.
        module: The module, which may say it itself (`is_cross_attention`).
    """
    said = getattr(module, "is_cross_attention", None)
    if isinstance(said, bool):
        return "cross" if said else "self"
    nearby = [*path.split(".")[-2:], type(module).__name__]
    return "cross" if any(_CROSS.search(name) for name in nearby) else "self"


def number_places(found: Iterable[tuple[str, Kind]]) -> list[int]:
    """The layer number of each (path, kind): a count within one kind and one stack.

    A stack is a list of layers, or layers whose names end with different numbers; any other module is one by itself.

    Example:
        >>> number_places([("encoder.layer.0.attn", "self"), ("encoder.layer.1.attn", "self"), ("head", "self")])
        [0, 1, 0]
        >>> number_places([("block1.attn", "self"), ("block2.attn", "self")])
        [0, 1]
    """
    seen: Counter[tuple[str, Kind]] = Counter()
    numbers = []
    for path, kind in found:
        stack = _stack(path)
        numbers.append(seen[stack, kind])
        seen[stack, kind] += 1
    return numbers


def choose(places: Sequence[Place], layers: Iterable[int] | None, only: Only) -> list[Place]:
    """The places that are to become stochastic.

    Args:
        places: All of them.
        layers: Layer numbers; negative ones count from the end of each stack. None: all layers.
        only: The kind.

    Raises:
        ValueError: If nothing is left, or a number names no layer.
        TypeError: If the layers are no numbers.
    """
    if only not in ("self", "cross", "all"):
        raise ValueError(f"only must be 'self', 'cross' or 'all', got {only!r}")
    left = [place for place in places if only in ("all", place.kind)]
    if not left:
        raise ValueError(f"the model has no {only}-attention, only {places[0].kind}-attention")
    if layers is None:
        return left
    numbers = whole_numbers("layers", layers)
    depth = 1 + max(place.number for place in left)
    if not numbers or not all(-depth <= number < depth for number in numbers):
        raise ValueError(f"layers must be numbers from {-depth} to {depth - 1}, at least one; got {numbers}")
    stacks = [(_stack(place.path), place.kind) for place in left]
    depths = Counter(stacks)
    return [
        place
        for place, stack in zip(left, stacks, strict=True)
        if place.number in {number if number >= 0 else depths[stack] + number for number in numbers}
    ]


def whole_numbers(name: str, values: Iterable[int]) -> list[int]:
    """Numbers of layers or heads as a list.

    Args:
        name: Of the argument.
        values: What was given for it.

    Raises:
        TypeError: If it is no collection, or holds anything but whole numbers.
    """
    found = None if isinstance(values, str) or not isinstance(values, Iterable) else list(values)
    if found is None or any(not isinstance(value, int) or isinstance(value, bool) for value in found):
        raise TypeError(f"{name} must be a list of whole numbers, e.g. {name}=[0]; got {values!r}")
    return found


def check_heads(heads: Iterable[int] | None, places: Sequence[Place]) -> tuple[int, ...] | None:
    """Head numbers in order, without repetition; None for all of them.

    Raises:
        ValueError: If a number names no head of one of the places.
        TypeError: If the heads are no numbers.
    """
    if heads is None:
        return None
    numbers = sorted(set(whole_numbers("heads", heads)))
    fewest = min(place.num_heads for place in places)
    if not numbers or numbers[0] < 0 or numbers[-1] >= fewest:
        raise ValueError(f"heads must be numbers from 0 to {fewest - 1}, at least one; got {numbers}")
    return tuple(numbers)


def _stack(path: str) -> str:
    """What the layers of one stack have in common."""
    number = _FIRST_NUMBER if _FIRST_NUMBER.search(path) else _NUMBERED_NAME
    return number.split(path, maxsplit=1)[0]
