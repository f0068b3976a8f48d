"""Sentences, or pairs of them, with a class or a score: the tasks of GLUE, and a generated one.

The generated task stands in for a paraphrase corpus. A first sentence comes from a small grammar; the second says the
same with other words, denies it, or speaks of another thing. Some words have a twin that means the same, so counting
shared words is not enough, and a share of the labels is wrong on purpose.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

__all__ = ["VOCABULARY", "SentenceTask", "Sentences", "corrupted", "generated_task", "held_out"]


@dataclass(frozen=True)
class Sentences:
    """One split of a task.

    Attributes:
        first: (N) sentences.
        second: (N) their partners; None where the task is about single sentences.
        targets: (N) numbers of classes, or scores.
    """

    first: tuple[str, ...]
    second: tuple[str, ...] | None
    targets: tuple[float, ...]

    def __post_init__(self) -> None:
        sizes = {len(self.first), len(self.targets), len(self.first if self.second is None else self.second)}
        if sizes == {0} or len(sizes) != 1:
            raise ValueError(f"expected as many sentences as targets and at least one, got sizes {sorted(sizes)}")

    def __len__(self) -> int:
        return len(self.first)

    def pick(self, places: Sequence[int]) -> "Sentences":
        """Those at these places."""
        second = None if self.second is None else tuple(self.second[place] for place in places)
        return Sentences(
            tuple(self.first[place] for place in places), second, tuple(self.targets[place] for place in places)
        )


@dataclass(frozen=True)
class SentenceTask:
    """A task with its splits.

    Attributes:
        name: For messages and tables.
        num_classes: C; 1 where targets are scores.
        metric: The number that the task is judged by: "accuracy", "matthews" or "pearson".
        train: What is learnt from.
        valid: For choices and temperatures.
        test: What is reported.
    """

    name: str
    num_classes: int
    metric: str
    train: Sentences
    valid: Sentences
    test: Sentences

    @property
    def is_score(self) -> bool:
        """Whether targets are scores and not classes."""
        return self.num_classes == 1


def held_out(sentences: Sentences, count: int, *, seed: int = 0) -> tuple[Sentences, Sentences]:
    """The rest, and `count` random examples, each in the order they had.

    Raises:
        ValueError: If nothing would be left of one of them.
    """
    if not 0 < count < len(sentences):
        raise ValueError(f"of {len(sentences)} examples 1 to {len(sentences) - 1} can be held out, got {count}")
    chosen = set(random.Random(seed).sample(range(len(sentences)), count))
    places = range(len(sentences))
    return sentences.pick([i for i in places if i not in chosen]), sentences.pick([i for i in places if i in chosen])


def corrupted(sentences: Sentences, share: float, *, seed: int = 0) -> Sentences:
    """The same examples after careless typing: a share of the words is hit, half by a typo, half by being dropped.

    A typo swaps two neighbouring letters; in words of one letter it doubles it. A sentence keeps at least one word.

    Args:
        sentences: As they were.
        share: Between 0 and 1, of the words.
        seed: Which words; the same for all models that are compared.

    Example:
        >>> corrupted(Sentences(("the cat sat on the mat",), None, (1.0,)), 0.5, seed=3).first
        ('sat no teh mat',)
    """
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"a share lies between 0 and 1, got {share}")
    draw = random.Random(seed)
    first = tuple(_careless(text, share, draw) for text in sentences.first)
    second = None if sentences.second is None else tuple(_careless(text, share, draw) for text in sentences.second)
    return replace(sentences, first=first, second=second)


def _careless(text: str, share: float, draw: random.Random) -> str:
    words = text.split()
    kept: list[str] = []
    for word in words:
        if draw.random() >= share:
            kept.append(word)
        elif draw.random() < 0.5:
            kept.append(_typo(word, draw))
    return " ".join(kept or words[:1])


def _typo(word: str, draw: random.Random) -> str:
    if len(word) < 2:
        return 2 * word
    place = draw.randrange(len(word) - 1)
    return word[:place] + word[place + 1] + word[place] + word[place + 2 :]


_THINGS = (
    ("cat",),
    ("dog", "hound"),
    ("boy", "lad"),
    ("girl",),
    ("horse",),
    ("doctor", "physician"),
    ("king",),
    ("car",),
)
_DEEDS = (("sees", "spots"), ("likes",), ("follows", "pursues"), ("hears",), ("helps", "assists"), ("paints",))
_PLACES = (("today",), ("here",), ("again",), ("outside", "outdoors"))
_ALWAYS, _NEVER = "always", "never"  # one of them in every sentence, or its length would give the answer away
VOCABULARY = tuple(
    sorted({"the", _ALWAYS, _NEVER, *(word for words in (*_THINGS, *_DEEDS, *_PLACES) for word in words)})
)
"""All words of the generated task."""

_MAX_SCORE = 5.0


def generated_task(
    num_train: int = 600, *, seed: int = 0, label_noise: float = 0.05, is_score: bool = False
) -> SentenceTask:
    """Pairs of sentences: do both say the same (class 1) or not (class 0); or how much they share, from 0 to 5.

    Args:
        num_train: Training pairs; validation and test have a third each.
        seed: Which pairs.
        label_noise: Share of the labels that are turned; of scores, the standard deviation of their noise in points.
        is_score: Whether targets are scores.

    Example:
        >>> task = generated_task(30)
        >>> task.train.first[0], task.train.second[0], task.train.targets[0]
        ('the king always hears the cat again', 'the king always hears the cat today', 0.0)
    """
    if num_train < 3:
        raise ValueError(f"expected at least 3 training pairs, got {num_train}")
    draw = random.Random(seed)
    sizes = (num_train, num_train // 3, num_train // 3)
    splits = []
    known: set[tuple[str, str]] = set()  # in earlier splits: no pair is in two
    for size in sizes:
        pairs: list[tuple[str, str, float]] = []
        while len(pairs) < size:
            one = _pair(draw, label_noise, is_score=is_score)
            if one[:2] not in known:
                pairs.append(one)
        known |= {one[:2] for one in pairs}
        firsts, seconds, targets = zip(*pairs, strict=True)
        splits.append(Sentences(firsts, seconds, targets))
    train, valid, test = splits
    name, metric = ("generated-score", "pearson") if is_score else ("generated", "accuracy")
    return SentenceTask(name, 1 if is_score else 2, metric, train, valid, test)


def _pair(draw: random.Random, label_noise: float, *, is_score: bool) -> tuple[str, str, float]:
    choices = [_THINGS, _DEEDS, _THINGS, _PLACES]
    meaning = [draw.randrange(len(kind)) for kind in choices]
    other, is_denied = list(meaning), False
    num_changes = draw.choice((0, 1, 2, 3)) if is_score else draw.choice((0, 1))
    for place in draw.sample(range(4), num_changes):
        if not is_score and draw.random() < 0.6:
            is_denied = True
        else:
            other[place] = (other[place] + draw.randrange(1, len(choices[place]))) % len(choices[place])
    first, second = _sentence(meaning, draw), _sentence(other, draw, is_denied=is_denied)
    if is_score:
        score = _MAX_SCORE * (1.0 - num_changes / 4) + draw.gauss(0.0, label_noise)
        return first, second, round(min(max(score, 0.0), _MAX_SCORE), 3)
    is_same = num_changes == 0
    return first, second, float(is_same ^ (draw.random() < label_noise))


def _sentence(meaning: Sequence[int], draw: random.Random, *, is_denied: bool = False) -> str:
    kinds = (_THINGS, _DEEDS, _THINGS, _PLACES)
    subject, deed, thing, place = (draw.choice(kind[number]) for kind, number in zip(kinds, meaning, strict=True))
    return f"the {subject} {_NEVER if is_denied else _ALWAYS} {deed} the {thing} {place}"
