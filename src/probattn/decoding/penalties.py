"""Length and EOS penalties: how log-probabilities of sentences of different lengths become comparable.

With s = log p(y, EOS) - eos_penalty and len the number of scored tokens (EOS is one of them),

    score = s / length_penalty(len),    eos_penalty = strength * src_len / (words + 2).

The EOS penalty is not in Deng et al. (2018) but in their released code, with strength 3: log p(EOS) is lowered by
3 * src_len / (cur_len + 1), where cur_len counts BOS and the words before EOS.

Size letters: B sentences, L scored tokens, T the largest number of scored tokens.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["AveragePenalty", "LengthPenalty", "NoPenalty", "Scoring", "WuPenalty"]


class LengthPenalty(Protocol):
    """The positive number that a log-probability is divided by."""

    def __call__(self, length: Tensor) -> Tensor:
        """The divisor.

        Args:
            length: (L,) float64, numbers of scored tokens, at least 1; EOS is counted, BOS is not.

        Returns:
            (L,) positive.
        """


@dataclass(frozen=True)
class NoPenalty:
    """The score is the log-probability."""

    def __call__(self, length: Tensor) -> Tensor:
        """See `LengthPenalty`."""
        return torch.ones_like(length)


@dataclass(frozen=True)
class AveragePenalty:
    """The score is the mean log-probability of a token."""

    def __call__(self, length: Tensor) -> Tensor:
        """See `LengthPenalty`."""
        return length


@dataclass(frozen=True)
class WuPenalty:
    """((5 + len) / 6)^alpha: Wu et al. (2016), "Google's Neural Machine Translation System", eq. 14.

    Attributes:
        alpha: Strength; 0 is no penalty, Deng et al. use 1.
        counts_bos: Count BOS as a token too, as the released code of Deng et al. does: len is then larger by one.

    Example:
        >>> WuPenalty()(torch.tensor([1.0, 7.0]))
        tensor([1., 2.])
    """

    alpha: float = 1.0
    counts_bos: bool = False

    def __call__(self, length: Tensor) -> Tensor:
        """See `LengthPenalty`."""
        offset = 6.0 if self.counts_bos else 5.0
        divisor: Tensor = ((offset + length) / 6.0) ** self.alpha
        return divisor


@dataclass(frozen=True)
class Scoring:
    """Both penalties as tables, for all sentences of a batch and all lengths.

    Attributes:
        divisor: (T + 1,) float64, by number of scored tokens.
        eos_cost: (B, T + 1) float64, what EOS as the last of so many scored tokens costs.
        limits: (B,) int64, the largest number of scored tokens of each sentence.
    """

    divisor: Tensor
    eos_cost: Tensor
    limits: Tensor

    @classmethod
    def build(
        cls, source_lengths: Tensor, limits: Tensor, *, length_penalty: LengthPenalty, eos_penalty: float
    ) -> "Scoring":
        """Fill the tables.

        Args:
            source_lengths: (B,) int64.
            limits: (B,) int64.
            length_penalty: Divides.
            eos_penalty: Strength of the EOS penalty; 0 is none.
        """
        if not 0.0 <= eos_penalty < float("inf"):
            raise ValueError(f"eos_penalty must be at least 0 and finite, got {eos_penalty}")
        longest = int(limits.max()) if limits.numel() > 0 else 0
        length = torch.arange(longest + 1, dtype=torch.float64)
        divisor = length_penalty(length.clamp(min=1.0))
        if divisor.shape != length.shape or not bool(((divisor > 0) & torch.isfinite(divisor)).all()):
            raise ValueError(
                f"{length_penalty!r} must give one positive finite number for each length from 1 to {longest}; "
                f"it gave a tensor of shape {tuple(divisor.shape)} with minimum {float(divisor.min())}"
            )
        # len scored tokens are len - 1 words and EOS: words + 2 = len + 1
        eos_cost = eos_penalty * source_lengths.double().unsqueeze(-1) / (length + 1.0)
        return cls(divisor, eos_cost, limits)

    def best_attainable(self, log_prob: Tensor, sentences: Tensor, *, num_tokens: int) -> Tensor:
        """The highest score that any continuation could end with, if all its tokens had probability one.

        Args:
            log_prob: (A,) float64, of hypotheses that have not ended.
            sentences: (A,) int64, which sentence each belongs to.
            num_tokens: How many tokens they have.

        Returns:
            (A,); -inf where the sentence may not become longer.
        """
        if num_tokens + 1 >= self.divisor.shape[0]:
            return torch.full_like(log_prob, -torch.inf)
        cost = self.eos_cost[sentences, num_tokens + 1 :]  # (A, T - num_tokens)
        score = (log_prob.unsqueeze(-1) - cost) / self.divisor[num_tokens + 1 :]
        length = torch.arange(num_tokens + 1, self.divisor.shape[0])
        return score.masked_fill(length > self.limits[sentences].unsqueeze(-1), -torch.inf).amax(dim=-1)
