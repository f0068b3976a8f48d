"""SQuAD as question answering: reading, damaged files, splits by article, the twin; the real files where they are."""

import hashlib
import json
import lzma
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from probattn.data import squad_answers
from probattn.data.squad_answers import FILES, VOCABULARY, Answer, careless, generated_answers, read_questions

CONTEXT = "The red boat is in Rome."
SIZES = {"squad-part": (10_822, 1_055, 10_570), "squad-dev": (4_078, 729, 5_763)}


def written(titles: list[str], **changes: Any) -> bytes:
    """A file with one question an article."""
    answer = {"text": "red boat", "answer_start": 4} | {
        key: changes[key] for key in ("text", "answer_start") if key in changes
    }
    asked = {"id": "q7", "question": " What is in Rome? ", "answers": changes.get("answers", [answer])}
    paragraph = {"context": CONTEXT, "qas": [asked]}
    data = [{"title": title, "paragraphs": [paragraph]} for title in titles]
    return json.dumps({"version": "1.1", "data": data}).encode()


def put(folder: Path, monkeypatch: pytest.MonkeyPatch, contents: dict[str, list[bytes]]) -> None:
    """Files in a data folder, as if they were the published ones."""
    known = dict(FILES)
    for name, parts in contents.items():
        files = [
            replace(file, sha256=hashlib.sha256(part).hexdigest())
            for file, part in zip(FILES[name], parts, strict=True)
        ]
        known[name] = tuple(files)
        for file, part in zip(files, parts, strict=True):
            path = folder / f"{file.path}.xz"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(lzma.compress(part))
    monkeypatch.setattr(squad_answers, "FILES", known)
    monkeypatch.setenv("PROBATTN_DATA", str(folder))
    monkeypatch.setenv("PROBATTN_CACHE", str(folder / "cache"))


@pytest.mark.data
@pytest.mark.parametrize("name", SIZES)
def test_published_files(name: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBATTN_DATA", str(data_dir))
    task = squad_answers.load(name)
    splits = (task.train, task.valid, task.test)
    assert tuple(map(len, splits)) == SIZES[name]
    titles = [{one.title for one in split} for split in splits]
    assert not titles[0] & titles[1] and not titles[0] & titles[2] and not titles[1] & titles[2]
    answers = [(one, answer) for split in splits for one in split for answer in one.answers]
    assert all(one.context[answer.start : answer.stop] == answer.text for one, answer in answers)


def test_an_answer_is_found_where_the_file_says_or_nearby() -> None:
    (one,) = read_questions(written(["a"]), place="a.json")
    assert one.question == "What is in Rome?" and one.answers == (Answer("red boat", 4),) and one.title == "a"
    (moved,) = read_questions(written(["a"], answer_start=6), place="a.json")
    assert moved.answers == one.answers


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"data": [', "a.json is damaged, or no JSON file"),
        (b"\xff\xfe{}", "a.json is damaged, or no JSON file"),
        (b"[]", "a.json: expected 'data' with a list, got NoneType"),
        (b'{"data": []}', "a.json has no questions"),
        (b'{"data": [{"title": "x", "paragraphs": [{"qas": []}]}]}', "article 'x', paragraph 1: expected 'context'"),
        (written(["x"], answers=[]), "article 'x', question 'q7' has no answer; expected SQuAD v1.1.* not v2.0"),
        (written(["x"], text="boat red"), "expected the answer 'boat red' at character 4, got 'red boat'; .* damaged"),
        (written(["x"], text=""), "expected the answer '' at character 4"),
        (written(["x"], answer_start=-9), "expected the answer 'red boat' at character -9, got 'The red '"),
        (written(["x"], answer_start="4"), "expected 'answer_start' with a int, got str"),
    ],
)
def test_damaged_files_are_told_with_the_place(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_questions(content, place="a.json")


def test_the_training_file_is_cut_by_articles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    titles = [f"t{number:02}" for number in range(25)]
    put(tmp_path, monkeypatch, {"train": [written(titles)], "dev": [written(["z", "y"])]})
    task = squad_answers.load("squad")
    assert [one.title for one in task.train] == titles[:3] and [one.title for one in task.valid] == titles[3:]
    assert [one.title for one in task.test] == ["y", "z"]


def test_halves_stand_for_the_dev_set_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    titles = [f"t{number:02}" for number in range(48)]
    put(tmp_path, monkeypatch, {"halves": [written(titles[::-2]), written(titles[::2])]})
    task = squad_answers.load("squad-dev")
    cuts = [[one.title for one in split] for split in (task.train, task.valid, task.test)]
    assert cuts == [titles[:20], titles[20:24], titles[24:]]


def test_missing_files_are_told_with_smaller_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, monkeypatch, {})
    with pytest.raises(FileNotFoundError, match=r"train-v1.1.json of SQuAD .* smaller tasks: squad-part, .* squad-dev"):
        squad_answers.load("squad")
    with pytest.raises(FileNotFoundError, match=r"squad/dev-v1.1.json of SQuAD v1.1 is not on this machine"):
        squad_answers.load("squad-dev")
    with pytest.raises(ValueError, match="task 'sqad' is unknown; did you mean 'squad'"):
        squad_answers.load("sqad")


def test_a_file_with_other_content_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, monkeypatch, {"part": [written(["a"])]})
    monkeypatch.setattr(squad_answers, "FILES", FILES)
    with pytest.raises(ValueError, match="du2017-test-v1.1.json.xz is not the published file of SQuAD"):
        squad_answers.load("squad-part")


def test_typos_leave_passages_alone() -> None:
    questions = generated_answers(30).test
    typed = careless(questions, 0.5, seed=1)
    assert [(one.context, one.answers) for one in typed] == [(one.context, one.answers) for one in questions]
    assert sum(one.question != other.question for one, other in zip(typed, questions, strict=True)) > 5
    assert careless(questions, 0.0) == questions


def test_the_twin_has_its_answers_in_the_right_fact() -> None:
    task = squad_answers.load("squad-generated")
    assert (len(task.train), len(task.valid), len(task.test)) == (600, 200, 200)
    for one in task.train:
        assert set(f"{one.context} {one.question}".split()) <= set(VOCABULARY)
        assert all(one.context[answer.start : answer.stop] == answer.text for answer in one.answers)
        stop = one.context.index(".", one.answers[0].start)
        fact = one.context[one.context.rfind(".", 0, one.answers[0].start) + 1 : stop].split()
        asked = [word for word in one.question.split() if word in fact and word not in ("has", "a", "in")]
        assert asked, one  # the name, or the thing, that the question is about
    with pytest.raises(ValueError, match="at least 3 training questions, got 2"):
        generated_answers(2)
    with pytest.raises(ValueError, match=r"questions in all splits, got \(600, 0, 200\)"):
        replace(task, valid=())


def test_no_generated_question_is_in_two_splits() -> None:
    task = generated_answers(1500)
    asked = [{(one.question, one.context) for one in split} for split in (task.train, task.valid, task.test)]
    assert all(asked) and not (asked[0] & asked[1] or asked[0] & asked[2] or asked[1] & asked[2])
