"""Running a model several times over the same inputs, each time with other random numbers.

Sizes: K draws, N examples.
"""

import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from probattn.core.noise import fold_seed
from probattn.nn.dropout import drops, evaluating
from probattn.nn.sampling import Switchable, sampling
from probattn.nn.sharing import generator_states, gpu_indices, have_moved, is_plain, shared_prefix
from probattn.nn.site import Site

__all__ = ["Drawing"]

Made = TypeVar("Made")

_TURN = threading.RLock()
"""Modes, switches, seeds and the generator belong to the whole process: threads take turns."""


@dataclass(frozen=True)
class Drawing:
    """How outputs are drawn from a model.

    Attributes:
        model: Any module.
        draws: K, at least 2; of no effect where neither noise nor dropout is on: then there is one pass.
        noise: Draw attention weights in every module that can; otherwise all use plug-in weights.
        dropout: Draw dropout masks in every module that `drops`.
        seed: Of all noise.
        share: Compute what comes before the first random number once for all draws.
    """

    model: nn.Module
    draws: int
    noise: bool
    dropout: bool
    seed: int
    share: bool

    def __post_init__(self) -> None:
        name = type(self.model).__name__
        if not isinstance(self.model, nn.Module):
            raise TypeError(f"expected a model, that is an nn.Module, got {name}")
        for argument, value in (("draws", self.draws), ("seed", self.seed)):
            _require_whole(argument, value)
        if not -(2**63) <= self.seed < 2**63:
            raise ValueError(f"expected a seed below 2**63 in size, got {self.seed}")
        if self.is_random and self.draws < 2:
            raise ValueError(f"expected at least 2 draws, got {self.draws}; one draw has no spread, 20 are usual")
        if self.noise and not any(_can_draw(module) for module in self.model.modules()):
            raise ValueError(
                f"expected random attention in {name} for noise=True, got none; convert it with "
                "probattn.make_stochastic, or pass noise=False, dropout=True for dropout alone"
            )
        if self.dropout and not any(drops(module) for module in self.model.modules()):
            raise ValueError(f"expected dropout in {name} for dropout=True, got none; pass dropout=False")

    @property
    def is_random(self) -> bool:
        """Whether draws differ."""
        return self.noise or self.dropout

    def of_batches(
        self, inputs: Any, batch_size: int | None, output: Callable[[Any], Tensor], use: Callable[[Tensor], Made]
    ) -> list[Made]:
        """Run the model over all batches.

        Modes, switches and torch's generators are as before when this ends. Threads wait for each other.

        Args:
            inputs: A tensor, a tuple or list of positional arguments, or a mapping of keyword arguments.
            batch_size: Examples in a batch, along the first axis of all tensors; None: one batch.
            output: From what the model returns to a tensor (n, ...).
            use: What to make of the outputs (K, n, ...) of a batch.

        Returns:
            What was made, batch by batch.
        """
        if not callable(output):
            raise TypeError(f"expected a function as output, e.g. output=lambda outputs: outputs[0], got {output!r}")
        gpus = gpu_indices(self.model)
        with (
            _TURN,
            torch.inference_mode(False),  # its tensors do not tell whether they were written to
            torch.no_grad(),
            torch.random.fork_rng(devices=gpus),
            evaluating(self.model, dropout=self.dropout),
            _switched(self.model, self.noise),
        ):
            return [use(self._outputs(batch, start, output)) for start, batch in _batches(inputs, batch_size)]

    def _outputs(self, batch: "_Arguments", start: int, output: Callable[[Any], Tensor]) -> Tensor:
        gpus = gpu_indices(self.model)
        num_draws = self.draws if self.is_random else 1
        drawn: list[Tensor] = []
        with shared_prefix(self.model) if self.share and num_draws > 1 else nullcontext():
            for number in range(num_draws):
                _seed_generators(_draw_seed(self.seed, number, start), gpus)
                before = generator_states(gpus)
                drawn.append(output(batch.given_to(self.model)))
                if self.is_random and not have_moved(before, gpus):
                    raise ValueError(
                        f"expected random numbers in the forward pass of {type(self.model).__name__}, got none; is the "
                        "module with random attention or dropout called in it?"
                    )
                _require_numbers(drawn[-1], number)
            if not self.is_random and any(isinstance(module, Site) for module in self.model.modules()):
                self._require_the_same(drawn[0], batch, start, output)
        return torch.stack(drawn)

    def _require_the_same(
        self, drawn: Tensor, batch: "_Arguments", start: int, output: Callable[[Any], Tensor]
    ) -> None:
        """Raise if a model whose sites nobody can switch off gives other outputs with another seed."""
        _seed_generators(_draw_seed(self.seed, 1, start), gpu_indices(self.model))
        if not torch.equal(output(batch.given_to(self.model)), drawn):
            raise ValueError(
                f"noise=False, but the outputs of {type(self.model).__name__} differ from pass to pass: it has sites "
                "of its own, whose estimators it chooses itself; let it use Mean() in evaluation, or pass noise=True"
            )


