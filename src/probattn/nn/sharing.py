"""Repeated forward passes that compute what they have in common once.

Up to its first random number every pass over the same inputs is the same. `shared_prefix` remembers the largest calls
of submodules that ended before it, and gives their outputs back when the same submodule is called with the same
inputs. It is memoisation, so models need no special form: a stack of layers shares the layers below the first random
one, and of that layer the projections.

A call is remembered only where this can be shown to change nothing:

- torch's generators did not move during or before it;
- arguments and result are tensors, plain values, or tuples, lists and dicts of them; other objects, such as a cache
  of keys, may be written to;
- it wrote to none of its arguments, and none of its submodules changed an attribute, a buffer, or an attribute of an
  object that is an attribute; nor did anybody else before the output is used again;
- no submodule inside it has a hook, which would not run.

A result that was written to afterwards is not used again. What is not noticed: writing behind torch's back (`.data`,
numpy views), objects inside of objects, noise from other generators than torch's default ones, and state outside the
model.
"""

import copy
import enum
import functools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

__all__ = ["generator_states", "gpu_indices", "have_moved", "is_plain", "shared_prefix"]

_PLAIN = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    slice,
    range,
    torch.dtype,
    torch.device,
    torch.Size,
    enum.Enum,
)


_BOXES = (dict, set, deque, bytearray, np.ndarray)
"""What can be written to and is no tree to torch, e.g. a Counter; compared with a copy."""


def is_plain(value: object) -> bool:
    """Whether it is a value that nobody can write to."""
    return isinstance(value, _PLAIN)


@contextmanager
def shared_prefix(model: nn.Module) -> Iterator[None]:
    """Let the forward passes inside the block share what comes before the first random number.

    The first pass is recorded; later passes over the same inputs give bit for bit what they would give outside the
    block. To be used without gradients.

    Args:
        model: Any module. A compiled one is left alone.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5))
        >>> x = torch.ones(1, 2)
        >>> with torch.no_grad(), shared_prefix(model):
        ...     first, second = model(x), model(x)  # the linear layer runs once
    """
    if _is_out_of_reach(model):
        yield
        return
    memory = _CallMemory(model)
    before = {module: vars(module).get("forward") for module in model.modules()}
    for module in before:
        vars(module)["forward"] = memory.wrapped(module)
    try:
        yield
    finally:
        for module, forward in before.items():
            if forward is None:
                del vars(module)["forward"]
            else:
                vars(module)["forward"] = forward


def gpu_indices(model: nn.Module) -> list[int]:
    """Numbers of the CUDA devices that hold the model, whose generators it may use."""
    devices = {tensor.device for tensor in [*model.parameters(), *model.buffers()]}
    return sorted(device.index or 0 for device in devices if device.type == "cuda")


