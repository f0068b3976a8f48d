"""Pictures and questions of the visual question answering recipe: generated scenes, DAQUAR, or files of one's own."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from probattn.data import daquar
from probattn.data.bpe import Tokenizer
from probattn.data.generated_scenes import scenes
from probattn.data.image_features import ImageFeatures, read_features
from probattn.data.picture_questions import AnswerVocabulary, EncodedQuestions, PictureQuestion, read_questions
from probattn.data.whitening import Whitening
from probattn.data.words import train_words
from probattn.models.vqa import VqaInputs
from probattn.training.randomness import DATA, seeded

SPLITS = ("train", "valid", "test")
_MOST_FITTED = 4000  # pictures that a whitening is fitted on


@dataclass(frozen=True)
class CorpusSettings:
    """Where pictures and questions come from."""

    name: Literal["scenes", "daquar", "files"] = "scenes"
    """Generated scenes, DAQUAR, or files."""
    train_scenes: int = 3000
    """Scenes to train on, four questions each; of the generated ones."""
    test_scenes: int = 500
    """Scenes to test on, and half as many to validate on; of the generated ones."""
    features: Path | None = None
    """Of files: .npz, .tsv or .h5, see `probattn.data.image_features`."""
    questions: Path | None = None
    """Of files: .tsv or .jsonl with image, question and answers."""
    test_questions: Path | None = None
    """Of files: the test split, about pictures of the same features; null: a part of the pictures is held out."""
    held_out: float = 0.1
    """Of files: share of the pictures for validation, and again as many for testing where there is no file."""
    pictures: Path | None = None
    """Of files: folder of the pictures, for the report; null for none."""
    vocabulary_size: int = 4000
    """Most words of questions."""
    min_count: int = 1
    """How often an answer must occur in training to be one that the network can give."""
    max_answers: int | None = None
    """Most answers; null for all."""
    whitens: bool = False
    """Rotate and scale features so that those of the training pictures are uncorrelated and of unit variance, which
    trains much faster where a few directions have most of it; noise is added before."""
    uses_glove: bool = False
    """Start word embeddings from GloVe, 50 numbers a word."""
    seed: int = 0
    """Of scenes and held-out pictures; the same for all rows and seeds."""

    def __post_init__(self) -> None:
        is_given = [self.features is not None, self.questions is not None]
        if self.name == "files" and not all(is_given):
            raise ValueError("corpus.name=files needs both corpus.features=FILE and corpus.questions=FILE")
        if self.name != "files" and (any(is_given) or self.test_questions is not None):
            raise ValueError(f"corpus.name={self.name} has its own features and questions; add corpus.name=files")
        if not 0.0 < self.held_out < 0.5:
            raise ValueError(f"corpus.held_out is a share between 0 and 0.5, got {self.held_out}")


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
    """

    features: Mapping[str, ImageFeatures]
    questions: Mapping[str, Sequence[PictureQuestion]]
    vocabulary: Vocabulary
    name: str
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
        return (
            f"{self.name}: {counts} questions, {len(self.vocabulary.answers):,} answers, regions of "
            f"{self.vocabulary.region_dim} features; questions with no known answer: {unknown['train']} of train (left "
            f"out), {unknown['valid']} of valid, {unknown['test']} of test (counted as wrong)"
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
    """
    loaders = {"scenes": _scenes, "daquar": _daquar, "files": _files}
    features, questions = loaders[settings.name](settings)
    if vocabulary is None:
        train = questions["train"]
        vocabulary = Vocabulary(
            tokenizer=train_words((one.question for one in train), vocabulary_size=settings.vocabulary_size),
            answers=AnswerVocabulary.from_questions(
                train, min_count=settings.min_count, max_answers=settings.max_answers
            ),
            region_dim=features["train"].dim,
            spread=(spread := features["train"].spread()),
            whitening=_whitening(features["train"], train, spread) if settings.whitens else None,
        )
    return VqaCorpus(features, questions, vocabulary, name=settings.name)


def _whitening(features: ImageFeatures, questions: Sequence[PictureQuestion], spread: float) -> Whitening:
    """Of the pictures that questions are about, the first ones where there are many."""
    rows = features.rows(list(dict.fromkeys(one.picture for one in questions)))[:_MOST_FITTED]
    regions, mask = features.batch(rows)
    return Whitening.of_regions(regions[mask] / spread)


Loaded = tuple[dict[str, ImageFeatures], dict[str, Sequence[PictureQuestion]]]


def _scenes(settings: CorpusSettings) -> Loaded:
    counts = {"train": settings.train_scenes, "valid": settings.test_scenes // 2, "test": settings.test_scenes}
    made = {split: scenes(split, counts[split], seed=settings.seed) for split in SPLITS}  # type: ignore[arg-type]
    questions: dict[str, Sequence[PictureQuestion]] = {
        split: [
            PictureQuestion(one.picture_name(asked.scene), asked.question, (asked.answer,), asked.kind, asked.gold)
            for asked in one.questions
        ]
        for split, one in made.items()
    }
    return {split: one.features for split, one in made.items()}, questions


def _daquar(settings: CorpusSettings) -> Loaded:
    features = daquar.load_features()
    return dict.fromkeys(SPLITS, features), {split: daquar.load(split) for split in SPLITS}


def _files(settings: CorpusSettings) -> Loaded:
    if settings.features is None or settings.questions is None:
        raise ValueError("corpus.name=files needs both corpus.features=FILE and corpus.questions=FILE")
    features, asked = read_features(settings.features), read_questions(settings.questions)
    names = sorted({one.picture for one in asked})
    with seeded(DATA, settings.seed):
        names = [names[number] for number in torch.randperm(len(names)).tolist()]
    count = max(1, round(settings.held_out * len(names)))
    parts = {"valid": set(names[:count])}
    parts["test"] = set() if settings.test_questions is not None else set(names[count : 2 * count])
    held_out = parts["valid"] | parts["test"]
    questions: dict[str, Sequence[PictureQuestion]] = {
        "train": [one for one in asked if one.picture not in held_out],
        **{split: [one for one in asked if one.picture in part] for split, part in parts.items()},
    }
    if settings.test_questions is not None:
        questions["test"] = read_questions(settings.test_questions)
    empty = [split for split in SPLITS if not questions[split]]
    if empty:
        raise ValueError(f"{settings.questions} has {len(names)} pictures, which leaves no questions for {empty}")
    return dict.fromkeys(SPLITS, features), questions
