"""A fixed number of vectors from a sequence of any length: what a memory of few latents is made from.

As many for every sequence, so their number does not tell its length.

Size letters: B examples, S positions, M positions that are read, H features of a state, D of what is read.
"""

import torch
from torch import Tensor, nn

__all__ = ["EvenReading", "LastReading", "PooledReading"]


class EvenReading(nn.Module):
    """Reads M states of a sequence, at the ends of M parts of nearly equal length.

    Of an encoder with one direction the m-th of them has seen the first m parts.

    Args:
        num_positions: M.
        project: From the states (B, M, H) to what a posterior reads, (B, M, D).
    """

    def __init__(self, num_positions: int, project: nn.Module):
        super().__init__()
        _require_positions(type(self).__name__, num_positions)
        self.num_positions = num_positions
        self.project = project

    def forward(self, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """What is read, (B, M, D), and its mask (B, M), from states (B, S, H) with mask (B, S).

        A sequence that is shorter than M has states that are read more than once.
        """
        count = self.num_positions
        parts = torch.arange(1, count + 1, device=states.device)
        places = (parts * mask.sum(dim=-1, keepdim=True) + count - 1) // count - 1  # (B, M)
        rows = torch.arange(len(states), device=states.device).unsqueeze(-1)
        return self.project(states[rows, places.clamp(min=0)]), _some(mask, count)


class LastReading(nn.Module):
    """Reads M vectors out of the last state of a sequence, so that each of them has seen all of it.

    Args:
        num_positions: M.
        project: From the last state (B, H) to all that a posterior reads, (B, M * D).
    """

    def __init__(self, num_positions: int, project: nn.Module):
        super().__init__()
        _require_positions(type(self).__name__, num_positions)
        self.num_positions = num_positions
        self.project = project

    def forward(self, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """What is read, (B, M, D), and its mask (B, M), from states (B, S, H) with mask (B, S)."""
        rows = torch.arange(len(states), device=states.device)
        last = self.project(states[rows, (mask.sum(dim=-1) - 1).clamp(min=0)])  # (B, M * D)
        return last.unflatten(-1, (self.num_positions, -1)), _some(mask, self.num_positions)


class PooledReading(nn.Module):
    """Reads M vectors out of the largest value that each feature has anywhere in a sequence.

    Each of them sees all of it, and every word has a short way into it. Through the last state alone an encoder that
    has just begun to learn lets little of a sentence pass: its last states are nearly the same for all (Long et al.
    2019, "On posterior collapse and encoder feature dispersion in sequence VAEs").

    Args:
        num_positions: M.
        project: From the pooled state (B, H) to all that a posterior reads, (B, M * D).
    """

    def __init__(self, num_positions: int, project: nn.Module):
        super().__init__()
        _require_positions(type(self).__name__, num_positions)
        self.num_positions = num_positions
        self.project = project

    def forward(self, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """What is read, (B, M, D), and its mask (B, M), from states (B, S, H) with mask (B, S)."""
        lowest = torch.finfo(states.dtype).min
        pooled = states.masked_fill(~mask.unsqueeze(-1), lowest).amax(dim=1)  # (B, H)
        pooled = pooled.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)
        return self.project(pooled).unflatten(-1, (self.num_positions, -1)), _some(mask, self.num_positions)


def _require_positions(name: str, num_positions: int) -> None:
    if num_positions < 1:
        raise ValueError(f"{name}(num_positions) must be at least 1, got {num_positions}")


def _some(mask: Tensor, count: int) -> Tensor:
    """(B, M) True for sequences that are not empty."""
    return mask.any(dim=-1, keepdim=True).expand(-1, count)
