"""Generated statements of who does what, how, with whom, where and when: what `generated_questions` asks about.

Nouns, verbs, names and their forms are the English ones of `generated_deen`. The sentences are grammatical; their
meaning is often odd.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from probattn.data.generated_deen.chooser import Chooser
from probattn.data.generated_deen.english import choose_article, inflect_english
from probattn.data.generated_deen.lexicon import Verb

__all__ = ["Statement", "draw_statement"]

TENSES = (("past", 6.0), ("future", 2.0), ("present", 1.0))
AMOUNTS = ("a lot of", "several", "many", "some")
NEAR = ("near", "behind", "in front of", "next to")


@dataclass(frozen=True)
class Statement:
    """What a sentence says, in English words; "" for what it does not say.

    Attributes:
        subject: Noun phrase in the third person singular.
        verb: Base form.
        tense: "past", "present" or "future".
        particle: What follows on the verb, e.g. "up" of pick up.
        thing: The object with its article or number.
        things: The object as one speaks of it again: "the red apples".
        counted: The object without its number, where it is counted: "red apples".
        is_person: Whether the object is a person.
        manner: An adverb.
        company: A noun phrase.
        place: With its preposition.
        time: With its preposition.
        is_time_first: Whether the time opens the sentence.
    """

    subject: str
    verb: str
    tense: str
    particle: str
    thing: str
    things: str
    counted: str = ""
    is_person: bool = False
    manner: str = ""
    company: str = ""
    place: str = ""
    time: str = ""
    is_time_first: bool = False

    def __str__(self) -> str:
        adjuncts = self.adjuncts()
        front = f"{adjuncts.pop('time')} , " if self.is_time_first else ""
        return f"{front}{self.subject} {self.clause(self.finite, thing=self.thing, adjuncts=adjuncts)} ."

    @property
    def finite(self) -> str:
        """The verb as it stands behind its subject."""
        if self.tense == "future":
            return f"will {self.verb}"
        return inflect_english(self.verb, "past" if self.tense == "past" else "present")

    @property
    def helper(self) -> str:
        """The auxiliary that opens a question."""
        return {"past": "did", "present": "does", "future": "will"}[self.tense]

    def adjuncts(self) -> dict[str, str]:
        """Name -> words of what is said behind subject, verb and object, in the order of a sentence."""
        company = f"with {self.company}" if self.company else ""
        found = {"manner": self.manner, "company": company, "place": self.place, "time": self.time}
        return {name: words for name, words in found.items() if words}

    def clause(self, verb: str, *, thing: str, adjuncts: Mapping[str, str]) -> str:
        """The words from the verb on."""
        return " ".join(part for part in (verb, self.particle, thing, *adjuncts.values()) if part)


def draw_statement(chooser: Chooser) -> Statement:
    """A statement of the grammar."""
    verbs = [verb for verb in chooser.lexicon.verbs["acc"] if "person" in verb.subjects and not verb.is_reflexive]
    verb = chooser.zipf(verbs)
    subject = _draw_person(chooser)
    tense = chooser.weigh(TENSES)
    thing, things, counted, is_person = _draw_object(chooser, verb)
    when = chooser.phrase("time-any" if chooser.chance(0.5) else f"time-{'now' if tense == 'present' else tense}")
    has = {part: chooser.chance(share) for part, share in (("manner", 0.2), ("company", 0.3), ("place", 0.6))}
    has_time = chooser.chance(0.7) or not any(has.values())
    place = f"in {_words(chooser.phrase('city').english)}"
    if chooser.chance(0.4):
        place = f"{chooser.pick(NEAR)} the {_words(chooser.noun('sight').english)}"
    return Statement(
        subject=subject,
        verb=verb.english,
        tense=tense,
        particle=" ".join(verb.particle),
        thing=thing,
        things=things,
        counted=counted,
        is_person=is_person,
        manner=_words(chooser.phrase("manner").english) if has["manner"] else "",
        company=_draw_person(chooser) if has["company"] else "",
        place=place if has["place"] else "",
        time=_words(when.english) if has_time else "",
        is_time_first=has_time and chooser.chance(0.25),
    )


def _draw_person(chooser: Chooser) -> str:
    if chooser.chance(0.4):
        return _words(chooser.phrase(chooser.pick(("woman", "man"))).english)
    nouns = [noun for noun in chooser.lexicon.nouns["person"] if not noun.is_english_plural]
    person = chooser.zipf(nouns)
    adjective = chooser.zipf(chooser.lexicon.adjectives["person"]).english if chooser.chance(0.3) else ""
    origin = f"from {_words(chooser.phrase('city').english)}" if chooser.chance(0.15) else ""
    return _words(("the", adjective, *person.english, origin))


def _draw_object(chooser: Chooser, verb: Verb) -> tuple[str, str, str, bool]:
    """The object as it is told, as it is spoken of again, what was counted, and whether it is a person."""
    name = chooser.pick([name for name in verb.objects if name in chooser.lexicon.nouns])
    noun = chooser.noun(name)
    kind = chooser.weigh((("one", 4.0), ("definite", 2.0), ("number", 3.0), ("amount", 1.0)))
    adjectives = chooser.lexicon.adjectives.get(name, ())
    adjective = chooser.zipf(adjectives).english if adjectives and chooser.chance(0.4) else ""
    one, several = _words((adjective, *noun.english)), _words((adjective, *noun.english_plural))
    is_person = "person" in noun.classes
    if name in ("language", "game"):
        return _words(noun.english), _words(noun.english), "", False
    if noun.is_english_plural or noun.plural is None:
        article = "some" if kind == "one" else "the"
        return f"{article} {one}", f"the {one}", "", is_person
    if kind == "one":
        return f"{choose_article(one)} {one}", f"the {one}", "", is_person
    if kind == "definite":
        return f"the {one}", f"the {one}", "", is_person
    amount = _words(chooser.phrase("number").english) if kind == "number" else chooser.pick(AMOUNTS)
    return f"{amount} {several}", f"the {several}", several if kind == "number" else "", is_person


def _words(words: tuple[str, ...]) -> str:
    return " ".join(word for word in words if word).lower()
