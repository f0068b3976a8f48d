"""Verb groups in both languages: tenses, modals, passive, negation's do-support.

German puts one finite word and leaves the rest for the end of the clause; English puts a chain of words in one place.
Which German word is linked to which English one:

- the verb to the verb; a separable prefix to the English particle, or to the verb where there is none;
- a modal, the future and the passive auxiliary to their counterparts;
- the auxiliary of a perfect to "have"; where English says a simple past, only possibly to the verb;
- do, the "be" of progressives, and a "will" that German leaves to the adverb: only possibly to the verb.
"""

from typing import NamedTuple

from .english import EnglishForm, inflect_english
from .german import conjugate, imperative, modal_form
from .lexicon import Verb
from .predicates import HAVE, SEIN, WERDEN, Aspect, Predicate, Tense
from .tokens import Token, Tokens

__all__ = ["EnglishGroup", "GermanGroup", "command_group", "english_group", "german_group", "zu_infinitive"]

AUXILIARIES = ("be", "can", "may", "should", "will", "would")  # negated and inverted without do


class GermanGroup(NamedTuple):
    """The finite word, the separated prefix (or None), and what stands at the end of the clause."""

    finite: Token
    prefix: Token | None
    rest: Tokens

    @property
    def last(self) -> Tokens:
        """What closes a main clause."""
        return self.rest if self.prefix is None else (*self.rest, self.prefix)

    @property
    def closing(self) -> Tokens:
        """What closes a subordinate clause: the rest and the finite word, with its prefix in one."""
        if self.prefix is None:
            return (*self.rest, self.finite)
        return (Token(self.prefix.text + self.finite.text, self.prefix.sure + self.finite.sure),)


def german_group(predicate: Predicate, person: int, *, is_plural: bool) -> GermanGroup:
    """The German words of the verb group for a subject of this person and number."""
    verb, tense = predicate.verb, predicate.tense
    form = "past" if tense is Tense.PAST else "present"
    participle = Token(verb.prefix + conjugate(verb, "participle"), predicate.keys)
    infinitive = Token(verb.prefix + verb.infinitive, predicate.keys)
    helper = (predicate.helper_key,)

    def finite(helping: Verb, sure: tuple[int, ...], *, possible: tuple[int, ...] = ()) -> Token:
        return Token(conjugate(helping, form, person=person, is_plural=is_plural), sure, possible)

    if predicate.modal is not None:
        rest = (participle, Token("werden", helper)) if predicate.is_passive else (infinitive,)
        return GermanGroup(_finite_modal(predicate, person, is_plural=is_plural), None, rest)
    if predicate.is_passive:
        if tense is Tense.PERFECT:
            return GermanGroup(finite(SEIN, helper), None, (participle, Token("worden", helper)))
        if tense is Tense.FUTURE:
            rest = (participle, Token("werden", helper))
            return GermanGroup(finite(WERDEN, (predicate.modal_key,)), None, rest)
        return GermanGroup(finite(WERDEN, helper), None, (participle,))
    if tense is Tense.PERFECT:
        helping = SEIN if verb.auxiliary == "sein" else HAVE
        if predicate.aspect is Aspect.PERFECT:
            return GermanGroup(finite(helping, helper), None, (participle,))
        return GermanGroup(finite(helping, (), possible=(predicate.key,)), None, (participle,))
    if tense is Tense.FUTURE:
        return GermanGroup(finite(WERDEN, (predicate.modal_key,)), None, (infinitive,))
    prefix = Token(verb.prefix, (predicate.prefix_key,)) if verb.prefix else None
    return GermanGroup(finite(verb, (predicate.key,)), prefix, ())


def _finite_modal(predicate: Predicate, person: int, *, is_plural: bool) -> Token:
    modal = predicate.modal
    if modal is None:
        raise ValueError("the predicate has no modal; ask `predicate.modal` first")
    if predicate.tense is Tense.PAST or modal.infinitive == "möchten":
        stem = modal.singular if predicate.tense is not Tense.PAST else modal.past
        text = stem + ("", "st", "", "n", "t", "n")[person - 1 + 3 * is_plural]
    else:
        text = modal_form(modal.infinitive, modal.singular, person=person, is_plural=is_plural)
    return Token(text, (predicate.modal_key,))


