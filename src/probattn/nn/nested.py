"""Nested tensors, which torch's encoder may make from padded input in evaluation, as padded ones and back."""

import torch
from torch import Tensor

__all__ = ["pad_nested", "to_nested"]


def pad_nested(nested: Tensor) -> tuple[Tensor, Tensor]:
    """A padded copy and its padding mask.

    Returns:
        (B, T, E) padded with zeros, and (B, T) bool, True for padding.
    """
    rows = nested.unbind()
    lengths = torch.tensor([row.shape[0] for row in rows], device=nested.device)
    padded = torch.nested.to_padded_tensor(nested, 0.0)
    padding = torch.arange(padded.shape[1], device=nested.device) >= lengths.unsqueeze(-1)
    return padded, padding


def to_nested(padded: Tensor, padding: Tensor) -> Tensor:
    """(B, T, E) and (B, T) back to a nested tensor."""
    rows = [row[: int((~mask).sum())] for row, mask in zip(padded, padding, strict=True)]
    return torch.nested.as_nested_tensor(rows)
