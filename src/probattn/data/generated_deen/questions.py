"""Questions and commands."""

from dataclasses import replace

from .chooser import Chooser
from .circumstances import STATES
from .clauses import Clause, Middle, Order, Part, Slot, order_command, order_english, order_german
from .determiners import which
from .german import Case
from .grammar import draw_clause
from .noun_phrases import NounPhrase, draw_common, draw_pronoun
from .predicates import Aspect
from .requests import AGENTS, PLAIN, Period, Request
from .tokens import Token, Tokens

__all__ = ["Sides", "command", "leave_out", "word_question", "yes_no_question"]

Sides = tuple[Tokens, Tokens]
COMMANDS = (("acc", 0.55), ("give", 0.2), ("goal", 0.1), ("put", 0.15))
ADVERBS = (("warum", "why"), ("wann", "when"), ("wo", "where"), ("wohin", "where"), ("wie", "how"))
# What the answer would be, and so is not in the question.
ASKED = {
    "warum": Middle.COMMENT,
    "wann": Middle.TIME,
    "wo": Middle.PLACE,
    "wohin": Middle.PLACE,
    "wie": Middle.MANNER,
}


def leave_out(clause: Clause, middle: Middle) -> Clause:
    """Leaves out what a question word asks for."""
    kept = tuple(part for part in clause.parts if part.middle is not middle)
    aspect = clause.predicate.aspect
    if aspect is Aspect.PROGRESSIVE:
        kept = tuple(part for part in kept if part.middle is not Middle.TIME)
        aspect = Aspect.SIMPLE
    return replace(clause, parts=kept, predicate=replace(clause.predicate, aspect=aspect))


def yes_no_question(chooser: Chooser) -> Sides:
    """Does he read the book?"""
    period: Period = chooser.weigh((("now", 0.55), ("past", 0.35), ("future", 0.1)))
    clause = draw_clause(chooser, Request(period=period))
    return order_german(clause, Order.QUESTION), order_english(clause, Order.QUESTION)


def _question_word(chooser: Chooser, german: str, *, english: str) -> NounPhrase:
    key = (chooser.key(),)
    return NounPhrase((Token(german, key),), (Token(english, key),), is_definite=True)


def word_question(chooser: Chooser) -> Sides:
    """Who reads the book, what does he read, when, where, why?"""
    period: Period = chooser.weigh((("now", 0.55), ("past", 0.45)))
    kind = chooser.weigh((("subject", 0.25), ("object", 0.4), ("adverb", 0.35)))
    request = Request(period=period, may_negate=False, richness=0.6)
    if kind == "subject":
        clause = draw_clause(
            chooser, replace(request, subject=_question_word(chooser, "wer", english="who"), frames=AGENTS)
        )
        return order_german(clause, Order.MAIN), order_english(clause, Order.QUESTION, is_inverted=False)
    if kind == "object":
        clause = _draw_object_question(chooser, request)
        front = clause.given
        return order_german(clause, Order.MAIN, front=front), order_english(clause, Order.QUESTION, front=front)
    word, english = chooser.pick(ADVERBS)
    frames = (("goal", 1.0),) if word == "wohin" else (*PLAIN[:2], ("none", 0.4))
    clause = draw_clause(chooser, replace(request, frames=frames, richness=0.3))
    clause = leave_out(clause, ASKED[word])
    key = (chooser.key(),)
    front = Part((Token(word, key),), (Token(english, key),), Middle.TIME, Slot.FRONT)
    return order_german(clause, Order.MAIN, front=front), order_english(clause, Order.QUESTION, front=front)


def _draw_object_question(chooser: Chooser, request: Request) -> Clause:
    """was, wen, wem, welches Buch, auf wen."""
    frame = chooser.weigh((("acc", 0.65), ("dat", 0.1), ("prep", 0.25)))
    verb = chooser.zipf([item for item in chooser.lexicon.verbs[frame] if item.subjects[0] == "person"])
    case: Case = "acc" if frame == "acc" or verb.case == "acc" else "dat"
    things = tuple(name for name in verb.objects if name not in ("person", "game", "language", "money", "meal"))
    if frame != "dat" and things and chooser.chance(0.45):
        given = draw_common(chooser, chooser.pick(things), case=case, determiner=which(), is_plain=chooser.chance(0.6))
    elif "person" in verb.objects:
        given = _question_word(chooser, "wen" if case == "acc" else "wem", english="who")
    elif frame == "acc":
        given = _question_word(chooser, "was", english="what")
    else:
        given = draw_common(chooser, chooser.pick(verb.objects), case=case, determiner=which())
    return draw_clause(chooser, replace(request, verb=verb, given=given))


def command(chooser: Chooser) -> Sides:
    """Please open the window: to one, to several, or politely."""
    subject = draw_pronoun(chooser, case="nom", is_subject=True, is_person=True)
    while subject.english_person != 2:
        subject = draw_pronoun(chooser, case="nom", is_subject=True, is_person=True)
    verb = chooser.zipf(chooser.lexicon.verbs[chooser.weigh(COMMANDS)])
    while verb.english in STATES:
        verb = chooser.zipf(chooser.lexicon.verbs["acc"])
    clause = draw_clause(chooser, Request(period="future", subject=subject, verb=verb, richness=0.7, is_simple=True))
    clause = replace(clause, parts=tuple(part for part in clause.parts if part.middle is not Middle.OFTEN))
    key = (chooser.key(),)
    please = (Token("bitte", key), Token("please", key))
    return order_command(clause, please, is_polite=subject.person == 3)
