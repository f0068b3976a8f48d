"""What decoding returns, and the back-pointers from which it is read.

Size letters: N tokens of a hypothesis, R rows of a step, S source positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

__all__ = ["Hypothesis", "Trellis"]


@dataclass(frozen=True)
class Hypothesis:
    """One output sentence.

    Attributes:
        tokens: N token numbers, without BOS and EOS.
        log_prob: log p(tokens, EOS) under the model in nats, or log p(tokens) where it was cut off. No penalty is in
            it, and it is not renormalised after tokens were forbidden.
        score: What hypotheses were ranked by; for samples, the log-probability under the law they were drawn from.
        is_complete: False where the sentence reached its maximal length before EOS.
        weights: (N, S) expected attention weights behind each token, S being this sentence's own source length; None
            where the stepper has none. Not part of comparisons between hypotheses.
    """

    tokens: tuple[int, ...]
    log_prob: float
    score: float
    is_complete: bool
    weights: Tensor | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class _Level:
    parents: Sequence[int]
    tokens: Sequence[int]
    weights: Tensor | None


class Trellis:
    """Back-pointers of all rows at all steps, so that no history is copied while decoding.

    Level n holds the rows after n tokens; level 0, the beginning, is not stored.
    """

    def __init__(self) -> None:
        self._levels: list[_Level] = []

    def append(self, parents: Sequence[int], tokens: Sequence[int], *, weights: Tensor | None) -> None:
        """Add a level.

        Args:
            parents: The row of the level before that each new row extends.
            tokens: The token of each new row.
            weights: (R, S) by row of the level *before*, as the step gave them.
        """
        self._levels.append(_Level(parents, tokens, weights))

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all other rows of the last level; the kept ones are renumbered in the order given."""
        last = self._levels[-1]
        parents, tokens = [last.parents[row] for row in rows], [last.tokens[row] for row in rows]
        self._levels[-1] = _Level(parents, tokens, last.weights)

    def trace(self, level: int, row: int, *, source_length: int) -> tuple[tuple[int, ...], Tensor | None]:
        """Tokens and weights (N, S) on the way to a row, first token first."""
        tokens: list[int] = []
        weights: list[Tensor] = []
        for current in reversed(self._levels[:level]):
            tokens.append(current.tokens[row])
            row = current.parents[row]
            if current.weights is not None:
                weights.append(current.weights[row, :source_length])
        if not self._levels or self._levels[0].weights is None:
            return tuple(reversed(tokens)), None
        if not weights:
            return (), self._levels[0].weights[:0, :source_length].cpu()
        return tuple(reversed(tokens)), torch.stack(weights[::-1]).cpu()
