"""A few test questions with answers, p-values and attention, as plain data for the report (BAM, Figure 2)."""

from typing import Any

import torch
from torch import Tensor

from probattn.core import Enumerate
from probattn.data.picture_questions import answer_accuracy
from probattn.models.vqa import RegionVqa
from probattn.recipes.vqa_answerer import Answerer
from probattn.recipes.vqa_data import VqaCorpus

NUM_EXAMPLES = 6


def answer_examples(answerer: Answerer, corpus: VqaCorpus) -> list[dict[str, Any]]:
    """The same test questions for every row, one of each type of answer as far as there are as many.

    Returns:
        For each question: its words, "picture", "answers" of annotators, "gold" regions, "grid" or "boxes", the
        network's "answer" with "probability", "accuracy" and "p_value", and "weights" as {distribution: numbers}.
    """
    features, questions = corpus.features["test"], corpus.questions["test"]
    places = _places([one.kind for one in questions])
    asked = [questions[place] for place in places]
    found = answerer.answer(
        [one.question for one in asked],
        [one.picture for one in asked],
        features=features,
        draws=answerer.settings.evaluation.draws,
    )
    posteriors = _posteriors(answerer, corpus, torch.tensor(places))
    examples = []
    for number, (one, made) in enumerate(zip(asked, found, strict=True)):
        weights = {"prior": made.weights, **{name: values[number] for name, values in posteriors.items()}}
        row = features.positions[one.picture]
        examples.append(
            {
                "question": one.question,
                "picture": one.picture,
                "answers": sorted(set(one.answers)),
                "gold": list(one.gold),
                "grid": None if features.grid is None else list(features.grid),
                "boxes": None if features.boxes is None else _rounded(features.boxes[row].flatten()),
                "answer": made.text,
                "probability": round(made.probability, 4),
                "accuracy": round(answer_accuracy(made.text, one.answers), 2),
                "p_value": None if made.p_value is None else float(f"{made.p_value:.3g}"),
                "weights": {name: _rounded(values) for name, values in weights.items()},
            }
        )
    return examples


def _places(kinds: list[str]) -> list[int]:
    """The first question of each type, then the second, and so on, in the order of the file."""
    seen: dict[str, int] = {}
    rounds = []
    for place, kind in enumerate(kinds):
        seen[kind] = seen.get(kind, 0) + 1
        rounds.append((seen[kind], place))
    return sorted(place for _, place in sorted(rounds)[:NUM_EXAMPLES])


def _posteriors(answerer: Answerer, corpus: VqaCorpus, places: Tensor) -> dict[str, Tensor]:
    """(n, R) of the inference network and of the exact posterior, where the network has them and knows the answers."""
    model, answers = answerer.model, corpus.encoded["test"].most[places]
    has_choice = isinstance(answerer.settings.test_estimator, Enumerate)
    if not isinstance(model, RegionVqa) or not has_choice or not bool((answers >= 0).all()):
        return {}
    inputs = corpus.inputs("test", places)
    inferred = model.posterior_weights(inputs, answers)
    found = {} if inferred is None else {"posterior": inferred}
    return found | {"exact posterior": model.exact_posterior(inputs, answers)}


def _rounded(values: Tensor) -> list[float]:
    return [round(float(value), 4) for value in values]
