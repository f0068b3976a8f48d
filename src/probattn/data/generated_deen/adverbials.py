"""Adverbials and prepositional phrases: time, place, manner, frequency, comments."""

from .chooser import Chooser
from .clauses import Middle, Part, Slot
from .german import CONTRACTIONS, Case, decline_noun
from .lexicon import Phrase
from .noun_phrases import NounPhrase, draw_common, draw_noun_phrase
from .tokens import Token, Tokens, place_phrase

__all__ = [
    "draw_comment",
    "draw_company",
    "draw_goal",
    "draw_manner",
    "draw_often",
    "draw_place",
    "draw_time",
    "govern",
    "make_part",
    "place_words",
]

# Meaning class of the noun -> German and English preposition of rest; German one, its case and English one of motion.
PLACES: dict[str, tuple[str, str, str, Case, str]] = {
    "surface": ("auf", "on", "auf", "acc", "onto"),
    "box": ("in", "in", "in", "acc", "into"),
    "building": ("in", "in", "in", "acc", "to"),
    "nature": ("in", "in", "in", "acc", "into"),
    "edge": ("an", "at", "zu", "dat", "to"),
    "square": ("auf", "at", "auf", "acc", "to"),
    "office": ("bei", "at", "zu", "dat", "to"),
    "person": ("bei", "with", "zu", "dat", "to"),
}
ANYWHERE = ("building", "nature", "building", "edge", "square", "city", "city", "spot")
SENTENCE_START = ("unfortunately", "luckily", "surprisingly", "hopefully", "of")  # set off by a comma


def govern(
    chooser: Chooser, preposition: str, *, phrase: NounPhrase, english: tuple[str, ...]
) -> tuple[Tokens, Tokens]:
    """Puts a preposition before the phrase in both languages; im, zum and the like absorb the article."""
    key = chooser.key()
    words = tuple(Token(word, (key,)) for word in english)
    first, *others = phrase.german
    contracted = CONTRACTIONS.get((preposition, first.text))
    if phrase.has_article and contracted is not None and not phrase.relative:
        german: Tokens = (Token(contracted, (key, *first.sure), first.possible), *others)
    else:
        german = (Token(preposition, (key,)), *phrase.german)
    return german + phrase.relative, words + phrase.english


def make_part(chooser: Chooser, phrase: Phrase, *, middle: Middle, slot: Slot, is_frontable: bool = False) -> Part:
    """A part from a phrase that does not inflect."""
    german, english = place_phrase(chooser, phrase)
    return Part(german, english, middle, slot, is_frontable)


def draw_time(chooser: Chooser, period: str) -> Part:
    """A time in the past, now or in the future; "any" fits all of them."""
    kind = chooser.weigh((("fixed", 0.72), ("count", 0.14 if period != "now" else 0.0), ("clock", 0.14)))
    if kind == "count":
        return _draw_distance(chooser, is_past=period == "past")
    if kind == "clock":
        phrase = chooser.zipf([item for item in chooser.lexicon.phrases["number"] if item.german[0] in HOURS])
        german, english = place_phrase(chooser, phrase)
        at, clock = (chooser.key(),), (chooser.key(),)
        german = (Token("um", at), *german, Token("Uhr", clock))
        return Part(german, (Token("at", at), *english, Token("o'clock", clock)), Middle.TIME, Slot.TIME, True)
    group = "any" if chooser.chance(0.4) else period
    phrase = chooser.phrase(f"time-{group}")
    return make_part(chooser, phrase, middle=Middle.TIME, slot=Slot.TIME, is_frontable=True)


HOURS = ("zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf")


def _draw_distance(chooser: Chooser, *, is_past: bool) -> Part:
    """Three days ago, vor drei Tagen; in two weeks, in zwei Wochen."""
    german, english = place_phrase(chooser, chooser.zipf(chooser.lexicon.phrases["number"]))
    unit = chooser.zipf(chooser.lexicon.nouns["time"])
    key, outer = (chooser.key(),), (chooser.key(),)
    german = (Token("vor" if is_past else "in", outer), *german, Token(decline_noun(unit, "dat", is_plural=True), key))
    english = (*english, *(Token(word, key) for word in unit.english_plural))
    english = (*english, Token("ago", outer)) if is_past else (Token("in", outer), *english)
    return Part(german, english, Middle.TIME, Slot.TIME, True)


