"""Draws clauses: verb, tense, subject, complements; and relative clauses, which are clauses again."""

from dataclasses import replace

from .adverbials import draw_place, govern
from .chooser import Chooser
from .circumstances import STATES, finish_clause
from .clauses import Clause, Middle, Order, Part, Slot, order_english, order_german
from .complements import COMPLEMENTS, Draft, add_reflexive, is_negative, put_predicative
from .determiners import JOB
from .german import Case, article
from .lexicon import Verb
from .noun_phrases import NounPhrase, draw_common, draw_noun_phrase, draw_several
from .predicates import BECOME, EXIST, LOOK, MODALS, SEIN, Aspect, Modal, Predicate, Tense, make_predicate
from .requests import FRAMES, Period, Request
from .tokens import Token

__all__ = ["draw_clause", "relate"]

PERIODS: tuple[tuple[Period, float], ...] = (("now", 0.5), ("past", 0.38), ("future", 0.12))
LIGHT = ("haben", "sein", "wissen", "mögen")  # past rather than perfect, and no modal
PASSIVE_MODALS = tuple(modal for modal in MODALS if modal.infinitive not in ("wollen", "möchten"))
NO_PASSIVE = ("accompany", "enter", "reach", "marry", "fetch", "save", "earn", "win", "pay")
DESCRIBED = ("person", "person", "clothes", "building", "text", "dish", "animal", "vehicle", "idea", "show")
SUBJECT_FRAMES = tuple(item for item in FRAMES if item[0] not in ("like", "passive", "exist"))


def draw_clause(chooser: Chooser, request: Request) -> Clause:
    """A clause that fits the request."""
    frame = request.verb.frame if request.verb else chooser.weigh(_possible_frames(chooser, request))
    period = chooser.weigh(PERIODS) if request.period is None else request.period
    if frame == "copula":
        return _draw_copula(chooser, request, period=period)
    if frame == "exist":
        return _draw_existence(chooser, request, period=period)
    if frame == "passive":
        return _draw_passive(chooser, request, period=period)
    verb = request.verb or _draw_verb(chooser, request, frame=frame)
    may_relate = request.richness >= 1.0
    subject = request.subject or _draw_subject(chooser, verb, may_relate=may_relate)
    draft = _start(chooser, request, verb=verb, subject=subject, period=period)
    COMPLEMENTS.get(frame, COMPLEMENTS["none"])(draft)
    if verb.is_reflexive:
        add_reflexive(draft)
    return finish_clause(draft, request, period=period)


def _possible_frames(chooser: Chooser, request: Request) -> tuple[tuple[str, float], ...]:
    """A subject that is given allows only frames with verbs for its class."""
    if request.subject is None:
        return request.frames
    verbs, name = chooser.lexicon.verbs_of_subject, request.subject_class
    is_described = name in chooser.lexicon.adjectives
    frames = [item for item in request.frames if (item[0], name) in verbs or (item[0] == "copula" and is_described)]
    return tuple(frames) or (("copula", 1.0),)


def _draw_verb(chooser: Chooser, request: Request, *, frame: str) -> Verb:
    if request.subject is not None:
        return chooser.zipf(chooser.lexicon.verbs_of_subject[frame, request.subject_class])
    return chooser.zipf(chooser.lexicon.verbs[frame])


def _draw_subject(chooser: Chooser, verb: Verb, *, may_relate: bool) -> NounPhrase:
    """A subject for the verb; with the frame "like" it is the object in English."""
    if not verb.subjects:
        return _expletive(chooser, "it")
    if verb.frame == "like":
        return draw_noun_phrase(chooser, verb.subjects, case="nom")
    if verb.subjects[0] == "person" and chooser.chance(0.05):
        return draw_several(chooser, case="nom")
    phrase = draw_noun_phrase(chooser, verb.subjects, case="nom", is_subject=True)
    return relate(chooser, phrase) if may_relate else phrase


def _expletive(chooser: Chooser, english: str, *, is_english_plural: bool = False) -> NounPhrase:
    """The es of es regnet (it) and es gibt (there)."""
    key = (chooser.key(),)
    return NounPhrase(
        (Token("es", key),), (Token(english, key),), gender="n", is_pronoun=True, is_english_plural=is_english_plural
    )


def _start(chooser: Chooser, request: Request, *, verb: Verb, subject: NounPhrase, period: Period) -> Draft:
    predicate = make_predicate(chooser, verb)
    if not request.is_simple:
        modals = MODALS if "person" in verb.subjects else ()
        predicate = _draw_tense(chooser, predicate, subject=subject, period=period, modals=modals)
    may_negate = request.may_negate and not is_negative(subject.german)
    is_negated = request.must_negate or (may_negate and chooser.chance(0.14))
    return Draft(
        chooser,
        predicate,
        subject,
        relate=relate if request.richness >= 1.0 else _leave,
        is_negated=is_negated,
        given=request.given,
    )


def _draw_tense(
    chooser: Chooser, predicate: Predicate, *, subject: NounPhrase, period: Period, modals: tuple[Modal, ...] = ()
) -> Predicate:
    is_light = predicate.verb.infinitive in LIGHT and not predicate.verb.prefix
    if modals and not is_light and chooser.chance(0.2):
        modal = chooser.zipf(modals)
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


