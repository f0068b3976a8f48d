"""Outputs of `transformers` models with up to three entries more.

An output is a dataclass, and data parallelism takes it apart and builds it again by its fields. So an entry that is no
field is lost or refused, and each class of outputs needs a subclass that has it.
"""

import sys
from dataclasses import field, fields, make_dataclass

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


def add_kl(outputs: ModelOutput, kl: Tensor, cost: Tensor, *, adds_to_loss: bool) -> ModelOutput:
    """The same output with the entries `kl` and `kl_cost`, and with `task_loss` where the cost is added to a loss.

    Args:
        outputs: Of the model.
        kl: (B) nats per example.
        cost: () what belongs to the loss.
        adds_to_loss: Whether the loss, if there is one, gets it.
    """
    names = [item.name for item in fields(outputs)]  # type: ignore[arg-type]  # all outputs are dataclasses
    values = {name: outputs[name] for name in outputs if name in names}
    if adds_to_loss and values.get("loss") is not None:
        values["task_loss"] = values["loss"]  # a large cost swallows it in the sum
        values["loss"] = values["loss"] + cost
    extended: ModelOutput = _with_kl(type(outputs))(**values, kl=kl, kl_cost=cost)
    return extended


def _with_kl(kind: type[ModelOutput]) -> type[ModelOutput]:
    if kind not in _extended:
        entries = [(name, Tensor | None, field(default=None)) for name in ("kl", "kl_cost", "task_loss")]
        _extended[kind] = make_dataclass(kind.__name__, entries, bases=(kind,), namespace={"__doc__": kind.__doc__})
    return _extended[kind]
