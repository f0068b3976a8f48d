"""BLEU and chrF: known values, and what is refused."""

import math
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import sacrebleu.metrics

from probattn.metrics.bleu import bleu, bleu_by_order, chrf, mean_bleu_by_order

LINE = st.lists(st.sampled_from("abc"), max_size=6).map(" ".join)


def test_perfect_and_hopeless() -> None:
    lines = ["a man rides a horse .", "two dogs play in the snow ."]
    assert bleu(lines, lines).score == pytest.approx(100.0)
    assert chrf(lines, lines).score == pytest.approx(100.0)
    assert bleu(["x y z u v w"], ["a b c d e f"]).score < 5.0


def test_by_hand() -> None:
    # precisions 5/6, 4/5, 3/4, 2/3 and no brevity penalty
    expected = 100.0 * (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25
    assert bleu(["a b c d e x"], ["a b c d e f"]).score == pytest.approx(expected, abs=1e-3)


def test_signature_names_the_tokeniser() -> None:
    assert "tok:none" in bleu(["a b c d"], ["a b c d"]).signature
    assert "tok:13a" in bleu(["a b c d"], ["a b c d"], is_tokenised=False).signature


def test_uneven_lists_are_refused() -> None:
    with pytest.raises(ValueError, match="as many hypotheses as references"):
        bleu(["a"], ["a", "b"])


@pytest.mark.parametrize("score", [bleu, bleu_by_order, chrf])
@pytest.mark.parametrize(("hypotheses", "references"), [("a b", "a b"), ("a", ["a"]), (["a"], "a")])
def test_strings_are_no_lists(score: Any, hypotheses: Any, references: Any) -> None:
    with pytest.raises(ValueError, match="lists of texts, got a string, whose letters would be scored as texts"):
        score(hypotheses, references)


# BLEU-1 to BLEU-4


def test_orders_by_hand() -> None:
    # 4 of 5 words, 2 of 4 bigrams, 0 of 3 and 0 of 2: smoothing makes the last two 1/2 of 3 and 1/4 of 2
    scores = bleu_by_order(["what is a dog ?"], ["what is the dog ?"])
    precisions = [4 / 5, 2 / 4, 0.5 / 3, 0.25 / 2]
    for order in (1, 2, 3, 4):
        expected = 100.0 * math.prod(precisions[:order]) ** (1 / order)
        assert scores[order].score == pytest.approx(expected, abs=1e-3)


def test_brevity_penalty_by_hand() -> None:
    assert bleu_by_order(["a b", ""], ["a b", "c d"])[1].score == pytest.approx(100.0 * math.exp(1 - 4 / 2), abs=1e-3)


@hypothesis.given(lines=st.lists(st.tuples(LINE, LINE), min_size=1, max_size=5))
def test_orders_are_those_of_sacrebleu(lines: list[tuple[str, str]]) -> None:
    hypotheses, references = ([pair[side] for pair in lines] for side in (0, 1))
    scores = bleu_by_order(hypotheses, references)
    for order, one in scores.items():
        direct = sacrebleu.metrics.BLEU(tokenize="none", force=True, max_ngram_order=order)
        assert one.score == pytest.approx(direct.corpus_score(hypotheses, [references]).score, abs=1e-4)
        assert one.signature == f"{direct.get_signature()}|order:{order}"
        assert 0.0 <= one.score <= 100.0
    assert scores[4].score == bleu(hypotheses, references).score
    assert "smooth:exp" in scores[4].signature and "tok:none" in scores[4].signature


def test_orders_that_no_hypothesis_has_are_zero() -> None:
    assert [one.score for one in bleu_by_order(["a b"], ["a b"]).values()] == [100.0, 100.0, 0.0, 0.0]
    assert [one.score for one in bleu_by_order([""], ["a b"]).values()] == [0.0] * 4


def test_mean_over_sample_numbers() -> None:
    samples = [["a b c d", "a b x y"], ["e f", "g h"]]
    references = ["a b c d", "e f"]
    mean = mean_bleu_by_order(samples, references)
    first, second = (bleu_by_order([one[number] for one in samples], references) for number in (0, 1))
    for order in (1, 2, 3, 4):
        assert mean[order].score == pytest.approx((first[order].score + second[order].score) / 2, abs=1e-4)
    assert mean[2].signature.endswith("|order:2|samples:2")
    assert mean_bleu_by_order([["a b"], ["c d"]], ["a b", "c x"])[1].score == 75.0, "one sample: the corpus score"


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([["a"], ["a", "b"]], "equally many and at least one, got lists of 1, 2"),
        ([[], []], "got lists of 0"),
        (["aa", "bb"], "got a string in place of a list; a single output per source goes to bleu_by_order"),
        ([["a"]], "as many hypotheses as references and at least one, got 1 and 2"),
    ],
)
def test_bad_samples_are_refused(samples: list[list[str]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mean_bleu_by_order(samples, ["a", "b"])
