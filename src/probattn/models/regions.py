"""Regions of a picture as networks see them.

Size letters: B pictures, R regions, D features of a region, C features as the network sees them.
"""

import torch
from torch import Tensor, nn

__all__ = ["RegionEncoder"]


class RegionEncoder(nn.Module):
    """relu(W feature / scale + b) of every region.

    Args:
        feature_dim: D.
        context_dim: C.
        scale: Standard deviation of features, kept with the weights: features of any unit may come.
    """

    scale: Tensor

    def __init__(self, feature_dim: int, context_dim: int, *, scale: float = 1.0):
        super().__init__()
        if not scale > 0.0:
            raise ValueError(f"RegionEncoder(scale) must be positive, got {scale}; are all features the same?")
        self.project = nn.Linear(feature_dim, context_dim)
        self.register_buffer("scale", torch.tensor(scale))

    @property
    def feature_dim(self) -> int:
        """D."""
        return self.project.in_features

    @property
    def context_dim(self) -> int:
        """C."""
        return self.project.out_features

    def forward(self, features: Tensor) -> Tensor:
        """(B, R, C) from features (B, R, D)."""
        return torch.relu(self.project(features / self.scale))
