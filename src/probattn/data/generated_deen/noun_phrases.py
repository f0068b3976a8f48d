"""Noun phrases in both languages: pronouns, names, and nouns with determiners and adjectives that agree."""

from dataclasses import dataclass
from typing import NamedTuple

from .adjectives import adjective_class, draw_adjectives
from .chooser import Chooser
from .determiners import ARTICLE, POSSESSIVES, Determiner, draw_determiner
from .english import choose_article
from .german import Case, decline_noun
from .lexicon import Noun
from .tokens import Token, Tokens, place_phrase

__all__ = [
    "NounPhrase",
    "draw_common",
    "draw_name",
    "draw_noun_phrase",
    "draw_pronoun",
    "draw_several",
    "repeat_as_pronoun",
]


@dataclass(frozen=True)
class NounPhrase:
    """A noun phrase in the case and role that it was drawn for.

    Attributes:
        german: Its words.
        english: Its words, relative clause included.
        person: Grammatical person in German.
        is_plural: Number in German.
        english_person: Person in English; differs for the polite Sie.
        is_english_plural: Number in English; differs for nouns such as glasses.
        gender: "m", "f" or "n".
        name: Meaning class it was drawn from, "" for pronouns.
        noun: The noun, None for pronouns and names.
        has_article: Whether it opens with a definite article, which prepositions may absorb (in dem, im).
        is_pronoun: Whether it is a personal pronoun.
        is_definite: Whether it goes before negation in the middle field.
        relative: German relative clause between its commas; kept apart because it may move to the end.
    """

    german: Tokens
    english: Tokens
    person: int = 3
    is_plural: bool = False
    english_person: int = 3
    is_english_plural: bool = False
    gender: str = "m"
    name: str = ""
    noun: Noun | None = None
    has_article: bool = False
    is_pronoun: bool = False
    is_definite: bool = True
    relative: Tokens = ()

    @property
    def german_full(self) -> Tokens:
        """The German words with the relative clause in its place."""
        return self.german + self.relative


class Pronoun(NamedTuple):
    """Nominative, accusative and dative; English subject and object; features."""

    forms: str
    english: str
    person: int = 3
    is_plural: bool = False
    english_person: int = 3
    gender: str = "m"


PEOPLE = (
    Pronoun("er ihn ihm", "he him"),
    Pronoun("ich mich mir", "I me", 1, False, 1),
    Pronoun("sie sie ihr", "she her", gender="f"),
    Pronoun("wir uns uns", "we us", 1, True, 1),
    Pronoun("sie sie ihnen", "they them", 3, True),
    Pronoun("du dich dir", "you you", 2, False, 2),
    Pronoun("ihr euch euch", "you you", 2, True, 2),
    Pronoun("Sie Sie Ihnen", "you you", 3, True, 2),
)
THINGS = (
    Pronoun("es es ihm", "it it", gender="n"),
    Pronoun("er ihn ihm", "it it"),
    Pronoun("sie sie ihr", "it it", gender="f"),
    Pronoun("sie sie ihnen", "they them", 3, True),
)
SOMEBODY = (
    Pronoun("jemand jemanden jemandem", "someone someone"),
    Pronoun("niemand niemanden niemandem", "no_one no_one"),
)
SOMETHING = (
    Pronoun("etwas etwas etwas", "something something", gender="n"),
    Pronoun("alles alles allem", "everything everything", gender="n"),
    Pronoun("nichts nichts nichts", "nothing nothing", gender="n"),
)
SPOUSES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("man",): ("husband",),
    ("woman",): ("wife",),
    ("men",): ("husbands",),
    ("women",): ("wives",),
}
CASES: tuple[Case, ...] = ("nom", "acc", "dat")


def make_pronoun(chooser: Chooser, pronoun: Pronoun, *, case: Case, is_subject: bool, is_personal: bool) -> NounPhrase:
    """Builds the phrase; `is_subject` is the role in English."""
    key = (chooser.key(),)
    german = pronoun.forms.split()[CASES.index(case)]
    english = pronoun.english.split()[0 if is_subject else 1]
    return NounPhrase(
        german=(Token(german, key),),
        english=tuple(Token(word, key) for word in english.split("_")),
        person=pronoun.person,
        is_plural=pronoun.is_plural,
        english_person=pronoun.english_person,
        is_english_plural=pronoun.is_plural,
        gender=pronoun.gender,
        is_pronoun=is_personal,
        is_definite=is_personal,
    )


def draw_pronoun(chooser: Chooser, *, case: Case, is_subject: bool, is_person: bool, avoid: int = 0) -> NounPhrase:
    """A personal pronoun that does not stand for the speaker (avoid=1) or the hearer (avoid=2)."""
    choices = PEOPLE if is_person else THINGS
    pronoun = chooser.zipf([item for item in choices if item.english_person != avoid or avoid == 3])
    return make_pronoun(chooser, pronoun, case=case, is_subject=is_subject, is_personal=True)


