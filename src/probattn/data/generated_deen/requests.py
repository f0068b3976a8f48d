"""What a sentence asks of a clause."""

from dataclasses import dataclass
from typing import Literal

from .lexicon import Verb
from .noun_phrases import NounPhrase

__all__ = ["AGENTS", "FRAMES", "PLAIN", "Period", "Request"]

Period = Literal["past", "now", "future"]

FRAMES = (
    ("acc", 0.33),
    ("none", 0.11),
    ("prep", 0.12),
    ("copula", 0.1),
    ("give", 0.08),
    ("goal", 0.08),
    ("place", 0.07),
    ("dat", 0.04),
    ("passive", 0.04),
    ("put", 0.03),
    ("like", 0.03),
    ("amount", 0.02),
    ("exist", 0.02),
)
# What a person does: for subjects that are given.
PLAIN = (("acc", 0.45), ("give", 0.15), ("goal", 0.12), ("put", 0.08), ("dat", 0.06), ("prep", 0.14))
AGENTS = (*PLAIN, ("none", 0.12), ("place", 0.1), ("copula", 0.12))


@dataclass(frozen=True)
class Request:
    """What a sentence asks of a clause.

    Attributes:
        period: Past, now or future; drawn where it is None.
        subject: The subject; drawn where it is None.
        subject_class: Meaning class of a given subject.
        verb: The verb; drawn where it is None.
        given: An object that is given: a relative pronoun, a question word.
        frames: Frames to draw from, with weights.
        richness: Scales the chances of adverbials and relative clauses.
        may_comment: Whether comments such as leider may occur: in main clauses.
        may_negate: Whether it may be negated.
        must_negate: Whether it must be.
        is_simple: Present or simple past without modal, for commands and infinitives.
    """

    period: Period | None = None
    subject: NounPhrase | None = None
    subject_class: str = "person"
    verb: Verb | None = None
    given: NounPhrase | None = None
    frames: tuple[tuple[str, float], ...] = FRAMES
    richness: float = 1.0
    may_comment: bool = False
    may_negate: bool = True
    must_negate: bool = False
    is_simple: bool = False