@dataclass(frozen=True)
class _Arguments:
    positional: tuple[Any, ...]
    named: dict[str, Any]

    @classmethod
    def of(cls, inputs: Any) -> "_Arguments":
        """From a tensor, positional arguments or keyword arguments."""
        _require_tensors(inputs)
        if isinstance(inputs, Mapping):
            found = cls((), dict(inputs))
        else:
            found = cls(tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,), {})
        shapes = [tuple(tensor.shape) for tensor in found.tensors]
        if not (found.positional or found.named) or any(shape[:1] == (0,) for shape in shapes):
            raise ValueError(f"expected at least one example, got inputs of shapes {shapes}; leave out empty batches")
        return found

    @property
    def tensors(self) -> list[Tensor]:
        leaves = pytree.tree_leaves((self.positional, self.named))
        return [leaf for leaf in leaves if isinstance(leaf, Tensor)]

    def given_to(self, model: nn.Module) -> Any:
        """What the model returns; it gets copies of objects that it may write to, such as a cache of keys."""
        positional, named = pytree.tree_map(_fresh, (self.positional, self.named), is_leaf=_is_object)
        return model(*positional, **named)

    def require_rows(self, length: int) -> None:
        """Raise if something with an entry for each example could not be split with the tensors."""
        for value in (*self.positional, *self.named.values()):
            if isinstance(value, list | tuple) and len(value) == length and not _has_tensors(value):
                raise ValueError(
                    f"expected tensors where batches are split off, got a {type(value).__name__} of {length}, one for "
                    "each example; make it a tensor, or pass batch_size=None"
                )
            if _is_object(value):
                raise ValueError(
                    f"expected tensors where batches are split off, got {type(value).__name__}, which is not split; "
                    "make it a tensor with a row for each example, or pass batch_size=None"
                )

    def rows(self, start: int, end: int) -> "_Arguments":
        """These rows of all tensors."""
        positional, named = pytree.tree_map_only(Tensor, lambda x: x[start:end], (self.positional, self.named))
        return _Arguments(positional, named)


def _batches(inputs: Any, batch_size: int | None) -> Iterator[tuple[int, _Arguments]]:
    """Batches with the number of their first example."""
    arguments = _Arguments.of(inputs)
    if batch_size is None:
        yield 0, arguments
        return
    _require_whole("batch_size", batch_size)
    if batch_size < 1:
        raise ValueError(f"expected a batch_size of at least 1, got {batch_size}; None runs all examples at once")
    lengths = {tensor.shape[0] if tensor.dim() else 0 for tensor in arguments.tensors}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            "expected inputs with one row for each example, to split them into batches, got tensors of shapes "
            f"{[tuple(tensor.shape) for tensor in arguments.tensors]}; pass batch_size=None"
        )
    (length,) = lengths
    arguments.require_rows(length)
    for start in range(0, length, batch_size):
        yield start, arguments.rows(start, start + batch_size)


