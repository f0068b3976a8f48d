"""BLEU and chrF: known values, and what is refused."""

import pytest

from probattn.metrics.bleu import bleu, chrf


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
