"""A codebook with a random choice: q(z = code k | x) = softmax_k(-|e - code_k|² / temperature).

Codes and temperature are parameters, so one bound trains encoder, codes, posterior and prior together. As the
temperature falls to 0 the choice becomes the nearest code. What the encoder gives is centred and scaled first.
Otherwise an encoder that grows, or moves all vectors alike, saturates the choice within a few updates, all vectors
choose one code, and no gradient is left that could part them. There are two ways:

- Codes from the first update: by the batch while training (with gradients through both, or the encoder would run after
  a centre that follows it), by moving averages else. What a model is trained with is then not what it is tested with,
  the more so where a batch holds sentences of one length.
- After a warm-up without codes: by constants (`settle_`), alike in training and testing. The layer norm behind them
  bounds the vectors, and the likelihood parted them before the codes came.

A memory of a fixed size has a centre for each of its places: with one centre for all, vectors that are read out of one
state by a matrix for each place differ by place in 99% of their variance, and nothing of the sentence is left to choose
by. What is at which place costs nothing, because the prior knows the place.

Size letters: N vectors, C codes, D features, P places of a memory of a fixed size.
"""

import math

import torch
from torch import Tensor, nn

from probattn.core.records import Given
from probattn.distributions import CodeChoice
from probattn.nn.codebook import k_means
from probattn.nn.conditionals import Conditional

__all__ = ["SoftCodebook"]

_MAX_VECTORS = 1000
"""Vectors that the first temperature is found with."""
_COLD_ENTROPY, _WARM_ENTROPY = 0.5, 0.1
"""Share of the largest entropy that choices start with; a warm encoder's vectors say what half of it would drown."""


