"""The variational encoder-decoder, one word at a time, for `probattn.decoding`.

Size letters: R rows (hypotheses), S source positions, V target words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from probattn.core import Estimator
from probattn.core.noise import fold_seed, fresh_seed
from probattn.models.recurrence import DecoderState, select_memory, source_lengths
from probattn.models.seq2seq_stepper import SourceSentences
from probattn.models.ved import Ved, VedSource

__all__ = ["VedStepper", "VedStepperState"]


@dataclass(frozen=True)
class VedStepperState:
    """Rows between two steps.

    Attributes:
        source: The source of each row, with its code.
        decoder: State of the recurrence.
        weights: (R, S) expected weights of the last step; None before the first, and without attention.
        estimators: One per site.
        seed: () of all noise of the attention.
        num_steps: Steps taken.
    """

    source: VedSource
    decoder: DecoderState
    weights: Tensor | None
    estimators: Mapping[str, Estimator]
    seed: Tensor
    num_steps: int = 0


class VedStepper:
    """Steps a `Ved`. The code is drawn once for each row of the batch, the attention at every step.

    Rows of one sentence in a beam share its code. With `Mean()` at every site this is the paper's MAP inference, with
    `Pathwise()` its sampling; n samples of a source are n rows.

    Args:
        model: In evaluation mode.
        estimators: Used where `start` is given none for a site.
    """

    def __init__(self, model: Ved, estimators: Mapping[str, Estimator]):
        self.model = model
        self.estimators = estimators

    def start(self, batch: SourceSentences, estimators: Mapping[str, Estimator]) -> VedStepperState:
        """Read the source and draw its code, one row per sentence."""
        device, chosen = self.model.device, {**self.estimators, **estimators}
        source = self.model.encode(batch.source.to(device), batch.source_mask.to(device), chosen)
        return VedStepperState(source, self.model.start(source), None, chosen, fresh_seed(device))

    def step(self, state: VedStepperState, tokens: Tensor) -> tuple[Tensor, VedStepperState]:
        """Log-probabilities (R, V) of the next word after `tokens` (R,)."""
        words = self.model.target_embedding(tokens.to(self.model.device))
        seed = fold_seed(state.seed, state.num_steps) if self.model.is_random_at_steps else state.seed
        decoder, _, weights = self.model.advance(
            state.decoder, words, state.source, estimators=state.estimators, seed=seed
        )
        moved = replace(state, decoder=decoder, weights=weights, num_steps=state.num_steps + 1)
        return self.model.log_probs(decoder.hidden), moved

    def select(self, state: VedStepperState, indices: Tensor) -> VedStepperState:
        """Rows by number."""
        source = state.source
        chosen = VedSource(
            memory=select_memory(source.memory, indices),
            summary=source.summary[indices],
            code=None if source.code is None else source.code[indices],
        )
        weights = None if state.weights is None else state.weights[indices]
        return replace(state, source=chosen, decoder=state.decoder.select(indices), weights=weights)

    def weights(self, state: VedStepperState) -> Tensor | None:
        """(R, S) expected weights of the step that led here; None without attention."""
        return state.weights

    def source_lengths(self, state: VedStepperState) -> Tensor:
        """(R,) source positions without padding."""
        return source_lengths(state.source.memory)
