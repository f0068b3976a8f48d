"""A codebook with a random choice: q(z = code k | x) = softmax_k(-|e - code_k|² / temperature).

Codes and temperature are parameters, so one bound trains encoder, codes, posterior and prior together. As the
temperature falls to 0 the choice becomes the nearest code. What the encoder gives is centred and scaled first, by the
batch while training (with gradients through both, or the encoder would run after a centre that follows it), by moving
averages else. Otherwise an encoder that grows, or moves all vectors alike, saturates the choice within a few updates,
all vectors choose one code, and no gradient is left that could part them.

Size letters: N vectors, B examples, S positions, M positions that are read, C codes, D features.
"""

import math

import torch
from torch import Tensor, nn

from probattn.core.records import Given
from probattn.distributions import CodeChoice
from probattn.nn.codebook import k_means
from probattn.nn.conditionals import Conditional

__all__ = ["EvenReading", "SoftCodebook"]

_MAX_VECTORS = 1000
"""Vectors that the first temperature is found with."""


class SoftCodebook(Conditional):
    """Codes and a temperature; as a posterior it reads `given.context`.

    Args:
        num_codes: C.
        dim: D.
        temperature: At the start, in squared distance.
        relaxation: Of gradients, see `CodeChoice`.
        decay: Of the moving averages.

    Attributes:
        codes: (C, D).
        log_temperature: ().
        centre: (D) moving average of the mean of encoded vectors.
        width: () of their standard deviation, one for all features: a feature that fades out must not be blown up.
        is_started: () one after `start_`, else zero.
    """

    centre: Tensor
    width: Tensor
    is_started: Tensor

    def __init__(
        self, num_codes: int, dim: int, *, temperature: float = 1.0, relaxation: float = 1.0, decay: float = 0.9
    ):
        super().__init__()
        if num_codes < 1 or dim < 1:
            raise ValueError(f"SoftCodebook needs at least one code of one feature, got {num_codes} and {dim}")
        if temperature <= 0.0 or relaxation <= 0.0:
            raise ValueError(
                f"SoftCodebook(temperature) and (relaxation) must be positive, got {temperature} and {relaxation}"
            )
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"SoftCodebook(decay) must lie in [0, 1), got {decay}")
        self.relaxation = relaxation
        self.decay = decay
        self.codes = nn.Parameter(torch.randn(num_codes, dim))
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))
        self.register_buffer("centre", torch.zeros(dim))
        self.register_buffer("width", torch.ones(()))
        self.register_buffer("is_started", torch.zeros(()))

    @property
    def temperature(self) -> Tensor:
        """() in squared distance."""
        return self.log_temperature.exp()

    def forward(self, given: Given) -> CodeChoice:
        """The choice of a code for each vector of `given.context` (*unit, D)."""
        if given.context is None:
            raise ValueError("a SoftCodebook reads Given.context, which is absent; use it in a Bottleneck")
        # |e|² is the same for all codes
        products = 2.0 * self.scaled(given.context, given.mask) @ self.codes.T - self.codes.square().sum(dim=-1)
        scores = products / self.temperature
        return CodeChoice(scores, self.codes, relaxation=self.relaxation, mask=given.mask)

    def scaled(self, vectors: Tensor, mask: Tensor | None = None) -> Tensor:
        """Vectors (*unit, D) with mask (*unit), standardised, then with mean 0 and variance 1 over features."""
        centre, width = self.centre, self.width
        if self.training:
            real = vectors.flatten(0, -2) if mask is None else vectors[mask]
            centre, width = real.mean(dim=0), _deviation(real)
        return nn.functional.layer_norm((vectors - centre) / width, self.codes.shape[-1:])

    @torch.no_grad()
    def start_(self, vectors: Tensor, *, seed: Tensor, num_iterations: int = 10) -> None:
        """Put the codes onto the centres of clusters among encoded vectors, and set scale and temperature by them.

        The temperature leaves a choice half of the entropy that it can have, on average.

        Args:
            vectors: (N, D).
            seed: () int64 of the first centres.
            num_iterations: Of Lloyd's algorithm.
        """
        self._require_vectors(vectors)
        vectors = vectors.to(self.codes)
        self.centre.copy_(vectors.mean(dim=0))
        self.width.copy_(_deviation(vectors))
        scaled = self.scaled(vectors)
        centres, _ = k_means(scaled, len(self.codes), seed=seed, num_iterations=num_iterations)
        self.codes.copy_(centres)
        squared = torch.cdist(scaled[:_MAX_VECTORS], centres).square()
        self.log_temperature.fill_(_log_temperature(squared, 0.5 * math.log(len(centres))))
        self.is_started.fill_(1.0)

    @torch.no_grad()
    def update_(self, vectors: Tensor) -> None:
        """Follow the encoder: move centre and width towards those of vectors (N, D). Call it once for every batch."""
        self._require_vectors(vectors)
        vectors = vectors.to(self.centre)
        self.centre.lerp_(vectors.mean(dim=0), 1.0 - self.decay)
        self.width.lerp_(_deviation(vectors), 1.0 - self.decay)

    def _require_vectors(self, vectors: Tensor) -> None:
        if vectors.dim() != 2 or vectors.shape[-1] != self.codes.shape[-1] or len(vectors) == 0:
            raise ValueError(
                f"expected vectors (N, {self.codes.shape[-1]}) with N > 0, got {tuple(vectors.shape)}; leave out "
                "padding with vectors[mask]"
            )


class EvenReading(nn.Module):
    """Reads M states of a sequence, at the ends of M parts of nearly equal length, so that length does not show.

    Args:
        num_positions: M.
        project: From the states (B, M, H) to what a posterior reads.
    """

    def __init__(self, num_positions: int, project: nn.Module):
        super().__init__()
        if num_positions < 1:
            raise ValueError(f"EvenReading(num_positions) must be at least 1, got {num_positions}")
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
        return self.project(states[rows, places.clamp(min=0)]), mask.any(dim=-1, keepdim=True).expand(-1, count)


def _deviation(vectors: Tensor) -> Tensor:
    """() root mean square over all features of the distance from their mean."""
    return vectors.var(dim=0, correction=0).mean().clamp(min=1e-12).sqrt()


def _log_temperature(squared: Tensor, entropy: float) -> float:
    """By bisection, log of the temperature at which choices by squared distances (N, C) have that mean entropy."""
    low, high = -20.0, 20.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        log_probs = torch.log_softmax(-squared / math.exp(middle), dim=-1)
        is_sharp = float(-(log_probs.exp() * log_probs).sum(dim=-1).mean()) < entropy
        low, high = (middle, high) if is_sharp else (low, middle)
    return 0.5 * (low + high)
