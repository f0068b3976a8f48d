"""Outputs of `transformers` models with up to three entries more.

An output is a dataclass, and data parallelism takes it apart and builds it again by its fields. So an entry that is no
field is lost or refused, and each class of outputs needs a subclass that has it.
"""

import copy
import sys
from collections.abc import Callable
from dataclasses import field, fields, is_dataclass, make_dataclass
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

__all__ = ["add_kl", "prepare_outputs"]

_extended: dict[type[ModelOutput], type[ModelOutput]] = {}


def prepare_outputs(model: PreTrainedModel) -> None:
    """Make the subclasses that the model may need, since compiled code cannot make classes."""
    for kind in type(model).__mro__:
        module = sys.modules.get(kind.__module__)
        for value in list(vars(module).values()) if module is not None else ():
            if isinstance(value, type) and issubclass(value, ModelOutput) and value is not ModelOutput:
                _with_kl(value)


def add_kl(outputs: dict[str, Any], kl: Tensor, cost: Tensor, *, adds_to_loss: bool) -> dict[str, Any]:
    """The same output with the entries `kl` and `kl_cost`, and with `task_loss` where the cost is added to a loss.

    Args:
        outputs: Of the model: one of transformers' outputs, or a dictionary.
        kl: (B) nats per example.
        cost: () what belongs to the loss.
        adds_to_loss: Whether the loss, if there is one, gets it.
    """
    added: dict[str, Any] = {"kl": kl, "kl_cost": cost}
    if adds_to_loss and outputs.get("loss") is not None:
        # A large cost swallows the task's loss in the sum.
        added.update(task_loss=outputs["loss"], loss=outputs["loss"] + cost)
    if not is_dataclass(outputs):  # a dictionary, or a plain ModelOutput, which has no `update`
        extended = copy.copy(outputs)
        for name, value in added.items():
            extended[name] = value
        return extended
    names = [item.name for item in fields(outputs)]
    values = {name: outputs[name] for name in outputs if name in names}
    made: ModelOutput = _with_kl(type(outputs))(**{**values, **added})
    for name in outputs:
        if name not in names:  # what a model has put into it besides
            made[name] = outputs[name]
    return made


def _with_kl(kind: type[ModelOutput]) -> type[ModelOutput]:
    if kind not in _extended:
        entries = [(name, Tensor | None, field(default=None)) for name in ("kl", "kl_cost", "task_loss")]
        members = {"__doc__": kind.__doc__, "__reduce__": _reduce}
        _extended[kind] = make_dataclass(kind.__name__, entries, bases=(kind,), namespace=members)
    return _extended[kind]


def _reduce(outputs: ModelOutput) -> tuple[Callable[..., ModelOutput], tuple[Any, ...]]:
    """Pickle by the class that has a name; the one with a KL is made again from it."""
    values = {item.name: getattr(outputs, item.name) for item in fields(outputs)}  # type: ignore[arg-type]
    return _rebuild, (type(outputs).__mro__[1], values)


def _rebuild(kind: type[ModelOutput], values: dict[str, Any]) -> ModelOutput:
    return _with_kl(kind)(**values)
