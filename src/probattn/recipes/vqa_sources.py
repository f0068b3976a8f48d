"""Where the pictures and questions of visual question answering come from: scenes, DAQUAR, or files of one's own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from probattn.data import daquar
from probattn.data.generated_scenes import scenes
from probattn.data.image_features import ImageFeatures, read_features
from probattn.data.picture_questions import PictureQuestion, read_questions
from probattn.training.randomness import DATA, seeded

SPLITS = ("train", "valid", "test")


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
class Loaded:
    """Pictures and questions of each split, as they were read.

    Attributes:
        features: Of the pictures.
        questions: About them.
        unread: Questions of files that were left out, because the extractor could not read their pictures.
    """

    features: Mapping[str, ImageFeatures]
    questions: Mapping[str, Sequence[PictureQuestion]]
    unread: int = 0


def load_sources(settings: CorpusSettings) -> Loaded:
    """Read or make what the settings name.

    Raises:
        ValueError: Files with too few pictures, or features that cannot be used.
    """
    loaders = {"scenes": _scenes, "daquar": _daquar, "files": _files}
    return loaders[settings.name](settings)


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
    return Loaded({split: one.features for split, one in made.items()}, questions)


def _daquar(settings: CorpusSettings) -> Loaded:
    features = daquar.load_features()
    return Loaded(dict.fromkeys(SPLITS, features), {split: daquar.load(split) for split in SPLITS})


def _files(settings: CorpusSettings) -> Loaded:
    if settings.features is None or settings.questions is None:
        raise ValueError("corpus.name=files needs both corpus.features=FILE and corpus.questions=FILE")
    features, everything = read_features(settings.features), read_questions(settings.questions)
    asked = _readable(everything, features)
    unread = len(everything) - len(asked)
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
        tested = read_questions(settings.test_questions)
        questions["test"] = _readable(tested, features)
        unread += len(tested) - len(questions["test"])
    empty = [split for split in SPLITS if not questions[split]]
    if empty:
        raise ValueError(f"{settings.questions} has {len(names)} pictures, which leaves no questions for {empty}")
    return Loaded(dict.fromkeys(SPLITS, features), questions, unread)


def _readable(questions: Sequence[PictureQuestion], features: ImageFeatures) -> list[PictureQuestion]:
    """Without those about pictures that the extractor could not read."""
    return [one for one in questions if one.picture not in features.left_out]