def draw_name(chooser: Chooser) -> NounPhrase:
    """The name of a person."""
    kind = "woman" if chooser.chance(0.5) else "man"
    german, english = place_phrase(chooser, chooser.phrase(kind))
    return NounPhrase(german, english, gender="f" if kind == "woman" else "m")


def draw_common(
    chooser: Chooser, name: str, *, case: Case, determiner: Determiner | None = None, is_plain: bool = False
) -> NounPhrase:
    """A noun with determiner and adjectives.

    Args:
        chooser: Makes the choices.
        name: Meaning class of the noun.
        case: Case in German.
        determiner: Drawn where it is None.
        is_plain: Leaves the adjectives out.
    """
    noun = chooser.noun(name)
    is_plural = noun.gender == "p" or (noun.plural is not None and chooser.chance(0.27))
    if determiner is None:
        determiner = draw_determiner(chooser, noun, name=name, is_plural=is_plural)
    elif not determiner.english:
        is_plural = True
    elif not determiner.plural_english:
        is_plural = False
    gender = "p" if is_plural else noun.gender
    many_english = is_plural or noun.is_english_plural
    key, article_key = (chooser.key(),), (chooser.key(),)
    german_words, english_words = draw_adjectives(
        chooser,
        adjective_class(chooser, noun, name=name),
        determiner=determiner,
        case=case,
        gender=gender,
        is_plain=is_plain,
    )
    words = noun.english_plural if many_english else noun.english
    if determiner.is_owner:
        words = SPOUSES.get(words, words)
    english = (*english_words, *(Token(word, key) for word in words))
    opening = determiner.plural_english if many_english else determiner.english
    if opening == ("a",):
        opening = (choose_article(english[0].text) if noun.plural else "any",)
    form = determiner.decline(case, gender)
    # Without an English counterpart (eine Brille, glasses) the German article belongs to the noun, loosely.
    first = Token(form, article_key) if opening else Token(form, (), key)
    return NounPhrase(
        german=(*((first,) if form else ()), *german_words, Token(decline_noun(noun, case, is_plural=is_plural), key)),
        english=(*(Token(word, article_key) for word in opening), *english),
        is_plural=is_plural,
        is_english_plural=many_english,
        gender=noun.gender,
        name=name,
        noun=noun,
        has_article=determiner is ARTICLE,
        is_definite=determiner.is_definite,
    )


def draw_noun_phrase(
    chooser: Chooser, classes: tuple[str, ...], *, case: Case, is_subject: bool = False, avoid: int = 0
) -> NounPhrase:
    """A noun phrase whose head is of one of the meaning classes.

    Args:
        chooser: Makes the choices.
        classes: Meaning classes, all alike.
        case: Case in German.
        is_subject: Whether it is the subject in English.
        avoid: Person that a pronoun must not have: that of the subject, for objects.
    """
    name = chooser.pick(classes)
    is_person = name == "person"
    weights = (0.34, 0.03, 0.2, 0.43) if is_person else (0.06, 0.02, 0.0, 0.92)
    kind = chooser.weigh(tuple(zip(("pronoun", "indefinite", "name", "noun"), weights, strict=True)))
    if kind == "pronoun" and name not in ("game", "language", "money"):
        return draw_pronoun(chooser, case=case, is_subject=is_subject, is_person=is_person, avoid=avoid)
    if kind == "indefinite" and (is_person or not is_subject):
        pronoun = chooser.zipf(SOMEBODY if is_person else SOMETHING)
        return make_pronoun(chooser, pronoun, case=case, is_subject=is_subject, is_personal=False)
    if kind == "name":
        return draw_name(chooser)
    return draw_common(chooser, name, case=case)


def draw_several(chooser: Chooser, *, case: Case) -> NounPhrase:
    """Two people: Anna und ihr Bruder."""
    members = []
    for chance in (0.6, 0.4):
        determiner = ARTICLE if chooser.chance(0.4) else chooser.zipf(POSSESSIVES)
        is_name = chooser.chance(chance)
        common = draw_common(chooser, "person", case=case, determiner=determiner, is_plain=True)
        members.append(draw_name(chooser) if is_name else common)
    return _join(chooser, members)


def _join(chooser: Chooser, members: list[NounPhrase]) -> NounPhrase:
    """Two phrases with "und" between them; the whole is plural."""
    first, second = members
    key = (chooser.key(),)
    return NounPhrase(
        german=(*first.german, Token("und", key), *second.german),
        english=(*first.english, Token("and", key), *second.english),
        is_plural=True,
        is_english_plural=True,
    )


def repeat_as_pronoun(chooser: Chooser, phrase: NounPhrase) -> NounPhrase | None:
    """The personal pronoun for a person that was named before; None where there is none that is clear."""
    wanted = (phrase.person, phrase.is_plural, phrase.english_person)
    for pronoun in PEOPLE:
        is_same = (pronoun.person, pronoun.is_plural, pronoun.english_person) == wanted
        if is_same and (phrase.is_plural or phrase.person != 3 or pronoun.gender == phrase.gender):
            return make_pronoun(chooser, pronoun, case="nom", is_subject=True, is_personal=True)
    return None
