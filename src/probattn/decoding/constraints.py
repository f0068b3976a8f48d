"""What a hypothesis may look like, and checks of what a stepper returns.

Size letters: B sentences, R rows, V tokens.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Constraints", "MaxLength", "require_continuation", "require_log_probs"]

# log_softmax and mixing in low precision may end slightly above zero; logits are far above it.
_LOG_PROB_TOLERANCE = 1e-2


@dataclass(frozen=True)
class MaxLength:
    """factor * source length + offset, rounded down.

    Attributes:
        factor: Tokens per source position.
        offset: Tokens in any case.
    """

    factor: float
    offset: int

    def __post_init__(self) -> None:
        if not (math.isfinite(self.factor) and self.factor >= 0 and self.offset >= 0):
            raise ValueError(f"MaxLength needs a factor and an offset of at least 0, got {self}")


@dataclass(frozen=True)
class Constraints:
    """Which tokens may come when.

    Attributes:
        bos: Token that every row starts with.
        eos: Token that ends a sentence.
        max_length: Most tokens a sentence may have, EOS counted; a number, or one that grows with the source.
        min_length: Fewest tokens before EOS. A sentence whose `max_length` leaves no room for them may be longer.
        forbidden: Tokens that are never emitted, e.g. padding, BOS, the unknown word.

    Example:
        >>> constraints = Constraints(bos=1, eos=2, max_length=MaxLength(factor=1.5, offset=5), forbidden=(0, 1))
        >>> constraints.limits(torch.tensor([4, 7]))
        tensor([11, 15])
    """

    bos: int
    eos: int
    max_length: int | MaxLength
    min_length: int = 0
    forbidden: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "forbidden", tuple(sorted(set(self.forbidden))))
        if min(self.bos, self.eos, *self.forbidden) < 0:
            raise ValueError(f"token numbers are at least 0, got {self}")
        if self.eos in self.forbidden:
            raise ValueError(
                f"EOS (token {self.eos}) is forbidden, so no sentence could end; use min_length to delay it"
            )
        if self.min_length < 0:
            raise ValueError(f"min_length must be at least 0, got {self.min_length}")
        if isinstance(self.max_length, int) and self.max_length <= self.min_length:
            raise ValueError(
                f"max_length counts EOS and must be above min_length, got {self.max_length} and {self.min_length}"
            )

    def limits(self, source_lengths: Tensor) -> Tensor:
        """(B,) int64: the most tokens of each sentence, EOS counted, from source lengths (B,)."""
        if isinstance(self.max_length, int):
            return torch.full_like(source_lengths, self.max_length)
        longest = torch.floor(source_lengths.double() * self.max_length.factor).to(torch.int64) + self.max_length.offset
        return longest.clamp(min=self.min_length + 1)

    def allow(self, log_probs: Tensor, num_tokens: int) -> Tensor:
        """A copy of log-probabilities (R, V) with -inf for what may not come after `num_tokens` tokens."""
        barred = [*self.forbidden, self.eos] if num_tokens < self.min_length else list(self.forbidden)
        largest = max(self.bos, self.eos, *self.forbidden)
        if log_probs.shape[1] <= largest:
            raise ValueError(f"the constraints name token {largest}, but the stepper has {log_probs.shape[1]} tokens")
        return log_probs.index_fill(1, torch.tensor(barred, dtype=torch.int64, device=log_probs.device), -torch.inf)


def require_log_probs(largest: Tensor, *, sentences: Sequence[int], step: int) -> None:
    """Raise a ValueError that names the sentence if a row holds a NaN, or numbers that are no log-probabilities.

    Args:
        largest: (R,) on the CPU: the largest log-probability of each row, NaN if the row holds one (as `max` gives).
        sentences: R positions in the batch.
        step: Number of the step, from 0.
    """
    for row in torch.isnan(largest).nonzero().flatten().tolist():
        raise ValueError(
            f"log-probabilities of sentence {sentences[row]} of the batch are NaN at step {step}; look for NaN in the "
            "model's weights, or for a source without any position"
        )
    for row in (largest > _LOG_PROB_TOLERANCE).nonzero().flatten().tolist():
        raise ValueError(
            f"expected log-probabilities, got {float(largest[row])} for sentence {sentences[row]} of the batch at step "
            f"{step}; apply log_softmax to logits"
        )


def require_continuation(largest: Tensor, *, sentences: Sequence[int], step: int) -> None:
    """Raise a ValueError that names the sentence if a row allows no token. Arguments as for `require_log_probs`."""
    for row in (largest == -torch.inf).nonzero().flatten().tolist():
        raise ValueError(
            f"no token may follow in sentence {sentences[row]} of the batch at step {step}: each one is forbidden, is "
            "EOS before min_length, or has probability zero; forbid fewer tokens or lower min_length"
        )