def draw_often(chooser: Chooser) -> Part:
    """How often: before the English verb."""
    return make_part(chooser, chooser.phrase("often"), middle=Middle.OFTEN, slot=Slot.MIDDLE)


def draw_manner(chooser: Chooser) -> Part:
    """How."""
    return make_part(chooser, chooser.phrase("manner"), middle=Middle.MANNER, slot=Slot.MANNER)


def draw_comment(chooser: Chooser, *, may_go_inside: bool) -> Part:
    """What the speaker makes of it; English puts it first, some also before the verb."""
    phrase = chooser.phrase("comment")
    german, english = place_phrase(chooser, phrase)
    word = phrase.english[0]
    slot = Slot.MIDDLE if may_go_inside and word not in (*SENTENCE_START, "perhaps") else Slot.FRONT
    if word in SENTENCE_START:
        english = (*english, Token(","))
    return Part(german, english, Middle.COMMENT, slot, True)


def draw_company(chooser: Chooser, *, is_travel: bool) -> Part:
    """With somebody, without something, or by bus."""
    german: Tokens
    english: Tokens
    if is_travel and chooser.chance(0.5):
        phrase = draw_common(chooser, "public", case="dat", is_plain=True)
        while phrase.is_plural or not phrase.has_article or phrase.noun is None:
            phrase = draw_common(chooser, "public", case="dat", is_plain=True)
        key = (chooser.key(),)
        noun = phrase.german[-1]
        german = (Token("mit", key), phrase.german[0]._replace(sure=(), possible=noun.sure), noun)
        english = (Token("by", key), *(Token(word, noun.sure) for word in phrase.noun.english))
    elif chooser.chance(0.75):
        phrase = draw_noun_phrase(chooser, ("person",), case="dat", avoid=3)
        german, english = govern(chooser, "mit", phrase=phrase, english=("with",))
    else:
        phrase = draw_common(chooser, chooser.pick(("thing", "clothes", "person")), case="acc", is_plain=True)
        german, english = govern(chooser, "ohne", phrase=phrase, english=("without",))
    return Part(german, english, Middle.MANNER, Slot.MANNER)


def place_words(chooser: Chooser, classes: tuple[str, ...], *, is_goal: bool) -> tuple[Tokens, Tokens]:
    """Where or where to, in both languages."""
    name = chooser.pick(classes)
    if name == "city":
        key = (chooser.key(),)
        german, english = place_phrase(chooser, chooser.phrase("city"))
        first, second = ("nach", "to") if is_goal else ("in", "in")
        return (Token(first, key), *german), (Token(second, key), *english)
    if name in ("spot", "way"):
        return place_phrase(chooser, chooser.phrase(name))
    noun_class = name if name in PLACES else ""
    case: Case = "dat"
    if not noun_class:
        noun_class = next(item for item in chooser.lexicon.nouns[name][0].classes if item in PLACES)
    rest, rest_english, motion, motion_case, motion_english = PLACES[noun_class]
    if is_goal:
        rest, case, rest_english = motion, motion_case, motion_english
    phrase = (
        draw_noun_phrase(chooser, (name,), case=case) if name == "person" else draw_common(chooser, name, case=case)
    )
    return govern(chooser, rest, phrase=phrase, english=(rest_english,))


def draw_place(chooser: Chooser, classes: tuple[str, ...] = ANYWHERE) -> Part:
    """Where something is or happens."""
    german, english = place_words(chooser, classes, is_goal=False)
    return Part(german, english, Middle.PLACE, Slot.PLACE, True)


def draw_goal(chooser: Chooser, classes: tuple[str, ...]) -> Part:
    """Where something goes."""
    german, english = place_words(chooser, classes, is_goal=True)
    return Part(german, english, Middle.PLACE, Slot.PLACE)