def _draw_copula(chooser: Chooser, request: Request, *, period: Period) -> Clause:
    """Is tired, becomes a doctor, looks sad."""
    name, subject = request.subject_class, request.subject
    if subject is None:
        name = chooser.pick(DESCRIBED)
        subject = draw_noun_phrase(chooser, (name,), case="nom", is_subject=True)
        subject = relate(chooser, subject) if request.richness >= 1.0 else subject
    verb = chooser.weigh(((SEIN, 0.78), (LOOK, 0.14), (BECOME, 0.08 if name == "person" else 0.0)))
    draft = _start(chooser, request, verb=verb, subject=subject, period=period)
    is_man = name == "person" and subject.gender == "m" and subject.person == 3
    is_man = is_man and not subject.is_plural and not is_negative(subject.german)
    if verb is not LOOK and is_man and not draft.is_negated and chooser.chance(0.25):
        job = draw_common(chooser, "job", case="nom", determiner=JOB, is_plain=True)
        draft.parts.append(Part(job.german, job.english, Middle.PREDICATIVE, Slot.PREDICATIVE))
    else:
        put_predicative(draft, chooser.lexicon.adjectives[name], may_compare=verb is SEIN and subject.noun is not None)
    return finish_clause(draft, request, period=period)


def _draw_existence(chooser: Chooser, request: Request, *, period: Period) -> Clause:
    """There is a garden here, hier gibt es einen Garten."""
    name = chooser.pick(("building", "nature", "square", "animal", "riddle", "food"))
    phrase = draw_common(chooser, name, case="acc")
    while phrase.is_definite:
        phrase = draw_common(chooser, name, case="acc")
    subject = _expletive(chooser, "there", is_english_plural=phrase.is_english_plural)
    simple = replace(request, may_negate=False)
    draft = _start(chooser, simple, verb=EXIST, subject=subject, period=period)
    draft.parts.append(Part(phrase.german, phrase.english, Middle.INDEFINITE, Slot.DIRECT))
    draft.parts.append(draw_place(chooser, ("city", "building", "nature", "spot")))
    return finish_clause(draft, simple, period=period)


def _draw_passive(chooser: Chooser, request: Request, *, period: Period) -> Clause:
    """Is repaired by the mechanic."""
    verb = chooser.zipf(chooser.lexicon.verbs["acc"])
    while verb.english in STATES or verb.english in NO_PASSIVE:
        verb = chooser.zipf(chooser.lexicon.verbs["acc"])
    subject = draw_common(chooser, chooser.pick(verb.objects), case="nom")
    draft = _start(chooser, replace(request, is_simple=True), verb=verb, subject=subject, period=period)
    predicate = _draw_tense(chooser, draft.predicate, subject=subject, period=period, modals=PASSIVE_MODALS)
    draft.predicate = replace(predicate, is_passive=True)
    if chooser.chance(0.45):
        agent = draw_noun_phrase(chooser, ("person",), case="dat")
        german, english = govern(chooser, "von", phrase=agent, english=("by",))
        draft.parts.append(Part(german, english, Middle.MANNER, Slot.PREPOSITIONAL))
    return finish_clause(draft, replace(request, richness=0.5 * request.richness), period=period)


def _leave(chooser: Chooser, phrase: NounPhrase) -> NounPhrase:
    del chooser
    return phrase


def relate(chooser: Chooser, phrase: NounPhrase) -> NounPhrase:
    """Now and then adds a relative clause; the relative pronoun is its subject or one of its objects."""
    if phrase.noun is None or is_negative(phrase.german) or not chooser.chance(0.1):
        return phrase
    role = chooser.weigh((("subject", 0.45), ("acc", 0.3), ("dat", 0.1), ("prep", 0.15)))
    names = tuple(dict.fromkeys((phrase.name, *phrase.noun.classes)))
    verbs = [verb for name in names for verb in chooser.lexicon.verbs_of_object.get((role, name), ())]
    request = Request(period=chooser.pick(("past", "now")), richness=0.4, may_negate=False)
    if not verbs:
        pronoun = _relative_pronoun(chooser, phrase, case="nom")
        known = [name for name in names if any((item[0], name) in chooser.lexicon.verbs_of_subject for item in FRAMES)]
        name = known[0] if known else phrase.noun.classes[0]
        if not known and name not in chooser.lexicon.adjectives:
            return phrase
        clause = draw_clause(chooser, replace(request, subject=pronoun, subject_class=name, frames=SUBJECT_FRAMES))
    else:
        verb = chooser.zipf(verbs)
        case: Case = "acc" if verb.case == "acc" or role == "acc" else "dat"
        clause = draw_clause(chooser, replace(request, verb=verb, given=_relative_pronoun(chooser, phrase, case=case)))
    german = order_german(clause, Order.FINAL, front=clause.given)
    english = order_english(clause, Order.FINAL, front=clause.given)
    return replace(phrase, relative=(Token(","), *german, Token(",")), english=phrase.english + english)


def _relative_pronoun(chooser: Chooser, phrase: NounPhrase, *, case: Case) -> NounPhrase:
    key = (chooser.key(),)
    text = "denen" if phrase.is_plural and case == "dat" else article(case, "p" if phrase.is_plural else phrase.gender)
    if phrase.name == "person":
        word = "who" if case == "nom" else chooser.weigh((("that", 0.7), ("whom", 0.3)))
    else:
        word = chooser.weigh((("that", 0.6), ("which", 0.4)))
    return NounPhrase(
        (Token(text, key),),
        (Token(word, key),),
        is_plural=phrase.is_plural,
        is_english_plural=phrase.is_english_plural,
        gender=phrase.gender,
        name=phrase.name,
        is_pronoun=True,
    )
