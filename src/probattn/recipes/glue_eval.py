"""What a fine-tuned model predicts, and how sure it is.

Metrics are named condition/mode/number, e.g. "clean/noise/ece". Conditions: "clean" sentences, or "corrupted" ones.
Modes:

- "mean": plug-in weights, no dropout, on the whole test set: the paper's prediction.
- "plain": the same on those examples that draws are made for, to compare them with.
- "dropout", "noise", "both": the mean over draws of dropout masks, of attention weights, or of both.

"validation/..." are numbers of plug-in predictions on the validation set, which also fit the temperature of classes
and the variance of scores.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from probattn.metrics import fit_temperature
from probattn.predict import Prediction, draw_outputs, predict
from probattn.recipes.glue_batches import Encoded
from probattn.recipes.glue_scores import class_scores, log_probabilities, score_scores
from probattn.recipes.glue_settings import EvaluationSettings

__all__ = ["DRAWN_MODES", "evaluate"]

DRAWN_MODES = {"plain": (False, False), "dropout": (False, True), "noise": (True, False), "both": (True, True)}
"""Whether attention noise and dropout are on."""
_ORDER_SEED = 0  # of the test examples that draws are made for; one for all rows and seeds
_LEAST_VARIANCE = 1e-6


def evaluate(
    model: nn.Module,
    valid: Encoded,
    conditions: Mapping[str, Encoded],
    *,
    modes: Sequence[str],
    settings: EvaluationSettings,
) -> dict[str, float]:
    """All numbers of a trained model.

    Args:
        model: With its final weights.
        valid: Validation examples.
        conditions: Test examples, "clean" and "corrupted", the same in the same order.
        modes: Which of `DRAWN_MODES` the model has.
        settings: How many draws, for how many examples.
    """
    evaluator = _Evaluator(model, settings)
    metrics = {f"validation/{name}": value for name, value in evaluator.calibrate(valid).items()}
    for condition, split in conditions.items():
        everything = list(range(len(split)))
        numbers = evaluator.numbers(split, everything, noise=False, dropout=False)
        metrics |= {f"{condition}/mean/{name}": value for name, value in numbers.items()}
        chosen = _drawn(len(split), settings.max_drawn)
        for mode in modes:
            noise, dropout = DRAWN_MODES[mode]
            numbers = evaluator.numbers(split, chosen, noise=noise, dropout=dropout)
            metrics |= {f"{condition}/{mode}/{name}": value for name, value in numbers.items()}
    return metrics


def _drawn(count: int, at_most: int | None) -> list[int]:
    if at_most is None or at_most >= count:
        return list(range(count))
    order: list[int] = torch.randperm(count, generator=torch.Generator().manual_seed(_ORDER_SEED)).tolist()
    return order[:at_most]


class _Evaluator:
    """A model with what was fitted on its validation predictions."""

    def __init__(self, model: nn.Module, settings: EvaluationSettings):
        self.model, self.settings = model, settings
        self.temperature: float | None = None
        self.noise_variance = 1.0

    def calibrate(self, valid: Encoded) -> dict[str, float]:
        """Fit temperature or variance; returns the numbers of the validation set."""
        places = list(range(len(valid)))
        if valid.targets.is_floating_point():
            draws, targets = self._scores(valid, places, noise=False, dropout=False)
            self.noise_variance = max(float((draws[0] - targets).square().mean()), _LEAST_VARIANCE)
            return score_scores(draws, targets, self.noise_variance)
        prediction, labels = self._classes(valid, places, noise=False, dropout=False)
        self.temperature = fit_temperature(log_probabilities(prediction), labels)
        return class_scores(prediction, labels) | {"temperature": self.temperature}

    def numbers(self, split: Encoded, places: Sequence[int], *, noise: bool, dropout: bool) -> dict[str, float]:
        """Of these examples."""
        if split.targets.is_floating_point():
            return score_scores(*self._scores(split, places, noise=noise, dropout=dropout), self.noise_variance)
        prediction, labels = self._classes(split, places, noise=noise, dropout=dropout)
        is_plain = not noise and not dropout
        return class_scores(prediction, labels, self.temperature if is_plain else None)

    def _classes(
        self, split: Encoded, places: Sequence[int], *, noise: bool, dropout: bool
    ) -> tuple[Prediction, Tensor]:
        """The prediction, shortest examples first, and their labels."""
        parts, order = [], []
        for number, chosen in enumerate(split.by_length(self.settings.batch_size, places)):
            inputs = split.batch(chosen)
            order += chosen
            parts.append(
                predict(
                    self.model, inputs, draws=self.settings.draws, noise=noise, dropout=dropout, seed=number
                )
            )  # fmt: skip
        return Prediction.join(parts), split.targets[torch.tensor(order)]

    def _scores(
        self, split: Encoded, places: Sequence[int], *, noise: bool, dropout: bool
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """(K, N) predicted scores, shortest examples first, and (N) the right ones."""
        parts, order = [], []
        for number, chosen in enumerate(split.by_length(self.settings.batch_size, places)):
            inputs = split.batch(chosen)
            order += chosen
            drawn = draw_outputs(
                self.model, inputs, draws=self.settings.draws, noise=noise, dropout=dropout, seed=number
            )  # (K, n, 1)
            parts.append(drawn.squeeze(-1))
        return torch.cat(parts, dim=1), split.targets[torch.tensor(order)]
