"""DAQUAR: how its questions are parsed, and the statistics of the real files."""

from pathlib import Path

import pytest

from probattn.data import daquar


@pytest.mark.parametrize(
    ("question", "picture", "words"),
    [
        ("what is on the desk in the image12 ?", "image12.png", "what is on the desk ?"),
        ("what is on the left of the image7 ?", "image7.png", "what is on the left ?"),
        ("how many chairs are in image3 ?", "image3.png", "how many chairs are ?"),
        ("what is behind the door in the image10 near the bed in the image10 ?", "image10.png",
         "what is behind the door near the bed ?"),
    ],
)  # fmt: skip
def test_the_picture_is_taken_out_of_the_question(question: str, picture: str, words: str) -> None:
    found = daquar.parse(question, "lamp")
    assert (found.picture, found.question, found.answers) == (picture, words, ("lamp",))


@pytest.mark.parametrize(
    ("answer", "kind"), [("3", "number"), ("red", "colour"), ("chair, 2", "list"), ("red_chair", "object")]
)
def test_types_of_answers(answer: str, kind: str) -> None:
    assert daquar.kind_of(answer) == kind


def test_wrong_input_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="expected the name of a picture such as image12"):
        daquar.parse("what is this ?", "lamp")
    with pytest.raises(ValueError, match="split 'dev' is unknown"):
        daquar.load("dev")
    monkeypatch.delenv("PROBATTN_DATA", raising=False)
    monkeypatch.setenv("PROBATTN_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"daquar/all_qa_pairs.txt of DAQUAR.*generated_scenes"):
        daquar.load("test")


@pytest.mark.data
def test_statistics(data_dir: Path) -> None:
    splits = {split: daquar.load(split) for split in daquar.NUM_QUESTIONS}
    assert {split: len(found) for split, found in splits.items()} == daquar.NUM_QUESTIONS
    pictures = {split: {one.picture for one in found} for split, found in splits.items()}
    assert [len(found) for found in pictures.values()] == [714, 80, 653]
    assert not pictures["train"] & pictures["valid"] and not (pictures["train"] | pictures["valid"]) & pictures["test"]
    known = {one.answers[0] for one in splits["train"]}
    assert len(known) == 923
    for split, share in (("valid", 0.922), ("test", 0.902)):
        assert sum(one.answers[0] in known for one in splits[split]) / len(splits[split]) == pytest.approx(
            share, abs=1e-3
        )
    assert not any("image" in one.question for one in splits["test"])
    features = daquar.load_features()
    assert (len(features), features.num_regions, features.dim, features.grid) == (1449, 49, 96, (7, 7))
    features.rows([one.picture for found in splits.values() for one in found])
