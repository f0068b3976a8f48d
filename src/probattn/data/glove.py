"""GloVe: word vectors trained on Wikipedia and newswire, 6 billion words (Pennington et al., 2014), 50 numbers a word.

Source: https://nlp.stanford.edu/projects/glove/ (`glove.6B.zip`, in it `glove.6B.50d.txt`, 400,000 words by falling
frequency). What is read here is the first 60,000 words in half precision (`glove.6B.50d.top60k.f16.npz`), or the text
file itself, of which the same words are taken. The packed file is checked whole; of the text file the words are
checked, because how its numbers are rounded is up to the reader.

So many of the words of a text have a vector:

| text | running words | word types |
|---|---|---|
| SQuAD questions, train | 96.7 % | 71.8 % of 26,518 |
| Cornell movie, valid | 98.6 % | 86.2 % of 7,018 |
| captions, train | 99.0 % | 78.4 % of 11,949 |

Terms: Public Domain Dedication and License 1.0.
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from probattn.data.parallel import read_lines
from probattn.data.sources import PACKINGS, Corpus, CorpusFile, cache_folder, data_folder, locate

__all__ = ["CORPUS", "DIM", "GloveRows", "glove_rows"]

CORPUS = Corpus(
    name="GloVe 6B",
    homepage="https://nlp.stanford.edu/projects/glove/",
    terms="Public Domain Dedication and License 1.0",
)

DIM = 50
"""Numbers of a vector."""

NUM_WORDS = 60_000
PACKED = CorpusFile(
    CORPUS,
    "glove50/glove.6B.50d.top60k.f16.npz",
    sha256="54aab50520900b1ddfeda1fcfb343d52b52f7c21fc9d2db23aa156e642b7cfec",
)
TEXT_PATH = "glove50/glove.6B.50d.txt"
# Of the 60,000 words, a line feed between them.
WORDS_SHA256 = "a2e9d80868b1376bc1a689e34024c17b704fc34bbb48d5eb7e9e70d9d901ffa1"

# GloVe knows brackets as they are written, the Penn Treebank has names for them.
NAMES = {"-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "-lcb-": "{", "-rcb-": "}"}


class GloveRows(NamedTuple):
    """Vectors of some words.

    Attributes:
        matrix: (V, 50) float32; zeros where a word has no vector.
        is_known: (V) bool.
    """

    matrix: Tensor
    is_known: Tensor


def glove_rows(words: Sequence[str]) -> GloveRows:
    """The vectors of some words, in their order, e.g. of `vocabulary_words(tokenizer)`.

    A word is looked up as it is, then in small letters; `-lrb-` and its like as brackets. What is not found, such as
    the special types of a vocabulary, is left to the caller: draw those rows from the model's own law, or keep zeros.

    Args:
        words: V of them.

    Raises:
        FileNotFoundError: The vectors are not on this machine; the message says how to get them.
        ValueError: A file that is not the published one.
    """
    numbers, vectors = _table()
    rows = [numbers.get(NAMES.get(word, word), numbers.get(word.lower(), -1)) for word in words]
    index = torch.tensor(rows, dtype=torch.int64)
    is_known = index >= 0
    matrix = torch.zeros(len(rows), DIM)
    matrix[is_known] = torch.from_numpy(vectors[index[is_known].numpy()].astype(np.float32))
    return GloveRows(matrix, is_known)


def _table() -> tuple[dict[str, int], np.ndarray]:
    """Word -> row, and the rows; a file is read once."""
    try:
        return _read_packed(locate(PACKED))
    except FileNotFoundError:
        text = _find_text()
    if text is None:
        raise FileNotFoundError(_ways())
    return _read_text(text)


@cache
def _read_packed(path: Path) -> tuple[dict[str, int], np.ndarray]:
    with np.load(path, allow_pickle=False) as content:
        words = str(content["words"]).split("\n")
        vectors = content["vec"]
    return _checked(words, vectors, place=path)


@cache
def _read_text(path: Path) -> tuple[dict[str, int], np.ndarray]:
    rows = [line.split(" ") for line in read_lines(path)[:NUM_WORDS]]
    wrong = next((number for number, row in enumerate(rows, 1) if len(row) != DIM + 1), None)
    if wrong is not None:
        raise ValueError(f"{path}, line {wrong}: expected a word and {DIM} numbers, got {len(rows[wrong - 1])} columns")
    return _checked([row[0] for row in rows], np.array([row[1:] for row in rows], dtype=np.float16), place=path)


def _checked(words: list[str], vectors: np.ndarray, *, place: Path) -> tuple[dict[str, int], np.ndarray]:
    digest = hashlib.sha256("\n".join(words).encode()).hexdigest()
    if digest != WORDS_SHA256 or vectors.shape != (NUM_WORDS, DIM):
        raise ValueError(
            f"{place} has {len(words):,} words (SHA-256 {digest[:12]}) and vectors of shape {vectors.shape}, expected "
            f"{NUM_WORDS:,} (SHA-256 {WORDS_SHA256[:12]}) and {(NUM_WORDS, DIM)}; get it again from {CORPUS.homepage}"
        )
    return {word: row for row, word in enumerate(words)}, vectors


def _find_text() -> Path | None:
    for folder in (data_folder(), cache_folder()):
        for packing in PACKINGS if folder else ():
            path = Path(f"{folder}/{TEXT_PATH}{packing}")
            if path.is_file():
                return path
    return None


def _ways() -> str:
    folder = data_folder()
    state = f"it names {folder}, which has neither" if folder else "it is not set"
    return (
        f"the vectors of {CORPUS.name} are not on this machine. Get glove.6B.zip by hand from {CORPUS.homepage} "
        f"(terms: {CORPUS.terms}), unpack glove.6B.50d.txt, and set PROBATTN_DATA to a folder that holds it as "
        f"{TEXT_PATH}, or {PACKED.path} ({state}); or train word vectors from nothing"
    )