@contextmanager
def _switched(model: nn.Module, noise: bool) -> Iterator[None]:
    """The sampling switch of all modules; those that draw take a new seed from torch's generator in every call.

    A module may be called several times in a pass, and its draws must differ then. Those that do not draw get a fixed
    seed, or they would take one too and look random.
    """
    modules = [module for module in model.modules() if isinstance(module, Switchable)]
    with sampling(model, noise, seed=0) if modules else nullcontext():
        for module in modules:
            if noise and _can_draw(module):
                module.sampling_seed = None
        yield


def _can_draw(module: nn.Module) -> bool:
    if isinstance(module, Site):  # what it draws is up to the estimator that the model hands to it
        return True
    return isinstance(module, Switchable) and getattr(module, "family", module) is not None


def _is_object(value: object) -> bool:
    """Whether it is neither a tensor nor a plain value nor a box of them: a model may write to it."""
    return not (isinstance(value, Tensor | Mapping | list | tuple) or is_plain(value) or callable(value))


def _has_tensors(value: object) -> bool:
    return any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(value))


def _fresh(value: Any) -> Any:
    """The same, or a copy of an object that one pass must not change for the next."""
    if not _is_object(value):
        return value
    try:
        return copy.deepcopy(value)
    except RuntimeError as error:  # of tensors; what holds none, such as an open file, has nothing to be spoilt
        raise ValueError(
            "expected tensors and plain values as inputs, or objects that can be copied for every draw, got "
            f"{type(value).__name__}: {error}. If it holds tensors of a pass with gradients, use torch.no_grad() there"
        ) from error
    except Exception:
        return value


def _draw_seed(seed: int, number: int, start: int) -> int:
    """Of one draw of one batch."""
    return int(fold_seed(fold_seed(torch.tensor(seed), number), start))


def _seed_generators(seed: int, gpus: Sequence[int]) -> None:
    """Like `torch.manual_seed`, which would reach devices whose state is not restored."""
    torch.default_generator.manual_seed(seed)
    for index in gpus:
        torch.cuda.default_generators[index].manual_seed(seed)


def _require_whole(name: str, value: object) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool):  # numpy's whole numbers are among them
        raise TypeError(f"expected a whole number as {name}, got {value!r}")


def _require_tensors(inputs: Any) -> None:
    """Refuse text, lists and arrays in the place of tensors, which a model would refuse with a riddle.

    A model that takes text itself gets it in a tuple or a mapping; a list stands for positional arguments.
    """
    leaves = pytree.tree_leaves(dict(inputs) if isinstance(inputs, Mapping) else inputs)
    if not leaves or any(isinstance(leaf, Tensor) for leaf in leaves):
        return
    strange = next((leaf for leaf in leaves if type(leaf).__module__ == "numpy" or isinstance(leaf, int | float)), None)
    if strange is not None or isinstance(inputs, str | list):
        kind = type(leaves[0] if strange is None else strange).__name__
        raise TypeError(
            f"expected tensors as inputs, got {type(inputs).__name__} of {kind}; use torch.tensor(...), or of a "
            'tokenizer tokenizer(..., padding=True, return_tensors="pt")'
        )


def _require_numbers(outputs: Tensor, number: int) -> None:
    if not isinstance(outputs, Tensor) or not outputs.is_floating_point() or outputs.dim() == 0:
        kind = f"{outputs.dtype} {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
        raise TypeError(f"expected floating-point outputs of shape (N, ...), got {kind}; choose them with output=")
    is_bad = outputs.isnan().flatten(1).any(dim=-1) if outputs.dim() > 1 else outputs.isnan()
    if is_bad.any():
        raise ValueError(
            f"expected outputs without NaN, got NaN for {int(is_bad.sum())} of {len(outputs)} examples in draw "
            f"{number}; look for it in the inputs and in the model's weights"
        )