class SoftCodebook(Conditional):
    """Codes and a temperature; as a posterior it reads `given.context`.

    Args:
        num_codes: C.
        dim: D.
        temperature: At the start, in squared distance.
        relaxation: Of gradients, see `CodeChoice`.
        decay: Of the moving averages.
        num_places: P, where every memory has as many vectors; None for one centre, wherever a vector stands.

    Attributes:
        codes: (C, D).
        log_temperature: ().
        centre: (D), or (P, D), moving average of the mean of encoded vectors.
        width: () of their standard deviation, one for all features: a feature that fades out must not be blown up.
        is_settled: () one after `settle_`, else zero: whether centre and width are constants.
        is_started: () one after `start_`, else zero.
    """

    centre: Tensor
    width: Tensor
    is_settled: Tensor
    is_started: Tensor

    def __init__(
        self,
        num_codes: int,
        dim: int,
        *,
        temperature: float = 1.0,
        relaxation: float = 1.0,
        decay: float = 0.9,
        num_places: int | None = None,
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
        if num_places is not None and num_places < 1:
            raise ValueError(f"SoftCodebook(num_places) must be at least 1, got {num_places}")
        self.relaxation = relaxation
        self.decay = decay
        self.codes = nn.Parameter(torch.randn(num_codes, dim))
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))
        self.register_buffer("centre", torch.zeros(dim) if num_places is None else torch.zeros(num_places, dim))
        self.register_buffer("width", torch.ones(()))
        self.register_buffer("is_settled", torch.zeros(()))
        self.register_buffer("is_started", torch.zeros(()))

    @property
    def temperature(self) -> Tensor:
        """() in squared distance."""
        return self.log_temperature.exp()

    def forward(self, given: Given) -> CodeChoice:
        """The choice of a code for each vector of `given.context` (*unit, D)."""
        if given.context is None:
            raise ValueError("a SoftCodebook reads Given.context, which is absent; use it in a Bottleneck")
        scaled = self.scaled(given.context, given.mask)
        products = 2.0 * scaled @ self.codes.T - self.codes.square().sum(dim=-1)  # |e|² is the same for all codes
        scores = products / self.temperature
        return CodeChoice(scores, self.codes, relaxation=self.relaxation, mask=given.mask, encoded=scaled)

    def scaled(self, vectors: Tensor, mask: Tensor | None = None) -> Tensor:
        """Vectors (*unit, D) with mask (*unit), standardised, then with mean 0 and variance 1 over features.

        The last axis of the unit is that of the places, where they have centres of their own.
        """
        if self.centre.dim() == 2 and (vectors.dim() < 2 or vectors.shape[-2] != len(self.centre)):
            raise ValueError(f"expected memories of {len(self.centre)} vectors, got {tuple(vectors.shape)}")
        centre, width = self.centre, self.width
        if self.training and not bool(self.is_settled):
            real = self._by_place(vectors.flatten(0, -2) if mask is None else vectors[mask])
            centre, width = real.mean(dim=0), _deviation(real)
        return nn.functional.layer_norm((vectors - centre) / width, self.codes.shape[-1:])

    @torch.no_grad()
    def settle_(self, vectors: Tensor) -> None:
        """Make centre and width constants, those of vectors (N, D), in training too.

        Of memories of a fixed size these are the vectors of one memory after another, here and in the other methods.
        Call it before a warm-up without codes: what the decoder learns to read then is what the codes will be among.
        """
        self._require_vectors(vectors)
        self._measure_(vectors.to(self.codes))
        self.is_settled.fill_(1.0)

    @torch.no_grad()
    def start_(self, vectors: Tensor, *, seed: Tensor, num_iterations: int = 10, is_warm: bool = False) -> None:
        """Put the codes onto the centres of clusters among encoded vectors, and set scale and temperature by them.

        The temperature leaves a choice half of the entropy that it can have, on average; of a warm encoder a tenth.

        Args:
            vectors: (N, D).
            seed: () int64 of the first centres.
            num_iterations: Of Lloyd's algorithm.
            is_warm: Whether the encoder has been trained before. Centre and width are then constants: those of
                `settle_` or, without it, of these vectors.
        """
        self._require_vectors(vectors)
        vectors = vectors.to(self.codes)
        if is_warm and not bool(self.is_settled):
            self.settle_(vectors)
        if not bool(self.is_settled):
            self._measure_(vectors)
        scaled = self.scaled(self._by_place(vectors)).reshape(vectors.shape)
        centres, _ = k_means(scaled, len(self.codes), seed=seed, num_iterations=num_iterations)
        self.codes.copy_(centres)
        if len(centres) > 1:  # one code leaves no choice at any temperature
            squared = torch.cdist(scaled[:_MAX_VECTORS], centres).square()
            share = _WARM_ENTROPY if is_warm else _COLD_ENTROPY
            self.log_temperature.fill_(_log_temperature(squared, share * math.log(len(centres))))
        self.is_started.fill_(1.0)

    @torch.no_grad()
    def update_(self, vectors: Tensor) -> None:
        """Follow the encoder: move centre and width towards those of vectors (N, D). Call it once for every batch.

        Where they are constants nothing moves.
        """
        self._require_vectors(vectors)
        if bool(self.is_settled):
            return
        vectors = self._by_place(vectors.to(self.centre))
        self.centre.lerp_(vectors.mean(dim=0), 1.0 - self.decay)
        self.width.lerp_(_deviation(vectors), 1.0 - self.decay)

    def _by_place(self, vectors: Tensor) -> Tensor:
        """(N / P, P, D) of vectors (N, D) of whole memories; the same vectors where places do not count."""
        return vectors if self.centre.dim() == 1 else vectors.unflatten(0, (-1, len(self.centre)))

    def _measure_(self, vectors: Tensor) -> None:
        vectors = self._by_place(vectors)
        self.centre.copy_(vectors.mean(dim=0))
        self.width.copy_(_deviation(vectors))

    def _require_vectors(self, vectors: Tensor) -> None:
        if vectors.dim() != 2 or vectors.shape[-1] != self.codes.shape[-1] or len(vectors) == 0:
            raise ValueError(
                f"expected vectors (N, {self.codes.shape[-1]}) with N > 0, got {tuple(vectors.shape)}; leave out "
                "padding with vectors[mask]"
            )
        if self.centre.dim() == 2 and len(vectors) % len(self.centre) != 0:
            raise ValueError(f"expected memories of {len(self.centre)} vectors, got {len(vectors)} vectors in all")


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
