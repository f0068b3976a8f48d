"""Text models, one word at a time, for `probattn.decoding`: sentences from latents that were read or drawn.

Size letters: R rows (hypotheses), V words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from probattn.core import Estimator
from probattn.models.recurrence import DecoderState
from probattn.models.text_vae import Attended, MemoryVae, ReadText, SentenceVae

__all__ = ["MemoryVaeStepper", "SentenceVaeStepper"]


@dataclass(frozen=True)
class SentenceState:
    """Rows between two steps.

    Attributes:
        decoder: State of the recurrence; its context is the latent.
        lengths: (R) words of what was read; ones for draws of a prior.
    """

    decoder: DecoderState
    lengths: Tensor


class SentenceVaeStepper:
    """Steps a `SentenceVae` from latents, one row per sentence. A batch is a `ReadText` with one particle.

    Args:
        model: In evaluation mode.
    """

    def __init__(self, model: SentenceVae):
        self.model = model

    def start(self, batch: ReadText, estimators: Mapping[str, Estimator]) -> SentenceState:
        """The state before the first word; nothing is random from here on, so no estimator is needed."""
        return SentenceState(self.model.start(batch), batch.mask.sum(dim=-1))

    def step(self, state: SentenceState, tokens: Tensor) -> tuple[Tensor, SentenceState]:
        """Log-probabilities (R, V) of the next word after `tokens` (R,)."""
        decoder, log_probs = self.model.advance(state.decoder, tokens.to(self.model.device))
        return log_probs, replace(state, decoder=decoder)

    def select(self, state: SentenceState, indices: Tensor) -> SentenceState:
        """Rows by number."""
        return SentenceState(state.decoder.select(indices), state.lengths[indices])

    def weights(self, state: SentenceState) -> None:
        """Nothing is attended to."""

    def source_lengths(self, state: SentenceState) -> Tensor:
        """(R,)."""
        return state.lengths


@dataclass(frozen=True)
class MemoryState:
    """Rows between two steps.

    Attributes:
        decoder: State of the recurrence.
        first: (R, H) the first hidden state, which every step is fed.
        memory: What is attended to.
        lengths: (R) positions of the memory.
    """

    decoder: DecoderState
    first: Tensor
    memory: Attended
    lengths: Tensor


class MemoryVaeStepper:
    """Steps a `MemoryVae` from memories, one row per sentence. A batch is a `ReadText`.

    Args:
        model: In evaluation mode.
    """

    def __init__(self, model: MemoryVae):
        self.model = model

    def start(self, batch: ReadText, estimators: Mapping[str, Estimator]) -> MemoryState:
        """The state before the first word; nothing is random from here on, so no estimator is needed."""
        decoder = self.model.start(batch)
        return MemoryState(decoder, decoder.hidden, self.model.attended(batch), batch.mask.sum(dim=-1))

    def step(self, state: MemoryState, tokens: Tensor) -> tuple[Tensor, MemoryState]:
        """Log-probabilities (R, V) of the next word after `tokens` (R,)."""
        words = tokens.to(self.model.device)
        decoder, log_probs = self.model.advance(state.decoder, words, state.first, state.memory)
        return log_probs, replace(state, decoder=decoder)

    def select(self, state: MemoryState, indices: Tensor) -> MemoryState:
        """Rows by number."""
        return MemoryState(
            state.decoder.select(indices), state.first[indices], state.memory.select(indices), state.lengths[indices]
        )

    def weights(self, state: MemoryState) -> None:
        """Positions of a memory are no words of a source, so no alignment is shown."""

    def source_lengths(self, state: MemoryState) -> Tensor:
        """(R,)."""
        return state.lengths
