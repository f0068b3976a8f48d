"""The kinds of tasks: classes of sentences, scores of sentences, answers to questions.

A kind says which head the network gets, how examples become numbers, and how predictions are evaluated. The rest of the
recipe is the same for all; a new kind is a class here and a line in `load_task`.
"""

from collections.abc import Mapping, Sized
from dataclasses import dataclass
from typing import Any, Protocol

from torch import nn

from probattn.data import glue, sentences, squad_answers
from probattn.data.sentences import SentenceTask, corrupted
from probattn.data.squad_answers import AnswerTask, careless
from probattn.recipes.glue_batches import Encoded, encode
from probattn.recipes.glue_eval import ClassEvaluator, Evaluator, ScoreEvaluator
from probattn.recipes.glue_model import Head
from probattn.recipes.glue_settings import EvaluationSettings, TaskSettings
from probattn.recipes.glue_span_eval import SpanEvaluator
from probattn.recipes.glue_windows import encode_questions

__all__ = ["AnswerKind", "Kind", "Preparation", "SentenceKind", "Splits", "load_task"]

_CORRUPTION_SEED = 1_000_003  # one for all rows and seeds


@dataclass(frozen=True)
class Preparation:
    """How examples become numbers.

    Attributes:
        tokenizer: Of `transformers`.
        max_tokens: Of an input of the network.
        max_train: At most so many training examples, the first ones; None for all.
        corruption: Share of the words that are hit in the corrupted condition.
    """

    tokenizer: Any
    max_tokens: int
    max_train: int | None
    corruption: float


@dataclass(frozen=True)
class Splits:
    """All examples as numbers.

    Attributes:
        num_train: Training examples; a long one may have several inputs.
        train: Inputs with labels.
        valid: In the form that the kind's evaluator takes.
        conditions: Test examples, "clean" and "corrupted", in this form too.
    """

    num_train: int
    train: Encoded
    valid: Sized
    conditions: Mapping[str, Sized]


class Kind(Protocol):
    """A task with what is special about its kind."""

    @property
    def name(self) -> str:
        """Of the task."""

    @property
    def metric(self) -> str:
        """The number that the task is judged by."""

    @property
    def head(self) -> Head:
        """What is put on top of the encoder."""

    def splits(self, preparation: Preparation) -> Splits:
        """The examples as numbers."""

    def evaluator(self, model: nn.Module, settings: EvaluationSettings) -> Evaluator:
        """For a model with its final weights."""


def load_task(settings: TaskSettings) -> Kind:
    """A task by its name.

    Raises:
        FileNotFoundError: Its files are not on this machine; the message lists the ways to get them.
        ValueError: A file is not what it should be; says where.
    """
    if settings.name in squad_answers.TASKS:
        return AnswerKind(squad_answers.load(settings.name, may_download=settings.may_download))
    return SentenceKind(glue.load(settings.name, may_download=settings.may_download))


@dataclass(frozen=True)
class SentenceKind:
    """Which class a sentence, or a pair of them, belongs to, or how much of something it has.

    Attributes:
        task: Whose targets are classes or scores.
    """

    task: SentenceTask

    @property
    def name(self) -> str:
        """Of the task."""
        return self.task.name

    @property
    def metric(self) -> str:
        """Accuracy or Matthews' correlation of classes, Pearson's correlation of scores."""
        return self.task.metric

    @property
    def head(self) -> Head:
        """Logits of the classes, or one number, from the pooled first token."""
        outputs = 1 if self.task.is_score else self.task.num_classes
        problem = "regression" if self.task.is_score else "single_label_classification"
        options = {"num_labels": outputs, "problem_type": problem}
        return Head("BertForSequenceClassification", sentences.VOCABULARY, options)

    def splits(self, preparation: Preparation) -> Splits:
        """Inputs with classes or scores."""
        train = self.task.train
        if preparation.max_train is not None and preparation.max_train < len(train):
            train = train.pick(range(preparation.max_train))
        careless_test = corrupted(self.task.test, preparation.corruption, seed=_CORRUPTION_SEED)
        encoded = [
            encode(part, preparation.tokenizer, max_tokens=preparation.max_tokens, is_score=self.task.is_score)
            for part in (train, self.task.valid, self.task.test, careless_test)
        ]
        return Splits(len(train), encoded[0], encoded[1], {"clean": encoded[2], "corrupted": encoded[3]})

    def evaluator(self, model: nn.Module, settings: EvaluationSettings) -> Evaluator:
        """With a temperature for classes, with the variance of a Gaussian for scores."""
        return ScoreEvaluator(model, settings) if self.task.is_score else ClassEvaluator(model, settings)


@dataclass(frozen=True)
class AnswerKind:
    """Which words of a passage answer a question. Only questions are corrupted: passages hold the answers.

    Attributes:
        task: With questions and passages.
    """

    task: AnswerTask

    @property
    def name(self) -> str:
        """Of the task."""
        return self.task.name

    @property
    def metric(self) -> str:
        """Share of the answers that are right word for word; F1 is reported beside it."""
        return "exact_match"

    @property
    def head(self) -> Head:
        """Logits of start and end from every token."""
        return Head("BertForQuestionAnswering", squad_answers.VOCABULARY, {"num_labels": 2}, has_dropout=False)

    def splits(self, preparation: Preparation) -> Splits:
        """Windows with start and end of the answer."""
        train = self.task.train[: preparation.max_train]
        typed = careless(self.task.test, preparation.corruption, seed=_CORRUPTION_SEED)
        asked = [
            encode_questions(part, preparation.tokenizer, max_tokens=preparation.max_tokens)
            for part in (train, self.task.valid, self.task.test, typed)
        ]
        return Splits(len(train), asked[0].encoded, asked[1], {"clean": asked[2], "corrupted": asked[3]})

    def evaluator(self, model: nn.Module, settings: EvaluationSettings) -> Evaluator:
        """Best spans over all windows."""
        return SpanEvaluator(model, settings)
