"""Features rotated and scaled so that they are uncorrelated and of about unit variance."""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Whitening"]

_SHRINKAGE = 0.05


@dataclass(frozen=True)
class Whitening:
    """(x - mean) V (L + 0.05 mean(L))^-1/2 with the covariance V L V^T; directions of little variance are held back.

    Attributes:
        mean: (D).
        matrix: (D, D).
    """

    mean: Tensor
    matrix: Tensor

    @classmethod
    def of_regions(cls, regions: Tensor) -> "Whitening":
        """Fitted on regions (n, D)."""
        mean = regions.double().mean(dim=0)
        variances, directions = torch.linalg.eigh(torch.cov(regions.double().T))
        scale = (variances.clamp(min=0.0) + _SHRINKAGE * variances.mean()).rsqrt()
        return cls(mean.float(), (directions * scale).float().contiguous())

    def __call__(self, regions: Tensor) -> Tensor:
        """(..., D)."""
        return (regions - self.mean) @ self.matrix
