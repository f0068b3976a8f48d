"""Kinds of sentences: statements, questions, commands, and sentences of two clauses."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from .chooser import Chooser
from .clauses import Clause, Middle, Order, Part, Slot, order_english, order_german, order_infinitive
from .grammar import draw_clause
from .noun_phrases import NounPhrase, repeat_as_pronoun
from .questions import Sides, command, leave_out, word_question, yes_no_question
from .requests import AGENTS, PLAIN, Period, Request
from .tokens import Token, Tokens, capitalise, drop_commas

__all__ = ["draw_sentence"]

FRONTING = {Middle.COMMENT: 0.5, Middle.TIME: 0.4, Middle.PLACE: 0.15, Middle.DATIVE_PRONOUN: 0.2}


class Conjunction(NamedTuple):
    """A subordinating conjunction: both words, and the periods of (main clause, subordinate clause) it joins."""

    german: str
    english: tuple[str, ...]
    periods: tuple[tuple[Period, Period], ...]


SAME: tuple[tuple[Period, Period], ...] = (("now", "now"), ("past", "past"), ("now", "now"), ("past", "past"))
OPEN: tuple[tuple[Period, Period], ...] = (("now", "now"), ("future", "now"))
CONJUNCTIONS = (
    Conjunction("weil", ("because",), (*SAME, ("now", "past"), ("past", "now"))),
    Conjunction("wenn", ("if",), OPEN),
    Conjunction("obwohl", ("although",), (*SAME, ("now", "past"))),
    Conjunction("als", ("when",), (("past", "past"),)),
    Conjunction("wenn", ("when",), OPEN),
    Conjunction("während", ("while",), SAME),
    Conjunction("bevor", ("before",), SAME),
    Conjunction("da", ("since",), SAME),
    Conjunction("bis", ("until",), (("now", "now"), ("future", "now"), ("past", "past"))),
    Conjunction("sobald", ("as", "soon", "as"), OPEN),
    Conjunction("falls", ("if",), OPEN),
)


def draw_sentence(chooser: Chooser) -> tuple[list[Token], list[Token]]:
    """The words of a German sentence and of its translation; `link` gives the alignment."""
    make, end = chooser.weigh(KINDS)
    german, english = make(chooser)
    dot = Token(end, (chooser.key(),))
    return capitalise(drop_commas((*german, dot))), capitalise(drop_commas((*english, dot)))


def _order_statement(chooser: Chooser, clause: Clause, *, may_front: bool = True) -> Sides:
    """A main clause; a part may open it in German, and if it is a time perhaps in English too."""
    front = _draw_front(chooser, clause) if may_front else None
    if front is not None and front.slot is Slot.TIME and chooser.chance(0.5):
        moved = replace(front, slot=Slot.FRONT)
        clause = replace(clause, parts=tuple(moved if part is front else part for part in clause.parts))
        front = moved
    return order_german(clause, Order.MAIN, front=front), order_english(clause, Order.MAIN)


def _draw_front(chooser: Chooser, clause: Clause) -> Part | None:
    for part in clause.parts:
        if part.is_frontable and chooser.chance(FRONTING.get(part.middle, 0.1)):
            return part
    return None


def _statement(chooser: Chooser) -> Sides:
    return _order_statement(chooser, draw_clause(chooser, Request(may_comment=True)))


def _pronoun_or_none(chooser: Chooser, subject: NounPhrase) -> NounPhrase | None:
    """Half of the second clauses are about the same person."""
    is_person = subject.name == "person" or subject.is_pronoun or subject.noun is None
    return repeat_as_pronoun(chooser, subject) if is_person and chooser.chance(0.5) else None


def _subordinate(chooser: Chooser, clause: Clause, *, word: str, english: tuple[str, ...]) -> Sides:
    """Conjunction ... verb, without commas."""
    key = (chooser.key(),)
    german = (Token(word, key), *order_german(clause, Order.FINAL))
    return german, (*(Token(item, key) for item in english), *order_english(clause, Order.FINAL))


def _attach(clause: Clause, german: Tokens, *, english: Tokens) -> Clause:
    """Puts a clause after the main clause in both languages."""
    part = Part((), english, Middle.PREDICATIVE, Slot.CLAUSE, after=(Token(","), *german, Token(",")))
    return replace(clause, parts=(*clause.parts, part))


def _second_request(chooser: Chooser, main: Clause, *, period: Period) -> Request:
    subject = _pronoun_or_none(chooser, main.english_subject or main.subject)
    if subject is None and chooser.chance(0.06):
        weather = chooser.pick(chooser.lexicon.verbs["weather"])
        return Request(period=period, verb=weather, richness=0.4, may_negate=False)
    if subject is None:
        return Request(period=period, richness=0.6)
    return Request(period=period, subject=subject, frames=AGENTS, richness=0.6)


def _with_subordinate(chooser: Chooser) -> Sides:
    """Main clause and subordinate clause, in either order."""
    conjunction = chooser.zipf(CONJUNCTIONS)
    main_period, period = chooser.pick(conjunction.periods)
    main = draw_clause(chooser, Request(period=main_period, richness=0.6))
    may_negate = conjunction.german not in ("bevor", "bis", "während")
    other = draw_clause(chooser, replace(_second_request(chooser, main, period=period), may_negate=may_negate))
    german, english = _subordinate(chooser, other, word=conjunction.german, english=conjunction.english)
    if chooser.chance(0.65):
        return _order_statement(chooser, _attach(main, german, english=english))
    comma = (chooser.key(),)
    is_first = chooser.chance(0.6)
    front = Part(
        (*german, Token(",", comma)),
        (*english, Token(",", comma)) if is_first else english,
        Middle.TIME,
        Slot.FRONT if is_first else Slot.CLAUSE,
    )
    main = replace(main, parts=(*main.parts, front))
    return order_german(main, Order.MAIN, front=front), order_english(main, Order.MAIN)


def _with_content(chooser: Chooser) -> Sides:
    """Says that ...; does not know whether ..., why ..."""
    frame = chooser.weigh((("that", 0.75), ("whether", 0.25)))
    verb = chooser.zipf(chooser.lexicon.verbs[frame])
    period: Period = chooser.weigh((("now", 0.6), ("past", 0.4)))
    must_negate = frame == "whether" and verb.english in ("know", "find")
    main = draw_clause(
        chooser, Request(period=period, verb=verb, richness=0.5 if period == "past" else 0.0, must_negate=must_negate)
    )
    inner: Period | None = None
    if period == "past":
        inner = "past" if chooser.chance(0.8) else "now"
    other = draw_clause(chooser, replace(_second_request(chooser, main, period="now"), period=inner))
    word, english = "dass", ("that",)
    if frame == "whether":
        word, english = chooser.weigh(
            ((("ob", ("whether",)), 0.6), (("warum", ("why",)), 0.25), (("wann", ("when",)), 0.15))
        )
        if word == "wann":
            other = leave_out(other, Middle.TIME)
    german, words = _subordinate(chooser, other, word=word, english=english)
    if frame == "that" and all(part.slot < Slot.PLACE for part in main.parts) and chooser.chance(0.25):
        words = words[1:]  # he says he is tired
    return _order_statement(chooser, _attach(main, german, english=words))


def _with_infinitive(chooser: Chooser) -> Sides:
    """Tries to open the window; goes home to read a book."""
    is_purpose = chooser.chance(0.35)
    if is_purpose:
        request = Request(frames=(("goal", 1.0),), richness=0.4, may_negate=False)
    else:
        request = Request(verb=chooser.zipf(chooser.lexicon.verbs["zu"]), richness=0.4)
    main = draw_clause(chooser, request)
    if main.subject.name not in ("", "person"):
        return _order_statement(chooser, main)
    other = draw_clause(
        chooser,
        Request(subject=main.subject, frames=PLAIN, richness=0.2, is_simple=True, may_negate=False, period="now"),
    )
    key = chooser.key()
    german, english = order_infinitive(other, key)
    if is_purpose:
        german = (Token("um", (key,)), *german)
    return _order_statement(chooser, _attach(main, german, english=english))


def _coordinated(chooser: Chooser) -> Sides:
    """Two main clauses with und, aber or denn; or one subject with two verbs."""
    period: Period = chooser.weigh((("now", 0.5), ("past", 0.5)))
    first = draw_clause(chooser, Request(period=period, richness=0.5))
    key = (chooser.key(),)
    is_shared = first.english_subject is None and first.subject.name in ("", "person") and chooser.chance(0.5)
    if is_shared and first.subject.german[0].text != "es" and not first.predicate.is_passive:
        german, english = _order_statement(chooser, first, may_front=False)
        request = Request(period=period, subject=first.subject, frames=AGENTS, richness=0.5, may_negate=False)
        second = draw_clause(chooser, request)
        german = (*german, Token("und", key), *order_german(second, Order.MAIN, has_subject=False))
        return german, (*english, Token("and", key), *order_english(second, Order.MAIN, has_subject=False))
    german, english = _order_statement(chooser, first)
    second = draw_clause(chooser, _second_request(chooser, first, period=period))
    other, other_english = _order_statement(chooser, second)
    word, translation = chooser.weigh(((("und", "and"), 0.35), (("aber", "but"), 0.4), (("denn", "because"), 0.25)))
    comma = Token(",", (chooser.key(),))
    source, target = (Token(word, key), *other), (Token(translation, key), *other_english)
    if word == "und":
        return german + source, english + target
    return (*german, comma, *source), (*english, *((comma,) if word == "aber" else ()), *target)


Kind = tuple[Callable[[Chooser], Sides], str]
KINDS: tuple[tuple[Kind, float], ...] = (
    ((_statement, "."), 0.37),
    ((_with_subordinate, "."), 0.2),
    ((_with_content, "."), 0.11),
    ((_with_infinitive, "."), 0.07),
    ((_coordinated, "."), 0.09),
    ((yes_no_question, "?"), 0.06),
    ((word_question, "?"), 0.06),
    ((command, "!"), 0.04),
)
