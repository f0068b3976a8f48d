"""Which sentence pairs make a batch: those of one source length, as many as a budget of tokens allows.

A batch of equal source lengths has no padding on the source side, so a recurrent encoder needs no packing and no
attention weight is masked. Which rows make a batch is a function of (seed, epoch) alone, so a run can be resumed in
the middle of an epoch.

Size letters: N sentence pairs, B rows of a batch.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["TokenBuckets"]

Integers = npt.NDArray[np.int64]


class TokenBuckets:
    """Which rows make which batch.

    Rows are sorted by source length, then by target length, and cut where a batch is full or the source length
    changes. An epoch shuffles rows of the same lengths among themselves and then the batches. So every epoch has the
    same number of batches, and every row occurs once in each.

    Several processes share one plan: a batch is dealt out row by row, so all get nearly the same amount of work, and
    the union of what they see in a step is what one process would see. The budget is that of the whole batch.

    Args:
        source_lengths: (N) pieces of each source sentence.
        target_lengths: (N) pieces of each target sentence, end of sentence included.
        max_tokens: Budget: rows times the longest sentence of either side, padding included, stays within it.
        max_sentences: Most rows of a batch.
        min_sentences: Fewest rows of a batch; at least the number of processes. Above 1, batches may mix source lengths
            to reach it, and then have padding.
        seed: Of the shuffling.
        source_width: Source lengths 1 to `source_width` make one bucket, the next as many another, and so on; with 1
            all source sentences of a batch are equally long.
        target_width: The same for target lengths; rows are exchanged within a bucket, so wider ones mix better and pad
            more.

    Raises:
        ValueError: A row alone is over the budget, or the limits contradict each other.

    Example:
        >>> buckets = TokenBuckets([3, 2, 3, 2], [4, 4, 4, 4], max_tokens=8)
        >>> [sorted(rows.tolist()) for rows in buckets.epoch(0)]
        [[0, 2], [1, 3]]
    """

    def __init__(
        self,
        source_lengths: Sequence[int] | Tensor,
        target_lengths: Sequence[int] | Tensor,
        *,
        max_tokens: int = 1600,
        max_sentences: int = 256,
        min_sentences: int = 1,
        seed: int = 0,
        source_width: int = 1,
        target_width: int = 2,
    ) -> None:
        source, target = np.asarray(source_lengths, dtype=np.int64), np.asarray(target_lengths, dtype=np.int64)
        _check_lengths(source, target)
        self._check_limits(max_tokens, max_sentences, min_sentences, widths=(source_width, target_width))
        self.max_tokens, self.max_sentences, self.min_sentences = max_tokens, max_sentences, min_sentences
        self.seed = seed
        self._source_bucket, self._target_bucket = (source - 1) // source_width, (target - 1) // target_width
        # What a row costs must not depend on which row of its bucket it is, or epochs would differ in their cuts.
        source_bound = np.minimum((self._source_bucket + 1) * source_width, source.max())
        target_bound = np.minimum((self._target_bucket + 1) * target_width, target.max())
        bound = np.maximum(source_bound, target_bound)
        self._check_budget(bound)
        order = np.lexsort((self._target_bucket, self._source_bucket))
        self._cuts = self._cut(bound[order].tolist(), self._source_bucket[order].tolist())

    def __len__(self) -> int:
        """Batches of an epoch, the same in every epoch and for every process."""
        return len(self._cuts) + 1

    def epoch(self, number: int, *, rank: int = 0, world_size: int = 1) -> list[Tensor]:
        """The batches of one epoch, in order.

        Args:
            number: Of the epoch, from 0.
            rank: Of this process.
            world_size: Number of processes; each gets its share of every batch.

        Returns:
            Row numbers of each batch, (B) int64.

        Raises:
            ValueError: There are more processes than a batch is sure to have rows, or no such rank.
        """
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} does not exist; ranks go from 0 to {world_size - 1}")
        if world_size > self.min_sentences:
            raise ValueError(
                f"{world_size} processes share each batch, but a batch may have {self.min_sentences} row(s); "
                f"set min_sentences to {world_size} or more"
            )
        generator = np.random.default_rng([self.seed % 2**64, number])  # numpy takes no negative seed
        shuffled = generator.permutation(len(self._source_bucket))
        order = np.lexsort((shuffled, self._target_bucket, self._source_bucket))
        batches = np.split(order, self._cuts)
        return [torch.from_numpy(batches[i][rank::world_size].copy()) for i in generator.permutation(len(batches))]

    def _cut(self, bound: list[int], bucket: list[int]) -> list[int]:
        """Positions in the sorted rows where a new batch starts."""
        cuts: list[int] = []
        start = longest = 0
        for row, length in enumerate(bound):
            rows = row - start
            is_full = max(longest, length) * (rows + 1) > self.max_tokens or rows == self.max_sentences
            is_other_length = rows >= self.min_sentences and bucket[row] != bucket[row - 1]
            if rows and (is_full or is_other_length):
                cuts.append(row)
                start, longest = row, 0
            longest = max(longest, length)
        missing = self.min_sentences - (len(bound) - start)
        if missing > 0:  # the last batch is too small: take rows of the one before it, or join them
            before = start - (cuts[-2] if len(cuts) > 1 else 0)
            if before - missing >= self.min_sentences:
                cuts[-1] -= missing
            else:
                cuts.pop()
        return cuts

    @staticmethod
    def _check_limits(max_tokens: int, max_sentences: int, min_sentences: int, *, widths: tuple[int, int]) -> None:
        if min(max_tokens, max_sentences, min_sentences, *widths) < 1:
            raise ValueError("max_tokens, max_sentences, min_sentences, source_width and target_width must be positive")
        if min_sentences > 1 and max_sentences < 2 * min_sentences:
            raise ValueError(
                f"max_sentences {max_sentences} must be at least twice min_sentences {min_sentences}, or the last rows "
                "cannot be dealt out"
            )

    def _check_budget(self, bound: Integers) -> None:
        row = int(bound.argmax())
        longest = int(bound[row])
        rows = 2 * self.min_sentences if self.min_sentences > 1 else 1  # any so many rows must fit, see `_cut`
        if longest * rows > self.max_tokens:
            raise ValueError(
                f"row {row} has up to {longest:,} tokens, and max_tokens {self.max_tokens:,} must hold {rows} of it; "
                "raise max_tokens, lower min_sentences, or leave out long sentences (max_tokens of read_parallel)"
            )
        if len(bound) < self.min_sentences:
            raise ValueError(f"{len(bound)} rows cannot make a batch of min_sentences {self.min_sentences}")


def _check_lengths(source: Integers, target: Integers) -> None:
    if source.ndim != 1 or source.shape != target.shape or not len(source):
        raise ValueError(f"expected lengths of shape (N), N > 0, for both sides, got {source.shape} and {target.shape}")
    for side, lengths in (("source", source), ("target", target)):
        if lengths.min() < 1:
            raise ValueError(
                f"{side} sentence {int(lengths.argmin())} has length {int(lengths.min())}, at least 1 wanted"
            )
