"""Which split a sentence belongs to, decided by the sentence alone.

Every inflected form of a content word belongs to a family: the forms of all words, of both languages, that translate
each other directly or in a chain. The split of a sentence is a hash of the set of families in it. A sentence and its
translation have the same families, and so have all sentences that differ only in word order, tense, number, function
words or synonyms; they go to the same split. Because each side's split depends on its own words only, no two splits can
share a source sentence or a target sentence, whatever the grammar does.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import blake2b
from itertools import chain, product
from typing import Literal

from .english import inflect_english
from .german import COLUMNS, conjugate, decline_adjective, decline_noun, imperative
from .lexicon import Adjective, Noun, Verb, load_lexicon
from .noun_phrases import SPOUSES
from .predicates import LOOK

__all__ = ["SPLITS", "Language", "Split", "families", "split_of"]

Split = Literal["train", "valid", "test"]
Language = Literal["de", "en"]
Entry = tuple[set[str], set[str]]

SPLITS: tuple[Split, ...] = ("train", "valid", "test")
SHARES: tuple[Split, ...] = ("train", "train", "train", "valid", "test")  # hash modulo 5

# Forms that are auxiliaries as well, or that both languages say with function words: no families.
GRAMMATICAL = ("haben", "sein", "werden")
GRAMMATICAL_ENGLISH = ("be", "have", "do", "become")
# Function words that look like content words in the other language's sentence.
CHANCE_PAIRS = (
    ("Uhr", "o'clock"),
    ("gerade", "right"),
    ("Frau", "Mrs"),
    ("kurzem", "recently"),
    ("natürlich", "course"),
    ("möchte möchtest möchten möchtet", "like"),
    ("gibt geben gab gegeben dort dorthin", "there"),
)


def split_of(words: Sequence[str], language: Language) -> Split:
    """The split of a sentence, from its words alone.

    Args:
        words: The sentence as tokens.
        language: Which language it is in.
    """
    text = " ".join(sorted(families(words, language)))
    digest = blake2b(text.encode(), digest_size=4).digest()
    return SHARES[int.from_bytes(digest, "big") % len(SHARES)]


def families(words: Sequence[str], language: Language) -> set[str]:
    """Names of the families in a sentence; each family is named after one of its forms.

    Example:
        >>> families("Die Bäume blühen .".split(), "de") == families("The tree bloomed .".split(), "en")
        True
    """
    table, compounds = _tables()[language], _compounds()[language]
    first = words[0] if words else ""
    if first not in table and first not in compounds:
        first = first[:1].lower() + first[1:]  # it has its capital from the start of the sentence
    words = (first, *words[1:])
    found: set[str] = set()
    position = 0
    while position < len(words):
        size, name = 1, table.get(words[position])
        for several in compounds.get(words[position], ()):
            if words[position : position + len(several)] == several:
                size, name = len(several), table[" ".join(several)]
                break
        if name is not None:
            found.add(name)
        position += size
    return found


@cache
def _compounds() -> dict[Language, dict[str, list[tuple[str, ...]]]]:
    """First word -> entries of several words that start with it, the longest first."""
    starts: dict[Language, dict[str, list[tuple[str, ...]]]] = {"de": {}, "en": {}}
    for language, table in _tables().items():
        for several in sorted((tuple(form.split()) for form in table if " " in form), key=lambda item: -len(item)):
            starts[language].setdefault(several[0], []).append(several)
    return starts


@cache
def _tables() -> dict[Language, dict[str, str]]:
    """Form -> family, for each language: the connected components of "is a translation of"."""
    parent: dict[str, str] = {}

    def find(item: str) -> str:
        while parent.setdefault(item, item) != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    for german, english in _entries():
        items = [*(f"de:{form}" for form in sorted(german)), *(f"en:{form}" for form in sorted(english))]
        for item in items:
            first, other = sorted((find(items[0]), find(item)))
            parent[other] = first
    tables: dict[Language, dict[str, str]] = {"de": {}, "en": {}}
    for item in parent:
        language, _, form = item.partition(":")
        tables["de" if language == "de" else "en"][form] = find(item)
    return tables


def _entries() -> Iterator[Entry]:
    lexicon = load_lexicon()
    nouns = [noun for group in lexicon.nouns.values() for noun in group if "time" not in noun.classes]
    entries = [(_german_nouns(noun), _english_nouns(noun)) for noun in nouns]
    adjectives = [adjective for group in lexicon.adjectives.values() for adjective in group]
    entries.extend((_german_adjectives(adjective), _english_adjectives(adjective)) for adjective in adjectives)
    verbs = [LOOK, *(verb for group in lexicon.verbs.values() for verb in group)]
    verbs = [verb for verb in verbs if verb.infinitive not in GRAMMATICAL]
    entries.extend((_german_verbs(verb), _english_verbs(verb)) for verb in verbs if _english_verbs(verb))
    for kind in ("woman", "man", "city", "manner"):
        for phrase in lexicon.phrases[kind]:
            if len(phrase.english) == len(phrase.german):
                name = phrase.german[-1]
                entries.append(({name, name + "s"} if kind in ("woman", "man") else {name}, {phrase.english[-1]}))
    # A particle may be a word of another entry: watch television, fall in love.
    known = {form for _, english in entries for form in english}
    particles = ((_german_verbs(verb), {word}) for verb in verbs for word in verb.particle if word in known)
    chance = ((set(german.split()), {form}) for german, form in CHANCE_PAIRS)
    return chain(entries, particles, chance)


def _german_nouns(noun: Noun) -> set[str]:
    forms = {decline_noun(noun, case, is_plural=False) for case in ("nom", "acc", "dat")}
    if noun.plural is not None:
        forms |= {decline_noun(noun, case, is_plural=True) for case in ("nom", "dat")}
    return forms


def _english_nouns(noun: Noun) -> set[str]:
    forms = {noun.english, noun.english_plural}
    forms |= {SPOUSES[form] for form in forms if form in SPOUSES}
    return {" ".join(form) for form in forms}


def _german_adjectives(adjective: Adjective) -> set[str]:
    forms = {
        decline_adjective(adjective.stem, strength, case=case, gender=gender)
        for strength, case, gender in product(("weak", "mixed", "strong"), ("nom", "acc", "dat"), COLUMNS)
    }
    return forms | {adjective.german} | ({adjective.comparative} if adjective.comparative else set())


def _english_adjectives(adjective: Adjective) -> set[str]:
    longer = adjective.english_comparative or ""
    return {adjective.english} | ({longer} if longer and not longer.startswith("more_") else set())


def _german_verbs(verb: Verb) -> set[str]:
    finite = {
        conjugate(verb, form, person=person, is_plural=is_plural)
        for form, person, is_plural in product(("present", "past"), (1, 2, 3), (False, True))
    }
    finite |= {imperative(verb, is_plural=False), conjugate(verb, "participle"), verb.infinitive}
    return finite | {verb.prefix + form for form in finite} | {f"{verb.prefix}zu{verb.infinitive}"}


def _english_verbs(verb: Verb) -> set[str]:
    if verb.english == "be":
        return set(verb.particle)
    if verb.english in GRAMMATICAL_ENGLISH:
        return set()
    return {inflect_english(verb.english, form) for form in ("base", "present", "past", "participle", "ing")}
