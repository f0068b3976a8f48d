"""Questions about pictures with the answers of one or several people: files, vocabulary of answers, batches.

| file | what is expected |
|---|---|
| `.tsv` | a line of column names, among them image, question and answers; several answers have `|` between them |
| `.jsonl` | an object a line with "image", "question", and "answers" (a list) or "answer" |

Both may have "kind", the type of the answer, by which accuracy is also reported. Folders in front of an image's name
are dropped. A file may be packed (`.gz`, `.xz`).

Size letters: N questions, B of a batch, T words, M annotators at most.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from probattn.data.bpe import PAD, UNK, Tokenizer
from probattn.data.parallel import read_lines, split_words

__all__ = [
    "AnswerVocabulary",
    "EncodedQuestions",
    "PictureQuestion",
    "answer_accuracy",
    "question_words",
    "read_questions",
]

FULL_MARKS = 3
"""So many annotators with the same answer make it right (VQA's metric)."""


@dataclass(frozen=True)
class PictureQuestion:
    """A question about a picture.

    Attributes:
        picture: Its name among the features.
        question: Words with spaces between them.
        answers: One of each annotator.
        kind: Type of the answer, for tables; "" for none.
        gold: Regions that hold the answer, where they are known.
    """

    picture: str
    question: str
    answers: tuple[str, ...]
    kind: str = ""
    gold: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not split_words(self.question):
            raise ValueError(f"the question about picture '{self.picture}' has no words")
        if not self.answers or not all(self.answers):
            raise ValueError(
                f"the question '{self.question}' about picture '{self.picture}' has no answer, or an empty one"
            )


def question_words(text: str) -> str:
    """A question in lower case, its words and its question mark with spaces between them.

    Example:
        >>> question_words("What colour is the cup?")
        'what colour is the cup ?'
    """
    return " ".join(split_words(text.lower().replace("?", " ? ")))


def answer_accuracy(answer: str, given: Sequence[str]) -> float:
    """min(n / min(3, annotators), 1) for an answer that n annotators gave.

    With ten annotators this is VQA's metric, min(n / 3, 1); with one it is an exact match.

    Example:
        >>> answer_accuracy("red", ["red"]), round(answer_accuracy("red", ["red", "red"] + ["blue"] * 8), 2)
        (1.0, 0.67)
    """
    return min(sum(one == answer for one in given) / min(FULL_MARKS, len(given)), 1.0)


@dataclass(frozen=True)
class AnswerVocabulary:
    """The answers that a network can give.

    Attributes:
        answers: By number.

    Example:
        >>> asked = [PictureQuestion("a.jpg", "what ?", ("cup",)), PictureQuestion("a.jpg", "where ?", ("left",))]
        >>> vocabulary = AnswerVocabulary.from_questions(asked)
        >>> vocabulary.answers, vocabulary.number("right")
        (('cup', 'left'), -1)
    """

    answers: tuple[str, ...]

    @classmethod
    def from_questions(
        cls, questions: Sequence[PictureQuestion], *, min_count: int = 1, max_answers: int | None = None
    ) -> "AnswerVocabulary":
        """The most frequent answers, those of equal frequency by the alphabet.

        Args:
            questions: Of the training split.
            min_count: How often an answer must be given.
            max_answers: Most answers; None for all.

        Raises:
            ValueError: If fewer than two are left.
        """
        counts = Counter(answer for question in questions for answer in question.answers)
        ranked = sorted(counts, key=lambda answer: (-counts[answer], answer))
        kept = tuple(answer for answer in ranked if counts[answer] >= min_count)[:max_answers]
        if len(kept) < 2:
            raise ValueError(
                f"{len(counts)} different answers, of which {len(kept)} are kept (min_count={min_count}); a network "
                "needs two or more to choose from"
            )
        return cls(kept)

    def __len__(self) -> int:
        return len(self.answers)

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The number of every answer."""
        return {answer: number for number, answer in enumerate(self.answers)}

    def number(self, answer: str) -> int:
        """Of an answer; -1 where it is not known."""
        return self.numbers.get(answer, -1)


@dataclass(frozen=True)
class EncodedQuestions:
    """Questions as numbers.

    Attributes:
        pictures: (N) rows of the features.
        words: Ids of each question.
        answers: (N, M) numbers of all annotators' known answers, -1 behind them.
        most: (N) the answer that most annotators gave, the first of several; -1 where it is not known.
    """

    pictures: Tensor
    words: tuple[tuple[int, ...], ...]
    answers: Tensor
    most: Tensor

    @classmethod
    def from_questions(
        cls,
        questions: Sequence[PictureQuestion],
        rows: Sequence[int],
        *,
        tokenizer: Tokenizer,
        answers: AnswerVocabulary,
    ) -> "EncodedQuestions":
        """Encode questions whose pictures have these rows among the features."""
        known = [[answers.number(one) for one in question.answers if one in answers.numbers] for question in questions]
        width = max(1, *(len(one) for one in known))
        table = torch.full((len(questions), width), -1)
        for number, found in enumerate(known):
            table[number, : len(found)] = torch.tensor(found, dtype=torch.int64)
        most = [Counter(question.answers).most_common(1)[0][0] for question in questions]
        return cls(
            pictures=torch.tensor(rows),
            words=tuple(tokenizer.encode(question.question) or (UNK,) for question in questions),
            answers=table,
            most=torch.tensor([answers.number(one) for one in most]),
        )

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def counts(self) -> Tensor:
        """(N) annotators whose answer is known."""
        return (self.answers >= 0).sum(dim=-1)

    @cached_property
    def answerable(self) -> Tensor:
        """Numbers of the questions of which at least one answer is known."""
        return self.counts.nonzero().squeeze(-1)

    def sampled_answers(self, places: Tensor, uniform: Tensor) -> Tensor:
        """(B) an answer of each question, in proportion to annotators (Deng et al., Appendix B).

        Args:
            places: (B) numbers of answerable questions.
            uniform: (B) between 0 and 1.
        """
        counts = self.counts[places]
        if not bool((counts > 0).all()):
            raise ValueError("expected questions with a known answer; choose them with `answerable`")
        chosen = (uniform * counts).long().clamp(max=counts - 1)
        return self.answers[places, chosen]

    @cached_property
    def padded(self) -> tuple[Tensor, Tensor]:
        """Words (N, T) of all questions, padded to the longest, and their numbers (N)."""
        rows = [torch.tensor(one) for one in self.words]
        words = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
        return words, torch.tensor([len(one) for one in rows])

    def batch_words(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Words (B, T) and their mask, padded to the longest of the batch."""
        words, lengths = (one[places] for one in self.padded)
        longest = int(lengths.max())
        return words[:, :longest], torch.arange(longest) < lengths.unsqueeze(1)


def read_questions(path: str | Path, *, needs_answers: bool = True) -> tuple[PictureQuestion, ...]:
    """Questions of a `.tsv` or `.jsonl` file, see above.

    Args:
        path: The file.
        needs_answers: False: answers may be missing, for questions that are to be answered; "?" stands for them.

    Raises:
        ValueError: Not such a file; the message says which line is wrong, and how.
    """
    file = Path(path)
    suffix = next((one for one in reversed(file.suffixes) if one not in (".gz", ".xz")), "")
    if suffix not in (".tsv", ".jsonl"):
        raise ValueError(f"{file}: questions are read from .tsv and .jsonl files, got '{suffix}'")
    lines = read_lines(file)
    is_table = suffix == ".tsv"
    records = _tsv_records(lines, file, needs_answers) if is_table else _json_records(lines, file)
    found = []
    for number, record in records:
        try:
            found.append(_question(record if needs_answers else {"answers": ["?"], **record}))
        except ValueError as error:
            raise ValueError(f"{file}, line {number}: {error}") from None
    if not found:
        raise ValueError(f"{file} has no questions")
    return tuple(found)


Record = Mapping[str, object]


def _tsv_records(lines: Sequence[str], file: Path, needs_answers: bool) -> list[tuple[int, Record]]:
    header = lines[0].split("\t") if lines else []
    wanted = ["image", "question", *(["answers"] if needs_answers else [])]
    missing = set(wanted) - set(header)
    if missing:
        raise ValueError(
            f"{file}: the first line names the columns {', '.join(wanted)} (and kind); {sorted(missing)} missing"
        )
    records: list[tuple[int, Record]] = []
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) != len(header):
            raise ValueError(f"{file}, line {number}: expected {len(header)} columns, got {len(cells)}")
        record: dict[str, object] = dict(zip(header, cells, strict=True))
        if "answers" in record:
            record["answers"] = str(record["answers"]).split("|")
        records.append((number, record))
    return records


def _json_records(lines: Sequence[str], file: Path) -> list[tuple[int, Record]]:
    records: list[tuple[int, Record]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{file}, line {number}: not JSON ({error})") from None
        if not isinstance(record, dict):
            raise ValueError(f"{file}, line {number}: expected an object, got {type(record).__name__}")
        records.append((number, record))
    return records


def _question(record: Record) -> PictureQuestion:
    given = record.get("answers", [record["answer"]] if "answer" in record else None)
    if "image" not in record or "question" not in record or not isinstance(given, list):
        raise ValueError(f"expected image, question and answers (a list), got {sorted(record)}")
    return PictureQuestion(
        picture=Path(str(record["image"])).name,
        question=question_words(str(record["question"])),
        answers=tuple(str(one).strip().lower() for one in given),
        kind=str(record.get("kind", "")),
    )
