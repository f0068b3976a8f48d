"""What a verb takes: objects in their cases, prepositional objects, places, predicates. One function per frame."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from .adverbials import draw_goal, draw_place, govern
from .chooser import Chooser
from .clauses import Middle, Part, Slot
from .determiners import make_number, negative
from .german import Case, decline_noun
from .lexicon import Adjective, load_lexicon
from .noun_phrases import NounPhrase, draw_common, draw_noun_phrase
from .predicates import Predicate
from .tokens import Token, Tokens, place_phrase

__all__ = ["COMPLEMENTS", "REFLEXIVES", "Draft", "add_object", "add_reflexive", "is_negative", "put_predicative"]

REFLEXIVES = {(1, False): "mich", (2, False): "dich", (1, True): "uns", (2, True): "euch"}
NEGATIVES = ("nichts", "niemand", "niemanden", "niemandem", "kein", "keine", "keinen", "keinem", "keiner", "nie")
GIVE_TO = ("to",)

Relate = Callable[[Chooser, NounPhrase], NounPhrase]


@dataclass
class Draft:
    """A clause in the making.

    Attributes:
        chooser: Makes the choices.
        predicate: The verb group.
        subject: The German subject.
        relate: Adds relative clauses to objects now and then.
        is_negated: Whether negation is still to be said.
        given: The object, where it is a relative pronoun or a question word.
        given_part: The part that holds it.
        parts: The parts so far.
        english_subject: English subject where it is another one.
        english_not: English negation.
    """

    chooser: Chooser
    predicate: Predicate
    subject: NounPhrase
    relate: Relate
    is_negated: bool = False
    given: NounPhrase | None = None
    given_part: Part | None = None
    parts: list[Part] = field(default_factory=list)
    english_subject: NounPhrase | None = None
    english_not: Token | None = None


def is_negative(tokens: Tokens) -> bool:
    """Whether the German words hold a negation."""
    return any(token.text.lower() in NEGATIVES for token in tokens)


def add_object(draft: Draft, phrase: NounPhrase, *, case: Case, slot: Slot) -> None:
    """Adds an object; its place in the middle field depends on whether it is a pronoun, known or new."""
    if phrase.is_pronoun:
        middle = Middle.ACCUSATIVE_PRONOUN if case == "acc" else Middle.DATIVE_PRONOUN
    elif case == "dat":
        middle = Middle.DATIVE
    else:
        middle = Middle.DEFINITE if phrase.is_definite else Middle.INDEFINITE
    # Only a masculine singular shows the accusative; else the subject must show that it is not the object.
    is_marked = case == "dat" or (phrase.gender == "m" and not phrase.is_plural)
    is_noun = phrase.noun is not None and not is_negative(phrase.german)
    moves = bool(phrase.relative) and (draft.is_negated or draft.chooser.chance(0.6))
    part = Part(
        phrase.german if moves else phrase.german_full,
        phrase.english,
        middle,
        slot,
        is_frontable=is_noun and not phrase.relative and (is_marked or draft.subject.person != 3),
        is_pronoun=phrase.is_pronoun,
        after=phrase.relative if moves else (),
    )
    draft.parts.append(part)
    if phrase is draft.given:
        draft.given_part = part


def add_reflexive(draft: Draft) -> None:
    """Adds mich, dich, sich ...; it belongs to the verb, so its link is only possible."""
    subject = draft.subject
    text = REFLEXIVES.get((subject.person, subject.is_plural), "sich")
    draft.parts.append(Part((Token(text, (), (draft.predicate.key,)),), (), Middle.REFLEXIVE, Slot.DIRECT))


def _accusative(draft: Draft, *, may_be_pronoun: bool = True) -> NounPhrase:
    """An accusative object, with kein where the clause is negated and the object is new."""
    chooser, verb = draft.chooser, draft.predicate.verb
    if draft.given is not None:
        return draft.given
    if draft.is_negated and chooser.chance(0.5):
        name = chooser.pick(verb.objects)
        has_not = chooser.chance(0.6) and not is_negative(draft.subject.german)
        phrase = draw_common(chooser, name, case="acc", determiner=negative(has_not=has_not))
        draft.is_negated = False
        if has_not:
            draft.english_not = Token("not", phrase.german[0].sure)
        return phrase
    avoid = draft.subject.english_person
    phrase = draw_noun_phrase(chooser, verb.objects, case="acc", avoid=avoid)
    for _ in range(5):
        is_fine = phrase.is_definite or not draft.is_negated
        if is_fine and (may_be_pronoun or not phrase.is_pronoun):
            break
        phrase = draw_noun_phrase(chooser, verb.objects, case="acc", avoid=avoid)
    else:
        draft.is_negated = False
    return draft.relate(chooser, phrase)


def _dative(draft: Draft) -> NounPhrase:
    objects = draft.predicate.verb.objects if draft.predicate.verb.frame == "dat" else ("person",)
    phrase = draw_noun_phrase(draft.chooser, objects, case="dat", avoid=draft.subject.english_person)
    return draft.relate(draft.chooser, phrase)


def _take_accusative(draft: Draft) -> None:
    add_object(draft, _accusative(draft), case="acc", slot=Slot.DIRECT)


def _take_dative(draft: Draft) -> None:
    add_object(draft, draft.given or _dative(draft), case="dat", slot=Slot.DIRECT)


def _take_both(draft: Draft) -> None:
    """Gives the man a book, or gives a book to the man; pronouns and some verbs ask for the second."""
    chooser, verb = draft.chooser, draft.predicate.verb
    receiver = draw_noun_phrase(chooser, ("person",), case="dat", avoid=draft.subject.english_person)
    thing = _accusative(draft)
    needs_preposition = bool(verb.english_preposition) or thing.is_pronoun or thing is draft.given
    if needs_preposition or chooser.chance(0.35):
        # German has no word for "to": it belongs to the receiver's case.
        loose = receiver.german[0].sure or receiver.german[0].possible
        words = tuple(Token(word, (), loose) for word in verb.english_preposition or GIVE_TO)
        receiver = replace(receiver, english=words + receiver.english)
        add_object(draft, receiver, case="dat", slot=Slot.PREPOSITIONAL)
    else:
        add_object(draft, receiver, case="dat", slot=Slot.INDIRECT)
    add_object(draft, thing, case="acc", slot=Slot.DIRECT)


def _take_prepositional(draft: Draft) -> None:
    chooser, verb = draft.chooser, draft.predicate.verb
    case: Case = "acc" if verb.case == "acc" else "dat"
    phrase = draft.given
    if phrase is None:
        phrase = draw_noun_phrase(chooser, verb.objects, case=case, avoid=draft.subject.english_person)
        while phrase.is_pronoun and verb.objects[0] != "person":  # things take darauf, damit, ...: not in this grammar
            phrase = draw_noun_phrase(chooser, verb.objects, case=case, avoid=draft.subject.english_person)
        phrase = draft.relate(chooser, phrase)
    german, english = govern(chooser, verb.preposition, phrase=phrase, english=verb.english_preposition)
    if draft.given is None:
        draft.parts.append(Part(german, english, Middle.PREPOSITIONAL, Slot.PREPOSITIONAL, is_frontable=True))
        return
    # In relative clauses and questions the English preposition stays behind: the bus that he waits for.
    size = len(verb.english_preposition)
    draft.given_part = Part(german, english[size:], Middle.PREPOSITIONAL, Slot.PREPOSITIONAL)
    stranded = Part((), english[:size], Middle.PREPOSITIONAL, Slot.PREPOSITIONAL)
    draft.parts.extend((draft.given_part, stranded))


def _take_place(draft: Draft) -> None:
    draft.parts.append(draw_place(draft.chooser, draft.predicate.verb.objects))


def _take_goal(draft: Draft) -> None:
    draft.parts.append(draw_goal(draft.chooser, draft.predicate.verb.objects))


def _take_object_and_goal(draft: Draft) -> None:
    add_object(draft, _accusative(draft), case="acc", slot=Slot.DIRECT)
    names = ("surface",) if draft.predicate.verb.infinitive in ("stellen", "setzen") else ("surface", "box")
    if draft.predicate.verb.infinitive in ("hängen", "tun"):
        names = ("box",)
    draft.parts.append(draw_goal(draft.chooser, names))


def _take_experiencer(draft: Draft) -> None:
    """Das Buch gefällt dem Mann: in English the man is the subject, and the book the object."""
    chooser = draft.chooser
    avoid = draft.subject.english_person
    person = draw_noun_phrase(chooser, ("person",), case="dat", is_subject=True, avoid=avoid)
    middle = Middle.DATIVE_PRONOUN if person.is_pronoun else Middle.DATIVE
    draft.english_subject = person
    draft.parts.append(Part(person.german, (), middle, Slot.DIRECT, is_frontable=True))
    draft.parts.append(Part((), draft.subject.english, Middle.DATIVE, Slot.DIRECT))


def _take_amount(draft: Draft) -> None:
    chooser = draft.chooser
    number = make_number(chooser)
    unit = chooser.noun(chooser.pick(draft.predicate.verb.objects))
    first, second = (chooser.key(),), (chooser.key(),)
    german = (Token(number.stem, first), Token(decline_noun(unit, "acc", is_plural=True), second))
    english = (
        *(Token(word, first) for word in number.plural_english),
        *(Token(word, second) for word in unit.english_plural),
    )
    draft.parts.append(Part(german, english, Middle.INDEFINITE, Slot.DIRECT))


def _take_nothing(draft: Draft) -> None:
    del draft


def put_predicative(draft: Draft, adjectives: tuple[Adjective, ...], *, may_compare: bool) -> None:
    """Is very tired; is older than his brother."""
    chooser = draft.chooser
    adjective = chooser.zipf(adjectives)
    key = (chooser.key(),)
    if may_compare and adjective.comparative and adjective.english_comparative and chooser.chance(0.25):
        name = draft.subject.name or "person"
        other = draw_common(chooser, name, case="nom", is_plain=True)
        than = (chooser.key(),)
        german: Tokens = (Token(adjective.comparative, key), Token("als", than), *other.german)
        english: Tokens = (
            *(Token(word, key) for word in adjective.english_comparative.split("_")),
            Token("than", than),
            *other.english,
        )
    else:
        german, english = (Token(adjective.german, key),), (Token(adjective.english, key),)
        if adjective.comparative and chooser.chance(0.4):
            degree, english_degree = place_phrase(chooser, chooser.zipf(load_lexicon().phrases["degree"]))
            german, english = degree + german, english_degree + english
    draft.parts.append(Part(german, english, Middle.PREDICATIVE, Slot.PREDICATIVE))


COMPLEMENTS: dict[str, Callable[[Draft], None]] = {
    "none": _take_nothing,
    "weather": _take_nothing,
    "acc": _take_accusative,
    "dat": _take_dative,
    "give": _take_both,
    "prep": _take_prepositional,
    "place": _take_place,
    "goal": _take_goal,
    "put": _take_object_and_goal,
    "like": _take_experiencer,
    "amount": _take_amount,
}
