"""Which types of a joint vocabulary a model can produce: those of the target side, so that its softmax is smaller."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from probattn.data.bpe import BOS, EOS, PAD, UNK, Tokenizer

__all__ = ["OutputVocabulary", "target_types"]


@dataclass(frozen=True)
class OutputVocabulary:
    """The types that a model can produce: a part of a joint vocabulary, numbered anew without gaps.

    The four special types are always part of it and keep their ids, so padding is 0 on both sides.

    Attributes:
        full_ids: (O) int64, ascending: for each output id the id in the joint vocabulary.
        output_ids: (V) int64: for each id of the joint vocabulary its output id, UNK where it cannot be produced.

    Example:
        >>> outputs = OutputVocabulary.from_ids([9, 7, 7], vocabulary_size=10)
        >>> outputs.full_ids
        tensor([0, 1, 2, 3, 7, 9])
        >>> outputs.to_output(torch.tensor([7, 8, 9])), outputs.to_full(torch.tensor([4]))
        (tensor([4, 3, 5]), tensor([7]))
    """

    full_ids: Tensor
    output_ids: Tensor

    @classmethod
    def from_ids(cls, ids: Iterable[int], *, vocabulary_size: int) -> "OutputVocabulary":
        """The vocabulary of some ids; they may repeat.

        Args:
            ids: Ids of the joint vocabulary.
            vocabulary_size: V.
        """
        kept = sorted({PAD, BOS, EOS, UNK, *ids})
        if kept[0] < 0 or kept[-1] >= vocabulary_size:
            raise ValueError(
                f"ids go from {kept[0]} to {kept[-1]}, but the joint vocabulary has {vocabulary_size} types"
            )
        full_ids = torch.tensor(kept)
        output_ids = torch.full((vocabulary_size,), UNK)
        output_ids[full_ids] = torch.arange(len(kept))
        return cls(full_ids, output_ids)

    def __len__(self) -> int:
        return len(self.full_ids)

    def to_output(self, ids: Tensor) -> Tensor:
        """Output ids of ids of the joint vocabulary, any shape; UNK for those that cannot be produced."""
        return self.output_ids[ids]

    def to_full(self, ids: Tensor) -> Tensor:
        """Ids of the joint vocabulary of output ids, any shape."""
        return self.full_ids[ids]

    def to(self, device: torch.device | str) -> "OutputVocabulary":
        """The same on another device."""
        return OutputVocabulary(self.full_ids.to(device), self.output_ids.to(device))


def target_types(tokenizer: Tokenizer, lines: Iterable[str]) -> OutputVocabulary:
    """The types that occur in the target side of the training text, which the output softmax is restricted to."""
    ids = {number for line in lines for number in tokenizer.encode(line)}
    return OutputVocabulary.from_ids(ids, vocabulary_size=tokenizer.vocabulary_size)
