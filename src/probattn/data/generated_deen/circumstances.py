"""Finishes clauses: time, manner, place, comments, negation, and the English tense that goes with them."""

from dataclasses import replace

from .adverbials import draw_comment, draw_company, draw_manner, draw_often, draw_place, draw_time, govern, make_part
from .chooser import Chooser
from .clauses import Clause, Middle, Part, Slot
from .complements import Draft, is_negative
from .lexicon import Phrase
from .noun_phrases import draw_noun_phrase
from .predicates import Aspect, Predicate, Tense
from .requests import Period, Request
from .tokens import Token

__all__ = ["STATES", "finish_clause"]

# English verbs of states: no progressive, no manner, no passive.
STATES = frozenset(
    [
        "be",
        "become",
        "belong",
        "believe",
        "cost",
        "depend",
        "fear",
        "fit",
        "get",
        "hate",
        "have",
        "hear",
        "know",
        "lie",
        "like",
        "look",
        "love",
        "miss",
        "need",
        "owe",
        "see",
        "smell",
        "stand",
        "trust",
        "understand",
        "recognise",
        "remember",
        "forget",
        "lose",
        "encounter",
        "live",
        "notice",
        "realise",
    ]
)
TRAVEL = ("fahren", "reisen", "kommen", "kehren")  # one may do so by bus
ALREADY = Phrase(("schon",), ("already",), ((0, 0),))


def finish_clause(draft: Draft, request: Request, *, period: Period) -> Clause:
    """Adds negation and adverbials.

    Args:
        draft: The clause with its complements.
        request: What the sentence asks for.
        period: Past, now or future.
    """
    chooser, predicate, parts = draft.chooser, draft.predicate, draft.parts
    is_future_present = predicate.aspect is Aspect.FUTURE and predicate.tense is Tense.PRESENT
    may_be_now = predicate.tense is Tense.PRESENT and predicate.modal is None and period == "now"
    is_act = predicate.verb.english not in STATES and "person" in predicate.verb.subjects
    is_act = is_act and predicate.verb.frame not in ("that", "whether", "zu")
    has_negation = is_negative(draft.subject.german) or any(is_negative(part.german) for part in parts)
    if draft.is_negated and not has_negation:
        _negate(draft)
        has_negation = True
    if is_future_present:
        parts.append(_future_time(chooser))
    elif draft.predicate.aspect is Aspect.PERFECT:
        pass  # not yet: neither a time nor a frequency
    elif may_be_now and is_act and not (has_negation or request.is_simple) and chooser.chance(0.13 * request.richness):
        _say_right_now(draft)
    elif _is_perfect(predicate) and not has_negation and is_act and chooser.chance(0.12 * request.richness):
        parts.append(make_part(chooser, ALREADY, middle=Middle.OFTEN, slot=Slot.MIDDLE))
        draft.predicate = replace(predicate, aspect=Aspect.PERFECT)
    elif predicate.verb.frame != "amount" and chooser.chance(0.34 * request.richness):
        parts.append(draw_time(chooser, period))
    elif not has_negation and is_act and period != "future" and chooser.chance(0.2 * request.richness):
        parts.append(draw_often(chooser))
    _add_circumstances(draft, request, is_act=is_act)
    if request.may_comment and chooser.chance(0.13):
        parts.append(draw_comment(chooser, may_go_inside=draft.english_not is None))
    return Clause(
        draft.predicate,
        draft.subject,
        tuple(parts),
        english_subject=draft.english_subject,
        english_not=draft.english_not,
        given=draft.given_part,
    )


def _is_perfect(predicate: Predicate) -> bool:
    return predicate.tense is Tense.PERFECT and not predicate.is_passive


def _future_time(chooser: Chooser) -> Part:
    phrase = chooser.phrase("time-future")
    return make_part(chooser, phrase, middle=Middle.TIME, slot=Slot.TIME, is_frontable=True)


def _say_right_now(draft: Draft) -> None:
    key = (draft.chooser.key(),)
    english = (Token("right", key), Token("now", key))
    draft.parts.append(Part((Token("gerade", key),), english, Middle.TIME, Slot.TIME))
    draft.predicate = replace(draft.predicate, aspect=Aspect.PROGRESSIVE)


def _negate(draft: Draft) -> None:
    """Nicht and "not"; noch nicht with the perfect becomes "not ... yet"."""
    chooser = draft.chooser
    key = (chooser.key(),)
    draft.english_not = Token("not", key)
    words: tuple[Token, ...] = (Token("nicht", key),)
    if _is_perfect(draft.predicate) and chooser.chance(0.4):
        yet = (chooser.key(),)
        words = (Token("noch", yet), *words)
        draft.parts.append(Part((), (Token("yet", yet),), Middle.NOT, Slot.TIME))
        draft.predicate = replace(draft.predicate, aspect=Aspect.PERFECT)
    draft.parts.append(Part(words, (), Middle.NOT, Slot.MIDDLE))


def _add_circumstances(draft: Draft, request: Request, *, is_act: bool) -> None:
    """Manner, company, place."""
    chooser, frame = draft.chooser, draft.predicate.verb.frame
    if is_act and frame in ("none", "acc", "give", "goal", "put") and chooser.chance(0.13 * request.richness):
        draft.parts.append(draw_manner(chooser))
    elif is_act and frame in ("none", "goal", "place") and chooser.chance(0.16 * request.richness):
        draft.parts.append(draw_company(chooser, is_travel=draft.predicate.verb.infinitive in TRAVEL))
    elif is_act and frame == "acc" and chooser.chance(0.08 * request.richness):
        person = draw_noun_phrase(chooser, ("person",), case="acc", avoid=draft.subject.english_person)
        german, english = govern(chooser, "für", phrase=person, english=("for",))
        draft.parts.append(Part(german, english, Middle.MANNER, Slot.PREPOSITIONAL))
    if is_act and frame in ("none", "acc") and chooser.chance(0.15 * request.richness):
        draft.parts.append(draw_place(chooser))
