"""Corpora of the translation recipe: text, subwords, batches and, for the generated corpus, gold alignments."""

import hashlib
import json
import os
from collections.abc import Sequence
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

_FILES = ("src", "tgt", "valid_src", "valid_tgt", "test_src", "test_tgt")


@dataclass(frozen=True)
class CorpusSettings:
    """Which text, and how it is cut into pieces."""

    name: Literal["generated", "multi30k", "iwslt14", "wmt10k", "files"] = "generated"
    """generated: made on the spot, with gold links; multi30k, iwslt14, wmt10k: from PROBATTN_DATA; files: yours."""
    train_size: int | None = 4000
    """Training pairs; null for all of them (not for generated)."""
    test_size: int | None = None
    """Pairs each for validation and test: of the generated corpus (400 by default), and of files without their own
    (a twentieth of the text by default, at most 400)."""
    max_words: int | None = None
    """generated: longest sentence of either side; null for all that the grammar makes."""
    src: Path | None = None
    """files: source side, plain or gz."""
    tgt: Path | None = None
    """files: target side."""
    valid_src: Path | None = None
    """files: source side for validation; by default lines are held out from the end of src and tgt."""
    valid_tgt: Path | None = None
    """files: target side for validation."""
    test_src: Path | None = None
    """files: source side for the test; by default the last lines of src and tgt are held out."""
    test_tgt: Path | None = None
    """files: target side for the test."""
    on_empty: Literal["error", "skip"] = "error"
    """files: what to do with a pair of which a side is empty."""
    on_long: Literal["error", "skip"] = "error"
    """files: what to do with a pair of which a side has more than 1,000 words."""
    vocabulary_size: int = 4000
    """Joint subword types of both languages; the softmax runs over those of the target side."""
    lowercase: bool = False
    """Whether the text is lower-cased first, here and when the trained model is handed text."""
    seed: int = 0
    """Of the generated corpus and of the order of batches."""

    def __post_init__(self) -> None:
        named = [name for name in _FILES if getattr(self, name) is not None]
        if named and self.name != "files":
            raise ValueError(
                f"corpus.{named[0]} is given, but corpus.name is '{self.name}'; add --scale files to train on files, "
                "or corpus.name=files for the sizes of this scale"
            )
        for name in ("train_size", "test_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"corpus.{name} must be at least 1, got {value}")


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
    unused: Sequence[str] = ()
    """Settings that have a value and no effect on this text."""

    def __str__(self) -> str:
        sizes = ", ".join(f"{split} {len(text):,}" for split, text in self.texts.items())
        types, outputs = self.subwords.tokenizer.vocabulary_size, len(self.subwords.outputs)
        note = f" Of no effect on this text: corpus.{', corpus.'.join(self.unused)}." if self.unused else ""
        return f"Pairs: {sizes}. Subwords: {types:,}, of which {outputs:,} can be produced.{note}"

    @property
    def digest(self) -> str:
        """SHA-256 of the subwords and of the text that training and selection see."""
        content = [self.subwords.tokenizer.digest, self.subwords.outputs.full_ids.tolist()]
        content += [(self.encoded[split].source, self.encoded[split].target) for split in ("train", "valid")]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


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
    return Corpus(texts, encoded, subwords, gold, _unused(settings))


def _unused(settings: CorpusSettings) -> list[str]:
    """A scale may have set them for the generated corpus, so they are no error."""
    names = {"generated": (), "files": ("max_words",)}.get(settings.name, ("max_words", "test_size"))
    return [name for name in names if getattr(settings, name) is not None]


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
        "valid": corpus.pairs("valid", settings.test_size or 400),
        "test": corpus.pairs("test", settings.test_size or 400),
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
    text = _pair(settings, "src", "tgt")
    if text is None:
        raise ValueError("corpus.name=files needs both corpus.src=FILE and corpus.tgt=FILE")
    texts = {"valid": _pair(settings, "valid_src", "valid_tgt"), "test": _pair(settings, "test_src", "test_tgt")}
    missing = [split for split, given in texts.items() if given is None]
    total = len(text)
    size = settings.test_size or min(400, max(1, total // 20))
    if not missing and settings.test_size is not None:
        raise ValueError("corpus.test_size has no effect where valid and test have files of their own; leave it out")
    if missing and total <= len(missing) * size:
        smaller = "Lower corpus.test_size, or give" if size > 1 else "Give"
        raise ValueError(
            f"{settings.src} has {total} pairs; {size} for {' and '.join(missing)} each leave none to train on. "
            f"{smaller} more text, or files of their own (corpus.valid_src, corpus.test_src, ...)."
        )
    end = total
    for split in reversed(missing):
        texts[split] = text.rows(end - size, end, name=f"{text.name}, {split}")
        end -= size
    train = text.rows(0, end if settings.train_size is None else min(end, settings.train_size))
    return {"train": train, **{split: given for split, given in texts.items() if given is not None}}


def _pair(settings: CorpusSettings, source: str, target: str) -> ParallelText | None:
    """The text of two files that settings name; None where they name neither."""
    paths = [getattr(settings, name) for name in (source, target)]
    if paths == [None, None]:
        return None
    if None in paths:
        raise ValueError(f"corpus.{source}=FILE and corpus.{target}=FILE belong together; only one of them was given")
    return read_parallel(os.fspath(paths[0]), os.fspath(paths[1]), on_empty=settings.on_empty, on_long=settings.on_long)
