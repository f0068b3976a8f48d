"""What is said with a verb: tense, modal, voice; `verb_groups.py` puts it into words."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from .chooser import Chooser
from .lexicon import Verb

__all__ = [
    "BECOME",
    "EXIST",
    "HAVE",
    "LOOK",
    "MODALS",
    "SEIN",
    "WERDEN",
    "Aspect",
    "Modal",
    "Predicate",
    "Tense",
    "make_predicate",
]


class Tense(Enum):
    """The German tense."""

    PRESENT = "present"
    """macht auf"""
    PAST = "past"
    """machte auf"""
    PERFECT = "perfect"
    """hat aufgemacht"""
    FUTURE = "future"
    """wird aufmachen"""


class Aspect(Enum):
    """What English makes of it."""

    SIMPLE = "simple"
    """opens, opened"""
    PROGRESSIVE = "progressive"
    """is opening; German says gerade"""
    PERFECT = "perfect"
    """has opened; German says schon or noch nicht"""
    FUTURE = "future"
    """will open; German may say it in the present, with morgen"""


class Modal(NamedTuple):
    """A modal verb: singular, past, and the English words for present and past ("to" included)."""

    infinitive: str
    singular: str
    past: str
    english: tuple[str, ...]
    english_past: tuple[str, ...]


MODALS = (
    Modal("können", "kann", "konnte", ("can",), ("can",)),
    Modal("müssen", "muss", "musste", ("have", "to"), ("have", "to")),
    Modal("wollen", "will", "wollte", ("want", "to"), ("want", "to")),
    Modal("möchten", "möchte", "", ("would", "like", "to"), ()),
    Modal("sollen", "soll", "sollte", ("should",), ("be", "supposed", "to")),
    Modal("dürfen", "darf", "durfte", ("may",), ("be", "allowed", "to")),
)


def _verb(infinitive: str, auxiliary: str, *, parts: tuple[str, str, str], english: str, prefix: str = "") -> Verb:
    return Verb(infinitive, prefix, False, auxiliary, parts, english, (), False, "", "", "", (), (), ())


SEIN = _verb("sein", "sein", parts=("ist", "war", "gewesen"), english="be")
HAVE = _verb("haben", "haben", parts=("hat", "hatte", "gehabt"), english="have")
WERDEN = _verb("werden", "sein", parts=("wird", "wurde", "worden"), english="be")
BECOME = _verb("werden", "sein", parts=("wird", "wurde", "geworden"), english="become")
LOOK = _verb("sehen", "haben", parts=("sieht", "sah", "gesehen"), english="look", prefix="aus")
EXIST = _verb("geben", "haben", parts=("gibt", "gab", "gegeben"), english="be")


@dataclass(frozen=True)
class Predicate:
    """A verb with tense, modal and voice.

    Attributes:
        verb: The verb.
        key: Links the verb.
        prefix_key: Links the separable prefix.
        helper_key: Links the auxiliary.
        modal_key: Links the modal.
        tense: German tense.
        aspect: English form of it.
        modal: The modal verb, if any.
        is_passive: Whether it is passive.
    """

    verb: Verb
    key: int
    prefix_key: int
    helper_key: int
    modal_key: int
    tense: Tense = Tense.PRESENT
    aspect: Aspect = Aspect.SIMPLE
    modal: Modal | None = None
    is_passive: bool = False

    @property
    def keys(self) -> tuple[int, ...]:
        """Keys of the verb and its prefix together, for forms written as one word."""
        return (self.key, self.prefix_key) if self.verb.prefix else (self.key,)

    @property
    def is_english_past(self) -> bool:
        """Whether English uses the past."""
        return self.tense in (Tense.PAST, Tense.PERFECT) and self.aspect is not Aspect.PERFECT


def make_predicate(chooser: Chooser, verb: Verb) -> Predicate:
    """The verb in the present; use `dataclasses.replace` for anything else."""
    return Predicate(verb, chooser.key(), chooser.key(), chooser.key(), chooser.key())
