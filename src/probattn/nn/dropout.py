"""Dropout that costs little on a CPU."""

import torch
from torch import Tensor, nn

__all__ = ["Dropout"]

_LEVELS = 2**16  # of a random 16-bit number


class Dropout(nn.Module):
    """The law of `torch.nn.Dropout` with 16 random bits an element instead of a random float.

    Where the mask is a large part of a step, as on graphs, this is several times faster on a CPU. `p` is rounded to a
    multiple of 2**-16, and kept elements are divided by exactly what is kept. Other devices use torch's own.

    Args:
        p: Share of elements that become zero while training.
    """

    def __init__(self, p: float = 0.5):
        super().__init__()
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"a dropout rate lies between 0 and 1, got {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """X with elements dropped in training mode, else X itself."""
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return nn.functional.dropout(x, self.p)
        num_dropped = round(self.p * _LEVELS)
        if num_dropped == _LEVELS:
            return x * 0.0
        return x * keep_mask(x.shape, num_dropped).to(x.dtype).mul_(_LEVELS / (_LEVELS - num_dropped))

    def extra_repr(self) -> str:
        """For printing."""
        return f"p={self.p}"


def keep_mask(shape: torch.Size, num_dropped: int) -> Tensor:
    """Bool mask from torch's generator; False with probability `num_dropped` / 2**16."""
    count = shape.numel()
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)  # all 64 bits are random
    bits = words.view(torch.int16)[:count]
    return (bits >= num_dropped - _LEVELS // 2).view(shape)
