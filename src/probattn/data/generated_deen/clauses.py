"""Clauses, and the order of their words in both languages.

A clause is a verb group, a subject and parts. Each part has a rank in the German middle field (time before manner
before place, pronouns first, known before new) and a place in the English clause (objects, then place, manner, time).
German then puts the finite verb second, first or last, and one part or the subject before it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, IntEnum

from .noun_phrases import NounPhrase
from .predicates import Predicate
from .tokens import Token, Tokens
from .verb_groups import command_group, english_group, german_group, zu_infinitive

__all__ = [
    "Clause",
    "Middle",
    "Order",
    "Part",
    "Slot",
    "order_command",
    "order_english",
    "order_german",
    "order_infinitive",
]


class Middle(IntEnum):
    """Ranks in the German middle field."""

    REFLEXIVE = 1
    """sich"""
    ACCUSATIVE_PRONOUN = 2
    """ihn; before the dative pronoun"""
    DATIVE_PRONOUN = 3
    """ihm"""
    COMMENT = 4
    """leider"""
    TIME = 5
    """heute"""
    DATIVE = 6
    """dem Mann"""
    DEFINITE = 7
    """das Buch; a known object"""
    OFTEN = 8
    """oft, schon"""
    NOT = 9
    """nicht"""
    MANNER = 10
    """schnell, mit dem Bus"""
    INDEFINITE = 11
    """ein Buch; a new object"""
    PREPOSITIONAL = 12
    """auf den Bus"""
    PLACE = 13
    """im Garten, nach Berlin"""
    PREDICATIVE = 14
    """müde"""


class Slot(IntEnum):
    """Places in the English clause."""

    FRONT = 0
    """before the subject"""
    MIDDLE = 1
    """after the first auxiliary, or before the verb"""
    INDIRECT = 2
    """gives *the man* a book"""
    DIRECT = 3
    """the object"""
    PREPOSITIONAL = 4
    """waits *for the bus*"""
    PREDICATIVE = 5
    """is *tired*"""
    PLACE = 6
    """in the garden"""
    MANNER = 7
    """quickly"""
    TIME = 8
    """today"""
    CLAUSE = 9
    """because ..."""


class Order(Enum):
    """Kinds of clauses by the place of the German finite verb."""

    MAIN = "main"
    """second"""
    QUESTION = "question"
    """first, or second after a question word; inversion in English"""
    FINAL = "final"
    """last"""


@dataclass(frozen=True, eq=False)
class Part:
    """Anything in a clause but subject and verb.

    Attributes:
        german: Words in the middle field or before the finite verb.
        english: Words in English.
        middle: Rank in the middle field.
        slot: Place in English.
        is_frontable: Whether it may open a statement in German.
        is_pronoun: Whether it is a pronoun; a movable English particle follows it then.
        after: German words after the end of the clause: moved relative clauses, subordinate clauses.
    """

    german: Tokens
    english: Tokens
    middle: Middle
    slot: Slot
    is_frontable: bool = False
    is_pronoun: bool = False
    after: Tokens = ()


@dataclass(frozen=True)
class Clause:
    """What is said, before it is put in order.

    Attributes:
        predicate: The verb group.
        subject: Subject in German.
        parts: Everything else.
        english_subject: Subject in English where it is another one.
        english_not: The English negation, if any.
        given: The part that holds a relative pronoun or a question word, which opens the clause in both languages.
    """

    predicate: Predicate
    subject: NounPhrase
    parts: tuple[Part, ...]
    english_subject: NounPhrase | None = None
    english_not: Token | None = None
    given: Part | None = None


def order_german(clause: Clause, order: Order, *, front: Part | None = None, has_subject: bool = True) -> Tokens:
    """The German words.

    Args:
        clause: What is said.
        order: Where the finite verb goes.
        front: The part before everything else; the subject where it is None and the order is MAIN.
        has_subject: False leaves the subject out, for the second of two verbs that share it.
    """
    subject = clause.subject
    group = german_group(clause.predicate, subject.person, is_plural=subject.is_plural)
    opening = front.german if front else ()
    middle = _middle_field(
        clause, front=front, has_subject=has_subject and (front is not None or order is not Order.MAIN)
    )
    after = tuple(token for part in clause.parts for token in part.after)
    if order is Order.FINAL:
        return opening + middle + group.closing + after
    if front is None and order is Order.MAIN and has_subject:
        opening = subject.german_full
    return (*opening, group.finite, *middle, *group.last, *after)


def _middle_field(clause: Clause, *, front: Part | None, has_subject: bool) -> Tokens:
    parts = sorted((part for part in clause.parts if part is not front), key=lambda part: part.middle)
    words = [token for part in parts for token in part.german]
    if has_subject:
        # "freut sich der Mann" and "gefällt mir das Lied", but "freut er sich", "gefällt es mir"
        last = Middle.DATIVE_PRONOUN if clause.predicate.verb.frame == "like" else Middle.REFLEXIVE
        early = () if clause.subject.is_pronoun else (part for part in parts if part.middle <= last)
        place = sum(len(part.german) for part in early)
        words[place:place] = clause.subject.german_full
    return tuple(words)


def order_english(
    clause: Clause, order: Order, *, front: Part | None = None, has_subject: bool = True, is_inverted: bool = True
) -> Tokens:
    """The English words; `front` opens the clause, `is_inverted` is False in questions for the subject."""
    subject = clause.english_subject or clause.subject
    is_question = order is Order.QUESTION and is_inverted
    group = english_group(
        clause.predicate,
        subject.english_person,
        is_plural=subject.is_english_plural,
        needs_support=is_question or clause.english_not is not None,
    )
    parts = [part for part in clause.parts if part is not front]
    words = list(front.english) if front else []
    words.extend(_slots(parts, Slot.FRONT, last=Slot.FRONT))
    names = subject.english if has_subject else ()
    words.extend((*group.auxiliary, *names) if is_question else (*names, *group.auxiliary))
    if clause.english_not is not None:
        words.append(clause.english_not)
    words.extend(_slots(parts, Slot.MIDDLE, last=Slot.MIDDLE))
    return (*words, *group.main, *_complements(clause, parts, particle=group.particle))


def _slots(parts: Iterable[Part], first: Slot, *, last: Slot) -> list[Token]:
    chosen = sorted((part for part in parts if first <= part.slot <= last), key=lambda part: part.slot)
    return [token for part in chosen for token in part.english]


def _complements(clause: Clause, parts: list[Part], *, particle: Tokens) -> list[Token]:
    """What follows the English verb; "switch on the light", but "switch it on"."""
    is_split = clause.predicate.verb.is_particle_movable and any(
        part.is_pronoun and part.slot is Slot.DIRECT and part.english for part in parts
    )
    objects = _slots(parts, Slot.INDIRECT, last=Slot.DIRECT)
    opening = [*objects, *particle] if is_split else [*particle, *objects]
    return opening + _slots(parts, Slot.PREPOSITIONAL, last=Slot.CLAUSE)


def order_infinitive(clause: Clause, zu_key: int) -> tuple[Tokens, Tokens]:
    """Both sides of an infinitive clause with zu and "to"; the subject is left out."""
    after = tuple(token for part in clause.parts for token in part.after)
    german = (*_middle_field(clause, front=None, has_subject=False), *zu_infinitive(clause.predicate, zu_key), *after)
    group = english_group(clause.predicate, 3, is_plural=False, is_finite=False)
    opening = () if clause.english_not is None else (clause.english_not,)
    english = (*opening, Token("to", (zu_key,)), *_slots(clause.parts, Slot.MIDDLE, last=Slot.MIDDLE), *group.main)
    return german, (*english, *_complements(clause, list(clause.parts), particle=group.particle))


def order_command(clause: Clause, please: tuple[Token, Token], *, is_polite: bool) -> tuple[Tokens, Tokens]:
    """Both sides of a command, with bitte and "please"."""
    predicate = clause.predicate
    group = command_group(predicate, is_plural=clause.subject.is_plural)
    opening: Tokens = (group.finite,)
    if is_polite:
        group = german_group(predicate, 3, is_plural=True)
        opening = (group.finite, *clause.subject.german)
    middle = _middle_field(clause, front=None, has_subject=False)
    # Pronouns stand before bitte: machen Sie es bitte auf.
    count = sum(len(part.german) for part in clause.parts if part.middle <= Middle.DATIVE_PRONOUN)
    after = tuple(token for part in clause.parts for token in part.after)
    german = (*opening, *middle[:count], please[0], *middle[count:], *group.last, *after)
    needs_do = clause.english_not is not None
    words = english_group(predicate, 2, is_plural=True, needs_support=needs_do, is_finite=False)
    negation = () if clause.english_not is None else (*words.auxiliary, clause.english_not)
    main = words.main if needs_do else (*words.auxiliary, *words.main)
    english = (please[1], *negation, *main, *_complements(clause, list(clause.parts), particle=words.particle))
    return german, english
