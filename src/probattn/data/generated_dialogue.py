"""Generated prompts and replies: the twin of `cornell_movie`, for demos and tests.

A prompt is a question or a statement about one of fourteen topics. Its reply is one of those that fit topic and kind of
sentence, or one that always fits ("i see ."): 30 % of the replies are of this dull sort, as in real dialogues. Replies
bring in words of their own, a name or a town, so what is said next cannot be known from the prompt. The sentences are
in `templates/dialogue.txt`, the nouns and names in `generated_deen`. Of the training split with seed 0, 20,000 pairs:

| | source | target |
|---|---|---|
| words, mean | 7.3 | 5.8 |
| words, least and most | 5, 13 | 2, 13 |
| word types | 581 | 740 |
| different sentences | 9,230 | 4,435 |

Both sides together have 821 word types. Names and things set aside, a prompt has 13.9 possible replies on average (9 to
17). All words of 1,000 test pairs occur in the training pairs. It takes about 6 seconds of one core. A reply fits its
topic, not always its prompt to the letter.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

from probattn.data.generated_deen.chooser import Chooser
from probattn.data.generated_deen.english import choose_article
from probattn.data.generated_deen.lexicon import Noun
from probattn.data.generated_examples import Example, Examples, Split, collect
from probattn.data.parallel import ParallelText

__all__ = ["GeneratedDialogue", "Topic", "read_topics"]

SHARE_GENERAL = 0.3
HOW = ("good", "strange", "terrible", "wonderful", "boring", "useful", "famous", "funny", "nice", "difficult")


@dataclass(frozen=True)
class Topic:
    """What can be said about something.

    Attributes:
        name: Of the topic.
        things: Meaning class of the nouns that it is about.
        prompts: (kind of sentence, template).
        replies: (kind of sentence that is replied to, template).
    """

    name: str
    things: str
    prompts: tuple[tuple[str, str], ...]
    replies: tuple[tuple[str, str], ...]

    def fitting(self, kind: str, prompt: str) -> tuple[str, ...]:
        """The templates of replies to a prompt; kind "w:who" fits questions that open with "who"."""
        kinds = (kind, f"{kind}:{prompt.split()[0]}")
        return tuple(template for of, template in self.replies if of in kinds)


@dataclass(frozen=True)
class GeneratedDialogue:
    """Prompts and replies without end. The split of a prompt depends on its words alone, not on the seed.

    Attributes:
        seed: Which pairs are drawn.

    Example:
        >>> text = GeneratedDialogue(seed=0).pairs("train", 4)
        >>> len(text), text.target[0][-1] in ".?!"
        (4, True)
    """

    seed: int = 0

    def pairs(self, split: Split, size: int) -> ParallelText:
        """The first `size` pairs of a split; the first n of a longer text are the text of n.

        Args:
            split: "train", "valid" or "test".
            size: How many pairs; no two are the same.

        Raises:
            ValueError: An unknown split, or a size below 1.
        """
        return self.examples(split, size).text

    def examples(self, split: Split, size: int) -> Examples:
        """The same pairs with all replies that would have been right, names and things as in the one that was drawn."""
        return collect(self._candidates(), split, size=size, name="generated dialogue")

    def _candidates(self) -> Iterator[Example]:
        """Every prompt with one reply, of all splits."""
        number = -1
        while True:
            number += 1
            yield _draw(Chooser(f"dialogue/{self.seed}/{number}"))


@cache
def read_topics() -> tuple[Topic, ...]:
    """The topics of `templates/dialogue.txt`, the one that always fits first."""
    text = resources.files("probattn.data").joinpath("templates/dialogue.txt").read_text(encoding="utf-8")
    topics: list[Topic] = []
    for block in text.split("\n[")[1:]:
        head, *lines = [line for line in block.split("\n") if line and not line.startswith("#")]
        name, things = head.rstrip("]").split()
        rows = [line.split(" ", 2) for line in lines]
        prompts = tuple((kind, template) for what, kind, template in rows if what == "p")
        replies = tuple((kind, template) for what, kind, template in rows if what == "r")
        topics.append(Topic(name, things, prompts, replies))
    return tuple(topics)


def _draw(chooser: Chooser) -> Example:
    general, *topics = read_topics()
    topic = chooser.pick(topics)
    kind, prompt = chooser.pick(topic.prompts)
    thing, other = _draw_noun(chooser, topic), _draw_noun(chooser, topic)
    slots = {
        "a": _indefinite(thing),
        "the": f"the {_text(thing.english)}",
        "one": _text(thing.english),
        "many": _text(thing.english_plural),
        "other": _indefinite(other),
        "how": chooser.pick(HOW),
        "person": _draw_person(chooser),
        "friend": _draw_person(chooser),
        "city": _text(chooser.phrase("city").english),
        "town": _text(chooser.phrase("city").english),
        "time": _text(chooser.phrase("time-any").english),
        "when": _text(chooser.phrase("time-any").english),
    }
    source = prompt.format(**slots)
    fitting, always = topic.fitting(kind, prompt), general.fitting(kind, prompt)
    reply = chooser.pick(always if chooser.chance(SHARE_GENERAL) or not fitting else fitting)
    references = tuple(template.format(**slots) for template in (*fitting, *always))
    return source, reply.format(**slots), references


def _draw_noun(chooser: Chooser, topic: Topic) -> Noun:
    """A noun of the topic's class that has a singular, if possible one that was not drawn yet."""
    noun = chooser.noun(topic.things)
    while noun.is_english_plural:
        noun = chooser.noun(topic.things)
    return noun


def _draw_person(chooser: Chooser) -> str:
    if chooser.chance(0.6):
        return _text(chooser.phrase(chooser.pick(("woman", "man"))).english)
    person = chooser.noun("person")
    return f"{chooser.pick(('my', 'the'))} {_text(person.english)}" if not person.is_english_plural else "somebody"


def _indefinite(noun: Noun) -> str:
    words = _text(noun.english)
    return f"some {words}" if noun.plural is None else f"{choose_article(words)} {words}"


def _text(words: tuple[str, ...]) -> str:
    return " ".join(words).lower()
