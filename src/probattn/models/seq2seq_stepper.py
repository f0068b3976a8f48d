"""The translation network, one word at a time, for `probattn.decoding`.

Size letters: R rows (hypotheses), S source positions, V target words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from torch import Tensor

from probattn.core import Estimator
from probattn.models.recurrence import DecoderState, select_memory, source_lengths
from probattn.models.seq2seq import Encoded, Seq2Seq

__all__ = ["Seq2SeqStepper", "SourceSentences", "StepperState"]


class SourceSentences(Protocol):
    """What decoding reads of a batch."""

    @property
    def source(self) -> Tensor:
        """(B, S) int64."""

    @property
    def source_mask(self) -> Tensor:
        """(B, S) bool."""


@dataclass(frozen=True)
class StepperState:
    """Rows between two steps.

    Attributes:
        encoded: The source of each row.
        decoder: State of the recurrence.
        weights: (R, S) expected weights of the last step; None before the first.
        estimator: How the predictive distribution is approximated.
    """

    encoded: Encoded
    decoder: DecoderState
    weights: Tensor | None
    estimator: Estimator


class Seq2SeqStepper:
    """Steps a `Seq2Seq`: each prediction is mixed over the particles of its own step.

    The recurrence is fed the expected context, so alternatives of one step do not multiply those of the next, and
    mixing is exact with `Enumerate`. A model whose draw feeds the state is stepped with its expected context too.

    Args:
        model: In evaluation mode.
        estimator: Used where `start` is given none for the model's site.
    """

    def __init__(self, model: Seq2Seq, estimator: Estimator):
        self.model = model
        self.estimator = estimator

    def start(self, batch: SourceSentences, estimators: Mapping[str, Estimator]) -> StepperState:
        """Encode the source, one row per sentence."""
        device = self.model.device
        encoded = self.model.encode(batch.source.to(device), batch.source_mask.to(device))
        estimator = estimators.get(self.model.weights.name, self.estimator)
        return StepperState(encoded, self.model.start(encoded), None, estimator)

    def step(self, state: StepperState, tokens: Tensor) -> tuple[Tensor, StepperState]:
        """Log-probabilities (R, V) of the next word after `tokens` (R,)."""
        words = self.model.readout.embedding(tokens.to(self.model.device))
        decoder, scores, weights = self.model.advance(state.decoder, words, state.encoded)
        log_probs, _ = self.model.predictive(self.model.query(decoder), scores, state.encoded, state.estimator)
        return log_probs, replace(state, decoder=decoder, weights=weights)

    def select(self, state: StepperState, indices: Tensor) -> StepperState:
        """Rows by number."""
        memory = select_memory(state.encoded.memory, indices)
        encoded = Encoded(memory, state.encoded.prepared[indices], state.encoded.readout_values[indices])
        weights = None if state.weights is None else state.weights[indices]
        return StepperState(encoded, state.decoder.select(indices), weights, state.estimator)

    def weights(self, state: StepperState) -> Tensor | None:
        """(R, S) expected weights of the step that led here."""
        return state.weights

    def source_lengths(self, state: StepperState) -> Tensor:
        """(R,) source positions without padding."""
        return source_lengths(state.encoded.memory)
