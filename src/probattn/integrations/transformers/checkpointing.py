"""Gradient checkpointing: a pass that is repeated in the backward pass draws what the first one drew.

The repetition comes when the call is closed, and the switch may have been turned by then. So what is to be repeated
carries with it what the call knew.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from probattn.integrations.transformers.attention import StochasticAttention
from probattn.integrations.transformers.calls import ForwardCall, open_call
from probattn.nn.recording import is_recomputing

__all__ = ["repeatable"]

_FUNCTION = "_gradient_checkpointing_func"  # where transformers keeps torch's checkpoint with its options


@contextmanager
def repeatable(model: nn.Module, call: ForwardCall, sites: Iterable[StochasticAttention]) -> Iterator[None]:
    """What is checkpointed inside this block repeats the call's switch, seeds and wishes.

    Args:
        model: Whose layers transformers may checkpoint.
        call: That is under way.
        sites: Of the model.
    """
    # Compiled code has the seeds in its graph; nothing is called a second time.
    is_needed = model.training and not torch.compiler.is_compiling()
    modules = [module for module in model.modules() if _FUNCTION in vars(module)] if is_needed else []
    functions = [_bare(vars(module)[_FUNCTION]) for module in modules]
    for module, function in zip(modules, functions, strict=True):
        setattr(module, _FUNCTION, partial(_checkpoint, function, call, tuple(sites)))
    try:
        yield
    finally:
        for module, function in zip(modules, functions, strict=True):
            setattr(module, _FUNCTION, function)


def _bare(function: Callable[..., Any]) -> Callable[..., Any]:
    """Without what another thread, whose call is under way, has put around it."""
    while isinstance(function, partial) and function.func is _checkpoint:
        function = function.args[0]
    return function


def _checkpoint(
    checkpoint: Callable[..., Any],
    call: ForwardCall,
    sites: tuple[StochasticAttention, ...],
    function: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
) -> Any:
    switches = {site.place.path: site.switch for site in sites}
    visits = dict(call.visits)

    def run(*args: Any, **kwargs: Any) -> Any:
        if not is_recomputing():
            return function(*args, **kwargs)
        again = ForwardCall(call.needs_weights, call.num_past, visits=dict(visits), switches=switches, seeds=call.seeds)
        with open_call(again):
            return function(*args, **kwargs)

    return checkpoint(run, *args, **kwargs)
