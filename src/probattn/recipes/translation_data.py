"""Corpora of the translation recipe: text, subwords, batches and, for the generated corpus, gold alignments."""

import os
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from probattn.data import iwslt14, multi30k, wmt10k
from probattn.data.alignment_gold import Links
from probattn.data.batches import EncodedText
from probattn.data.bpe import train_bpe
from probattn.data.output_vocabulary import target_types
from probattn.data.parallel import ParallelText, read_parallel
from probattn.data.subwords import Subwords


@dataclass(frozen=True)
class CorpusSettings:
    """Which text, and how it is cut into pieces."""

    name: Literal["generated", "multi30k", "iwslt14", "wmt10k", "files"] = "generated"
    """generated: made on the spot, with gold links; multi30k, iwslt14, wmt10k: from PROBATTN_DATA; files: yours."""
    train_size: int | None = 4000
    """Training pairs; null for all of them (not for generated)."""
    test_size: int = 400
    """Validation and test pairs of the generated corpus."""
    max_words: int | None = None
    """generated: longest sentence of either side; null for all that the grammar makes."""
    src: Path | None = None
    """files: source side, plain or gz; the last `test_size` lines are held out twice, for validation and for test."""
    tgt: Path | None = None
    """files: target side."""
    vocabulary_size: int = 4000
    """Joint subword types of both languages; the softmax runs over those of the target side."""
    lowercase: bool = False
    """Whether the text is lower-cased first, here and when the trained model is handed text."""
    seed: int = 0
    """Of the generated corpus and of the order of batches."""


@dataclass(frozen=True)
class Corpus:
    """A corpus ready for training."""

    texts: dict[str, ParallelText]
    """By split: train, valid, test."""
    encoded: dict[str, EncodedText]
    """The same in subwords."""
    subwords: Subwords
    """Tokenizer of both sides, and the types that can be produced."""
    gold: list[tuple[Links, Links]] | None
    """Sure and possible links of the test split, where they are known."""


def load_corpus(settings: CorpusSettings, subwords: Subwords | None = None) -> Corpus:
    """Read or make the text, learn the subwords (unless a trained model's are given) and encode everything."""
    texts, gold = _texts(settings)
    if settings.lowercase:
        texts = {split: lowercased(text) for split, text in texts.items()}
    if subwords is None:
        train = texts["train"]
        tokenizer = train_bpe([*train.source, *train.target], vocabulary_size=settings.vocabulary_size)
        subwords = Subwords(tokenizer, target_types(tokenizer, train.target))
    encoded = {split: EncodedText.from_text(text, subwords.tokenizer) for split, text in texts.items()}
    return Corpus(texts, encoded, subwords, gold)


def lowercased(text: ParallelText) -> ParallelText:
    """The same pairs in lower case."""
    source, target = (tuple(line.lower() for line in side) for side in (text.source, text.target))
    return replace(text, source=source, target=target)


def _texts(settings: CorpusSettings) -> tuple[dict[str, ParallelText], list[tuple[Links, Links]] | None]:
    if settings.name == "generated":
        return _generated(settings)
    if settings.name == "files":
        return _own_files(settings), None
    if settings.name == "multi30k":
        texts = {"train": multi30k.load("train"), "valid": multi30k.load("valid"), "test": multi30k.load("test")}
    elif settings.name == "iwslt14":
        texts = {"train": iwslt14.load("train"), "valid": iwslt14.load("valid"), "test": iwslt14.load("test")}
    else:
        train, valid = wmt10k.load("train"), wmt10k.load("valid")
        half = len(valid) // 2
        texts = {"train": train, "valid": valid.rows(0, half), "test": valid.rows(half, len(valid))}
    if settings.train_size is not None:
        texts["train"] = texts["train"].rows(0, settings.train_size)
    return texts, None


@lru_cache(maxsize=1)  # all rows of a comparison share it
def _generated(settings: CorpusSettings) -> tuple[dict[str, ParallelText], list[tuple[Links, Links]]]:
    from probattn.data.generated_deen import GeneratedDeEn  # its lexicon is read when it is asked for

    if settings.train_size is None:
        raise ValueError("the generated corpus has no end: give train_size a number")
    corpus = GeneratedDeEn(settings.seed, max_words=settings.max_words)
    pairs = {
        "train": corpus.pairs("train", settings.train_size),
        "valid": corpus.pairs("valid", settings.test_size),
        "test": corpus.pairs("test", settings.test_size),
    }
    texts = {
        split: ParallelText(
            source=tuple(" ".join(pair.source) for pair in some),
            target=tuple(" ".join(pair.target) for pair in some),
            name=f"generated {split}",
        )
        for split, some in pairs.items()
    }
    return texts, [(pair.sure, pair.possible) for pair in pairs["test"]]


def _own_files(settings: CorpusSettings) -> dict[str, ParallelText]:
    if settings.src is None or settings.tgt is None:
        raise ValueError("corpus 'files' needs both --corpus.src and --corpus.tgt")
    text = read_parallel(os.fspath(settings.src), os.fspath(settings.tgt))
    held_out, total = settings.test_size, len(text.source)
    if total <= 3 * held_out:
        raise ValueError(
            f"{settings.src} has {total} pairs; {held_out} each for validation and test leave too few to train on. "
            "Lower --corpus.test_size, or give more text."
        )
    train_end = total - 2 * held_out
    if settings.train_size is not None:
        train_end = min(train_end, settings.train_size)
    return {
        "train": text.rows(0, train_end),
        "valid": text.rows(total - 2 * held_out, total - held_out),
        "test": text.rows(total - held_out, total),
    }