def zu_infinitive(predicate: Predicate, zu_key: int) -> Tokens:
    """The infinitive with zu, which goes between prefix and verb: aufzumachen."""
    verb = predicate.verb
    if verb.prefix:
        return (Token(f"{verb.prefix}zu{verb.infinitive}", (*predicate.keys, zu_key)),)
    return Token("zu", (zu_key,)), Token(verb.infinitive, predicate.keys)


class EnglishGroup(NamedTuple):
    """The word that is inverted and negated (if any), the words after it, and the particle."""

    auxiliary: Tokens
    main: Tokens
    particle: Tokens


class Link(NamedTuple):
    """One verb of an English chain: its base, the form it asks of the next one, words between, and its keys."""

    base: str
    demand: EnglishForm
    between: tuple[str, ...]
    sure: tuple[int, ...]
    possible: tuple[int, ...]
    is_auxiliary: bool


def english_group(
    predicate: Predicate, person: int, *, is_plural: bool, needs_support: bool = False, is_finite: bool = True
) -> EnglishGroup:
    """The English words of the verb group.

    Args:
        predicate: The verb and its tense.
        person: Of the English subject.
        is_plural: Number of the English subject.
        needs_support: Whether it is negated or inverted, so that there must be an auxiliary.
        is_finite: False gives the base form, after "to" and in commands.
    """
    chain = _chain(predicate)
    if needs_support and not chain[0].is_auxiliary:
        chain.insert(0, Link("do", "base", (), (), (predicate.key,), True))
    form: EnglishForm = ("past" if predicate.is_english_past else "present") if is_finite else "base"
    words: list[Tokens] = []
    for item in chain:
        text = inflect_english(item.base, form, person=person, is_plural=is_plural)
        words.append(tuple(Token(word, item.sure, item.possible) for word in (text, *item.between)))
        form = item.demand
    first = words[0] if chain[0].is_auxiliary else ()
    rest = tuple(token for group in words[1 if first else 0 :] for token in group)
    return EnglishGroup(first[:1], first[1:] + rest, _particle(predicate))


def _chain(predicate: Predicate) -> list[Link]:
    helper, modal, loose = (predicate.helper_key,), (predicate.modal_key,), (predicate.key,)
    chain: list[Link] = []
    if predicate.modal is not None:
        is_past = predicate.tense is Tense.PAST
        first, *between = predicate.modal.english_past if is_past else predicate.modal.english
        chain.append(Link(first, "base", tuple(between), modal, (), first in AUXILIARIES))
    elif predicate.tense is Tense.FUTURE:
        chain.append(Link("will", "base", (), modal, (), True))
    elif predicate.aspect is Aspect.FUTURE:
        chain.append(Link("will", "base", (), (), loose, True))
    if predicate.aspect is Aspect.PERFECT:
        chain.append(Link("have", "participle", (), helper, (), True))
    if predicate.aspect is Aspect.PROGRESSIVE:
        chain.append(Link("be", "ing", (), (), loose, True))
    if predicate.is_passive:
        chain.append(Link("be", "participle", (), helper, (), True))
    has_particle = bool(predicate.verb.prefix and predicate.verb.particle)
    sure, possible = ((predicate.key,), (predicate.prefix_key,)) if has_particle else (predicate.keys, ())
    chain.append(Link(predicate.verb.english, "base", (), sure, possible, predicate.verb.english == "be"))
    return chain


def _particle(predicate: Predicate) -> Tokens:
    if predicate.verb.prefix:
        return tuple(Token(word, (predicate.prefix_key,), (predicate.key,)) for word in predicate.verb.particle)
    return tuple(Token(word, (predicate.key,)) for word in predicate.verb.particle)


def command_group(predicate: Predicate, *, is_plural: bool) -> GermanGroup:
    """The familiar imperative."""
    verb = predicate.verb
    prefix = Token(verb.prefix, (predicate.prefix_key,)) if verb.prefix else None
    return GermanGroup(Token(imperative(verb, is_plural=is_plural), (predicate.key,)), prefix, ())
