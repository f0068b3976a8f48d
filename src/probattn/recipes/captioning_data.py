"""Pictures with captions for the captioning recipe: generated scenes, Flickr8k, or files of one's own."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from probattn.data import flickr8k
from probattn.data.bpe import Tokenizer
from probattn.data.caption_batches import EncodedCaptions
from probattn.data.flickr8k import CaptionedImages, caption_words, read_captions
from probattn.data.image_features import ImageFeatures, read_features
from probattn.data.parallel import split_words
from probattn.data.words import train_words

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
Gold = tuple[tuple[int, ...], ...]
"""For each word of a caption the regions it speaks of; none for words such as "a"."""


@dataclass(frozen=True)
class CorpusSettings:
    """Which pictures and captions, and how captions are cut."""

    name: Literal["scenes", "flickr8k", "files"] = "scenes"
    """scenes: made on the spot, with gold attention; flickr8k: from PROBATTN_DATA; files: yours."""
    train_size: int | None = 2000
    """Pictures for training, the first ones; null for all of them (not for scenes)."""
    test_size: int | None = 200
    """Pictures each for validation and test; null: all of them, and a tenth each of files."""
    features: Path | None = None
    """files: what `probattn features` wrote, or other region features (.npz, .tsv, .h5)."""
    captions: Path | None = None
    """files: a line `name#0<TAB>caption` or `name<TAB>caption` for each caption, or .jsonl."""
    max_words: int = 20
    """Longer captions are cut for training; references stay whole."""
    min_frequency: int = 1
    """How often a word must occur in the training captions to be known."""
    vocabulary_size: int = 20_000
    """Most words, the most frequent ones."""
    seed: int = 0
    """Of scenes, of the split of files and of the order of batches."""

    def __post_init__(self) -> None:
        for name in ("train_size", "test_size", "max_words", "min_frequency"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"corpus.{name} must be at least 1, got {value}")
        if self.name != "files" and (self.features is not None or self.captions is not None):
            raise ValueError(
                "corpus.features and corpus.captions go with corpus.name=files (--scale files); got "
                f"name={self.name}, features={self.features}, captions={self.captions}"
            )


@dataclass(frozen=True)
class CaptionSplit:
    """One part of a corpus.

    Attributes:
        features: Of its pictures and perhaps of others.
        rows: Row of each picture in `features`.
        images: Names and reference captions.
        encoded: The captions as ids, cut.
        gold: For each caption, gold attention of its words; None where nobody knows it.
    """

    features: ImageFeatures
    rows: tuple[int, ...]
    images: CaptionedImages
    encoded: EncodedCaptions
    gold: tuple[Gold, ...] | None = None


@dataclass(frozen=True)
class CaptionCorpus:
    """Pictures and captions ready for training."""

    splits: Mapping[Split, CaptionSplit]
    tokenizer: Tokenizer
    feature_scale: float
    """Standard deviation of the training features."""
    left_out: str = ""
    """What of one's own files was left out, for messages."""

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} {len(part.images):,}" for name, part in self.splits.items())
        captions = sum(len(part.encoded) for part in self.splits.values())
        features = self.features
        return (
            f"Pictures: {sizes}, with {captions:,} captions. Words: {self.tokenizer.vocabulary_size:,} types. Regions: "
            f"{features.num_regions} of {features.dim} features.{self.left_out}"
        )

    @property
    def features(self) -> ImageFeatures:
        """Of the training pictures."""
        return self.splits["train"].features

    @property
    def digest(self) -> str:
        """SHA-256 of the words, the captions and the pictures' names that training and selection see."""
        parts = [self.splits[name].images for name in ("train", "valid")]
        content = [self.tokenizer.digest, self.feature_scale, *((part.names, part.captions) for part in parts)]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


@lru_cache(maxsize=1)  # all rows of a comparison share it
def load_corpus(settings: CorpusSettings) -> CaptionCorpus:
    """Read or make pictures and captions, take the words of the training captions and encode everything."""
    left_out = ""
    if settings.name == "scenes":
        raw = _scenes(settings)
    elif settings.name == "flickr8k":
        raw = _sized({name: flickr8k.load(name) for name in SPLITS}, flickr8k.load_features(), settings)
    else:
        raw, left_out = _files(settings)
    train = raw["train"][1]
    tokenizer = train_words(
        [text for of_image in train.captions for text in of_image],
        vocabulary_size=settings.vocabulary_size,
        min_frequency=settings.min_frequency,
    )
    splits = {name: _encoded(*raw[name], tokenizer=tokenizer, max_words=settings.max_words) for name in SPLITS}
    return CaptionCorpus(splits, tokenizer, raw["train"][0].spread(splits["train"].rows), left_out)


