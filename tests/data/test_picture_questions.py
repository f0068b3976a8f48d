"""Questions about pictures: files of both kinds, answers of several people, what is not known."""

import json
from pathlib import Path

import pytest
import torch

from probattn.data.picture_questions import (
    AnswerVocabulary,
    EncodedQuestions,
    PictureQuestion,
    answer_accuracy,
    read_questions,
)
from probattn.data.words import train_words

ASKED = (
    PictureQuestion("a.jpg", "what is there ?", ("cup", "cup", "mug")),
    PictureQuestion("b.jpg", "what colour ?", ("red",)),
    PictureQuestion("a.jpg", "what is rare ?", ("zebra",)),
)


def encoded(answers: AnswerVocabulary) -> EncodedQuestions:
    tokenizer = train_words((one.question for one in ASKED), vocabulary_size=30)
    return EncodedQuestions.from_questions(ASKED, [4, 7, 4], tokenizer=tokenizer, answers=answers)


def test_accuracy_is_vqas_metric_and_an_exact_match() -> None:
    ten = ["yes"] * 2 + ["no"] * 8
    assert answer_accuracy("no", ten) == 1.0
    assert answer_accuracy("yes", ten) == pytest.approx(2 / 3)
    assert answer_accuracy("maybe", ten) == 0.0
    assert (answer_accuracy("red", ["red"]), answer_accuracy("blue", ["red"])) == (1.0, 0.0)


def test_answers_are_ranked_by_frequency() -> None:
    assert AnswerVocabulary.from_questions(ASKED).answers == ("cup", "mug", "red", "zebra")
    assert AnswerVocabulary.from_questions(ASKED, max_answers=2).answers == ("cup", "mug")
    with pytest.raises(ValueError, match=r"4 different answers, of which 1 are kept \(min_count=2\)"):
        AnswerVocabulary.from_questions(ASKED, min_count=2)


def test_labels_are_drawn_in_proportion_to_annotators() -> None:
    questions = encoded(AnswerVocabulary(("cup", "mug", "red")))
    count = 3000
    places = torch.zeros(count, dtype=torch.int64)
    drawn = questions.sampled_answers(places, torch.rand(count, generator=torch.Generator().manual_seed(0)))
    share = float((drawn == 0).double().mean())
    assert abs(share - 2 / 3) < 4 * (2 / 9 / count) ** 0.5
    assert set(drawn.tolist()) == {0, 1}
    assert questions.sampled_answers(torch.tensor([0]), torch.ones(1)).tolist() == [1]


def test_questions_with_no_known_answer_are_counted() -> None:
    questions = encoded(AnswerVocabulary(("cup", "red")))
    assert questions.most.tolist() == [0, 1, -1]
    assert questions.answerable.tolist() == [0, 1]
    assert questions.counts.tolist() == [2, 1, 0]
    with pytest.raises(ValueError, match="expected questions with a known answer"):
        questions.sampled_answers(torch.tensor([2]), torch.zeros(1))


def test_batches_are_padded_to_their_longest() -> None:
    words, mask = encoded(AnswerVocabulary(("cup", "red"))).batch_words(torch.tensor([1]))
    assert words.shape == (1, 3) and bool(mask.all())
    words, mask = encoded(AnswerVocabulary(("cup", "red"))).batch_words(torch.tensor([1, 0]))
    assert words.shape == (2, 4) and mask.sum(dim=-1).tolist() == [3, 4]


def test_both_kinds_of_files_are_read(tmp_path: Path) -> None:
    tsv, jsonl = tmp_path / "q.tsv", tmp_path / "q.jsonl"
    tsv.write_text("image\tquestion\tanswers\tkind\nphotos/a.jpg\tWhat  is it?\tCup|mug\tobject\n")
    jsonl.write_text(
        json.dumps({"image": "a.jpg", "question": "What is it ?", "answers": ["Cup", "mug"], "kind": "object"})
        + "\n"
        + json.dumps({"image": "b.jpg", "question": "how many ?", "answer": 2})
    )
    expected = PictureQuestion("a.jpg", "what is it ?", ("cup", "mug"), "object")
    assert read_questions(tsv) == (expected,)
    assert read_questions(jsonl) == (expected, PictureQuestion("b.jpg", "how many ?", ("2",)))
    for path in (tsv, jsonl):
        found = read_questions(path)
        path.write_text(path.read_text() + "\n\n")
        assert read_questions(path) == found, "blank lines are no questions"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.csv", "x", r"read from \.tsv and \.jsonl files, got '\.csv'"),
        ("q.tsv", "image\tquestion\nx\ty", r"\['answers'\] missing"),
        ("q.tsv", "image\tquestion\tanswers\na\tb", "line 2: expected 3 columns, got 2"),
        ("q.tsv", "image\tquestion\tanswers\na\tb\tx||y", "line 2: .*has no answer, or an empty one"),
        ("q.tsv", "image\tquestion\tanswers", "has no questions"),
        ("q.jsonl", "{", "line 1: not JSON"),
        ("q.jsonl", "[1]", "line 1: expected an object, got list"),
        ("q.jsonl", '{"image": "a", "question": "b"}', r"line 1: expected image, question and answers"),
        ("q.jsonl", '{"image": "a", "question": " ", "answer": "c"}', "line 1: .*has no words"),
    ],
)
def test_wrong_files_say_where(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        read_questions(path)
