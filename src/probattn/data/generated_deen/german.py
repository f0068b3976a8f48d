"""German word forms: declension of articles, adjectives and nouns, conjugation.

The genitive is not used: the corpus says "Peters Auto" and leaves other genitives out.
"""

from functools import cache
from typing import Literal

from .lexicon import Noun, Verb

__all__ = [
    "CONTRACTIONS",
    "Case",
    "GermanForm",
    "Strength",
    "article",
    "conjugate",
    "decline_adjective",
    "decline_determiner",
    "decline_noun",
    "imperative",
    "modal_form",
]

Case = Literal["nom", "acc", "dat"]
GermanForm = Literal["present", "past", "participle", "infinitive"]
Strength = Literal["weak", "mixed", "strong"]

# Rows are cases; columns are masculine, feminine, neuter, plural.
COLUMNS = "mfnp"
ARTICLES = {"nom": "der die das die", "acc": "den die das die", "dat": "dem der dem den"}
ENDINGS: dict[str, dict[str, str]] = {
    "weak": {"nom": "e e e en", "acc": "en e e en", "dat": "en en en en"},
    "mixed": {"nom": "er e es en", "acc": "en e es en", "dat": "en en en en"},
    "strong": {"nom": "er e es e", "acc": "en e es e", "dat": "em er em en"},
    "ein": {"nom": "- e - e", "acc": "en e - e", "dat": "em er em en"},
}
CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("an", "das"): "ans",
    ("bei", "dem"): "beim",
    ("von", "dem"): "vom",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
}
INSEPARABLE = ("be", "emp", "ent", "er", "ge", "ver", "zer", "über", "unter", "umarm")
PRESENT_OF_SEIN = ("bin", "bist", "ist", "sind", "seid", "sind")
PRESENT_OF_WERDEN = ("werde", "wirst", "wird", "werden", "werdet", "werden")


def article(case: Case, gender: str) -> str:
    """The definite article; `gender` is "p" for the plural."""
    return ARTICLES[case].split()[COLUMNS.index(gender)]


def _ending(table: str, case: Case, *, gender: str) -> str:
    ending = ENDINGS[table][case].split()[COLUMNS.index(gender)]
    return "" if ending == "-" else ending


@cache
def decline_adjective(stem: str, strength: Strength, *, case: Case, gender: str) -> str:
    """The attributive form.

    Example:
        >>> decline_adjective("neu", "mixed", case="nom", gender="n")
        'neues'
    """
    return stem + _ending(strength, case, gender=gender)


@cache
def decline_determiner(stem: str, table: Literal["ein", "strong"], *, case: Case, gender: str) -> str:
    """ein-words (kein, mein) or der-words (dies-, jed-, welch-, viel-) by their table of endings."""
    ending = _ending(table, case, gender=gender)
    return ("eur" if stem == "euer" and ending else stem) + ending


def decline_noun(noun: Noun, case: Case, *, is_plural: bool) -> str:
    """The form in a case: -n in the dative plural, -n or -en in the singular of weak nouns.

    Raises:
        ValueError: The plural of a noun without one.
    """
    if is_plural:
        if noun.plural is None:
            raise ValueError(f"{noun.german} has no plural; ask `noun.plural` first")
        needs_n = case == "dat" and not noun.plural.endswith(("n", "s")) and noun.german != "Euro"
        return noun.plural + "n" if needs_n else noun.plural
    if not noun.is_weak or case == "nom":
        return noun.german
    return noun.german + ("n" if noun.german.endswith(("e", "er", "ar")) else "en")


@cache
def conjugate(verb: Verb, form: GermanForm, *, person: int = 3, is_plural: bool = False) -> str:
    """A form without the separable prefix.

    Example:
        >>> from probattn.data.generated_deen.lexicon import load_lexicon
        >>> give = load_lexicon().verbs["give"][0]
        >>> [conjugate(give, "present", person=person) for person in (1, 2, 3)]
        ['gebe', 'gibst', 'gibt']
    """
    if form == "infinitive":
        return verb.infinitive
    if form == "participle":
        return _participle(verb)
    index = person - 1 + 3 * is_plural
    if form == "present":
        return _present(verb)[index]
    return _past(verb)[index]


def imperative(verb: Verb, *, is_plural: bool) -> str:
    """The familiar command: gib, gebt; it has no separable prefix either."""
    if is_plural:
        return _present(verb)[4]
    stem = _stem(verb.infinitive)
    third = verb.parts[0] if verb.parts else ""
    if third and "e" in stem and third[: len(stem) - 1].count("i") > stem[:-1].count("i"):
        return third if stem.endswith("t") else third[:-1]  # e becomes i: gib, lies, nimm
    if verb.infinitive.endswith("eln"):
        return stem[:-2] + "le"
    is_soft = stem.endswith("s") and not stem.endswith("ss")  # reise, not reis
    return stem + "e" if _needs_e(stem) or is_soft or stem.endswith(("er", "ig")) else stem


@cache
def modal_form(infinitive: str, singular: str, *, person: int, is_plural: bool) -> str:
    """The present of a preterite-present verb (können, wissen): first and third person have no ending."""
    stem = _stem(infinitive)
    second = singular + ("t" if singular.endswith(("s", "ß")) else "st")
    return (singular, second, singular, infinitive, stem + "t", infinitive)[person - 1 + 3 * is_plural]


def _stem(infinitive: str) -> str:
    return infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]


def _needs_e(stem: str) -> bool:
    """Whether an e goes before -t and -st: arbeitet, öffnet, zeichnet, but lernt and wohnt."""
    if stem.endswith(("d", "t", "chn")):
        return True
    return stem.endswith(("m", "n")) and len(stem) > 2 and stem[-2] not in "aeiouäöülrhmn"


@cache
def _present(verb: Verb) -> tuple[str, ...]:
    if verb.infinitive == "sein":
        return PRESENT_OF_SEIN
    if verb.infinitive == "werden":
        return PRESENT_OF_WERDEN
    stem = _stem(verb.infinitive)
    e = "e" if _needs_e(stem) else ""
    third = verb.parts[0] if verb.parts else stem + e + "t"
    if not third.endswith("t"):
        forms = [modal_form(verb.infinitive, third, person=k % 3 + 1, is_plural=k > 2) for k in range(6)]
        return tuple(forms)
    if third == stem + e + "t":
        second = stem + ("t" if stem.endswith(("s", "ß", "z", "x")) else e + "st")
    elif stem.endswith("t"):
        second = third + "st"  # hält, hältst
    else:
        second = third[:-1] + ("t" if third[:-1].endswith(("s", "ß")) else "st")
    first = stem[:-2] + "le" if verb.infinitive.endswith("eln") else stem + "e"
    return first, second, third, verb.infinitive, stem + e + "t", verb.infinitive


@cache
def _past(verb: Verb) -> tuple[str, ...]:
    stem = _stem(verb.infinitive)
    past = verb.parts[1] if verb.parts else stem + ("ete" if _needs_e(stem) else "te")
    if past.endswith("e"):
        return past, past + "st", past, past + "n", past + "t", past + "n"
    e = "e" if past.endswith(("d", "t", "s", "ß")) else ""
    return past, past + e + "st", past, past + "en", past + e + "t", past + "en"


def _participle(verb: Verb) -> str:
    if verb.parts:
        return verb.parts[2]
    stem = _stem(verb.infinitive)
    has_ge = not verb.infinitive.startswith(INSEPARABLE) and not verb.infinitive.endswith("ieren")
    return ("ge" if has_ge else "") + stem + ("et" if _needs_e(stem) else "t")
