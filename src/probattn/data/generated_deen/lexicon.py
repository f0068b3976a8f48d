"""The words of the generated corpus: records, and how they are read from the tables in `words/`.

The tables hold what cannot be computed (gender, plural, principal parts, translations, meanings); `german.py` and
`english.py` inflect. Every table says in its head what its columns mean. Words of one meaning class are stored in the
order of their rank, because the corpus draws them by Zipf's law.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

from .english import pluralise
from .tables import read_rows

__all__ = ["Adjective", "Lexicon", "Noun", "Phrase", "Verb", "load_lexicon"]

Key = TypeVar("Key")
Value = TypeVar("Value")

SOLID = ("thing", "clothes", "furniture", "vehicle", "device", "opening", "box", "tool", "toy", "instrument")


@dataclass(frozen=True, eq=False)
class Noun:
    """One meaning of a German noun.

    Attributes:
        german: Nominative singular, or plural where there is no singular.
        plural: Nominative plural, None where there is none.
        gender: "m", "f" or "n"; "p" where there is no singular.
        is_weak: Whether all forms but the nominative singular end in -n or -en (der Junge, den Jungen).
        classes: Meaning classes; verbs, adjectives and prepositions choose by them.
        english: Singular, as words.
        english_plural: Plural, as words.
        is_english_plural: Whether English uses the plural only (die Brille, the glasses).
    """

    german: str
    plural: str | None
    gender: str
    is_weak: bool
    classes: tuple[str, ...]
    english: tuple[str, ...]
    english_plural: tuple[str, ...]
    is_english_plural: bool


@dataclass(frozen=True, eq=False)
class Verb:
    """One meaning of a German verb.

    Attributes:
        infinitive: Without the separable prefix.
        prefix: Separable prefix, or "".
        is_reflexive: Whether it takes sich.
        auxiliary: "haben" or "sein", the auxiliary of the perfect.
        parts: Third person singular, past and participle without the separable prefix; None for weak verbs.
        english: Base form of the English verb.
        particle: English words after the verb.
        is_particle_movable: Whether they may follow the object (switch it on).
        frame: Which complements it takes, see `words/verbs.txt`.
        preposition: German preposition of the complement, or "".
        case: Case after that preposition, or "".
        english_preposition: English counterpart, as words.
        subjects: Meaning classes of the subject.
        objects: Meaning classes of the object.
    """

    infinitive: str
    prefix: str
    is_reflexive: bool
    auxiliary: str
    parts: tuple[str, str, str] | None
    english: str
    particle: tuple[str, ...]
    is_particle_movable: bool
    frame: str
    preposition: str
    case: str
    english_preposition: tuple[str, ...]
    subjects: tuple[str, ...]
    objects: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Adjective:
    """One meaning of a German adjective; `stem` takes the endings, comparatives are None where there are none."""

    german: str
    stem: str
    comparative: str | None
    english: str
    english_comparative: str | None
    classes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Phrase:
    """A phrase that does not inflect, with the links (German word, English word) between its words."""

    german: tuple[str, ...]
    english: tuple[str, ...]
    links: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Lexicon:
    """All words, by what the grammar asks for.

    Attributes:
        nouns: By meaning class.
        verbs: By frame.
        adjectives: By the meaning class of the nouns they go with.
        phrases: By kind.
        verbs_of_object: (frame, class) -> verbs that take an object of that class.
        verbs_of_subject: (frame, class) -> verbs that take a subject of that class.
    """

    nouns: Mapping[str, tuple[Noun, ...]]
    verbs: Mapping[str, tuple[Verb, ...]]
    adjectives: Mapping[str, tuple[Adjective, ...]]
    phrases: Mapping[str, tuple[Phrase, ...]]
    verbs_of_object: Mapping[tuple[str, str], tuple[Verb, ...]]
    verbs_of_subject: Mapping[tuple[str, str], tuple[Verb, ...]]


@cache
def load_lexicon() -> Lexicon:
    """Reads the tables once."""
    nouns = list(_read_nouns())
    nouns.extend(_read_compounds(nouns))
    verbs = list(_read_verbs())
    phrases: defaultdict[str, list[Phrase]] = defaultdict(list)
    for kind, german, english, *links in read_rows("phrases.txt"):
        phrases[kind].append(_make_phrase(german, english, links=links))
    return Lexicon(
        nouns=_group((name, noun) for noun in nouns for name in noun.classes),
        verbs=_group((verb.frame, verb) for verb in verbs),
        adjectives=_group((name, adjective) for adjective in _read_adjectives() for name in adjective.classes),
        phrases={kind: tuple(members) for kind, members in phrases.items()},
        verbs_of_object=_group(((verb.frame, name), verb) for verb in verbs for name in verb.objects),
        verbs_of_subject=_group(((verb.frame, name), verb) for verb in verbs for name in verb.subjects),
    )


def _group(pairs: Iterator[tuple[Key, Value]]) -> dict[Key, tuple[Value, ...]]:
    groups: defaultdict[Key, list[Value]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return {key: tuple(values) for key, values in groups.items()}


def _read_nouns() -> Iterator[Noun]:
    for german, gender, plural, classes, english, *irregular in read_rows("nouns.txt"):
        is_english_plural = irregular == ["="] or gender == "p"
        singular = tuple(english.split("_"))
        if is_english_plural:
            several = singular
        elif irregular:
            several = tuple(irregular[0].split("_"))
        else:
            several = (*singular[:-1], pluralise(singular[-1]))
        yield Noun(
            german=german,
            plural=None if plural == "-" else plural,
            gender="m" if gender == "w" else gender,
            is_weak=gender == "w",
            classes=tuple(classes.split(",")),
            english=singular,
            english_plural=several,
            is_english_plural=is_english_plural,
        )


def _read_compounds(nouns: list[Noun]) -> Iterator[Noun]:
    """Joins first parts and heads: Apfel- and Baum give Apfelbaum, apple tree."""
    for first, english, *heads in read_rows("compounds.txt"):
        words = tuple(english.split("_"))
        for name in heads:
            german, _, sense = name.partition("=")
            matches = [noun for noun in nouns if noun.german == german and sense in ("", "_".join(noun.english))]
            if not matches:
                raise ValueError(f"words/compounds.txt wants nouns of words/nouns.txt, got {name!r}; add it there")
            head = matches[0]
            yield replace(
                head,
                german=first + head.german.lower(),
                plural=None if head.plural is None else first + head.plural.lower(),
                english=words + head.english,
                english_plural=words + head.english_plural,
            )


def _read_verbs() -> Iterator[Verb]:
    parts = {
        infinitive: (third, past, participle) for infinitive, third, past, participle in read_rows("german_verbs.txt")
    }
    for german, auxiliary, english, frame, subjects, objects in read_rows("verbs.txt"):
        is_reflexive = german.startswith("sich_")
        prefix, _, infinitive = german.removeprefix("sich_").rpartition("|")
        kind, _, preposition = frame.partition(":")
        if kind == "give":
            government, case, english_preposition = "", "", preposition
        else:
            government, _, english_preposition = preposition.partition(":")
            government, _, case = government.partition("+")
        base, *particle = english.replace("+", "_").split("_")
        yield Verb(
            infinitive=infinitive,
            prefix=prefix,
            is_reflexive=is_reflexive,
            auxiliary="sein" if auxiliary == "s" else "haben",
            parts=None if auxiliary == "hw" else parts.get(infinitive),
            english=base,
            particle=tuple(particle),
            is_particle_movable="+" in english,
            frame=kind,
            preposition=government,
            case=case,
            english_preposition=tuple(word for word in english_preposition.split("_") if word not in ("", "-")),
            subjects=() if subjects == "-" else tuple(subjects.split(",")),
            objects=() if objects == "-" else tuple(objects.split(",")),
        )


def _read_adjectives() -> Iterator[Adjective]:
    for german, comparative, english, english_comparative, classes in read_rows("adjectives.txt"):
        word, _, stem = german.partition("/")
        names = [name for item in classes.split(",") for name in (SOLID if item == "*" else (item,))]
        is_compared = comparative != "-"
        longer = f"more_{english}" if english_comparative == "-" else english_comparative
        yield Adjective(
            german=word,
            stem=stem or word.removesuffix("e"),  # müde, ein müder Mann
            comparative=comparative if is_compared else None,
            english=english,
            english_comparative=longer if is_compared else None,
            classes=tuple(dict.fromkeys(names)),
        )


def _make_phrase(german: str, english: str, *, links: list[str]) -> Phrase:
    source, target = tuple(german.split("_")), tuple(english.split("_"))
    pairs = tuple((i, j) for i in range(len(source)) for j in range(len(target)))
    if links:
        numbers = [link.split("-") for link in links[0].split(",")]
        pairs = tuple((int(i), int(j)) for i, j in numbers)
    return Phrase(source, target, pairs)
