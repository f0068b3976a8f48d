"""The corpus: numbered sentence pairs with gold alignments, in three splits that share no sentence.

Statistics of 20,000 training pairs (seed 0) are in the package's docstring.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from .chooser import Chooser
from .partition import SPLITS, Split, split_of
from .sentences import draw_sentence
from .tokens import Links, link

__all__ = ["GeneratedDeEn", "SentencePair", "write_files"]

MIN_LENGTH = 4
MAX_LENGTH = 25


@dataclass(frozen=True)
class SentencePair:
    """A German sentence, its English translation and the gold word alignment.

    Attributes:
        source: German words; punctuation marks are words.
        target: English words.
        sure: Links (source position, target position), from 0, that an aligner must find.
        possible: Links that it may find, the sure ones included, as the alignment error rate wants them.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    sure: Links
    possible: Links

    def pharaoh(self) -> str:
        """The alignment as text: `3-1` for a sure link, `3p1` for one that is only possible.

        Example:
            >>> links = frozenset({(0, 0)})
            >>> SentencePair(("Es", "regnet"), ("It", "rains"), links, links | {(1, 0)}).pharaoh()
            '0-0 1p0'
        """
        return " ".join(f"{i}-{j}" if (i, j) in self.sure else f"{i}p{j}" for i, j in sorted(self.possible))


@dataclass(frozen=True)
class GeneratedDeEn:
    """German-English sentence pairs without end, made by a grammar.

    Pair n of a split is a function of (seed, split, n). The split of a sentence depends on its words alone and not on
    the seed, so no two splits share a source or a target sentence, of any seeds.

    Attributes:
        seed: Which sentences are drawn.
        max_words: Longest sentence of either side, punctuation counted; None for all that the grammar makes.

    Example:
        >>> pair = GeneratedDeEn(seed=0).pairs("train", 3)[2]
        >>> len(pair.source) >= 4
        True
    """

    seed: int = 0
    max_words: int | None = None

    def __post_init__(self) -> None:
        if self.max_words is not None and self.max_words < MIN_LENGTH + 2:
            raise ValueError(
                f"max_words must be at least {MIN_LENGTH + 2}, got {self.max_words}: few sentences are shorter"
            )

    def pairs(self, split: Split, size: int) -> list[SentencePair]:
        """The first `size` pairs of a split; no source sentence occurs twice.

        Args:
            split: "train", "valid" or "test".
            size: How many; the first n of a longer list are the list of n.

        Raises:
            ValueError: An unknown split, or a negative size.
        """
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}; correct its name")
        if size < 0:
            raise ValueError(f"size must be at least 0, got {size}; ask for as many pairs as you want to read")
        found: list[SentencePair] = []
        seen: set[tuple[str, ...]] = set()
        candidates = self._candidates(split)
        while len(found) < size:
            pair = next(candidates)
            if pair.source not in seen:
                seen.add(pair.source)
                found.append(pair)
        return found

    def _candidates(self, split: Split) -> Iterator[SentencePair]:
        """All pairs of a split in their order, repetitions included."""
        longest = MAX_LENGTH if self.max_words is None else min(MAX_LENGTH, self.max_words)
        number = -1
        while True:
            number += 1
            german, english = draw_sentence(Chooser(f"{self.seed}/{number}"))
            source, target = tuple(token.text for token in german), tuple(token.text for token in english)
            is_right_size = all(MIN_LENGTH <= len(side) <= longest for side in (source, target))
            if is_right_size and split_of(source, "de") == split and split_of(target, "en") == split:
                yield SentencePair(source, target, *link(german, english))


def write_files(folder: str | PathLike[str], *, train: int, valid: int, test: int, seed: int = 0) -> list[Path]:
    """Writes `<split>.de`, `<split>.en` and `<split>.align` (Pharaoh format, see `SentencePair.pharaoh`).

    Args:
        folder: Where; made if it does not exist. Files of the same name are replaced.
        train: Number of training pairs.
        valid: Number of validation pairs.
        test: Number of test pairs.
        seed: Of the corpus.

    Returns:
        The nine files.

    Raises:
        ValueError: A negative number, or a file in the place of the folder.
    """
    place = Path(folder)
    if place.exists() and not place.is_dir():
        raise ValueError(f"{place} is a file; name a folder for the corpus")
    corpus = GeneratedDeEn(seed)
    sizes: dict[Split, int] = {"train": train, "valid": valid, "test": test}
    texts: dict[str, list[str]] = {}
    for split, size in sizes.items():
        pairs = corpus.pairs(split, size)
        texts[f"{split}.de"] = [" ".join(pair.source) for pair in pairs]
        texts[f"{split}.en"] = [" ".join(pair.target) for pair in pairs]
        texts[f"{split}.align"] = [pair.pharaoh() for pair in pairs]
    place.mkdir(parents=True, exist_ok=True)
    for name, lines in texts.items():
        (place / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return [place / name for name in texts]
