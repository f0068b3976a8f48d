"""A point mass on the nearest code of a codebook, with straight-through gradients (DAVAM, Sec. III)."""

from collections.abc import Mapping

import torch
from torch import Tensor

from probattn.distributions.base import SampleShape, VectorDistribution, at_least_float32

__all__ = ["CodeDelta"]


class CodeDelta(VectorDistribution):
    """z = the code nearest to what the encoder gave; the gradient passes to the encoder unchanged.

    Straight-through lives here, in the sample, so no model needs a branch for vector quantisation. The KL to a prior
    over codes is the prior's cross-entropy of the chosen code (DAVAM, eq. 7), because a point mass has no entropy.

    Args:
        encoded: (*unit, D) the encoder's output.
        codes: (C, D) the codebook.
        mask: (*unit) bool, False for padded units, which cost nothing.
    """

    has_rsample = True

    def __init__(self, encoded: Tensor, codes: Tensor, *, mask: Tensor | None = None):
        encoded, codes = at_least_float32(encoded), at_least_float32(codes)
        if encoded.shape[-1] != codes.shape[-1]:
            raise ValueError(
                f"codes and encoder must have the same width, got codes {tuple(codes.shape)} and "
                f"encoded {tuple(encoded.shape)}"
            )
        self.encoded, self.codes, self.mask = encoded, codes, mask
        self.index = _nearest(encoded.detach(), codes.detach())
        """(*unit) number of the nearest code."""
        super().__init__(encoded.shape[:-1], encoded.shape[-1:], validate_args=False)

    @property
    def code(self) -> Tensor:
        """(*unit, D) the chosen codes, differentiable with respect to the codebook."""
        return self.codes[self.index]

    @property
    def plug_in(self) -> Tensor:
        """(*unit, D) the chosen codes forward, the encoder's gradient backward."""
        return self.encoded + (self.code - self.encoded).detach()

    @property
    def penalties(self) -> Mapping[str, Tensor]:
        """The commitment loss, summed over features: (*unit)."""
        return {"commitment": self.reduce((self.encoded - self.code.detach()).square())}

    def rsample(self, sample_shape: SampleShape = (), *, seed: Tensor | None = None) -> Tensor:
        """The chosen codes, repeated."""
        return self.plug_in.expand(*sample_shape, *self.plug_in.shape)

    def draw_raw(self, num_samples: int, seed: Tensor) -> Tensor:
        """(K, *unit, D) the chosen codes, repeated."""
        return self.rsample((num_samples,))

    def log_prob(self, value: Tensor) -> Tensor:
        """Zero: all mass is on the chosen code."""
        return torch.zeros(value.shape[:-1], dtype=value.dtype, device=value.device)

    def reduce(self, entries: Tensor) -> Tensor:
        """Sum over features; zero for padded units."""
        total = entries.sum(dim=-1)
        return total if self.mask is None else total.masked_fill(~self.mask, 0.0)


def _nearest(encoded: Tensor, codes: Tensor) -> Tensor:
    """(*unit) argmin over codes of |encoded - code|², without the (*unit, C, D) tensor."""
    return (codes.square().sum(dim=-1) - 2.0 * encoded @ codes.T).argmin(dim=-1)
