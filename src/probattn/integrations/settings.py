"""What a conversion was asked for, as a record that a configuration file can hold."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from probattn.core import schedules
from probattn.core.schedules import Constant, Schedule
from probattn.distributions import Family, PriorFamily, families
from probattn.integrations.places import Only
from probattn.integrations.priors import PriorRecipe

__all__ = ["KlUnit", "Settings", "from_plain", "is_held", "to_plain"]

KlUnit = Literal["weight", "example"]
"""What the KL in the loss is counted per: an attention weight (a pair of a query and a key that it may see, in one head
of one layer), or an example."""

# What stands in a file where a function was given, or an object that is no dataclass; a file can hold neither.
_FUNCTION, _OBJECT = "a function", "an object"


@dataclass(frozen=True)
class Settings:
    """The arguments of a conversion.

    Attributes:
        family: Of the weights.
        prior: See `PriorRecipe`.
        layers: Layer numbers; None for all.
        heads: Head numbers; None for all.
        only: Which kind of attention.
        kl_weight: Of the KL in the loss, as a function of the step.
        kl_per: The unit of that KL.
    """

    family: Family
    prior: PriorRecipe | None = None
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    only: Only = "all"
    kl_weight: Schedule = field(default_factory=Constant)
    kl_per: KlUnit = "weight"

    def __post_init__(self) -> None:
        if not isinstance(self.kl_weight, Schedule):
            raise TypeError(
                f"kl_weight must be a number or a schedule such as Linear(0, 1, steps=100), got {self.kl_weight!r}"
            )
        first = float(self.kl_weight(0))
        if not 0.0 <= first < math.inf:
            raise ValueError(f"kl_weight must be finite and not negative, got {first} at step 0; 0 leaves the KL out")
        if self.kl_per not in ("weight", "example"):
            raise ValueError(f"kl_per must be 'weight' or 'example', got {self.kl_per!r}")


def to_plain(settings: Settings) -> dict[str, Any]:
    """Dictionaries, lists, numbers and strings that JSON can hold.

    A family, a prior family or a function that it cannot hold is named as such, and is to be given again.

    Raises:
        TypeError: If something else cannot be written.
    """
    plain = {}
    for item in fields(settings):
        value = getattr(settings, item.name)
        is_object = item.name in ("family", "prior") and isinstance(value, Family | PriorFamily)
        plain[item.name] = _OBJECT if is_object and not is_dataclass(value) else _encode(value)
        try:
            json.dumps(plain[item.name])
        except TypeError as error:
            raise TypeError(
                f"{item.name} must be of numbers, strings and tensors, which config.json can hold, got {value!r}: "
                f"{error}; make other parts of it arguments with such values"
            ) from error
    return plain


def is_held(value: Any) -> bool:
    """Whether an entry of `to_plain` says what was given, and not only that it has to be given again."""
    return value not in (_FUNCTION, _OBJECT)


def from_plain(plain: Mapping[str, Any], *, family: Family | None = None, prior: PriorRecipe | None = None) -> Settings:
    """Settings from what `to_plain` gave.

    Args:
        plain: Its result.
        family: The family, where it is no dataclass.
        prior: The function that made the priors, where one did, or a prior family that is no dataclass.

    Raises:
        ValueError: If one of these is missing or not wanted, a class has a name that this release does not know, or
            this is no such result.
    """
    known = [item.name for item in fields(Settings)]
    if not isinstance(plain, Mapping) or not {"family", "prior"} <= set(plain) <= set(known):
        raise ValueError(f"expected settings of a conversion, with the entries {', '.join(known)}, got {plain!r}")
    given = {"family": family, "prior": prior}
    values: dict[str, Any] = {name: _decode(value) if is_held(value) else given[name] for name, value in plain.items()}
    if plain["prior"] == _FUNCTION and prior is None:
        raise ValueError("the priors of this model were made by a function; pass it again, as prior=...")
    for name, own in given.items():
        if not is_held(plain[name]) and own is None:
            raise ValueError(f"the {name} of this model is no dataclass, so no file holds it; pass it as {name}=...")
        if is_held(plain[name]) and own is not None:
            raise ValueError(
                f"this model was saved with the {name} {values[name]!r}, which is loaded with it; leave out "
                f"{name}=..., or load the plain model with from_pretrained and convert it anew"
            )
    for name in ("layers", "heads"):
        values[name] = None if values.get(name) is None else tuple(values[name])
    return Settings(**values)


def _inside(holder: Any, name: str) -> Any:
    """A field of a family, a prior family or a schedule; a function there could not be given again at loading."""
    value = getattr(holder, name)
    if callable(value) and not isinstance(value, Family | PriorFamily | Schedule | Tensor):
        raise TypeError(f"{type(holder).__name__}({name}=...) holds a function, which config.json cannot")
    return _encode(value)


def _encode(value: Any) -> Any:
    if isinstance(value, Family | PriorFamily | Schedule):
        if not is_dataclass(value):
            raise TypeError(f"{type(value).__name__} cannot be written into a file: make it a dataclass")
        return {
            "class": _class_name(type(value)),
            **{item.name: _inside(value, item.name) for item in fields(value)},
        }
    if isinstance(value, Tensor):
        # The value of a parameter is that of the conversion; what was learnt stands with the other weights.
        if not isinstance(value, nn.Parameter):
            return {"class": "Tensor", "values": value.detach().tolist()}
        return {"class": "Parameter", "values": value.detach().tolist(), "requires_grad": value.requires_grad}
    if hasattr(value, "tolist"):  # numpy's
        return value.item() if value.ndim == 0 else {"class": "Tensor", "values": value.tolist()}
    if isinstance(value, tuple):
        return list(value)
    return _FUNCTION if callable(value) else value


def _decode(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    arguments = {name: _decode(item) for name, item in value.items() if name != "class"}
    name = value["class"]
    if name in ("Tensor", "Parameter"):
        tensor = torch.tensor(arguments["values"])
        return nn.Parameter(tensor, arguments["requires_grad"]) if name == "Parameter" else tensor
    for module in (families, schedules):
        if name in module.__all__:
            return getattr(module, name)(**arguments)
    for kind in (Family, PriorFamily, Schedule):
        for own in _below(kind):
            if _class_name(own) == name:
                return own(**arguments)
    hint = f"; if it is yours, import {name.rpartition('.')[0]} first" if "." in name else ""
    raise ValueError(f"{name!r} is no family, prior family or schedule of this release of probattn{hint}")


def _class_name(kind: type) -> str:
    """As it stands in a file: with its module, where it is not of the library."""
    is_ours = any(getattr(module, kind.__name__, None) is kind for module in (families, schedules))
    return kind.__name__ if is_ours else f"{kind.__module__}.{kind.__qualname__}"


def _below(kind: type[Any]) -> Iterator[type[Any]]:
    """All subclasses that were imported: a file does not say what is to be imported."""
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)
