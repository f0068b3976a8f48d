"""How right answers to questions are, how calibrated, and whether errors are the unsure ones.

Sizes: K draws, N questions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from probattn.data.squad_answers import Question
from probattn.metrics import error_detection, pavpu, risk_coverage
from probattn.metrics.optional import import_for_eval
from probattn.metrics.uncertainty import p_value_of_top_two
from probattn.predict import draw_outputs
from probattn.recipes.glue_eval import Scored
from probattn.recipes.glue_scores import CERTAIN_BELOW, information_scores
from probattn.recipes.glue_settings import EvaluationSettings
from probattn.recipes.glue_spans import SpanPrediction, answer
from probattn.recipes.glue_windows import Asked

__all__ = ["SpanEvaluator", "exact_match_and_f1", "span_scores"]

_NUM_BINS = 15


@dataclass(frozen=True)
class SpanEvaluator:
    """Of answers to questions. There is nothing to fit: the numbers of spans differ, so a temperature would not be one.

    Attributes:
        model: With its final weights.
        settings: How many draws.
    """

    model: nn.Module
    settings: EvaluationSettings

    def calibrate(self, valid: Asked) -> dict[str, float]:
        """The numbers of the validation set."""
        return dict(self.score(valid, range(len(valid)), noise=False, dropout=False).numbers)

    def score(self, split: Asked, places: Sequence[int], *, noise: bool, dropout: bool) -> Scored:
        """Of the questions at these places."""
        predictions: list[SpanPrediction] = []
        questions: list[Question] = []
        texts: list[str] = []
        order: list[int] = []
        for number, (chosen, rows) in enumerate(split.batches(self.settings.batch_size, places)):
            drawn = draw_outputs(
                self.model,
                split.encoded.batch(rows),
                draws=self.settings.draws,
                noise=noise,
                dropout=dropout,
                seed=number,
                output=_start_and_end,
            )  # (K, rows, T, 2)
            found = iter(zip(rows, drawn.unbind(dim=1), strict=True))
            for place in chosen:
                some = [next(found) for _ in split.windows[place]]
                logits = [logit[:, : len(split.encoded.tokens[row])] for row, logit in some]  # without padding
                one = answer(logits, split.windows[place], split.golds[place])
                question, passage = split.questions[place], split.passages[place]
                order.append(place)
                predictions.append(one)
                questions.append(question)
                texts.append(question.context[passage.starts[one.span[0]] : passage.stops[one.span[1]]])
        kept = {
            "place": torch.tensor(order),
            "exact_match": torch.tensor(
                [exact_match_and_f1(text, one)[0] for text, one in zip(texts, questions, strict=True)]
            ),
            "confidence": torch.tensor([one.confidence for one in predictions]),
            "entropy": torch.tensor([one.entropy for one in predictions]),
            "mutual_information": torch.tensor([one.mutual_information for one in predictions]),
        }
        return Scored(span_scores(predictions, texts, questions), kept)


def exact_match_and_f1(text: str, question: Question) -> tuple[float, float]:
    """Of one answer, the best over all right ones, as SQuAD's authors compute it: case, punctuation, articles are out.

    Example:
        >>> from probattn.data.squad_answers import Answer
        >>> question = Question("what ?", "the red boat", (Answer("red boat", 4),), "boats")
        >>> exact_match_and_f1("The red boat!", question), round(exact_match_and_f1("boat", question)[1], 4)
        ((1.0, 1.0), 0.6667)
    """
    squad = import_for_eval("torchmetrics.functional.text").squad
    right = {"answers": {"text": [one.text for one in question.answers]}, "id": ""}
    found = squad({"prediction_text": text, "id": ""}, right)
    return float(found["exact_match"]) / 100.0, float(found["f1"]) / 100.0


def span_scores(
    predictions: Sequence[SpanPrediction], texts: Sequence[str], questions: Sequence[Question]
) -> dict[str, float]:
    """Numbers of N answers.

    An answer is wrong if it is no exact match. Its confidence is the probability of its span, the NLL that of all right
    spans together; `answerable` is the share of the questions that have a right span which can be given, and the NLL is
    a mean over these.

    Args:
        predictions: (N).
        texts: (N) the answers in characters.
        questions: (N).
    """
    scores = [exact_match_and_f1(text, question) for text, question in zip(texts, questions, strict=True)]
    matches, overlaps = torch.tensor(scores, dtype=torch.float64).unbind(dim=-1)
    is_wrong = matches < 1.0
    confidence = torch.tensor([one.confidence for one in predictions], dtype=torch.float64)
    entropy = torch.tensor([one.entropy for one in predictions], dtype=torch.float64)
    by_entropy, by_confidence = error_detection(entropy, is_wrong), error_detection(1.0 - confidence, is_wrong)
    golds = [one.gold for one in predictions if one.gold is not None]
    least = torch.finfo(torch.float64).tiny
    numbers = {
        "exact_match": float(matches.mean()),
        "f1": float(overlaps.mean()),
        "nll": -math.fsum(math.log(max(gold, least)) for gold in golds) / len(golds) if golds else math.nan,
        "answerable": len(golds) / len(predictions),
        "confidence": float(confidence.mean()),
        "ece": _calibration_error(confidence, ~is_wrong),
        "entropy": float(entropy.mean()),
        "entropy_auroc": by_entropy.auroc,
        "entropy_aupr": by_entropy.aupr,
        "confidence_auroc": by_confidence.auroc,
        "confidence_aupr": by_confidence.aupr,
        "risk_area": risk_coverage(1.0 - confidence, is_wrong).area,
    }
    return numbers | (_of_draws(predictions, is_wrong) if len(predictions[0].top_two) > 1 else {})


def _of_draws(predictions: Sequence[SpanPrediction], is_wrong: Tensor) -> dict[str, float]:
    information = torch.tensor([one.mutual_information for one in predictions], dtype=torch.float64)
    tops = torch.stack([one.top_two for one in predictions], dim=1)  # (K, N, 2)
    numbers = information_scores(information, is_wrong)
    for name, is_paired in (("pavpu", False), ("paired_pavpu", True)):
        numbers[name] = pavpu(~is_wrong, p_value_of_top_two(tops, paired=is_paired) < CERTAIN_BELOW).value
    return numbers


def _calibration_error(confidence: Tensor, is_right: Tensor) -> float:
    """ECE of the best answer; its probability may well be below a half, so it is binned as it is."""
    functions = import_for_eval("torchmetrics.functional.classification")
    below_one = confidence.float().clamp(0.0, 1.0 - torch.finfo(torch.float32).eps / 2)  # 1 would get a bin of its own
    return float(functions.binary_calibration_error(below_one, is_right.long(), n_bins=_NUM_BINS, norm="l1"))


def _start_and_end(outputs: Any) -> Tensor:
    """(n, T, 2)."""
    return torch.stack((outputs.start_logits, outputs.end_logits), dim=-1)
