"""A constant matrix with few entries, e.g. bags of words, times a dense one.

Size letters: N rows, F columns, n entries, D features.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["SparseRows"]


@dataclass(frozen=True)
class SparseRows:
    """Compressed rows, and the order that makes them compressed columns. Gradients go to the other factor only.

    Attributes:
        values: (n) entries, row by row.
        columns: (n) int64.
        row_starts: (N + 1) int64.
        rows: (n) int64 row of each entry, column by column.
        column_starts: (F + 1) int64.
        by_column: (n) int64 places of the entries, column by column.

    Example:
        >>> rows = SparseRows.from_dense(torch.tensor([[0.0, 2.0], [1.0, 0.0]]))
        >>> rows @ torch.tensor([[1.0], [10.0]])
        tensor([[20.],
                [ 1.]])
    """

    values: Tensor
    columns: Tensor
    row_starts: Tensor
    rows: Tensor
    column_starts: Tensor
    by_column: Tensor

    @classmethod
    def from_dense(cls, matrix: Tensor) -> "SparseRows":
        """The entries of (N, F) that are not zero."""
        if matrix.dim() != 2:
            raise ValueError(f"expected a matrix (N, F), got shape {tuple(matrix.shape)}")
        rows, columns = matrix.nonzero(as_tuple=True)
        by_column = columns.argsort(stable=True)
        return cls(
            values=matrix[rows, columns],
            columns=columns,
            row_starts=_starts(rows, matrix.shape[0]),
            rows=rows[by_column],
            column_starts=_starts(columns, matrix.shape[1]),
            by_column=by_column,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(N, F)."""
        return len(self.row_starts) - 1, len(self.column_starts) - 1

    def __len__(self) -> int:
        return self.shape[0]

    def map(self, function: Callable[[Tensor], Tensor]) -> "SparseRows":
        """The same entries with other values, e.g. after dropout; zeros stay zeros."""
        return replace(self, values=function(self.values))

    def to(self, device: torch.device | str) -> "SparseRows":
        """The same matrix on another device."""
        return SparseRows(**{name: value.to(device) for name, value in vars(self).items()})

    def to_dense(self) -> Tensor:
        """(N, F)."""
        dense = self.values.new_zeros(self.shape)
        rows = torch.repeat_interleave(torch.arange(len(self), device=self.values.device), self.row_starts.diff())
        dense[rows, self.columns] = self.values
        return dense

    def __matmul__(self, other: Tensor) -> Tensor:
        """(N, F) @ (F, D)."""
        if other.dim() != 2 or other.shape[0] != self.shape[1]:
            raise ValueError(f"{self.shape} cannot be multiplied with {tuple(other.shape)}")
        product: Tensor = _Product.apply(self, other)  # type: ignore[no-untyped-call]
        return product


class _Product(torch.autograd.Function):
    """Both directions are sums of rows that an embedding bag forms: forward of `other`, backward of the gradient."""

    @staticmethod
    def forward(ctx: Any, matrix: SparseRows, other: Tensor) -> Tensor:
        ctx.matrix = matrix
        return _bag(matrix.columns, other, matrix.row_starts, matrix.values)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        matrix: SparseRows = ctx.matrix
        values = matrix.values.index_select(0, matrix.by_column)
        return None, _bag(matrix.rows, gradient.contiguous(), matrix.column_starts, values)


def _bag(index: Tensor, rows: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    return nn.functional.embedding_bag(
        index, rows, starts, mode="sum", per_sample_weights=weights.to(rows.dtype), include_last_offset=True
    )


def _starts(sorted_or_not: Tensor, size: int) -> Tensor:
    """(size + 1) running counts of the numbers 0 ... size - 1."""
    counts = torch.bincount(sorted_or_not, minlength=size)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])
