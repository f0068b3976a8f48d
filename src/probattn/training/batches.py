"""Batches of an epoch, dealt out to ranks and gathered into groups of one update each."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Protocol

import torch

from probattn.training.randomness import DATA, seeded

__all__ = ["Dealer", "Group", "move"]


@dataclass(frozen=True)
class Group:
    """What one rank works on for one update.

    Attributes:
        batches: Its batches; as many on every rank.
        is_counted: False for a batch that only keeps this rank busy while others work on the epoch's remainder: it
            gets weight zero.
        end: Batches of the epoch that are done after this group, over all ranks.
        total: Batches in the epoch, None where the task's iterable has no length.
        is_last: Whether the epoch ends here.
    """

    batches: Sequence[Any]
    is_counted: Sequence[bool]
    end: int
    total: int | None
    is_last: bool


class _Batches(Protocol):
    def batches(self, epoch: int) -> Iterable[Any]: ...


@dataclass(frozen=True)
class Dealer:
    """Deals batches out: update u takes `accumulate * num_ranks` batches in a row, rank r every num_ranks-th of them.

    So two ranks see in one update what one rank with twice the batch size sees, if the task orders its examples alike.
    """

    task: _Batches
    seed: int
    rank: int
    num_ranks: int
    accumulate: int

    @property
    def width(self) -> int:
        """Batches of one update over all ranks."""
        return self.num_ranks * self.accumulate

    def groups(self, epoch: int, start: int) -> Iterator[Group]:
        """The groups of an epoch, from the batch number `start` on."""
        with seeded(DATA, self.seed, epoch):
            batches = self.task.batches(epoch)
        total = len(batches) if isinstance(batches, Sized) else None
        is_indexed = total is not None and hasattr(batches, "__getitem__")
        windows = self._indexed if is_indexed else self._streamed
        number = start
        for get, count, is_last in windows(batches, epoch, start):
            yield self._group(get, count, end=number + count, total=total, is_last=is_last)
            number += count
        if number == 0:
            raise ValueError(f"task.batches({epoch}) gave no batch; is the training set empty?")

    def _group(self, get: Callable[[int], Any], count: int, *, end: int, total: int | None, is_last: bool) -> Group:
        rounds = -(-count // self.num_ranks)
        places = [turn * self.num_ranks + self.rank for turn in range(rounds)]
        batches = [get(place % count) for place in places]
        return Group(batches, [place < count for place in places], end=end, total=total, is_last=is_last)

    def _indexed(self, batches: Any, epoch: int, start: int) -> Iterator[tuple[Callable[[int], Any], int, bool]]:
        total = len(batches)
        for begin in range(start, total, self.width):
            end = min(begin + self.width, total)
            yield partial(_item, batches, begin), end - begin, end == total

    def _streamed(self, batches: Any, epoch: int, start: int) -> Iterator[tuple[Callable[[int], Any], int, bool]]:
        # One window is read ahead to see the end, so what the iterable draws must not touch the noise of the steps.
        def take() -> Iterator[Any]:
            with seeded(DATA, self.seed, epoch):
                iterator = iter(batches)
            number = 0
            while True:
                with seeded(DATA, self.seed, epoch, number):
                    try:
                        batch = next(iterator)
                    except StopIteration:
                        return
                yield batch
                number += 1

        stream = islice(take(), start, None)
        window = list(islice(stream, self.width))
        while window:
            following = list(islice(stream, self.width))
            yield window.__getitem__, len(window), not following
            window = following


def _item(batches: Any, begin: int, place: int) -> Any:
    return batches[begin + place]


def move(batch: Any, device: torch.device) -> Any:
    """The batch with its tensors on `device`; knows containers, dataclasses and objects with a method `to`.

    On the CPU it is the batch itself.
    """
    if device.type == "cpu":
        return batch
    if hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {key: move(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(move(value, device) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(move(value, device) for value in batch)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        items = [item.name for item in dataclasses.fields(batch) if item.init]
        return dataclasses.replace(batch, **{name: move(getattr(batch, name), device) for name in items})
    return batch
