"""What all families over attention weights share."""

from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from probattn.core.noise import fresh_seed
from probattn.core.support import Support

__all__ = ["SampleShape", "VectorDistribution", "WeightsDistribution", "at_least_float32", "precise"]

SampleShape = torch.Size | list[int] | tuple[int, ...]
"""What torch takes as a sample shape; here it has at most one size, the particles."""


def at_least_float32(x: Tensor) -> Tensor:
    """Half-precision tensors as float32: lgamma and log(-log u) need it, also under autocast."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def precise(x: Tensor) -> Tensor:
    """In float64, where the device has it, for differences of large numbers."""
    return x if x.device.type == "mps" else x.double()  # Apple's GPUs have no float64


class WeightsDistribution(Distribution):
    """A distribution over the weights of each attended set.

    Its own random variable (`raw`) holds log-weights, which need not be normalised; `realise` gives the weights.
    `batch_shape` is the support's unit shape. On `Segments` samples have the shape of the scores, (E, H), which is
    not batch plus event shape.

    Args:
        like: A tensor of the full score shape (*unit, S) or (E, H).
        support: Which positions compete.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    has_rsample = True
    has_enumerate_support = False
    raw_variable: ClassVar[str] = "log S"
    """What densities are of; those of two families can be compared at a sample only if it is the same."""
    attended: Support

    def __init__(self, like: Tensor, support: Support):
        self.attended = support
        self._value_shape = like.shape
        self._dtype, self._device = like.dtype, like.device
        unit = support.unit_shape(like)
        event = like.shape[len(unit) :] if like.shape[: len(unit)] == unit else torch.Size()
        super().__init__(unit, event, validate_args=False)

    def rsample(self, sample_shape: SampleShape = (), *, seed: Tensor | None = None) -> Tensor:
        """Differentiable raw samples of shape sample_shape + scores' shape.

        Args:
            sample_shape: At most one size.
            seed: () int64; drawn from torch's generator if absent.
        """
        if not self.has_rsample:
            raise NotImplementedError(f"{type(self).__name__} has no differentiable samples")
        return self._drawn(tuple(sample_shape), seed)

    def sample(self, sample_shape: SampleShape = (), *, seed: Tensor | None = None) -> Tensor:
        """Raw samples without gradient; arguments as for `rsample`."""
        with torch.no_grad():
            return self._drawn(tuple(sample_shape), seed)

    def realise(self, raw: Tensor) -> Tensor:
        """Normalised weights from raw log-weights; they sum to one over each set that is not empty."""
        return self.attended.log_softmax(raw).exp()

    def draw_raw(self, num_samples: int, seed: Tensor) -> Tensor:
        """(K, *scores) raw samples as a function of the seed."""
        raise NotImplementedError

    @property
    def plug_in(self) -> Tensor:
        """The weights that a deterministic pass uses; every family defines it."""
        raise NotImplementedError

    def _drawn(self, sample_shape: tuple[int, ...], seed: Tensor | None) -> Tensor:
        if len(sample_shape) > 1:
            raise ValueError(f"sample_shape has at most one size (the particles), got {sample_shape}")
        seed = fresh_seed(self._device) if seed is None else seed
        raw = self.draw_raw(sample_shape[0] if sample_shape else 1, seed)
        return raw if sample_shape else raw[0]

    def _noise_shape(self, num_samples: int) -> tuple[int, ...]:
        return (num_samples, *self._value_shape)


class VectorDistribution(Distribution):
    """A distribution over vectors (contexts, codes of sentences): its raw value is the value itself."""

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    has_enumerate_support = False
    raw_variable: ClassVar[str] = "vector"

    def realise(self, raw: Tensor) -> Tensor:
        """The vector itself."""
        return raw
