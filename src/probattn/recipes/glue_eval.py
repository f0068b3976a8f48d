"""What a fine-tuned model predicts, and how sure it is.

Metrics are named condition/mode/number, e.g. "clean/noise/ece". Conditions: "clean" sentences, or "corrupted" ones.
Modes:

- "mean": plug-in weights, no dropout, on the whole test set: the paper's prediction.
- "plain": the same on those examples that draws are made for, to compare them with.
- "dropout", "noise", "both": the mean over draws of dropout masks, of attention weights, or of both.

"validation/..." are numbers of plug-in predictions on the validation set, which also fit the temperature of classes,
the entropy below which a class is certain (the mean) and the variance of scores. Answers to questions are evaluated in
`glue_span_eval`.
"""

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from probattn.metrics import fit_temperature
from probattn.predict import Prediction, draw_outputs, predict
from probattn.recipes.glue_batches import Encoded
from probattn.recipes.glue_scores import class_scores, log_probabilities, score_scores
from probattn.recipes.glue_settings import EvaluationSettings

__all__ = ["DRAWN_MODES", "ClassEvaluator", "Evaluator", "ScoreEvaluator", "Scored", "evaluate"]

DRAWN_MODES = {"plain": (False, False), "dropout": (False, True), "noise": (True, False), "both": (True, True)}
"""Whether attention noise and dropout are on."""
_ORDER_SEED = 0  # of the test examples that draws are made for; one for all rows and seeds
_LEAST_VARIANCE = 1e-6


@dataclass(frozen=True)
class Scored:
    """Predictions of some examples.

    Attributes:
        numbers: Of all of them together.
        examples: By name, one entry for each: `place` in the split, and what was predicted.
    """

    numbers: Mapping[str, float]
    examples: Mapping[str, Tensor]


class Evaluator(Protocol):
    """A model with what was fitted on its validation predictions; one for each kind of task."""

    @property
    def model(self) -> nn.Module:
        """With its final weights."""

    def calibrate(self, valid: Any) -> dict[str, float]:
        """Fit what is to be fitted; returns the numbers of the validation set."""

    def score(self, split: Any, places: Sequence[int], *, noise: bool, dropout: bool) -> Scored:
        """The examples at these places."""


def evaluate(
    evaluator: Evaluator,
    valid: Sized,
    conditions: Mapping[str, Sized],
    *,
    modes: Sequence[str],
    max_drawn: int | None,
    dropout_precision: str = "no",
) -> Scored:
    """All numbers of a trained model, and its predictions of test examples.

    Args:
        evaluator: With the model and its final weights.
        valid: Validation examples.
        conditions: Test examples, "clean" and "corrupted", the same in the same order.
        modes: Which of `DRAWN_MODES` the model has.
        max_drawn: Draws are made for so many examples; None for all.
        dropout_precision: Of draws with dropout, see `EvaluationSettings`.
    """
    device = next(evaluator.model.parameters()).device.type
    metrics = {f"validation/{name}": value for name, value in evaluator.calibrate(valid).items()}
    examples: dict[str, Tensor] = {}

    def keep(prefix: str, found: Scored) -> None:
        metrics.update({f"{prefix}/{name}": value for name, value in found.numbers.items()})
        examples.update({f"{prefix}/{name}": value for name, value in found.examples.items()})

    for condition, split in conditions.items():
        everything = list(range(len(split)))
        plug_in = evaluator.score(split, everything, noise=False, dropout=False)
        keep(f"{condition}/mean", plug_in)
        chosen = _drawn(len(split), max_drawn)
        for mode in modes:
            noise, dropout = DRAWN_MODES[mode]
            if chosen == everything and not noise and not dropout:  # "plain" is "mean" then, to the last bit
                keep(f"{condition}/{mode}", plug_in)
                continue
            is_half = dropout and dropout_precision == "bf16"
            with torch.autocast(device, torch.bfloat16, enabled=is_half):
                found = evaluator.score(split, chosen, noise=noise, dropout=dropout)
            keep(f"{condition}/{mode}", found)
    return Scored(metrics, examples)


