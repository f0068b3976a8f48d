"""A key-value recall task that is made on the spot: queries must find one of several noisy slots.

Each example is a memory of slots. A slot has a noisy key and the noisy vector of a symbol; a query is another noisy
view of one slot's key, and the answer is that slot's symbol. Because keys are noisy, the right slot is uncertain
before the answer is seen and much less
so after it: the gap between prior and posterior alignment that latent attention lives on. The right slot is known, so
alignments can be scored.

Size letters: B examples, T queries, S slots, D width of keys and values.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["RecallBatch", "RecallTask"]


@dataclass(frozen=True)
class RecallBatch:
    """One batch.

    Attributes:
        query: (B, T, D).
        keys: (B, S, D).
        values: (B, S, D).
        mask: (B, S) bool, False for padding.
        target: (B, T) int64 symbol to recall.
        slot: (B, T) int64 slot that holds it.
    """

    query: Tensor
    keys: Tensor
    values: Tensor
    mask: Tensor
    target: Tensor
    slot: Tensor


@dataclass(frozen=True)
class RecallTask:
    """The task's law. Batches are a function of (seed, batch number), so every run and every row sees the same data.

    Attributes:
        num_symbols: Size of the vocabulary.
        num_keys: Number of different keys; an example's slots have different ones.
        min_slots: Fewest slots of an example.
        max_slots: Most slots of an example.
        num_queries: T.
        dim: D.
        key_noise: Standard deviation of the noise on keys and on queries, in units of the keys' own scale.
        value_noise: The same for values.
        seed: Of keys, symbol vectors and batches.
    """

    num_symbols: int = 24
    num_keys: int = 60
    min_slots: int = 5
    max_slots: int = 10
    num_queries: int = 6
    dim: int = 16
    key_noise: float = 0.6
    value_noise: float = 0.4
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.min_slots <= self.max_slots <= self.num_keys:
            raise ValueError(
                f"RecallTask wants 1 <= min_slots <= max_slots <= num_keys, got {self.min_slots}, {self.max_slots} "
                f"and {self.num_keys}"
            )

    def batch(self, size: int, number: int) -> RecallBatch:
        """Batch `number`; training uses 0, 1, 2, ..., evaluation negative numbers.

        Args:
            size: B.
            number: Any integer; the same number gives the same batch.
        """
        law = torch.Generator().manual_seed(self.seed)
        keys = torch.randn(self.num_keys, self.dim, generator=law)
        symbols = torch.randn(self.num_symbols, self.dim, generator=law)
        draw = torch.Generator().manual_seed(self.seed * 1_000_003 + number * 7919 + 13)
        slots, queries = self.max_slots, self.num_queries
        length = torch.randint(self.min_slots, slots + 1, (size, 1), generator=draw)
        mask = torch.arange(slots) < length  # (B, S)
        chosen = torch.rand(size, self.num_keys, generator=draw).argsort(dim=-1)[:, :slots]  # (B, S) without repetition
        symbol = torch.randint(self.num_symbols, (size, slots), generator=draw)
        slot = (torch.rand(size, queries, generator=draw) * length).long()  # (B, T)

        def noisy(clean: Tensor, scale: float) -> Tensor:
            return clean + scale * torch.randn(clean.shape, generator=draw)

        return RecallBatch(
            query=noisy(keys[chosen.gather(1, slot)], self.key_noise),
            keys=noisy(keys[chosen], self.key_noise),
            values=noisy(symbols[symbol], self.value_noise),
            mask=mask,
            target=symbol.gather(1, slot),
            slot=slot,
        )
