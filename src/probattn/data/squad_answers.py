"""Questions with the passage that answers them: SQuAD v1.1 (Rajpurkar et al. 2016) as extractive question answering.

An answer is a stretch of its passage. Questions of the dev set have up to six answers, by different people, any of
which is right; those of the training set have one. Splits never share an article:

| name | train | valid | test |
|---|---|---|---|
| squad | train-v1.1 without its last 22 articles | these 22 articles | dev-v1.1: 10,570 |
| squad-part | 38 articles of train-v1.1: 10,822 | 6 articles of train-v1.1: 1,055 | dev-v1.1: 10,570 |
| squad-dev | 20 articles of dev-v1.1: 4,078 | 4 articles of dev-v1.1: 729 | 24 articles of dev-v1.1: 5,763 |

Put the authors' `train-v1.1.json` and `dev-v1.1.json` into `squad/` of the data folder, plain or packed, or let them be
downloaded. Where the training file cannot be had, two smaller tasks take its place, under names of their own so that
their results are not taken for SQuAD's: `squad-part` has the 44 training articles that Du et al. (2017) keep for their
tests (`du2017-test-v1.1.json`; about an eighth of the questions), and the whole dev set to test on. `squad-dev` needs
nothing but the dev set: its articles in the order of their titles, the first 20 to train, the next 4 to validate, the
last 24 to test, so it is tested on half of the official questions. The dev set itself may be one file or the two halves
that Stanford's course CS224N makes of it (`v1.1-dev-halves/`).
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any

from probattn.data.parallel import read_content
from probattn.data.sentences import Sentences, corrupted
from probattn.data.sources import Corpus, CorpusFile, locate, require_choice

__all__ = [
    "CORPUS",
    "FILES",
    "TASKS",
    "VOCABULARY",
    "Answer",
    "AnswerTask",
    "Question",
    "careless",
    "generated_answers",
    "load",
    "read_questions",
]

CORPUS = Corpus(
    name="SQuAD v1.1",
    homepage="https://rajpurkar.github.io/SQuAD-explorer",
    terms="CC BY-SA 4.0",
    twin="probattn.data.squad_answers.generated_answers",
)


def _file(path: str, sha256: str, *, is_official: bool = False) -> CorpusFile:
    url = f"{CORPUS.homepage}/dataset/{path}" if is_official else None
    return CorpusFile(CORPUS, f"squad/{path}", sha256=sha256, url=url)


_TRAIN = _file("train-v1.1.json", "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955", is_official=True)
_DEV = _file("dev-v1.1.json", "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9", is_official=True)
FILES: Mapping[str, tuple[CorpusFile, ...]] = {
    "train": (_TRAIN,),
    "part": (_file("du2017-test-v1.1.json", "e7853905d95f255090f58a2af5221c7f2b296934f8a6c1d77b36df4686f0d828"),),
    "dev": (_DEV,),
    "halves": (
        _file("v1.1-dev-halves/dev-v1.1.json", "bf8ebb60a161d0594f455be869ff3a476d2fe07da92ab1ecb0dea41f50ea64f3"),
        _file("v1.1-dev-halves/test-v1.1.json", "f0a16b507dbb983d1a04315b6a189e539aa15c91c4ccfb849b0392593daf80dd"),
    ),
}
"""With the SHA-256 of their unpacked content; "halves" stand for "dev"."""
TASKS = ("squad", "squad-part", "squad-dev", "squad-generated")
"""Names of the tasks."""

_NUM_VALID = {"squad": 22, "squad-part": 6}  # articles at the end of the training file
_DEV_CUTS = (20, 24)  # articles of the dev set to train on, and those with the next 4 to validate on
_SLIP = 2  # an answer that is said to begin so many characters off is put right


@dataclass(frozen=True)
class Answer:
    """A stretch of a passage.

    Attributes:
        text: Its characters.
        start: Number of the first one in the passage.
    """

    text: str
    start: int

    @property
    def stop(self) -> int:
        """Number of the character behind it."""
        return self.start + len(self.text)


@dataclass(frozen=True)
class Question:
    """A question about a passage.

    Attributes:
        question: As it was asked.
        context: The passage.
        answers: All that are right, at least one; the first one is learnt from.
        title: Of the article that the passage is from.
    """

    question: str
    context: str
    answers: tuple[Answer, ...]
    title: str


@dataclass(frozen=True)
class AnswerTask:
    """A task with its splits.

    Attributes:
        name: For messages and tables.
        train: What is learnt from.
        valid: For choices.
        test: What is reported.
    """

    name: str
    train: tuple[Question, ...]
    valid: tuple[Question, ...]
    test: tuple[Question, ...]

    def __post_init__(self) -> None:
        if not (self.train and self.valid and self.test):
            sizes = (len(self.train), len(self.valid), len(self.test))
            raise ValueError(f"{self.name}: expected questions in all splits, got {sizes} to train, validate and test")


def load(name: str, *, may_download: bool = False) -> AnswerTask:
    """A task of the table above, or "squad-generated", which needs no files.

    Args:
        name: Of the task.
        may_download: Whether to fetch missing files of the authors; there is no known address of the others.

    Raises:
        FileNotFoundError: The files are not on this machine; the message lists the ways to get them.
        ValueError: An unknown name, or a file that is not what it should be; says where.
    """
    require_choice("task", name, TASKS)
    if name == "squad-generated":
        return generated_answers()
    if name == "squad-dev":
        return AnswerTask(name, *_cut(_dev(may_download=may_download), _DEV_CUTS))
    try:
        questions = _read("train" if name == "squad" else "part", may_download=may_download)
    except FileNotFoundError as error:
        others = "squad-part, with 44 articles of the training set, or " if name == "squad" else ""
        raise FileNotFoundError(
            f"{error}. There are smaller tasks: {others}squad-dev, with the dev set alone"
        ) from None
    train, valid = _cut(questions, (-_NUM_VALID[name],))
    return AnswerTask(name, train, valid, _dev(may_download=may_download))


def read_questions(content: bytes, *, place: str) -> tuple[Question, ...]:
    """The questions of a JSON file in the form of SQuAD v1.1.

    Args:
        content: Of the file, unpacked.
        place: Of the file, for messages.

    Raises:
        ValueError: It is not JSON, something is missing, or an answer is not where the file says; tells where. An
            answer that begins one or two characters off is put right.

    Example:
        >>> paragraph = {"context": "A cat sat.", "qas": [
        ...     {"id": "7", "question": "Who sat?", "answers": [{"text": "A cat", "answer_start": 0}]}]}
        >>> text = json.dumps({"data": [{"title": "Cats", "paragraphs": [paragraph]}]})
        >>> read_questions(text.encode(), place="cats.json")[0].answers
        (Answer(text='A cat', start=0),)
    """
    try:
        whole = json.loads(content.decode("utf-8-sig"))
    except ValueError as error:  # of the encoding, or of JSON
        raise ValueError(f"{place} is damaged, or no JSON file: {error}") from None
    found = tuple(_questions(whole, place))
    if not found:
        raise ValueError(f"{place} has no questions")
    return found


def careless(questions: Sequence[Question], share: float, *, seed: int = 0) -> tuple[Question, ...]:
    """The same with questions as after careless typing (`probattn.data.sentences.corrupted`); passages stay.

    Args:
        questions: As they were.
        share: Between 0 and 1, of the words.
        seed: Which words; the same for all models that are compared.
    """
    asked = Sentences(tuple(one.question for one in questions), None, (0.0,) * len(questions))
    typed = corrupted(asked, share, seed=seed).first
    return tuple(replace(one, question=text) for one, text in zip(questions, typed, strict=True))


def _questions(whole: Any, place: str) -> Iterator[Question]:
    for article in _part(whole, "data", list, place):
        title = _part(article, "title", str, place)
        where = f"{place}, article {title!r}"
        for number, paragraph in enumerate(_part(article, "paragraphs", list, where), start=1):
            context = _part(paragraph, "context", str, f"{where}, paragraph {number}")
            for asked in _part(paragraph, "qas", list, f"{where}, paragraph {number}"):
                name = f"{where}, question {_part(asked, 'id', str, f'{where}, paragraph {number}')!r}"
                answers = [_answer(one, context, name) for one in _part(asked, "answers", list, name)]
                if not answers:
                    raise ValueError(
                        f"{name} has no answer; expected SQuAD v1.1, whose questions all have one, not v2.0"
                    )
                yield Question(_part(asked, "question", str, name).strip(), context, tuple(answers), title)


def _part(record: Any, key: str, kind: type, place: str) -> Any:
    value = record.get(key) if isinstance(record, dict) else None
    if not isinstance(value, kind):
        raise ValueError(f"{place}: expected {key!r} with a {kind.__name__}, got {type(value).__name__}")
    return value


def _answer(record: Any, context: str, place: str) -> Answer:
    text, start = _part(record, "text", str, place), _part(record, "answer_start", int, place)
    for slip in sorted(range(-_SLIP, _SLIP + 1), key=abs):
        if text and start + slip >= 0 and context.startswith(text, start + slip):
            return Answer(text, start + slip)
    found = context[max(start, 0) : max(start, 0) + len(text)]
    raise ValueError(f"{place}: expected the answer {text!r} at character {start}, got {found!r}; the file is damaged")


def _read(name: str, *, may_download: bool = False) -> tuple[Question, ...]:
    paths = [locate(file, may_download=may_download) for file in FILES[name]]
    return tuple(chain.from_iterable(read_questions(read_content(path), place=str(path)) for path in paths))


def _dev(*, may_download: bool) -> tuple[Question, ...]:
    """The dev set: one file, or its halves, or a download; by title, since the halves have another order."""
    try:
        found = _read("dev")
    except FileNotFoundError as error:
        found = _halves() or ()
        if not found and not may_download:
            raise error from None
    return tuple(sorted(found or _read("dev", may_download=True), key=lambda question: question.title))


def _halves() -> tuple[Question, ...] | None:
    try:
        return _read("halves")
    except FileNotFoundError:
        return None


def _cut(questions: Sequence[Question], places: Sequence[int]) -> list[tuple[Question, ...]]:
    """Parts without a common article: cut behind so many articles in the order of the file, or before the last ones."""
    titles = list(dict.fromkeys(question.title for question in questions))
    borders = [0, *(place % len(titles) for place in places), len(titles)]
    part_of = {title: part for part, (a, b) in enumerate(pairwise(borders)) for title in titles[a:b]}
    return [tuple(one for one in questions if part_of[one.title] == part) for part in range(len(places) + 1)]


_NAMES = ("anna", "ben", "carla", "david", "emma", "felix")
_KINDS = ("red", "blue", "small", "loud")
_THINGS = ("car", "book", "boat", "dog", "clock")
_CITIES = ("paris", "rome", "oslo", "cairo", "lima")
_OTHERS = ("a", ".", "?", "has", "have", "who", "what", "where", "is", "does", "in")
VOCABULARY = tuple(sorted({*_NAMES, *_KINDS, *_THINGS, *_CITIES, *_OTHERS}))
"""All words of the generated task."""


def generated_answers(num_train: int = 600, *, seed: int = 0) -> AnswerTask:
    """The twin: passages of one to three facts and a question about one of them, whose answer has one to three words.

    Args:
        num_train: Training questions; validation and test have a third each.
        seed: Which questions.

    Example:
        >>> one = generated_answers(30).test[0]
        >>> one.question, one.context, one.answers[0].text
        ('who has a loud book ?', 'ben has a blue clock in cairo . carla has a blue car in rome . anna ...', 'anna')
    """
    if num_train < 3:
        raise ValueError(f"expected at least 3 training questions, got {num_train}")
    draw = random.Random(seed)
    sizes = (num_train, num_train // 3, num_train // 3)
    splits: list[tuple[Question, ...]] = []
    known: set[tuple[str, str]] = set()  # in earlier splits: no question about a passage is in two
    for size in sizes:
        drawn: list[Question] = []
        while len(drawn) < size:
            one = _draw_question(draw)
            if (one.question, one.context) not in known:
                drawn.append(one)
        known |= {(one.question, one.context) for one in drawn}
        splits.append(tuple(drawn))
    train, valid, test = splits
    return AnswerTask("squad-generated", train, valid, test)


def _draw_question(draw: random.Random) -> Question:
    count = draw.choice((1, 2, 3))
    names, cities = draw.sample(_NAMES, count), draw.sample(_CITIES, count)
    pairs = draw.sample([(kind, thing) for kind in _KINDS for thing in _THINGS], count)
    facts = [
        f"{name} has a {' '.join(pair)} in {city} ." for name, pair, city in zip(names, pairs, cities, strict=True)
    ]
    context = " ".join(facts)
    asked = draw.randrange(count)
    name, thing = names[asked], " ".join(pairs[asked])
    question, texts = draw.choice(
        (
            (f"who has a {thing} ?", (name,)),
            (f"what does {name} have ?", (f"a {thing}", thing)),  # two people, two answers
            (f"where is {name} ?", (cities[asked],)),
        )
    )
    begin = sum(len(fact) + 1 for fact in facts[:asked])  # names, things and cities occur once in a fact
    return Question(question, context, tuple(Answer(text, context.index(text, begin)) for text in texts), "generated")
