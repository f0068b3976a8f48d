"""Counter-based noise in C++, bit for bit that of `probattn.core.noise` and about ten times faster than eager torch.

It is used by eager code on the CPU when the back end is there (see `native`).
"""

import math

import torch
from torch import Tensor

from probattn.core.noise import set_backend
from probattn.kernels import native

__all__ = ["native_uniform"]


def native_uniform(
    seed: Tensor, sizes: tuple[int, int, int, int], stream: int, first_row: int, dtype: torch.dtype
) -> Tensor | None:
    """(K, L, I, J) uniform numbers; see `probattn.core.noise.uniform`.

    Args:
        seed: () int64 on the CPU.
        sizes: K, L, I, J.
        stream: Number of the noise stream.
        first_row: What rows are counted from.
        dtype: float32 or float64.

    Returns:
        The numbers, or None where the back end is not active.
    """
    if not native.is_active(work=math.prod(sizes)):
        return None
    numbers: Tensor = torch.ops.probattn_native.uniform(seed, sizes, stream, first_row, dtype)
    return numbers


set_backend(native_uniform)