_Raw = Mapping[Split, tuple[ImageFeatures, CaptionedImages, tuple[Gold, ...] | None]]


def _encoded(
    features: ImageFeatures,
    images: CaptionedImages,
    gold: tuple[Gold, ...] | None,
    *,
    tokenizer: Tokenizer,
    max_words: int,
) -> CaptionSplit:
    cut = [[" ".join(split_words(text)[:max_words]) for text in of_image] for of_image in images.captions]
    encoded = EncodedCaptions.from_text(features, images.names, cut, tokenizer)
    return CaptionSplit(features, tuple(features.rows(images.names)), images, encoded, gold)


def _scenes(settings: CorpusSettings) -> _Raw:
    from probattn.data.generated_scenes import scenes  # draws pictures of digits, which takes a moment

    if settings.train_size is None:
        raise ValueError("scenes have no end: give corpus.train_size a number")
    sizes = {"train": settings.train_size, "valid": settings.test_size or 200, "test": settings.test_size or 200}
    found: dict[Split, tuple[ImageFeatures, CaptionedImages, tuple[Gold, ...] | None]] = {}
    for name in SPLITS:
        made = scenes(name, sizes[name], seed=settings.seed)
        of_scene: dict[int, list[tuple[str, Gold]]] = {}
        for caption in made.captions:
            of_scene.setdefault(caption.scene, []).append((" ".join(caption.words), caption.gold))
        rows = sorted(of_scene)
        images = CaptionedImages(
            tuple(made.features.names[row] for row in rows),
            tuple(tuple(text for text, _ in of_scene[row]) for row in rows),
        )
        found[name] = (made.features, images, tuple(gold for row in rows for _, gold in of_scene[row]))
    return found


def _files(settings: CorpusSettings) -> tuple[_Raw, str]:
    """The pictures of a file that have features, and a sentence on what was left out.

    Pictures that the extractor could not read are left out. Others without features are an error that names them.
    """
    if settings.features is None or settings.captions is None:
        raise ValueError(
            "corpus.name=files needs both corpus.features=FILE (see `probattn features`) and corpus.captions=FILE; got "
            f"features={settings.features}, captions={settings.captions}"
        )
    features, read = read_features(settings.features), read_captions(settings.captions)
    images = read.without(features.left_out)
    left_out = {
        "picture(s) that could not be read": len(read) - len(images),
        "caption(s) without a word": read.skipped,
    }
    said = ", ".join(f"{count} {what}" for what, count in left_out.items() if count)
    return _sized(_divided(images, settings), features, settings), f" Left out: {said}." if said else ""


def _sized(parts: Mapping[Split, CaptionedImages], features: ImageFeatures, settings: CorpusSettings) -> _Raw:
    sizes = {"train": settings.train_size, "valid": settings.test_size, "test": settings.test_size}
    return {name: (features, part.part(range(len(part))[: sizes[name]]), None) for name, part in parts.items()}


def _divided(images: CaptionedImages, settings: CorpusSettings) -> dict[Split, CaptionedImages]:
    """Training, validation and test pictures of a file, at random; a tenth each is held out by default."""
    count = len(images)
    held_out = settings.test_size or max(1, count // 10)
    if count < 2 * held_out + 1:
        raise ValueError(
            f"{settings.captions}: {count} pictures cannot give {held_out} each for validation and test and some for "
            "training; caption more pictures, or lower corpus.test_size"
        )
    order = np.random.default_rng(settings.seed).permutation(count).tolist()
    return {
        "train": images.part(order[2 * held_out :]),
        "valid": images.part(order[:held_out]),
        "test": images.part(order[held_out : 2 * held_out]),
    }


def references_of(split: CaptionSplit) -> Sequence[Sequence[str]]:
    """Reference captions of each picture, as they are scored."""
    return [[caption_words(text) for text in of_image] for of_image in split.images.captions]
