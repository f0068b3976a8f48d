"""Pictures and questions of the visual question answering recipe: generated scenes, DAQUAR, or files of one's own."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from probattn.data.bpe import Tokenizer
from probattn.data.image_features import ImageFeatures
from probattn.data.picture_questions import AnswerVocabulary, EncodedQuestions, PictureQuestion
from probattn.data.whitening import Whitening
from probattn.data.words import train_words
from probattn.models.vqa import VqaInputs
from probattn.recipes.vqa_sources import SPLITS, CorpusSettings, load_sources

_MOST_FITTED = 4000  # pictures that a whitening is fitted on


@dataclass(frozen=True)
class Vocabulary:
    """What a trained network keeps of its data.

    Attributes:
        tokenizer: Of the questions' words.
        answers: That the network can give.
        region_dim: Features of a region.
        spread: Standard deviation of the features; the network reads features divided by it.
        whitening: What is done to them then, or None.
    """

    tokenizer: Tokenizer
    answers: AnswerVocabulary
    region_dim: int
    spread: float
    whitening: Whitening | None = None


@dataclass(frozen=True)
class VqaCorpus:
    """Pictures and questions, split and encoded.

    Attributes:
        features: Of the pictures of each split.
        questions: As they were read.
        vocabulary: From the training split.
        name: For messages.
        unread: Questions that were left out, because the extractor could not read their pictures.
    """

    features: Mapping[str, ImageFeatures]
    questions: Mapping[str, Sequence[PictureQuestion]]
    vocabulary: Vocabulary
    name: str
    unread: int = 0
    encoded: Mapping[str, EncodedQuestions] = field(init=False)

    def __post_init__(self) -> None:
        encoded = {split: encode(self.questions[split], self.features[split], self.vocabulary) for split in SPLITS}
        object.__setattr__(self, "encoded", encoded)
        if silent := [split for split in SPLITS if not len(encoded[split].answerable)]:
            raise ValueError(
                f"{self.name}: no question of {', '.join(silent)} has an answer that training knows; add some"
            )

    def __str__(self) -> str:
        counts = ", ".join(f"{split} {len(self.questions[split]):,}" for split in SPLITS)
        unknown = {split: self.num_unanswerable(split) for split in SPLITS}
        unread = f"; {self.unread} about pictures that could not be read were left out" if self.unread else ""
        return (
            f"{self.name}: {counts} questions, {len(self.vocabulary.answers):,} answers, regions of "
            f"{self.vocabulary.region_dim} features; questions with no known answer: {unknown['train']} of train (left "
            f"out), {unknown['valid']} of valid, {unknown['test']} of test (counted as wrong){unread}"
        )

    def num_unanswerable(self, split: str) -> int:
        """Questions none of whose answers the network can give."""
        return len(self.questions[split]) - len(self.encoded[split].answerable)

    @cached_property
    def digest(self) -> str:
        """Changes when questions, answers or features do."""
        text = json.dumps([[split, [vars(one) for one in self.questions[split]]] for split in SPLITS])
        found = hashlib.sha256(text.encode())
        for split in SPLITS:
            found.update(self.features[split].values.numpy().tobytes())
        return found.hexdigest()[:16]

    def inputs(self, split: str, places: Tensor, *, noise: Tensor | None = None) -> VqaInputs:
        """The questions at these places; noise (B, R, D) is added to the features in units of their spread."""
        questions = self.encoded[split]
        return make_inputs(self.features[split], questions, places, vocabulary=self.vocabulary, noise=noise)


def blinded(inputs: VqaInputs) -> VqaInputs:
    """The same questions with features of zero."""
    return replace(inputs, regions=torch.zeros_like(inputs.regions))


def make_inputs(
    features: ImageFeatures,
    questions: EncodedQuestions,
    places: Tensor,
    *,
    vocabulary: Vocabulary,
    noise: Tensor | None = None,
) -> VqaInputs:
    """What a network reads of the questions at these places; noise (B, R, D) is in units of the features' spread."""
    regions, mask = features.batch(questions.pictures[places])
    regions = regions / vocabulary.spread
    regions = regions if noise is None else regions + noise
    regions = regions if vocabulary.whitening is None else vocabulary.whitening(regions)
    regions = regions.masked_fill(~mask.unsqueeze(-1), 0.0)
    words, words_mask = questions.batch_words(places)
    return VqaInputs(regions, mask, words, words_mask)


def encode(questions: Sequence[PictureQuestion], features: ImageFeatures, vocabulary: Vocabulary) -> EncodedQuestions:
    """Questions as numbers.

    Raises:
        KeyError: Pictures that have no features.
        ValueError: Features of another width.
    """
    features.require_dim(vocabulary.region_dim)
    rows = features.rows([question.picture for question in questions])
    return EncodedQuestions.from_questions(questions, rows, tokenizer=vocabulary.tokenizer, answers=vocabulary.answers)


def load_corpus(settings: CorpusSettings, vocabulary: Vocabulary | None = None) -> VqaCorpus:
    """Pictures and questions.

    Args:
        settings: Which.
        vocabulary: That of a trained network; None: made from the training split.

    Raises:
        ValueError: Features that are all the same.
    """
    found = load_sources(settings)
    features, questions = found.features, found.questions
    if vocabulary is None:
        train = questions["train"]
        rows = features["train"].rows(list(dict.fromkeys(one.picture for one in train)))
        spread = features["train"].spread(rows)
        if spread == 0.0:
            raise ValueError(f"{features['train'].name}: all features are the same number; extract them again")
        vocabulary = Vocabulary(
            tokenizer=train_words((one.question for one in train), vocabulary_size=settings.vocabulary_size),
            answers=AnswerVocabulary.from_questions(
                train, min_count=settings.min_count, max_answers=settings.max_answers
            ),
            region_dim=features["train"].dim,
            spread=spread,
            whitening=_whitening(features["train"], rows, spread) if settings.whitens else None,
        )
    return VqaCorpus(features, questions, vocabulary, name=settings.name, unread=found.unread)


def _whitening(features: ImageFeatures, rows: Sequence[int], spread: float) -> Whitening:
    """Of some pictures, the first ones where there are many."""
    regions, mask = features.batch(rows[:_MOST_FITTED])
    return Whitening.of_regions(regions[mask] / spread)
