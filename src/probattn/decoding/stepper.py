"""All that decoding knows of a model: it starts, it steps, and its rows can be reordered.

Size letters: B sentences, R rows (hypotheses that are being extended), S source positions, V tokens.
"""

from collections.abc import Mapping
from typing import Protocol, TypeVar

from torch import Tensor

from probattn.core import Estimator

__all__ = ["Stepper"]

BatchT = TypeVar("BatchT", contravariant=True)
StateT = TypeVar("StateT")


class Stepper(Protocol[BatchT, StateT]):
    """A model that predicts one token at a time, for many rows at once.

    A state belongs to the stepper and is never looked into. Nothing may change a state in place: a state, and every
    tensor that came with it, stays valid after later calls. Results of a row must not depend on the other rows, or
    decoding a batch differs from decoding its sentences alone.
    """

    def start(self, batch: BatchT, estimators: Mapping[str, Estimator]) -> StateT:
        """Read the input: one row per sentence, in the order of the batch.

        Args:
            batch: B sentences; none is allowed.
            estimators: By name of the site. Empty: the stepper's own choice.
        """

    def step(self, state: StateT, tokens: Tensor) -> tuple[Tensor, StateT]:
        """Extend every row by its last token and predict the next.

        Args:
            state: Of R rows.
            tokens: (R,) int64, the last token of each row; BOS at first.

        Returns:
            Log-probabilities (R, V), mixed over particles (see `mix_log_probs`), and the new state.
        """

    def select(self, state: StateT, indices: Tensor) -> StateT:
        """Reorder, repeat and drop rows.

        Args:
            state: Of R rows.
            indices: (R',) int64 row numbers below R, on the device of `source_lengths`; any order, with repetitions.
        """

    def weights(self, state: StateT) -> Tensor | None:
        """Expected attention weights (R, S) of the step that led to this state; None where there are none."""

    def source_lengths(self, state: StateT) -> Tensor:
        """(R,) int64, source positions of each row without padding; zeros where there is no source."""
