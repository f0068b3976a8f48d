"""Words that know what they are linked to, and what becomes of them when a sentence is complete.

Phrases of both languages are built together: a German and an English word that translate each other get the same key.
The grammar may then order each side as it likes; the alignment is read off the keys at the end.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .chooser import Chooser
from .lexicon import Phrase

__all__ = ["Links", "Token", "Tokens", "capitalise", "drop_commas", "link", "place_phrase"]


class Token(NamedTuple):
    """One word.

    Attributes:
        text: As written.
        sure: Keys of which a word on the other side with the same sure key is a sure link.
        possible: Keys that give possible links: do-support, the auxiliary of a perfect that English says as a past.
    """

    text: str
    sure: tuple[int, ...] = ()
    possible: tuple[int, ...] = ()


Tokens = tuple[Token, ...]
Links = frozenset[tuple[int, int]]


def place_phrase(chooser: Chooser, phrase: Phrase) -> tuple[Tokens, Tokens]:
    """The words of a fixed phrase in both languages, linked."""
    keys = [chooser.key() for _ in phrase.german]
    german = tuple(Token(word, (key,)) for word, key in zip(phrase.german, keys, strict=True))
    english = tuple(
        Token(word, tuple(keys[i] for i, j in phrase.links if j == position))
        for position, word in enumerate(phrase.english)
    )
    return german, english


def link(source: Sequence[Token], target: Sequence[Token]) -> tuple[Links, Links]:
    """The sure links, and the possible links with the sure ones among them, as (source position, target position)."""
    strong: dict[int, list[int]] = {}
    every: dict[int, list[int]] = {}
    for i, word in enumerate(source):
        for key in word.sure:
            strong.setdefault(key, []).append(i)
        for key in word.sure + word.possible:
            every.setdefault(key, []).append(i)
    sure = {(i, j) for j, word in enumerate(target) for key in word.sure for i in strong.get(key, ())}
    found = {(i, j) for j, word in enumerate(target) for key in word.sure + word.possible for i in every.get(key, ())}
    return frozenset(sure), frozenset(found)


def drop_commas(tokens: Iterable[Token]) -> list[Token]:
    """Leaves one comma where two clauses end together, and none before the end of the sentence."""
    kept: list[Token] = []
    for token in tokens:
        if kept and kept[-1].text == "," and token.text in (",", ".", "!", "?"):
            last = kept.pop()
            if token.text == ",":
                token = token._replace(sure=token.sure + last.sure)
        kept.append(token)
    return kept


def capitalise(tokens: Sequence[Token]) -> list[Token]:
    """Writes the first word with a capital."""
    first = tokens[0]
    return [first._replace(text=first.text[0].upper() + first.text[1:]), *tokens[1:]]
