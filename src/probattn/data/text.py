"""Single sentences: plain text files of one's own, and sentences as padded tensors for an encoder and a decoder.

A file has one sentence a line. It is read as parallel text is (`parallel.py`): plain, `.gz` or `.xz`, UTF-8, words
between spaces and tabs, and what is wrong with it is reported with the number of the line.

Size letters: N sentences, B rows of a batch, S words with begin and end of sentence, T = S - 1 with one of the two.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from probattn.data.batches import pad_ids
from probattn.data.bpe import BOS, EOS, Tokenizer
from probattn.data.parallel import BadLine, read_lines, split_words

__all__ = ["EncodedSentences", "TextBatch", "TextSplits", "read_text", "require_sentences", "split_text"]

MAX_HELD_OUT = 1000


def read_text(
    path: str | Path,
    *,
    max_words: int = 1000,
    on_empty: BadLine | str = BadLine.ERROR,
    on_long: BadLine | str = BadLine.ERROR,
) -> tuple[str, ...]:
    """The sentences of a file, one a line, with one space between words.

    Lines that are left out are not counted here: compare with `len(read_lines(path))`.

    Args:
        path: Plain, `.gz` or `.xz`.
        max_words: Most words that a line may have. One line of 10,000 words costs the memory of a whole batch of its
            length.
        on_empty: What to do with a line that has no word.
        on_long: What to do with a line that has more than `max_words` words.

    Raises:
        FileNotFoundError: The file does not exist; the message suggests similar names.
        ValueError: The file cannot be unpacked, or a line is invalid UTF-8, empty or too long, or all are left out.
    """
    if max_words < 1:
        raise ValueError(f"max_words must be at least 1, got {max_words}")
    empty, long = BadLine(on_empty), BadLine(on_long)
    kept: list[str] = []
    num_empty = num_long = 0
    for number, line in enumerate(read_lines(path), 1):
        words = split_words(line) if line.strip() else []
        if not words:
            if empty is BadLine.ERROR:
                advice = 'remove it, or skip such lines (on_empty="skip")'
                raise ValueError(f"{path}, line {number}: empty line; {advice}")
            num_empty += 1
        elif len(words) > max_words:
            if long is BadLine.ERROR:
                advice = 'split the line, raise max_words, or skip such lines (on_long="skip")'
                raise ValueError(f"{path}, line {number}: {len(words):,} words, at most {max_words:,}; {advice}")
            num_long += 1
        else:
            kept.append(" ".join(words))
    if not kept:
        total = num_empty + num_long
        raise ValueError(f"{path}: all {total:,} lines were left out ({num_empty:,} empty, {num_long:,} too long)")
    return tuple(kept)


def require_sentences(sentences: Sequence[str]) -> None:
    """Raise where a model is handed something else than a list of sentences.

    Raises:
        TypeError: For one string, whose letters would be taken for sentences, and for what is no text.
    """
    if isinstance(sentences, str):
        raise TypeError(f"expected a list of sentences, got the one string {sentences!r}; put it into a list")
    for number, sentence in enumerate(sentences):
        if not isinstance(sentence, str):
            raise TypeError(f"expected sentences as strings, got {sentence!r} as number {number}")


@dataclass(frozen=True)
class TextSplits:
    """The sentences to train on and those held out.

    Attributes:
        train: To fit a model.
        valid: To choose settings and when to stop.
        test: For the figures that are reported.
    """

    train: tuple[str, ...]
    valid: tuple[str, ...]
    test: tuple[str, ...]


def split_text(lines: Sequence[str], *, num_held_out: int | None = None) -> TextSplits:
    """Hold out the end of a text: its last lines are the test set, those before them the validation set.

    Nothing is shuffled, so neighbouring sentences of a document stay together. Shuffle a file that is sorted (by
    length, by topic) before: its end is unlike its beginning. A sentence that occurs twice may be in two splits.

    Args:
        lines: N sentences.
        num_held_out: How many for validation, and as many for test; by default a twentieth of the text each, at least
            one and at most 1,000.

    Raises:
        ValueError: Fewer than one line each would be held out, or none is left to train on.

    Example:
        >>> split_text(["a", "b", "c", "d"])
        TextSplits(train=('a', 'b'), valid=('c',), test=('d',))
    """
    count = min(MAX_HELD_OUT, max(1, len(lines) // 20)) if num_held_out is None else num_held_out
    if count < 1:
        raise ValueError(f"num_held_out must be at least 1, got {count}; leave it out for a twentieth of the text")
    if len(lines) < 2 * count + 1:
        raise ValueError(
            f"the text has {len(lines):,} lines, too few for {count:,} each for validation and test and one to train "
            "on; give more text" + (", or a smaller num_held_out (corpus.test_size)" if count > 1 else "")
        )
    valid, test = len(lines) - 2 * count, len(lines) - count
    return TextSplits(tuple(lines[:valid]), tuple(lines[valid:test]), tuple(lines[test:]))


@dataclass(frozen=True)
class TextBatch:
    """Some sentences as tensors, once as an encoder reads them and once as a decoder writes them.

    Attributes:
        words: (B, S) int64, begin of sentence in front and end behind: an encoder gives one code for each of them.
        words_mask: (B, S) bool, False for padding.
        target_in: (B, T) int64, begin of sentence in front.
        target_out: (B, T) int64, end of sentence behind: what follows on each prefix of `target_in`.
        target_mask: (B, T) bool, False for padding.
        index: (B) int64, row of each sentence in the text.
    """

    words: Tensor
    words_mask: Tensor
    target_in: Tensor
    target_out: Tensor
    target_mask: Tensor
    index: Tensor

    def to(self, device: torch.device | str) -> "TextBatch":
        """The same batch on another device."""
        return TextBatch(**{name: value.to(device) for name, value in vars(self).items()})


@dataclass(frozen=True)
class EncodedSentences:
    """Single sentences as ids.

    Attributes:
        sentences: Ids of each sentence, without begin and end.
        name: For messages.

    Example:
        >>> text = EncodedSentences(sentences=((5, 6), (7,)), name="toy")
        >>> text.batch([0, 1]).words
        tensor([[1, 5, 6, 2],
                [1, 7, 2, 0]])
    """

    sentences: tuple[tuple[int, ...], ...]
    name: str

    def __post_init__(self) -> None:
        for row, ids in enumerate(self.sentences):
            if not ids:
                raise ValueError(f"{self.name}: sentence {row} is empty; leave it out, there is nothing to encode")

    @classmethod
    def from_lines(cls, lines: Iterable[str], tokenizer: Tokenizer, *, name: str) -> "EncodedSentences":
        """Encode sentences with a tokenizer of words or of pieces."""
        return cls(tuple(tokenizer.encode(line) for line in lines), name)

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def words_lengths(self) -> list[int]:
        """(N) words of each sentence, begin and end included: how many codes an encoder gives."""
        return [len(ids) + 2 for ids in self.sentences]

    @property
    def target_lengths(self) -> list[int]:
        """(N) words of each sentence, the end included: how many predictions a decoder makes."""
        return [len(ids) + 1 for ids in self.sentences]

    def batch(self, rows: Sequence[int] | Tensor) -> TextBatch:
        """Some rows as tensors, padded to the longest sentence.

        Args:
            rows: (B) row numbers.
        """
        numbers = [int(row) for row in rows]
        whole = [(BOS, *self.sentences[row], EOS) for row in numbers]
        words, words_mask = pad_ids(whole)  # (B, S)
        target_in, target_mask = pad_ids([ids[:-1] for ids in whole])  # (B, T)
        target_out, _ = pad_ids([ids[1:] for ids in whole])  # (B, T)
        return TextBatch(words, words_mask, target_in, target_out, target_mask, torch.tensor(numbers))
