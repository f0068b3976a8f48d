"""Corpora of text models: single sentences, from a corpus, generated, or from a file."""

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

from probattn.data import captions, ptb, text_vae_corpora
from probattn.data.bpe import Tokenizer
from probattn.data.parallel import split_words
from probattn.data.text import EncodedSentences, read_text, split_text
from probattn.data.words import train_words

Split = Literal["train", "valid", "test"]
_SPLITS: tuple[Split, ...] = ("train", "valid", "test")


@dataclass(frozen=True)
class CorpusSettings:
    """Which text, and how it is cut."""

    name: Literal["generated", "ptb", "captions", "yahoo", "snli", "short_yelp", "dailydialog", "files"] = "generated"
    """generated: made on the spot; files: yours; the others from PROBATTN_DATA."""
    train_size: int | None = None
    """Training sentences, the first ones; null for all of them (not for generated text)."""
    test_size: int | None = None
    """Sentences each for validation and test, the first ones; null for all of them."""
    path: Path | None = None
    """files: one sentence a line, plain or gz; the end of it is held out for validation and test."""
    max_words: int = 50
    """Longer sentences are cut."""
    vocabulary_size: int = 10_000
    """Most frequent words; others are the unknown word."""
    min_frequency: int = 1
    """How often a word must occur in the training text to be known."""
    lowercase: bool = True
    """Whether the text is lower-cased first, here and when the trained model is handed text."""
    seed: int = 0
    """Of generated text and of the order of batches."""

    def __post_init__(self) -> None:
        for name in ("train_size", "test_size", "max_words"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"corpus.{name} must be at least 1, got {value}")
        if self.path is not None and self.name != "files":
            raise ValueError(f"corpus.path goes with corpus.name=files (--scale files), got name={self.name}")


@dataclass(frozen=True)
class TextCorpus:
    """A corpus ready for training.

    Attributes:
        texts: By split: train, valid, test.
        encoded: The same as ids.
        tokenizer: Words.
    """

    texts: dict[Split, tuple[str, ...]]
    encoded: dict[Split, EncodedSentences]
    tokenizer: Tokenizer

    def __str__(self) -> str:
        sizes = ", ".join(f"{split} {len(text):,}" for split, text in self.texts.items())
        return f"Sentences: {sizes}. Words: {self.tokenizer.vocabulary_size:,} types."

    @cached_property
    def length_counts(self) -> tuple[int, ...]:
        """How many training sentences have 1, 2, ... words."""
        counts = Counter(len(split_words(line)) for line in self.texts["train"])
        return tuple(counts[length] for length in range(1, max(counts) + 1))

    @property
    def digest(self) -> str:
        """SHA-256 of the words and of the text that training and selection see."""
        content = [self.tokenizer.digest, *(self.texts[split] for split in ("train", "valid"))]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


@lru_cache(maxsize=1)  # all rows of a comparison share it
def load_corpus(settings: CorpusSettings, tokenizer: Tokenizer | None = None) -> TextCorpus:
    """Read or make the text, take its words (unless a trained model's are given) and encode everything."""
    texts = {split: _cut(lines, settings) for split, lines in _texts(settings).items()}
    if tokenizer is None:
        tokenizer = train_words(
            texts["train"], vocabulary_size=settings.vocabulary_size, min_frequency=settings.min_frequency
        )
    encoded = {
        split: EncodedSentences.from_lines(lines, tokenizer, name=f"{settings.name} {split}")
        for split, lines in texts.items()
    }
    return TextCorpus(texts, encoded, tokenizer)


def text_of_file(path: Path, settings: CorpusSettings, tokenizer: Tokenizer) -> TextCorpus:
    """All sentences of a file as a test set, cut and cased as the training text of a model was.

    Args:
        path: One sentence a line.
        settings: Of the training text.
        tokenizer: Of the model.
    """
    lines = _cut(read_text(path, max_words=sys.maxsize, on_empty="skip"), settings)
    return TextCorpus(
        {"test": lines}, {"test": EncodedSentences.from_lines(lines, tokenizer, name=str(path))}, tokenizer
    )


def _texts(settings: CorpusSettings) -> dict[Split, Sequence[str]]:
    found: dict[Split, Sequence[str]]
    sizes: dict[Split, int | None] = {
        "train": settings.train_size,
        "valid": settings.test_size,
        "test": settings.test_size,
    }
    if settings.name == "generated":
        if settings.train_size is None:
            raise ValueError("generated text has no end: give corpus.train_size a number")
        from probattn.data.generated_text import GeneratedText  # its lexicon is read when it is asked for

        made = GeneratedText(settings.seed)
        return {split: made.sentences(split, sizes[split] or 500) for split in _SPLITS}
    if settings.name == "files":
        if settings.path is None:
            raise ValueError("corpus.name=files needs corpus.path=FILE, a text with one sentence a line")
        lines = read_text(settings.path, max_words=sys.maxsize, on_empty="skip")  # long ones are cut
        parts = split_text(lines, num_held_out=settings.test_size)
        found = {"train": parts.train, "valid": parts.valid, "test": parts.test}
    elif settings.name == "ptb":
        found = {split: ptb.load(split) for split in _SPLITS}
    elif settings.name == "captions":
        found = {split: captions.load(split) for split in _SPLITS}
    else:
        found = {split: text_vae_corpora.load(settings.name, split) for split in _SPLITS}
    return {split: lines[: sizes[split]] for split, lines in found.items()}


def _cut(lines: Sequence[str], settings: CorpusSettings) -> tuple[str, ...]:
    cased = (line.lower() if settings.lowercase else line for line in lines)
    cut = (" ".join(split_words(line)[: settings.max_words]) for line in cased)
    return tuple(line for line in cut if line)
