"""The captioner, one word at a time, for `probattn.decoding`.

Size letters: R rows (hypotheses), S regions, V words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from torch import Tensor

from probattn.core import Estimator
from probattn.core.noise import fold_seed, fresh_seed
from probattn.models.captioner import Captioner, EncodedImages, require_one_sample
from probattn.models.recurrence import DecoderState, select_memory, source_lengths

__all__ = ["CaptionerState", "CaptionerStepper", "Pictures"]


class Pictures(Protocol):
    """What the stepper reads."""

    @property
    def features(self) -> Tensor:
        """(B, S, D)."""

    @property
    def region_mask(self) -> Tensor:
        """(B, S) bool, False where there is no region."""


@dataclass(frozen=True)
class CaptionerState:
    """Rows between two steps.

    Attributes:
        image: The picture of each row.
        decoder: State of the recurrence.
        weights: (R, S) expected weights of the last step; None before the first.
        estimator: Of the site.
        seed: () of all noise.
        num_steps: Steps taken.
    """

    image: EncodedImages
    decoder: DecoderState
    weights: Tensor | None
    estimator: Estimator
    seed: Tensor
    num_steps: int = 0


class CaptionerStepper:
    """Steps a `Captioner`. The weights are drawn anew in every step, for every row.

    Args:
        model: In evaluation mode.
        estimator: Used where `start` is given none for the site: `Mean()` for plug-in weights, or one sample.
    """

    def __init__(self, model: Captioner, estimator: Estimator):
        self.model = model
        self.estimator = estimator

    def start(self, batch: Pictures, estimators: Mapping[str, Estimator]) -> CaptionerState:
        """Read pictures, one row for each."""
        device = self.model.device
        image = self.model.encode(batch.features.to(device), batch.region_mask.to(device))
        estimator = estimators.get(self.model.weights.name, self.estimator)
        return CaptionerState(image, self.model.start(image), None, estimator, fresh_seed(device))

    def step(self, state: CaptionerState, tokens: Tensor) -> tuple[Tensor, CaptionerState]:
        """Log-probabilities (R, V) of the next word after `tokens` (R,)."""
        model = self.model
        words = model.cell.words(model.embedding(tokens.to(model.device)))
        given = model.given(state.decoder, state.image)
        latent = model.weights.predict(given, state.estimator, seed=fold_seed(state.seed, state.num_steps))
        require_one_sample(latent)
        decoder, hidden = model.advance(state.decoder, words, state.image, draw=latent.draw)
        weights = model.weights.expected(given)[:, 0]
        moved = replace(state, decoder=decoder, weights=weights, num_steps=state.num_steps + 1)
        return model.log_probs(hidden[0]), moved

    def select(self, state: CaptionerState, indices: Tensor) -> CaptionerState:
        """Rows by number."""
        image = EncodedImages(select_memory(state.image.memory, indices), state.image.prepared[indices])
        weights = None if state.weights is None else state.weights[indices]
        return replace(state, image=image, decoder=state.decoder.select(indices), weights=weights)

    def weights(self, state: CaptionerState) -> Tensor | None:
        """(R, S) expected weights of the step that led here."""
        return state.weights

    def source_lengths(self, state: CaptionerState) -> Tensor:
        """(R,) regions of each row."""
        return source_lengths(state.image.memory)
