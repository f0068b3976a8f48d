"""English word forms: plural, conjugation, the indefinite article.

Spelling is British. Irregular verbs are in `words/english_verbs.txt`; irregular plurals are with their nouns.
"""

import re
from functools import cache
from typing import Literal

from .tables import read_rows

__all__ = ["EnglishForm", "choose_article", "inflect_english", "pluralise"]

EnglishForm = Literal["base", "present", "past", "participle", "ing"]

FINAL_STRESS = ("admit", "begin", "forget", "travel")  # longer verbs that double the last letter all the same
CONSONANT_SOUND = ("uni", "use", "euro", "one")  # written with a vowel, but "a university"
VOWEL_SOUND = ("honest", "hour")  # written with a consonant, but "an hour"
PRESENT_OF_BE = {(1, False): "am", (3, False): "is"}
IRREGULAR_PRESENT = {"have": "has", "do": "does"}
UNCHANGED = {"can": "could", "may": "might", "should": "should", "will": "would", "would": "would"}


def pluralise(noun: str) -> str:
    """The regular plural.

    Example:
        >>> [pluralise(noun) for noun in ("car", "box", "city", "key")]
        ['cars', 'boxes', 'cities', 'keys']
    """
    if re.search(r"(s|x|z|ch|sh)$", noun):
        return noun + "es"
    if re.search(r"[^aeiou]y$", noun):
        return noun[:-1] + "ies"
    return noun + "s"


def choose_article(word: str) -> str:
    """The indefinite article before `word`: "a" or "an"."""
    first = word.lower()
    if first.startswith(VOWEL_SOUND):
        return "an"
    return "an" if first[0] in "aeiou" and not first.startswith(CONSONANT_SOUND) else "a"


@cache
def inflect_english(verb: str, form: EnglishForm, *, person: int = 3, is_plural: bool = False) -> str:
    """A form of an English verb.

    Args:
        verb: Base form; also an auxiliary such as "can".
        form: Which form.
        person: 1, 2 or 3; matters in the present, and for "be" in the past.
        is_plural: The subject's number.

    Example:
        >>> inflect_english("carry", "present"), inflect_english("stop", "past"), inflect_english("lie", "ing")
        ('carries', 'stopped', 'lying')
    """
    if verb in UNCHANGED:
        return UNCHANGED[verb] if form == "past" else verb
    if form == "present":
        return _present(verb, person, is_plural=is_plural)
    if form == "past":
        return _past(verb, person, is_plural=is_plural)
    if form == "participle":
        return _irregular()[verb][1] if verb in _irregular() else _past(verb, person, is_plural=is_plural)
    if form == "ing":
        return _ing(verb)
    return verb


@cache
def _irregular() -> dict[str, tuple[str, str]]:
    return {base: (past, participle) for base, past, participle in read_rows("english_verbs.txt")}


def _present(verb: str, person: int, *, is_plural: bool) -> str:
    if verb == "be":
        return PRESENT_OF_BE.get((person, is_plural), "are")
    if person != 3 or is_plural:
        return verb
    if verb in IRREGULAR_PRESENT:
        return IRREGULAR_PRESENT[verb]
    return verb + "es" if verb.endswith("o") else pluralise(verb)


def _past(verb: str, person: int, *, is_plural: bool) -> str:
    if verb == "be":
        return "were" if is_plural or person == 2 else "was"
    if verb in _irregular():
        return _irregular()[verb][0]
    if verb.endswith("e"):
        return verb + "d"
    if re.search(r"[^aeiou]y$", verb):
        return verb[:-1] + "ied"
    return _double_last(verb) + "ed"


def _ing(verb: str) -> str:
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e") and not verb.endswith("ee") and verb != "be":
        return verb[:-1] + "ing"
    return _double_last(verb) + "ing"


def _double_last(verb: str) -> str:
    """Doubles the last letter of stressed syllables with a short vowel: stop, stopp-."""
    is_short = re.fullmatch(r"[^aeiou]*[aeiou][^aeiouwxy]", verb) is not None
    return verb + verb[-1] if is_short or verb in FINAL_STRESS else verb
