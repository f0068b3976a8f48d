"""Draws clauses: verb, tense, subject, complements, adverbials, negation, relative clauses."""

from dataclasses import dataclass, replace
from typing import Literal

from .adverbials import draw_comment, draw_company, draw_manner, draw_often, draw_place, draw_time, govern, make_part
from .chooser import Chooser
from .clauses import Clause, Middle, Order, Part, Slot, order_english, order_german
from .complements import COMPLEMENTS, Draft, add_reflexive, is_negative, put_predicative
from .german import article
from .lexicon import Phrase, Verb
from .noun_phrases import NounPhrase, draw_common, draw_noun_phrase, draw_several
from .predicates import BECOME, EXIST, LOOK, MODALS, SEIN, Aspect, Predicate, Tense, make_predicate
from .tokens import Token

__all__ = ["Period", "Request", "draw_clause", "draw_subject", "expletive", "find_object"]

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
# English verbs of states: no progressive, no manner, no passive.
STATES = frozenset(
    "be become belong believe cost depend fear fit get hate have hear know last lie like look love miss need owe see "
    "smell stand trust understand recognise remember forget lose encounter live notice realise".split()
)
NO_PASSIVE = ("accompany", "enter", "reach", "shout", "laugh", "marry", "fetch")
ALREADY = Phrase(("schon",), ("already",), ((0, 0),))
ALSO = Phrase(("auch",), ("also",), ((0, 0),))


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


def draw_clause(chooser: Chooser, request: Request) -> Clause:
    """A clause that fits the request."""
    frame = request.verb.frame if request.verb else chooser.weigh(_possible_frames(chooser, request))
    period: Period = request.period or chooser.weigh((("now", 0.5), ("past", 0.38), ("future", 0.12)))
    if frame == "copula":
        return _draw_copula(chooser, request, period)
    if frame == "exist":
        return _draw_existence(chooser, request, period)
    if frame == "passive":
        return _draw_passive(chooser, request, period)
    verb = request.verb or _draw_verb(chooser, request, frame)
    subject = request.subject or draw_subject(chooser, verb, is_english=frame != "like")
    is_plain = "person" not in verb.subjects
    draft = _start(chooser, request, verb=verb, subject=subject, period=period, may_use_modal=not is_plain)
    COMPLEMENTS.get(frame, COMPLEMENTS["none"])(draft)
    if verb.is_reflexive:
        add_reflexive(draft)
    return _finish(draft, request, period=period)


def _possible_frames(chooser: Chooser, request: Request) -> tuple[tuple[str, float], ...]:
    """Without a subject of one's own, only frames with verbs for its class."""
    if request.subject is None:
        return request.frames
    verbs = chooser.lexicon.verbs_of_subject
    name = request.subject_class
    frames = [item for item in request.frames if item[0] == "copula" or (item[0], name) in verbs]
    return tuple(frames) or (("copula", 1.0),)


def _draw_verb(chooser: Chooser, request: Request, frame: str) -> Verb:
    if request.subject is not None:
        return chooser.zipf(chooser.lexicon.verbs_of_subject[frame, request.subject_class])
    return chooser.zipf(chooser.lexicon.verbs[frame])


def draw_subject(chooser: Chooser, verb: Verb, *, is_english: bool = True) -> NounPhrase:
    """A subject for the verb; `is_english` says whether it is the subject in English as well."""
    if not verb.subjects:
        return expletive(chooser, "it")
    if verb.subjects[0] == "person" and chooser.chance(0.05):
        return draw_several(chooser, case="nom")
    phrase = draw_noun_phrase(chooser, verb.subjects, case="nom", is_subject=is_english)
    return relate(chooser, phrase) if is_english else phrase


def expletive(chooser: Chooser, english: str, *, is_english_plural: bool = False) -> NounPhrase:
    """The es of es regnet (it) and es gibt (there)."""
    key = (chooser.key(),)
    return NounPhrase(
        (Token("es", key),), (Token(english, key),), gender="n", is_pronoun=True, is_english_plural=is_english_plural
    )


def _start(
    chooser: Chooser, request: Request, *, verb: Verb, subject: NounPhrase, period: Period, may_use_modal: bool
) -> Draft:
    predicate = make_predicate(chooser, verb)
    if not request.is_simple:
        predicate = _draw_tense(chooser, predicate, subject=subject, period=period, may_use_modal=may_use_modal)
    may_negate = request.may_negate and not is_negative(subject.german)
    is_negated = request.must_negate or (may_negate and chooser.chance(0.14))
    has_relatives = request.richness >= 1.0
    return Draft(chooser, predicate, subject, relate if has_relatives else _leave, is_negated, request.given)


def _draw_tense(
    chooser: Chooser, predicate: Predicate, *, subject: NounPhrase, period: Period, may_use_modal: bool
) -> Predicate:
    is_light = predicate.verb.infinitive in ("haben", "sein", "wissen", "mögen")
    if may_use_modal and not is_light and chooser.chance(0.2):
        modal = chooser.zipf(MODALS)
        if period == "past" and modal.past and subject.person != 2:
            return replace(predicate, modal=modal, tense=Tense.PAST)
        if period != "past":
            return replace(predicate, modal=modal)
    if period == "now":
        return predicate
    if period == "future":
        tense = Tense.FUTURE if chooser.chance(0.55) else Tense.PRESENT
        return replace(predicate, tense=tense, aspect=Aspect.FUTURE)
    is_spoken = subject.person == 2 or chooser.chance(0.68)
    return replace(predicate, tense=Tense.PERFECT if is_spoken and not is_light else Tense.PAST)


