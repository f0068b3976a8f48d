"""Float masks: which of their numbers hide a position.

A number that is added to a score hides the position once its weight vanishes in every precision. Code in use writes
-inf, the smallest number of a dtype, -1e9 or -1e4 for that. With plain attention they are alike; a KL over weights sees
the difference, for it has a term for every position that is not hidden.
"""

import torch
from torch import Tensor

__all__ = ["HIDES", "hidden_by", "with_infinities"]

HIDES = -1e4
"""Numbers of a float mask up to this one hide a position; exp(-1e4) is zero in every dtype. Biases that fall with the
distance, such as ALiBi's, stay above it for ten thousand positions."""


def hidden_by(mask: Tensor, *, limit: float = HIDES) -> Tensor:
    """Bool, True where a float mask hides a position.

    Args:
        mask: Added to scores.
        limit: The largest number that hides.
    """
    return mask <= limit


def with_infinities(mask: Tensor | None, *, limit: float = HIDES) -> Tensor | None:
    """The same mask with -inf where it hides; bool masks as they are.

    Args:
        mask: Bool, or float and added to scores.
        limit: The largest number that hides.

    Example:
        >>> with_infinities(torch.tensor([0.0, -2.5, -1e9]))
        tensor([ 0.0000, -2.5000,    -inf])
    """
    if mask is None or mask.dtype == torch.bool:
        return mask
    return mask.masked_fill(hidden_by(mask, limit=limit), -torch.inf)
