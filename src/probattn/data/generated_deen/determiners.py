"""Determiners: which one a noun gets, its forms in German, and which adjective endings follow it."""

from typing import Literal, NamedTuple

from .chooser import Chooser
from .german import Case, Strength, article, decline_determiner
from .lexicon import Noun

__all__ = ["ARTICLE", "BARE", "JOB", "POSSESSIVES", "Determiner", "draw_determiner", "make_number", "negative", "which"]

Table = Literal["article", "ein", "strong", "fixed", "none"]


class Determiner(NamedTuple):
    """A determiner in both languages.

    Attributes:
        stem: Before the ending.
        table: How it declines.
        strength: Endings of the adjectives after it.
        english: Before a singular.
        plural_english: Before a plural; empty where there is no plural, or no word in it.
        is_definite: Whether the phrase goes before negation.
        is_owner: Whether it names an owner: mein Mann is my husband, der Mann is the man.
    """

    stem: str
    table: Table
    strength: Strength
    english: tuple[str, ...]
    plural_english: tuple[str, ...]
    is_definite: bool = True
    is_owner: bool = False

    @property
    def is_bare(self) -> bool:
        """Whether there is no word for it."""
        return self.table == "none"

    def decline(self, case: Case, gender: str) -> str:
        """The German form, "" where there is none."""
        if self.table == "article":
            return article(case, gender)
        if self.table in ("ein", "strong"):
            return decline_determiner(self.stem, "ein" if self.table == "ein" else "strong", case=case, gender=gender)
        return self.stem


def _same(stem: str, table: Table, *, strength: Strength, english: str, is_definite: bool = True) -> Determiner:
    return Determiner(stem, table, strength, (english,), (english,), is_definite)


ARTICLE = _same("d", "article", strength="weak", english="the")
BARE = Determiner("", "none", "strong", (), (), False)
JOB = Determiner("", "none", "strong", ("a",), ())  # er ist Arzt, he is a doctor
INDEFINITE = Determiner("ein", "ein", "mixed", ("a",), (), False)
THIS = Determiner("dies", "strong", "weak", ("this",), ("these",))
EVERY = Determiner("jed", "strong", "weak", ("every",), ())
POSSESSIVES = tuple(
    Determiner(stem, "ein", "mixed", (english,), (english,), is_owner=True)
    for stem, english in (
        ("sein", "his"),
        ("mein", "my"),
        ("ihr", "her"),
        ("unser", "our"),
        ("dein", "your"),
        ("ihr", "their"),
        ("euer", "your"),
        ("Ihr", "your"),
    )
)
QUANTITIES = (
    _same("viel", "strong", strength="strong", english="many", is_definite=False),
    _same("einig", "strong", strength="strong", english="some", is_definite=False),
    _same("all", "strong", strength="weak", english="all"),
    _same("mehrer", "strong", strength="strong", english="several", is_definite=False),
    _same("wenig", "strong", strength="strong", english="few", is_definite=False),
)
SINGULAR = (
    ("article", 0.42),
    ("indefinite", 0.25),
    ("possessive", 0.2),
    ("this", 0.06),
    ("every", 0.02),
    ("owner", 0.05),
)
PLURAL = (("article", 0.36), ("bare", 0.15), ("possessive", 0.16), ("number", 0.13), ("quantity", 0.15), ("this", 0.05))
MASS = (("bare", 0.4), ("article", 0.4), ("possessive", 0.2))
UNIQUE = ("office", "edge")  # the post office, the sea
ALWAYS_BARE = ("game", "language")


def draw_determiner(chooser: Chooser, noun: Noun, *, name: str, is_plural: bool) -> Determiner:
    """A determiner that goes with the noun in this number; `name` is the meaning class it was drawn from."""
    if name in ALWAYS_BARE:
        return BARE
    if noun.plural is None:
        if noun.classes[0] in UNIQUE:
            return ARTICLE
        kind = "article" if noun.is_english_plural else chooser.weigh(MASS)
        if kind == "bare" and name == "meal":
            return ARTICLE
    else:
        kind = chooser.weigh(PLURAL if is_plural else SINGULAR)
    if kind in ("every", "number") and noun.is_english_plural and noun.gender != "p":
        return ARTICLE  # neither every trousers nor two trousers
    return _make(chooser, kind)


def _make(chooser: Chooser, kind: str) -> Determiner:
    if kind == "possessive":
        return chooser.zipf(POSSESSIVES)
    if kind == "quantity":
        return chooser.zipf(QUANTITIES)
    if kind == "number":
        return make_number(chooser)
    if kind == "owner":
        return _draw_owner(chooser)
    return {"article": ARTICLE, "indefinite": INDEFINITE, "bare": BARE, "this": THIS, "every": EVERY}[kind]


def make_number(chooser: Chooser) -> Determiner:
    """A number from two upwards."""
    number = chooser.zipf(chooser.lexicon.phrases["number"])
    return Determiner(number.german[0], "fixed", "strong", (), number.english, False)


def _draw_owner(chooser: Chooser) -> Determiner:
    """A name in the genitive: Peters, Peter 's. Names that end in an s sound are passed over."""
    names = chooser.lexicon.phrases[chooser.pick(("woman", "man"))]
    possible = [name for name in names if len(name.german) == 1 and not name.german[0].endswith(("s", "x", "z"))]
    name = chooser.zipf(possible)
    english = (*name.english, "'s")
    return Determiner(name.german[0] + "s", "fixed", "strong", english, english, is_owner=True)


def negative(*, has_not: bool) -> Determiner:
    """The determiner kein; English says "a" or "any" after "not", else "no"."""
    singular, plural = ("a", "any") if has_not else ("no", "no")
    return Determiner("kein", "ein", "mixed", (singular,), (plural,), False)


def which() -> Determiner:
    """The determiner welch- of questions."""
    return Determiner("welch", "strong", "weak", ("which",), ("which",))
