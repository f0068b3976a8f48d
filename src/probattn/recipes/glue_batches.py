"""Encoded sentences in batches of similar length.

Sizes: N examples, n of a batch, T tokens of its longest.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from probattn.data.sentences import Sentences

__all__ = ["Encoded", "encode"]

_POOL = 16  # batches that are sorted by length together: little padding, and an order that still is random


@dataclass(frozen=True)
class Encoded:
    """One split as numbers.

    Attributes:
        tokens: (N) sequences of token numbers, of different lengths.
        segments: (N) sequences of 0 for the first sentence and 1 for the second.
        targets: (N) int64 classes, or float32 scores; (N, L) where a model takes several labels.
        padding: Number of the padding token.
        label_names: (L) what the model calls its labels.
    """

    tokens: Sequence[Sequence[int]]
    segments: Sequence[Sequence[int]]
    targets: Tensor
    padding: int
    label_names: tuple[str, ...] = ("labels",)

    def __len__(self) -> int:
        return len(self.tokens)

    def batch(self, places: Sequence[int]) -> dict[str, Tensor]:
        """Keyword arguments of the model but the labels, (n, T) each."""
        length = max(len(self.tokens[place]) for place in places)
        tokens = torch.full((len(places), length), self.padding)
        segments, mask = torch.zeros_like(tokens), torch.zeros_like(tokens)
        for i, place in enumerate(places):
            size = len(self.tokens[place])
            tokens[i, :size] = torch.tensor(self.tokens[place])
            segments[i, :size] = torch.tensor(self.segments[place])
            mask[i, :size] = 1
        return {"input_ids": tokens, "token_type_ids": segments, "attention_mask": mask}

    def labels(self, places: Sequence[int]) -> dict[str, Tensor]:
        """Keyword arguments of the model that make it compute its loss, (n) each."""
        chosen = self.targets[torch.tensor(places)].reshape(len(places), len(self.label_names))
        return dict(zip(self.label_names, chosen.unbind(dim=-1), strict=True))

    def shuffled(self, batch_size: int, *, seed: int) -> Iterator[list[int]]:
        """Places of the examples of every batch of an epoch, a function of the seed alone."""
        draw = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(self), generator=draw).tolist()
        batches: list[list[int]] = []
        for start in range(0, len(order), _POOL * batch_size):
            pool = sorted(order[start : start + _POOL * batch_size], key=lambda place: len(self.tokens[place]))
            batches += [pool[i : i + batch_size] for i in range(0, len(pool), batch_size)]
        for number in torch.randperm(len(batches), generator=draw).tolist():
            yield batches[number]

    def by_length(self, batch_size: int, places: Sequence[int]) -> Iterator[list[int]]:
        """Places of the examples of every batch, shortest first."""
        order = sorted(places, key=lambda place: (len(self.tokens[place]), place))
        for start in range(0, len(order), batch_size):
            yield order[start : start + batch_size]


def encode(sentences: Sentences, tokenizer: Any, *, max_tokens: int, is_score: bool) -> Encoded:
    """Token numbers with the marks that the model expects; long inputs are cut at the longer sentence's end.

    Args:
        sentences: One split.
        tokenizer: Of `transformers`.
        max_tokens: Marks included.
        is_score: Whether targets are scores.
    """
    pairs = [list(sentences.first)] if sentences.second is None else [list(sentences.first), list(sentences.second)]
    found: Mapping[str, Any] = tokenizer(
        *pairs, truncation=True, max_length=max_tokens, padding=False, return_token_type_ids=True
    )
    targets = torch.tensor(sentences.targets, dtype=torch.float32 if is_score else torch.int64)
    return Encoded(found["input_ids"], found["token_type_ids"], targets, int(tokenizer.pad_token_id))
