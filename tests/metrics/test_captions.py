"""Scores of captions with several references, and where attention points."""

import importlib.util
import shutil

import pytest
import torch

from probattn.metrics.captions import attention_hits, caption_bleu, caption_meteor, caption_scores

has_library = importlib.util.find_spec("pycocoevalcap") is not None
needs_library = pytest.mark.skipif(not has_library, reason="pycocoevalcap is not installed")

CAPTIONS = ["a dog runs in the grass", "two men", "a red ball on a table"]
REFERENCES = [
    ["a dog runs on the grass", "a brown dog is running"],
    ["two men are talking on a street", "people talk"],
    ["a red ball on a table"],
]


def test_any_reference_may_match_and_the_nearest_length_counts() -> None:
    # 1-grams: 5 of 6, 2 of 2, 6 of 6 match; lengths 6 + 2 + 6 = 14 against the nearest 6 (or 5), 2, 6
    scores = caption_bleu(CAPTIONS, REFERENCES)
    assert scores[1].score == pytest.approx(100.0 * 13 / 14)
    # 2-grams: 3 of 5, 1 of 1, 5 of 5
    assert scores[2].score == pytest.approx(100.0 * (13 / 14 * 9 / 11) ** 0.5, abs=1e-3)
    assert scores[4].signature.endswith("|order:4")


def test_another_reference_never_lowers_a_precision() -> None:
    few = caption_bleu(["a dog runs fast"], [["the cat sits here"]])
    more = caption_bleu(["a dog runs fast"], [["the cat sits here", "a dog runs slowly"]])
    assert more[1].score == pytest.approx(75.0)
    assert few[1].score < 75.0


@pytest.mark.parametrize(
    ("captions", "references", "message"),
    [
        (["a"], [], "got 1 for 0 pictures"),
        ([], [], "at least one"),
        (["a", "b"], [["a"], []], "got none for number 1"),
        (["a"], ["abc"], "expected a list of references"),
        ("ab", [["a"], ["b"]], "expected a list of captions, got a string"),
    ],
)
def test_references_are_checked(captions: list[str], references: list[list[str]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        caption_bleu(captions, references)


def test_hits_count_words_with_a_region() -> None:
    weights = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [1.0, 0.0, 0.0]])
    mass, hits, words = attention_hits(weights, [(1, 0), (), (2,)])
    assert (mass, hits, words) == (pytest.approx(0.8), 1, 2)
    assert attention_hits(weights, [(), ()]) == (0.0, 0, 0)


@needs_library
def test_the_libraries_scores_are_highest_for_the_references_themselves() -> None:
    right = caption_scores([lines[0] for lines in REFERENCES], REFERENCES)
    wrong = caption_scores(CAPTIONS[::-1], REFERENCES)
    assert right["rouge_l"] == pytest.approx(100.0)
    assert right["cider"] > 5 * max(wrong["cider"], 1.0)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pycocoevalcap", None)
    monkeypatch.setitem(__import__("sys").modules, "pycocoevalcap.meteor.meteor", None)
    with pytest.raises(ImportError, match=r"needs pycocoevalcap; install it with: pip install 'probattn\[vision\]'"):
        caption_meteor(CAPTIONS, REFERENCES)


@needs_library
def test_without_java_there_is_no_meteor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(FileNotFoundError, match="METEOR is a Java program"):
        caption_meteor(CAPTIONS, REFERENCES)
