"""One attention problem in two forms: a padded batch, and the edge list of the same sets.

Size letters: H heads, T queries, S positions, E edges.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from probattn.core import Dense, Segments


@dataclass(frozen=True)
class Problem:
    """Sets of size 0, 1 and more, as rows of a mask.

    Attributes:
        mask: (T, S) bool.
        dense: Support of scores (H, T, S).
        segments: Support of scores (E, H), whose sets are the rows.
    """

    mask: Tensor
    dense: Dense
    segments: Segments

    def to_edges(self, x: Tensor) -> Tensor:
        """(..., H, T, S) to (..., E, H)."""
        return x[..., self.mask].transpose(-1, -2)

    def to_rows(self, x: Tensor, outside: float = 0.0) -> Tensor:
        """(..., E, H) to (..., H, T, S)."""
        rows = x.new_full((*x.shape[:-2], x.shape[-1], *self.mask.shape), outside)
        rows[..., self.mask] = x.transpose(-1, -2)
        return rows


MASK = torch.tensor(
    [
        [True, True, True, False, False],
        [True, False, True, True, False],
        [False, False, False, False, False],
        [False, True, False, False, False],
        [True, True, True, True, False],
    ]
)


def problem(mask: Tensor = MASK) -> Problem:
    """The problem of a (T, S) mask; its last column and third row are empty by default."""
    row, column = mask.nonzero(as_tuple=True)
    return Problem(mask, Dense(mask), Segments(row, mask.shape[0], source=column))


def random_scores(*shape: int, seed: int = 0, scale: float = 2.0) -> Tensor:
    """Fixed float64 scores."""
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)
