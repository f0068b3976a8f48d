"""Questions and their passages as numbers: windows over long passages, and where the answers are.

A window is [CLS] question [SEP] part of the passage [SEP]. Neighbouring windows of a passage share a third of
`max_tokens` (128 of 384, as is customary), so an answer that one of them cuts is whole in the next. A window that does
not hold the whole answer is learnt to answer with [CLS].

Sizes: N questions, W windows, M answers to a question, C tokens of a passage.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch

from probattn.data.squad_answers import Answer, Question
from probattn.recipes.glue_batches import Encoded

__all__ = ["MAX_ANSWER", "Asked", "Passage", "Window", "encode_questions", "windows_of"]

MAX_ANSWER = 30
"""Longer answers, in tokens, are not given: the customary limit."""
_OVERLAP = 3  # windows share one token in so many of max_tokens, and a question is cut at as many tokens
_NUM_MARKS = 3  # [CLS] and twice [SEP]
_LEAST_TOKENS = 12
_BATCH = 1000  # passages that are tokenised together


@dataclass(frozen=True)
class Window:
    """Which part of a passage a window holds.

    Attributes:
        start: Number of its first token in the passage.
        size: How many tokens.
        lead: How many tokens of the window come before: marks and question.
    """

    start: int
    size: int
    lead: int

    def holds(self, span: tuple[int, int]) -> bool:
        """Whether all tokens of a span of the passage, first to last, are in it."""
        return self.start <= span[0] and span[1] < self.start + self.size


@dataclass(frozen=True)
class Passage:
    """A tokenised passage.

    Attributes:
        tokens: (C) numbers.
        starts: (C) first character of every token.
        stops: (C) the character behind every token.
    """

    tokens: Sequence[int]
    starts: Sequence[int]
    stops: Sequence[int]

    def span(self, answer: Answer) -> tuple[int, int] | None:
        """First and last token that have characters of the answer; None where no token does.

        Example:
            >>> passage = Passage([5, 6, 7], [0, 4, 8], [3, 7, 12])  # "the red boat"
            >>> passage.span(Answer("red boat", 4)), passage.span(Answer("e", 2)), passage.span(Answer(" ", 3))
            ((1, 2), (0, 0), None)
        """
        first, last = bisect_right(self.stops, answer.start), bisect_left(self.starts, answer.stop) - 1
        return (first, last) if first <= last else None


@dataclass(frozen=True)
class Asked:
    """One split as numbers.

    Attributes:
        questions: (N) as they were.
        passages: (N) of each question.
        golds: (N) for each question its right answers that can be given: up to M different pairs of first and last
            token of the passage. Empty if all are longer than `MAX_ANSWER` or in no window as a whole.
        windows: (N) windows of each question.
        encoded: All W windows in the order of the questions, with the first answer to learn from.
    """

    questions: Sequence[Question]
    passages: Sequence[Passage]
    golds: Sequence[Sequence[tuple[int, int]]]
    windows: Sequence[Sequence[Window]]
    encoded: Encoded

    def __len__(self) -> int:
        return len(self.questions)

    def batches(self, batch_size: int, places: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
        """Places of questions and of all their windows, short ones first; as many questions as `batch_size`."""
        firsts = list(accumulate((len(some) for some in self.windows), initial=0))
        length = {place: len(self.encoded.tokens[firsts[place]]) for place in places}  # the first window is the longest
        order = sorted(places, key=lambda place: (len(self.windows[place]), length[place], place))
        for begin in range(0, len(order), batch_size):
            chosen = order[begin : begin + batch_size]
            yield chosen, [row for place in chosen for row in range(firsts[place], firsts[place + 1])]


def windows_of(num_tokens: int, num_asked: int, *, max_tokens: int) -> list[Window]:
    """The windows over a passage.

    Args:
        num_tokens: C, at least 1.
        num_asked: Tokens of the question.
        max_tokens: Of a window.

    Example:
        >>> windows_of(20, 3, max_tokens=18)  # 12 tokens of the passage in a window, 6 shared
        [Window(start=0, size=12, lead=5), Window(start=6, size=12, lead=5), Window(start=12, size=8, lead=5)]
    """
    room = max_tokens - num_asked - _NUM_MARKS
    found = [Window(0, min(room, num_tokens), num_asked + 2)]
    while found[-1].start + found[-1].size < num_tokens:
        start = found[-1].start + room - max_tokens // _OVERLAP
        found.append(Window(start, min(room, num_tokens - start), num_asked + 2))
    return found


def encode_questions(questions: Sequence[Question], tokenizer: Any, *, max_tokens: int) -> Asked:
    """Token numbers of all windows, and where the answers are.

    Args:
        questions: One split.
        tokenizer: Of `transformers`, a fast one.
        max_tokens: Of a window, marks included.

    Raises:
        ValueError: If windows are too small.
    """
    if max_tokens < _LEAST_TOKENS:
        raise ValueError(f"expected windows of at least {_LEAST_TOKENS} tokens, got encoder.max_tokens={max_tokens}")
    texts = list(dict.fromkeys(one.context for one in questions))  # a passage has five questions or so
    known = dict(zip(texts, _passages(texts, tokenizer), strict=True))
    passages = [known[one.context] for one in questions]
    wordings = [one.question for one in questions]
    asked = [numbers[: max_tokens // _OVERLAP] for numbers, _ in _tokenised(wordings, tokenizer)]
    windows, golds = [], []
    tokens: list[list[int]] = []
    segments: list[list[int]] = []
    targets: list[tuple[int, int]] = []
    for question, passage, wording in zip(questions, passages, asked, strict=True):
        some = windows_of(len(passage.tokens), len(wording), max_tokens=max_tokens)
        spans = [passage.span(answer) for answer in question.answers]
        for window in some:
            part = passage.tokens[window.start : window.start + window.size]
            tokens.append(
                [tokenizer.cls_token_id, *wording, tokenizer.sep_token_id, *part, tokenizer.sep_token_id]
            )  # fmt: skip
            segments.append([0] * window.lead + [1] * (window.size + 1))
            targets.append(_target(spans[0], window))
        windows.append(some)
        can_be_given = [
            span
            for span in spans
            if span and span[1] - span[0] < MAX_ANSWER and any(window.holds(span) for window in some)
        ]
        golds.append(list(dict.fromkeys(can_be_given)))
    names = ("start_positions", "end_positions")
    encoded = Encoded(tokens, segments, torch.tensor(targets), int(tokenizer.pad_token_id), names)
    return Asked(questions, passages, golds, windows, encoded)


def _target(span: tuple[int, int] | None, window: Window) -> tuple[int, int]:
    """First and last token of the answer in the window; [CLS], which is token 0, where it is not in it."""
    if span is None or not window.holds(span):
        return 0, 0
    return span[0] - window.start + window.lead, span[1] - window.start + window.lead


def _passages(texts: Sequence[str], tokenizer: Any) -> Iterator[Passage]:
    for text, (numbers, characters) in zip(texts, _tokenised(texts, tokenizer), strict=True):
        if not numbers:
            raise ValueError(f"expected a passage with words, got {text!r}")
        starts, stops = zip(*characters, strict=True)
        yield Passage(numbers, starts, stops)


def _tokenised(texts: Sequence[str], tokenizer: Any) -> Iterator[tuple[list[int], list[tuple[int, int]]]]:
    for begin in range(0, len(texts), _BATCH):
        found = tokenizer(
            list(texts[begin : begin + _BATCH]),
            add_special_tokens=False,
            return_offsets_mapping=True,
            verbose=False,  # that passages are longer than the model takes is what windows are for
        )
        yield from zip(found["input_ids"], found["offset_mapping"], strict=True)
