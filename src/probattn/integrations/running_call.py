"""The way from the inside of another library's `forward` to its caller, without state on the module.

A layer whose `forward` is someone else's can neither take more arguments nor return a receipt. While a call is open,
the layer's methods find it here. Each thread sees its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from probattn.core.records import Latent

__all__ = ["RunningCall", "open_call", "running_call"]


@dataclass
class RunningCall:
    """A call that is under way; its attributes come while it runs.

    Attributes:
        keys: What the projection gave when it first ran.
        latent: The receipt.
    """

    keys: Tensor = field(init=False)
    latent: Latent = field(init=False)


_current: ContextVar[RunningCall] = ContextVar("probattn_running_call")


@contextmanager
def open_call(projection: nn.Module) -> Iterator[RunningCall]:
    """A call lasts as long as this block.

    Args:
        projection: Submodule that makes the keys.
    """
    call = RunningCall()
    token = _current.set(call)
    handle = projection.register_forward_hook(_note_keys)
    try:
        yield call
    finally:
        handle.remove()
        _current.reset(token)


def running_call() -> RunningCall:
    """The call that this thread runs.

    Raises:
        RuntimeError: If there is none.
    """
    call = _current.get(None)
    if call is None:
        raise RuntimeError("this method works inside a running forward pass only; call the module itself")
    return call


def _note_keys(projection: nn.Module, inputs: Any, output: Tensor) -> None:
    # Hooks that other threads have set run here too, so the call is looked up, not kept in a closure.
    call = _current.get(None)
    if call is not None and not hasattr(call, "keys"):
        call.keys = output
