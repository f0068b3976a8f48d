"""Captions of pictures as padded tensors, with the pictures' region features.

Size letters: N captions, B rows of a batch, R regions, D features, T words (end of sentence included).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from probattn.data.batches import pad_ids
from probattn.data.bpe import BOS, EOS, Tokenizer
from probattn.data.image_features import ImageFeatures

__all__ = ["CaptionBatch", "EncodedCaptions", "PictureBatch", "picture_batches"]


@dataclass(frozen=True)
class PictureBatch:
    """Some pictures.

    Attributes:
        features: (B, R, D).
        region_mask: (B, R) bool, False where there is no region.
    """

    features: Tensor
    region_mask: Tensor

    def repeated(self, count: int) -> "PictureBatch":
        """Each picture `count` times, one after another."""
        return PictureBatch(
            self.features.repeat_interleave(count, dim=0), self.region_mask.repeat_interleave(count, dim=0)
        )


@dataclass(frozen=True)
class CaptionBatch:
    """Some captions with their pictures.

    Attributes:
        features: (B, R, D).
        region_mask: (B, R) bool, False where there is no region.
        target_in: (B, T) int64, begin of sentence in front.
        target_out: (B, T) int64, end of sentence behind.
        target_mask: (B, T) bool, False for padding.
    """

    features: Tensor
    region_mask: Tensor
    target_in: Tensor
    target_out: Tensor
    target_mask: Tensor

    def to(self, device: torch.device | str) -> "CaptionBatch":
        """The same batch on another device."""
        return CaptionBatch(**{name: value.to(device) for name, value in vars(self).items()})


@dataclass(frozen=True)
class EncodedCaptions:
    """Captions as ids.

    Attributes:
        features: Of the pictures.
        images: (N) row of each caption's picture in `features`.
        captions: (N) ids of each caption, without begin and end.

    Example:
        >>> features = ImageFeatures(("a.jpg",), torch.ones(1, 4, 3))
        >>> EncodedCaptions(features, (0, 0), ((5, 6), (7,))).batch([0, 1]).target_out
        tensor([[5, 6, 2],
                [7, 2, 0]])
    """

    features: ImageFeatures
    images: tuple[int, ...]
    captions: tuple[tuple[int, ...], ...]

    @classmethod
    def from_text(
        cls, features: ImageFeatures, names: Sequence[str], captions: Sequence[Sequence[str]], tokenizer: Tokenizer
    ) -> "EncodedCaptions":
        """All captions of some pictures, picture by picture.

        Raises:
            KeyError: Pictures that have no features; the message names them.
        """
        rows = features.rows(names)
        images = tuple(row for row, of_image in zip(rows, captions, strict=True) for _ in of_image)
        return cls(features, images, tuple(tokenizer.encode(text) for of_image in captions for text in of_image))

    def __len__(self) -> int:
        return len(self.captions)

    @property
    def lengths(self) -> list[int]:
        """(N) words of each caption, end of sentence included."""
        return [len(ids) + 1 for ids in self.captions]

    def batch(self, rows: Sequence[int] | Tensor) -> CaptionBatch:
        """Some captions as tensors."""
        numbers = [int(row) for row in rows]
        features, region_mask = self.features.batch([self.images[row] for row in numbers])
        target_in, target_mask = pad_ids([(BOS, *self.captions[row]) for row in numbers])
        target_out, _ = pad_ids([(*self.captions[row], EOS) for row in numbers])
        return CaptionBatch(features, region_mask, target_in, target_out, target_mask)

    def batches(self, max_rows: int = 256) -> list[list[int]]:
        """Rows of all captions in batches of similar lengths."""
        order = sorted(range(len(self)), key=lambda row: (len(self.captions[row]), row))
        return [order[start : start + max_rows] for start in range(0, len(order), max_rows)]


def picture_batches(features: ImageFeatures, rows: Sequence[int], *, max_rows: int = 256) -> list[PictureBatch]:
    """Pictures by their rows, in order."""
    return [PictureBatch(*features.batch(rows[start : start + max_rows])) for start in range(0, len(rows), max_rows)]
