"""Sentence pairs as padded tensors, for training and for decoding.

Size letters: N sentence pairs, B rows of a batch, S source pieces, T target pieces (end of sentence included).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from probattn.data.bpe import BOS, EOS, PAD, Tokenizer
from probattn.data.parallel import ParallelText

__all__ = ["EncodedText", "SourceBatch", "TranslationBatch", "decoding_batches", "restore_order"]

Result = TypeVar("Result")


@dataclass(frozen=True)
class TranslationBatch:
    """Some sentence pairs as tensors; ids are those of the joint vocabulary.

    Attributes:
        source: (B, S) int64.
        source_mask: (B, S) bool, False for padding.
        target_in: (B, T) int64, begin of sentence in front.
        target_out: (B, T) int64, end of sentence behind: what follows on each prefix of `target_in`.
        target_mask: (B, T) bool, False for padding.
        index: (B) int64, row of each pair in the text.
    """

    source: Tensor
    source_mask: Tensor
    target_in: Tensor
    target_out: Tensor
    target_mask: Tensor
    index: Tensor

    def to(self, device: torch.device | str) -> "TranslationBatch":
        """The same batch on another device."""
        return TranslationBatch(**{name: value.to(device) for name, value in vars(self).items()})


@dataclass(frozen=True)
class SourceBatch:
    """Some source sentences as tensors.

    Attributes:
        source: (B, S) int64.
        source_mask: (B, S) bool, False for padding.
        index: (B) int64, row of each sentence in the text.
    """

    source: Tensor
    source_mask: Tensor
    index: Tensor

    def to(self, device: torch.device | str) -> "SourceBatch":
        """The same batch on another device."""
        return SourceBatch(**{name: value.to(device) for name, value in vars(self).items()})


@dataclass(frozen=True)
class EncodedText:
    """Parallel text as ids.

    Attributes:
        source: Ids of each source sentence, without begin and end.
        target: Ids of each target sentence, without begin and end.
        name: For messages.

    Example:
        >>> text = EncodedText(source=((5, 6), (7,)), target=((8,), (9, 4)), name="toy")
        >>> text.batch([0, 1]).target_in
        tensor([[1, 8, 0],
                [1, 9, 4]])
    """

    source: tuple[tuple[int, ...], ...]
    target: tuple[tuple[int, ...], ...]
    name: str

    def __post_init__(self) -> None:
        if len(self.source) != len(self.target):
            raise ValueError(f"{self.name}: {len(self.source)} source and {len(self.target)} target sentences")
        for row, ids in enumerate(self.source):
            if not ids:
                raise ValueError(f"{self.name}: source sentence {row} is empty; there is nothing to attend to")

    @classmethod
    def from_text(cls, text: ParallelText, tokenizer: Tokenizer) -> "EncodedText":
        """Encode both sides with one tokenizer."""
        source = tuple(tokenizer.encode(line) for line in text.source)
        return cls(source, tuple(tokenizer.encode(line) for line in text.target), text.name)

    def __len__(self) -> int:
        return len(self.source)

    @property
    def source_lengths(self) -> list[int]:
        """(N) pieces of each source sentence."""
        return [len(ids) for ids in self.source]

    @property
    def target_lengths(self) -> list[int]:
        """(N) pieces of each target sentence, end of sentence included."""
        return [len(ids) + 1 for ids in self.target]

    def batch(self, rows: Sequence[int] | Tensor) -> TranslationBatch:
        """Some rows as tensors, each side padded to its longest sentence.

        Args:
            rows: (B) row numbers.
        """
        numbers = [int(row) for row in rows]
        source, source_mask = pad_ids([self.source[row] for row in numbers])
        target_in, target_mask = pad_ids([(BOS, *self.target[row]) for row in numbers])
        target_out, _ = pad_ids([(*self.target[row], EOS) for row in numbers])
        return TranslationBatch(source, source_mask, target_in, target_out, target_mask, torch.tensor(numbers))


def decoding_batches(
    source: Sequence[Sequence[int]], *, max_tokens: int = 4000, max_sentences: int = 256
) -> list[SourceBatch]:
    """Batches of source sentences, long ones first; `restore_order` puts the results back.

    Empty sentences are in no batch: there is nothing to translate. A sentence over the budget is a batch of its own.

    Args:
        source: N sentences of ids.
        max_tokens: Most source tokens of a batch, padding included.
        max_sentences: Most rows of a batch.
    """
    batches: list[SourceBatch] = []
    rows: list[int] = []
    for row in sorted((row for row in range(len(source)) if source[row]), key=lambda row: (-len(source[row]), row)):
        if rows and (len(source[rows[0]]) * (len(rows) + 1) > max_tokens or len(rows) == max_sentences):
            batches.append(_source_batch(source, rows))
            rows = []
        rows.append(row)
    return batches + ([_source_batch(source, rows)] if rows else [])


def restore_order(
    batches: Sequence[SourceBatch], results: Iterable[Sequence[Result]], *, num_rows: int, empty: Result
) -> list[Result]:
    """Results in the order of the text.

    Args:
        batches: What `decoding_batches` gave.
        results: For each batch one result a row.
        num_rows: N.
        empty: The result of rows that are in no batch, the empty sentences.

    Raises:
        ValueError: There are more or fewer results than rows.
    """
    ordered = [empty] * num_rows
    found = list(results)
    if [len(part) for part in found] != [len(batch.index) for batch in batches]:
        raise ValueError(f"expected {[len(batch.index) for batch in batches]} results, got {[len(p) for p in found]}")
    for batch, part in zip(batches, found, strict=True):
        for row, result in zip(batch.index.tolist(), part, strict=True):
            ordered[row] = result
    return ordered


def _source_batch(source: Sequence[Sequence[int]], rows: list[int]) -> SourceBatch:
    ids, mask = pad_ids([source[row] for row in rows])
    return SourceBatch(ids, mask, torch.tensor(rows))


def pad_ids(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Ids (B, L) with padding behind, and a mask (B, L) that is False there."""
    ids = pad_sequence([torch.tensor(row, dtype=torch.int64) for row in rows], batch_first=True, padding_value=PAD)
    length = torch.tensor([len(row) for row in rows])
    return ids, torch.arange(ids.shape[1]) < length.unsqueeze(1)
