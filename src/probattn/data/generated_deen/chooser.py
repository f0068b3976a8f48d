"""Seeded choices: all randomness of the generated corpus, and the keys that tie words of a pair together."""

from bisect import bisect
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from random import Random
from typing import TypeVar

from .lexicon import Lexicon, Noun, Phrase, load_lexicon

__all__ = ["Chooser"]

Item = TypeVar("Item")

ZIPF_SHIFT = 2.0  # Mandelbrot's form: the weight of rank r (from 0) is 1 / (r + shift)


@cache
def _zipf_steps(size: int) -> tuple[float, ...]:
    return tuple(accumulate(1.0 / (rank + ZIPF_SHIFT) for rank in range(size)))


class Chooser:
    """Draws everything that one sentence pair needs.

    Attributes:
        lexicon: The words.
        used: Nouns and phrases that occur in the sentence; `noun` and `phrase` avoid them.

    Args:
        seed: Two choosers of the same seed make the same choices.
    """

    def __init__(self, seed: str) -> None:
        self.lexicon: Lexicon = load_lexicon()
        self.used: set[str] = set()
        # Only `random()` is called: it is the one method whose stream Python promises to keep.
        self._uniform = Random(seed).random
        self._keys = 0

    def key(self) -> int:
        """A new key; words of both languages that carry the same key are linked."""
        self._keys += 1
        return self._keys

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self._uniform() < probability

    def pick(self, items: Sequence[Item]) -> Item:
        """One of `items`, all alike."""
        return items[int(self._uniform() * len(items))]

    def zipf(self, items: Sequence[Item]) -> Item:
        """One of `items`, the first ones far more often than the last ones."""
        steps = _zipf_steps(len(items))
        return items[bisect(steps, self._uniform() * steps[-1])]

    def weigh(self, options: Sequence[tuple[Item, float]]) -> Item:
        """One of the items, by weights that need not sum to one."""
        total = 0.0
        for _, weight in options:
            total += weight
        left = self._uniform() * total
        for item, weight in options:
            left -= weight
            if left < 0:
                return item
        return options[-1][0]

    def noun(self, name: str) -> Noun:
        """A noun of a meaning class, if possible one that the sentence does not have yet."""
        nouns = self.lexicon.nouns[name]
        noun = self.zipf(nouns)
        for _ in range(4):
            if noun.german not in self.used:
                break
            noun = self.zipf(nouns)
        self.used.add(noun.german)
        return noun

    def phrase(self, kind: str) -> Phrase:
        """A fixed phrase of a kind, if possible one that the sentence does not have yet."""
        phrases = self.lexicon.phrases[kind]
        phrase = self.zipf(phrases)
        for _ in range(4):
            if phrase.german[-1] not in self.used:
                break
            phrase = self.zipf(phrases)
        self.used.add(phrase.german[-1])
        return phrase