def generator_states(gpus: Sequence[int]) -> list[Tensor]:
    """States of torch's default generators, of the CPU and of these CUDA devices."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(index) for index in gpus)]


def have_moved(states: Sequence[Tensor], gpus: Sequence[int]) -> bool:
    """Whether a random number was drawn since the states were taken."""
    return not all(torch.equal(a, b) for a, b in zip(states, generator_states(gpus), strict=True))


class _Values:
    """Nested arguments or results, and what they were when this was made."""

    def __init__(self, tree: Any, *, looks_inside: bool = True):
        self._tree = tree
        self._leaves, self._spec = pytree.tree_flatten(tree)
        self._versions = [_version(leaf) for leaf in self._leaves]
        self._copies = {place: copy.copy(leaf) for place, leaf in enumerate(self._leaves) if isinstance(leaf, _BOXES)}
        objects = [leaf for leaf in self._leaves if looks_inside and _has_inside(leaf)]
        self._insides = [_Values(vars(one), looks_inside=False) for one in objects]

    @property
    def is_plain(self) -> bool:
        """Whether all that is in it can be seen to have been written to."""
        return all(
            not leaf.is_inference() if isinstance(leaf, Tensor) else isinstance(leaf, _PLAIN) for leaf in self._leaves
        )

    def is_intact(self) -> bool:
        """Whether nothing in it was replaced or written to."""
        leaves, spec = pytree.tree_flatten(self._tree)
        return (
            spec == self._spec
            and all(_is_unchanged(a, b) for a, b in zip(leaves, self._leaves, strict=True))
            and [_version(leaf) for leaf in leaves] == self._versions
            and all(_is_same_box(leaves[place], before) for place, before in self._copies.items())
            and all(inside.is_intact() for inside in self._insides)
        )

    def equals(self, tree: Any) -> bool:
        """Whether another tree has the same values."""
        leaves, spec = pytree.tree_flatten(tree)
        return spec == self._spec and all(_is_equal(a, b) for a, b in zip(leaves, self._leaves, strict=True))


class _Call:
    """A call of a module that may be answered from memory."""

    def __init__(self, module: nn.Module, *, asked: _Values, output: Any):
        self.module = module
        self.output = output
        self._asked = asked
        self._answer = _Values(output)
        self._state = [_Values(vars(one)) for one in module.modules()]

    @property
    def is_pure(self) -> bool:
        """Whether it is to be remembered; asked when it ends."""
        return self._asked.is_plain and self._answer.is_plain and self._asked.is_intact()

    def answers(self, arguments: Any) -> bool:
        """Whether its output is the answer to these arguments; asked later."""
        return (
            self._asked.is_intact()
            and self._answer.is_intact()
            and self._asked.equals(arguments)
            and all(values.is_intact() for values in self._state)
        )


class _CallMemory:
    """Records the first forward pass of a model and answers calls in later ones."""

    def __init__(self, model: nn.Module):
        self._model = model
        self._gpus = gpu_indices(model)
        self._states: list[Tensor] = []
        self._attributes: dict[nn.Module, _Values] = {}
        self._is_recording = False
        self._has_recorded = False
        self._calls: list[_Call] = []

    def wrapped(self, module: nn.Module) -> Callable[..., Any]:
        """The module's forward, answered from memory where that is possible."""
        original = module.forward

        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            if module is self._model and not self._has_recorded:
                return self._record_all(original, args, kwargs)
            if self._is_recording:
                return self._record(module, original, args, kwargs)
            for call in self._calls:
                if call.module is module and call.answers((args, kwargs)):
                    return call.output
            return original(*args, **kwargs)

        return forward

    def _record_all(self, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self._has_recorded = self._is_recording = True
        self._states = generator_states(self._gpus)
        self._attributes = {module: _Values(vars(module)) for module in self._model.modules()}
        try:
            return original(*args, **kwargs)
        finally:
            self._stop()

    def _record(self, module: nn.Module, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if have_moved(self._states, self._gpus):
            self._stop()
            return original(*args, **kwargs)
        asked = _Values((args, kwargs))
        first_inside = len(self._calls)
        output = original(*args, **kwargs)
        if self._is_recording and have_moved(self._states, self._gpus):
            self._stop()
        if self._is_recording:
            call = _Call(module, asked=asked, output=output)
            if call.is_pure and not _hides_hooks(module):
                self._calls[first_inside:] = [call]  # in place of those that ran inside it
        return output

    def _stop(self) -> None:
        if not self._is_recording:
            return
        self._is_recording = False
        changed = {module for module, values in self._attributes.items() if not values.is_intact()}
        self._calls = [call for call in self._calls if changed.isdisjoint(call.module.modules())]
        self._attributes = {}


def _hides_hooks(module: nn.Module) -> bool:
    """Whether hooks of modules inside it would not run; its own ones do."""
    return any(one._forward_hooks or one._forward_pre_hooks for one in module.modules() if one is not module)


def _is_out_of_reach(model: nn.Module) -> bool:
    """Whether replacing `forward` would not reach the model, or would leave out hooks of all modules."""
    shared = torch.nn.modules.module
    has_global_hooks = bool(shared._global_forward_hooks or shared._global_forward_pre_hooks)
    return has_global_hooks or any(
        isinstance(module, torch.jit.ScriptModule) or hasattr(module, "_orig_mod") or module._compiled_call_impl
        for module in model.modules()
    )


def _version(leaf: object) -> int | None:
    """How often a tensor was written to; its views count with it."""
    return leaf._version if isinstance(leaf, Tensor) and not leaf.is_inference() else None


def _is_same_box(box: Any, before: Any) -> bool:
    if isinstance(box, np.ndarray):
        return box.shape == before.shape and box.dtype == before.dtype and bool(np.array_equal(box, before))
    return bool(type(box) is type(before) and box == before)


def _has_inside(leaf: object) -> bool:
    """Whether it is an object with attributes, through which modules may talk; modules are looked at themselves."""
    known = (Tensor, nn.Module, type, ModuleType, *_PLAIN, *_BOXES)
    return hasattr(leaf, "__dict__") and not (isinstance(leaf, known) or callable(leaf))


def _is_unchanged(leaf: object, before: object) -> bool:
    return leaf is before or (isinstance(leaf, _PLAIN) and _is_same_plain(leaf, before))


def _is_same_plain(a: object, b: object) -> bool:
    return type(a) is type(b) and a == b


def _is_equal(a: object, b: object) -> bool:
    if a is b:
        return True
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        return isinstance(a, _PLAIN) and _is_same_plain(a, b)
    if a.is_nested or b.is_nested or a.layout != torch.strided or b.layout != torch.strided:
        return False  # torch.equal does not take them
    return a.shape == b.shape and a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
