"""A codebook that stays alive: nearest codes, moving-average update, k-means start, revival of dead codes.

The posterior of DAVAM (Sec. III-B): a point mass on the code nearest to what the encoder gave, straight-through. The
codes are no parameters. They follow the encoder as moving averages, by an explicit `update_` that the training loop
calls once for every batch, so that recomputation, evaluation and several particles cannot update twice.

Size letters: N vectors, C codes, D features.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from probattn.core.estimators import Estimator
from probattn.core.noise import uniform
from probattn.core.protocols import LatentDistribution
from probattn.core.records import Draw, Given
from probattn.distributions import CodeDelta
from probattn.nn.conditionals import Conditional

__all__ = ["Codebook", "Unquantised", "k_means"]


@dataclass(frozen=True)
class Unquantised(Estimator):
    """One particle: what the encoder gave, before a code takes its place; with it an autoencoder is warmed up.

    Codes follow the encoder, and the encoder learns through codes. From the start of training neither knows what is
    worth a code; an encoder that was trained without them does, and `start_` of the codebook then finds its clusters.
    What a `SoftCodebook` read is taken as it is compared with the codes, that is, scaled.
    """

    def __call__(self, posterior: LatentDistribution, prior: LatentDistribution | None, seed: Tensor) -> Draw:
        """See `Estimator`."""
        encoded: Tensor | None = getattr(posterior, "encoded", None)
        if encoded is None:
            raise TypeError(
                "Unquantised needs a posterior over codes that has what the encoder gave, e.g. of a Codebook or a "
                f"SoftCodebook, got {type(posterior).__name__}"
            )
        return Draw(
            value=encoded.unsqueeze(0), index=None, log_weight=encoded.detach().new_zeros(1, *encoded.shape[:-1])
        )


_REMEMBERED = 14
"""Vectors for each code that the averages of a warm start remember."""


class Codebook(Conditional):
    """Codes and their moving averages; as a posterior it reads `given.context`.

    Args:
        num_codes: C.
        dim: D.
        decay: Of the moving averages (DAVAM: 0.99). The first updates forget faster, (1 + n) / (10 + n) of the past
            after n of them: an encoder that has just begun to learn moves all its vectors, and would leave the codes
            behind.
        revive_below: A code whose average count, in vectors of a batch, is below it is put onto a vector of the
            batch, its count starting at 1; 0 for never.

    Attributes:
        codes: (C, D).
        counts: (C) moving average of how many vectors of a batch chose a code.
        sums: (C, D) moving average of their sum.
        num_updates: () how often it was updated.
        is_started: () one after `start_`, else zero.

    Example:
        >>> book = Codebook(2, 1)
        >>> book.start_(torch.tensor([[0.0], [0.1], [5.0], [5.1]]), seed=torch.tensor(0))
        >>> book.codes.sort(dim=0).values
        tensor([[0.0500],
                [5.0500]])
    """

    codes: Tensor
    counts: Tensor
    sums: Tensor
    num_updates: Tensor
    is_started: Tensor

    def __init__(self, num_codes: int, dim: int, *, decay: float = 0.99, revive_below: float = 0.1):
        super().__init__()
        if num_codes < 1 or dim < 1:
            raise ValueError(f"Codebook needs at least one code of one feature, got {num_codes} and {dim}")
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"Codebook(decay) must lie in [0, 1), got {decay}")
        if revive_below < 0.0:
            raise ValueError(f"Codebook(revive_below) must be at least 0, got {revive_below}")
        self.decay = decay
        self.revive_below = revive_below
        self.register_buffer("codes", torch.randn(num_codes, dim))
        self.register_buffer("counts", torch.ones(num_codes))
        self.register_buffer("sums", self.codes.clone())
        self.register_buffer("num_updates", torch.zeros(()))
        self.register_buffer("is_started", torch.zeros(()))

    def forward(self, given: Given) -> CodeDelta:
        """The nearest codes of `given.context` (*unit, D)."""
        if given.context is None:
            raise ValueError("a Codebook reads Given.context, which is absent; use it in a Bottleneck")
        # clones: an update may come before the backward pass of whoever holds the distribution
        return CodeDelta(given.context, self.codes.clone(), mask=given.mask)

    @torch.no_grad()
    def start_(
        self,
        vectors: Tensor,
        *,
        seed: Tensor,
        num_iterations: int = 10,
        per_batch: float | None = None,
        is_warm: bool = False,
    ) -> None:
        """Put the codes onto the centres that k-means finds among encoded vectors of the first batches.

        Args:
            vectors: (N, D), at least as many different ones as codes would be good.
            seed: () int64 of the first centres.
            num_iterations: Of Lloyd's algorithm.
            per_batch: Vectors that a batch will have; as many as there are codes by default.
            is_warm: Whether the encoder has been trained before, so that the averages need not forget the centres at
                once. They start with the memory of some vectors for each code: many batches where few vectors of a
                batch choose a code, and few where many do, since the encoder goes on moving and codes must follow.
        """
        self._require_vectors(vectors)
        centres, sizes = k_means(vectors.to(self.codes), len(self.codes), seed=seed, num_iterations=num_iterations)
        expected = len(self.codes) if per_batch is None else per_batch
        counts = (sizes * expected / max(1, len(vectors))).clamp(min=min(1.0, expected / len(self.codes)))
        self.codes.copy_(centres)
        self.counts.copy_(counts)
        self.sums.copy_(centres * counts.unsqueeze(-1))
        if is_warm:  # as after so many updates that the past counts by this decay
            decay = min(self.decay, max(0.0, 1.0 - expected / (_REMEMBERED * len(self.codes))))
            self.num_updates.fill_(max(0.0, (10.0 * decay - 1.0) / (1.0 - decay)))
        self.is_started.fill_(1.0)

    @torch.no_grad()
    def update_(self, vectors: Tensor, index: Tensor, *, seed: Tensor) -> int:
        """Move the codes towards the vectors that chose them, and revive dead ones. Call it once for every batch.

        Args:
            vectors: (N, D) what the encoder gave, padding left out.
            index: (N) the codes that were chosen.
            seed: () int64; decides which vectors dead codes are put onto.

        Returns:
            How many codes were revived.
        """
        self._require_vectors(vectors)
        if index.shape != vectors.shape[:1]:
            raise ValueError(f"expected one code number for each of {len(vectors)} vectors, got {tuple(index.shape)}")
        vectors = vectors.detach().to(self.codes)
        chosen = torch.bincount(index, minlength=len(self.codes)).to(self.counts)
        total = torch.zeros_like(self.sums).index_add_(0, index, vectors)
        decay = torch.clamp((1.0 + self.num_updates) / (10.0 + self.num_updates), max=self.decay)
        self.counts.lerp_(chosen, 1.0 - decay)
        self.sums.lerp_(total, 1.0 - decay)
        is_alive = self.counts >= max(self.revive_below, torch.finfo(self.counts.dtype).tiny)
        self.codes.copy_(torch.where(is_alive.unsqueeze(-1), self.sums / self.counts.unsqueeze(-1), self.codes))
        self.num_updates.add_(1.0)
        return self._revive_(vectors, ~is_alive, seed) if self.revive_below > 0.0 else 0

    @property
    def usage(self) -> Tensor:
        """(C) share of the vectors that chose each code, as a moving average."""
        return self.counts / self.counts.sum()

    @property
    def perplexity(self) -> float:
        """Exponential of the entropy of the usage: C if all codes are used alike, 1 if one is used alone."""
        return float(torch.special.entr(self.usage).sum().exp())

    def _revive_(self, vectors: Tensor, is_dead: Tensor, seed: Tensor) -> int:
        places = is_dead.nonzero().squeeze(-1)
        count = min(len(places), len(vectors))
        if count == 0:
            return 0
        noise = uniform(seed, (len(vectors),)).to(vectors.device)
        picked = vectors[noise.argsort()[:count]]  # without replacement
        places = places[:count]
        self.codes[places] = picked
        self.counts[places] = 1.0
        self.sums[places] = picked
        return count

    def _require_vectors(self, vectors: Tensor) -> None:
        if vectors.dim() != 2 or vectors.shape[-1] != self.codes.shape[-1] or len(vectors) == 0:
            raise ValueError(
                f"expected vectors (N, {self.codes.shape[-1]}) with N > 0, got {tuple(vectors.shape)}; leave out "
                "padding with vectors[mask]"
            )
        if not bool(torch.isfinite(vectors).all()):
            raise ValueError("encoded vectors hold a NaN or an infinity; the codebook is left as it was")


def k_means(vectors: Tensor, num_centres: int, *, seed: Tensor, num_iterations: int = 10) -> tuple[Tensor, Tensor]:
    """Centres (C, D) and sizes (C) of clusters: k-means++ seeding (Arthur and Vassilvitskii 2007), then Lloyd.

    Where there are fewer vectors than centres the others are copies with a little noise; empty clusters keep their
    centre.

    Args:
        vectors: (N, D).
        num_centres: C.
        seed: () int64.
        num_iterations: Of Lloyd's algorithm.
    """
    centres = _spread_out(vectors, num_centres, seed)
    sizes = vectors.new_zeros(num_centres)
    for _ in range(max(1, num_iterations)):
        index = _nearest(vectors, centres)
        sizes = torch.bincount(index, minlength=num_centres).to(vectors)
        total = torch.zeros_like(centres).index_add_(0, index, vectors)
        centres = torch.where(sizes.unsqueeze(-1) > 0, total / sizes.clamp(min=1.0).unsqueeze(-1), centres)
    return centres, sizes


def _spread_out(vectors: Tensor, count: int, seed: Tensor) -> Tensor:
    """(C, D) first centres: each next one is a vector drawn in proportion to its squared distance from the others."""
    draws = uniform(seed, (2 * count,)).to(vectors)
    centres = [vectors[int(draws[0] * len(vectors)) % len(vectors)]]
    distance = (vectors - centres[0]).square().sum(dim=-1)
    for number in range(1, count):
        total = distance.sum()
        if float(total) <= 0.0:  # no vector is left that is not a centre
            place = int(draws[number] * len(vectors)) % len(vectors)
            centres.append(vectors[place] + 1e-3 * (draws[count + number] - 0.5))
            continue
        place = int(torch.searchsorted(distance.cumsum(dim=0), draws[number] * total).clamp(max=len(vectors) - 1))
        centres.append(vectors[place])
        distance = torch.minimum(distance, (vectors - vectors[place]).square().sum(dim=-1))
    return torch.stack(centres)


def _nearest(vectors: Tensor, centres: Tensor) -> Tensor:
    return (centres.square().sum(dim=-1) - 2.0 * vectors @ centres.T).argmin(dim=-1)