def _drawn(count: int, at_most: int | None) -> list[int]:
    if at_most is None or at_most >= count:
        return list(range(count))
    order: list[int] = torch.randperm(count, generator=torch.Generator().manual_seed(_ORDER_SEED)).tolist()
    return order[:at_most]


class ClassEvaluator:
    """Of predicted classes, with a temperature.

    Args:
        model: With its final weights.
        settings: How many draws.
    """

    def __init__(self, model: nn.Module, settings: EvaluationSettings):
        self.model, self.settings = model, settings
        self.temperature: float | None = None
        self.certain_entropy: float | None = None

    def calibrate(self, valid: Encoded) -> dict[str, float]:
        """Fit the temperature, and measure the entropy of what is usual."""
        prediction, order = self._predict(valid, range(len(valid)), noise=False, dropout=False)
        labels = valid.targets[order]
        self.temperature = fit_temperature(log_probabilities(prediction), labels)
        self.certain_entropy = float(prediction.predictive_entropy.mean())
        return class_scores(prediction, labels) | {"temperature": self.temperature}

    def score(self, split: Encoded, places: Sequence[int], *, noise: bool, dropout: bool) -> Scored:
        """Plug-in predictions also after scaling."""
        prediction, order = self._predict(split, places, noise=noise, dropout=dropout)
        labels = split.targets[order]
        temperature = None if noise or dropout else self.temperature
        numbers = class_scores(prediction, labels, temperature, certain_entropy=self.certain_entropy)
        examples = {
            "place": order,
            "label": labels,
            "probabilities": prediction.probabilities,
            "entropy": prediction.predictive_entropy,
        }
        if prediction.num_draws > 1:
            examples |= {"mutual_information": prediction.mutual_information, "p_value": prediction.p_value}
        return Scored(numbers, examples)

    def _predict(
        self, split: Encoded, places: Sequence[int], *, noise: bool, dropout: bool
    ) -> tuple[Prediction, Tensor]:
        """The prediction, shortest examples first, and their places."""
        parts, order = [], []
        for number, chosen in enumerate(split.by_length(self.settings.batch_size, places)):
            inputs = split.batch(chosen)
            order += chosen
            parts.append(
                predict(self.model, inputs, draws=self.settings.draws, noise=noise, dropout=dropout, seed=number)
            )
        return Prediction.join(parts), torch.tensor(order)


class ScoreEvaluator:
    """Of predicted scores, with the variance of a Gaussian around them.

    Args:
        model: With its final weights.
        settings: How many draws.
    """

    def __init__(self, model: nn.Module, settings: EvaluationSettings):
        self.model, self.settings = model, settings
        self.noise_variance = 1.0

    def calibrate(self, valid: Encoded) -> dict[str, float]:
        """Fit the variance."""
        draws, order = self._predict(valid, range(len(valid)), noise=False, dropout=False)
        targets = valid.targets[order]
        self.noise_variance = max(float((draws[0] - targets).square().mean()), _LEAST_VARIANCE)
        return score_scores(draws, targets, self.noise_variance)

    def score(self, split: Encoded, places: Sequence[int], *, noise: bool, dropout: bool) -> Scored:
        """The mean over draws."""
        draws, order = self._predict(split, places, noise=noise, dropout=dropout)
        targets = split.targets[order]
        examples = {"place": order, "target": targets, "mean": draws.double().mean(dim=0)}
        examples |= {"variance": draws.double().var(dim=0)} if len(draws) > 1 else {}
        return Scored(score_scores(draws, targets, self.noise_variance), examples)

    def _predict(self, split: Encoded, places: Sequence[int], *, noise: bool, dropout: bool) -> tuple[Tensor, Tensor]:
        """(K, N) predicted scores, shortest examples first, and (N) their places."""
        parts, order = [], []
        for number, chosen in enumerate(split.by_length(self.settings.batch_size, places)):
            inputs = split.batch(chosen)
            order += chosen
            drawn = draw_outputs(
                self.model, inputs, draws=self.settings.draws, noise=noise, dropout=dropout, seed=number
            )  # (K, n, 1)
            parts.append(drawn.squeeze(-1))
        return torch.cat(parts, dim=1), torch.tensor(order)