def _finish(draft: Draft, request: Request, *, period: Period) -> Clause:
    """Adverbials and negation."""
    chooser, predicate, parts = draft.chooser, draft.predicate, draft.parts
    is_future_present = predicate.aspect is Aspect.FUTURE and predicate.tense is Tense.PRESENT
    may_be_now = predicate.tense is Tense.PRESENT and predicate.modal is None and period == "now"
    is_act = predicate.verb.english not in STATES and "person" in predicate.verb.subjects
    if draft.is_negated:
        _negate(draft)
    has_negation = draft.english_not is not None or any(is_negative(part.german) for part in parts)
    has_negation = has_negation or is_negative(draft.subject.german)
    if is_future_present:
        parts.append(_future_time(chooser))
    elif may_be_now and is_act and not request.is_simple and chooser.chance(0.13 * request.richness):
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
    return Clause(draft.predicate, draft.subject, tuple(parts), draft.english_subject, draft.english_not)


def _is_perfect(predicate: Predicate) -> bool:
    return predicate.tense is Tense.PERFECT and not predicate.is_passive


def _future_time(chooser: Chooser) -> Part:
    phrase = chooser.zipf(chooser.lexicon.phrases["time-future"])
    return make_part(chooser, phrase, middle=Middle.TIME, slot=Slot.TIME, is_frontable=True)


def _say_right_now(draft: Draft) -> None:
    key = (draft.chooser.key(),)
    english = (Token("right", key), Token("now", key))
    draft.parts.append(Part((Token("gerade", key),), english, Middle.COMMENT, Slot.TIME))
    draft.predicate = replace(draft.predicate, aspect=Aspect.PROGRESSIVE)


def _negate(draft: Draft) -> None:
    """nicht and "not"; noch nicht with the perfect becomes "not ... yet"."""
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
        draft.parts.append(draw_company(chooser, is_travel=frame == "goal"))
    elif is_act and frame == "acc" and chooser.chance(0.08 * request.richness):
        person = draw_noun_phrase(chooser, ("person",), case="acc", avoid=draft.subject.english_person)
        german, english = govern(chooser, "für", phrase=person, english=("for",))
        draft.parts.append(Part(german, english, Middle.MANNER, Slot.PREPOSITIONAL))
    if is_act and frame in ("none", "acc") and chooser.chance(0.15 * request.richness):
        draft.parts.append(draw_place(chooser))


def _draw_copula(chooser: Chooser, request: Request, period: Period) -> Clause:
    """is tired, becomes a doctor, looks sad."""
    name = request.subject_class
    if request.subject is None:
        name = chooser.pick(
            ("person", "person", "clothes", "building", "text", "dish", "animal", "vehicle", "idea", "show")
        )
        subject = relate(chooser, draw_noun_phrase(chooser, (name,), case="nom", is_subject=True))
    else:
        subject = request.subject
    verb = chooser.weigh(((SEIN, 0.78), (LOOK, 0.14), (BECOME, 0.08 if name == "person" else 0.0)))
    draft = _start(chooser, request, verb=verb, subject=subject, period=period, may_use_modal=False)
    adjectives = chooser.lexicon.adjectives.get(name) or chooser.lexicon.adjectives["person"]
    is_one = not subject.is_plural and not subject.is_english_plural and subject.gender == "m"
    if verb is not LOOK and name == "person" and is_one and not draft.is_negated and chooser.chance(0.2):
        job = draw_common(chooser, "job", case="nom", determiner=JOB)
        draft.parts.append(Part(job.german, job.english, Middle.PREDICATIVE, Slot.PREDICATIVE))
    else:
        put_predicative(draft, adjectives, may_compare=verb is SEIN and subject.noun is not None)
    return _finish(draft, request, period=period)


def _draw_existence(chooser: Chooser, request: Request, period: Period) -> Clause:
    """There is a garden here, hier gibt es einen Garten."""
    name = chooser.pick(("building", "nature", "square", "animal", "riddle", "food"))
    phrase = draw_common(chooser, name, case="acc", is_plain=False)
    while phrase.is_definite:
        phrase = draw_common(chooser, name, case="acc", is_plain=False)
    subject = expletive(chooser, "there", is_english_plural=phrase.is_english_plural)
    simple = replace(request, may_negate=False)
    draft = _start(chooser, simple, verb=EXIST, subject=subject, period=period, may_use_modal=False)
    draft.parts.append(Part(phrase.german, phrase.english, Middle.INDEFINITE, Slot.DIRECT))
    draft.parts.append(draw_place(chooser, ("city", "building", "nature", "spot")))
    return _finish(draft, request, period=period)


def _draw_passive(chooser: Chooser, request: Request, period: Period) -> Clause:
    """is repaired by the mechanic."""
    verb = chooser.zipf(chooser.lexicon.verbs["acc"])
    while verb.english in STATES or verb.english in NO_PASSIVE or verb.auxiliary == "sein":
        verb = chooser.zipf(chooser.lexicon.verbs["acc"])
    name = chooser.pick(verb.objects)
    subject = draw_common(chooser, name, case="nom")
    draft = _start(chooser, request, verb=verb, subject=subject, period=period, may_use_modal=True)
    draft.predicate = replace(draft.predicate, is_passive=True)
    if chooser.chance(0.45):
        agent = draw_noun_phrase(chooser, ("person",), case="dat")
        german, english = govern(chooser, "von", phrase=agent, english=("by",))
        draft.parts.append(Part(german, english, Middle.MANNER, Slot.PREPOSITIONAL))
    return _finish(draft, replace(request, richness=0.5 * request.richness), period=period)
