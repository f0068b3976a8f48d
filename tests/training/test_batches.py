"""How batches are dealt out to ranks and updates."""

from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from probattn.training.batches import Dealer, move


@dataclass
class Numbers:
    """Batches that are their own numbers, and what the global generator gave while each was fetched."""

    count: int
    is_streamed: bool = False
    fetched: list[int] = field(default_factory=list)

    def batches(self, epoch: int) -> Any:
        if self.is_streamed:
            return self._stream(epoch)
        return [100 * epoch + number for number in range(self.count)]

    def _stream(self, epoch: int) -> Iterator[int]:
        for number in range(self.count):
            self.fetched.append(number)
            yield 100 * epoch + number


def dealt(task: Any, *, rank: int = 0, num_ranks: int = 1, accumulate: int = 1, epoch: int = 0, start: int = 0) -> Any:
    return list(Dealer(task, 0, rank, num_ranks, accumulate).groups(epoch, start))


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("num_ranks", [1, 2, 3])
@pytest.mark.parametrize("accumulate", [1, 2, 5])
@pytest.mark.parametrize("count", [1, 6, 7])
def test_every_batch_counts_once(count: int, accumulate: int, num_ranks: int, is_streamed: bool) -> None:
    ranks = [
        dealt(Numbers(count, is_streamed), rank=rank, num_ranks=num_ranks, accumulate=accumulate)
        for rank in range(num_ranks)
    ]
    seen = []
    for groups in zip(*ranks, strict=True):
        assert len({(len(group.batches), group.end, group.is_last) for group in groups}) == 1, "ranks go in step"
        taken = [
            batch
            for group in groups
            for batch, is_counted in zip(group.batches, group.is_counted, strict=True)
            if is_counted
        ]
        assert sorted(taken) == list(range(len(seen), groups[0].end)), "an update takes batches in a row"
        seen += sorted(taken)
    assert seen == list(range(count))
    assert [group.is_last for group in ranks[0]] == [False] * (len(ranks[0]) - 1) + [True]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_start_in_the_middle(is_streamed: bool) -> None:
    whole = dealt(Numbers(7, is_streamed), accumulate=2, epoch=3)
    part = dealt(Numbers(7, is_streamed), accumulate=2, epoch=3, start=whole[1].end)
    assert part == whole[2:]
    assert part[0].batches == [304, 305]


def test_total_is_known_for_sequences_only() -> None:
    assert dealt(Numbers(3))[0].total == 3
    assert dealt(Numbers(3, is_streamed=True))[0].total is None


def test_only_own_batches_are_fetched() -> None:
    class Lazy(list[int]):
        fetched: list[int] = []

        def __getitem__(self, index: Any) -> Any:
            self.fetched.append(index)
            return super().__getitem__(index)

    class Task:
        def batches(self, epoch: int) -> Any:
            return Lazy(range(6))

    dealt(Task(), rank=1, num_ranks=2)
    assert Lazy.fetched == [1, 3, 5]


class Random:
    """Shuffles, and draws while it streams, with the global generator."""

    def batches(self, epoch: int) -> Iterator[list[Any]]:
        return self._draw(torch.randperm(5).tolist())

    def _draw(self, order: list[int]) -> Iterator[list[Any]]:
        for number in order:
            yield [number, float(torch.rand(()))]


def test_streams_may_draw_and_leave_the_noise_alone() -> None:
    before = torch.get_rng_state()
    whole = dealt(Random(), epoch=1)
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(3)
    assert dealt(Random(), epoch=1, start=2) == whole[2:]
    assert dealt(Random(), epoch=2) != whole


Pair = namedtuple("Pair", "left right")


@dataclass(frozen=True)
class Record:
    tensor: Tensor
    name: str
    derived: int = field(init=False, default=3)


def test_move() -> None:
    meta, tensor = torch.device("meta"), torch.zeros(2)
    batch = {"a": [tensor, (tensor, 1)], "b": Pair(tensor, "x"), "c": Record(tensor, "y"), "d": None}
    moved = move(batch, meta)
    assert moved["a"][0].device == moved["a"][1][0].device == moved["b"].left.device == meta
    assert moved["c"].tensor.device == meta
    assert (moved["a"][1][1], moved["b"].right, moved["c"].name, moved["c"].derived, moved["d"]) == (
        1,
        "x",
        "y",
        3,
        None,
    )
    assert move(batch, torch.device("cpu")) is batch
