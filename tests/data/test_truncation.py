"""Cutting pairs to a number of words."""

import pytest

from probattn.data import ParallelText, truncated


def test_each_side_is_cut_at_its_own_limit() -> None:
    text = ParallelText(("a b  c d e", "a\u00a0b"), ("1 2 3 ?", "1"), "toy", num_empty=3)
    cut = truncated(text, source=3, target=2)
    assert cut == ParallelText(("a b c", "a\u00a0b"), ("1 2", "1"), "toy", num_empty=3)
    assert truncated(text, source=5, target=4).target == text.target


def test_the_papers_limits() -> None:
    text = truncated(ParallelText(("w " * 40,), ("w " * 40,), "toy"))
    assert (len(text.source[0].split()), len(text.target[0].split())) == (30, 20)


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_side_keeps_a_word(side: str) -> None:
    with pytest.raises(ValueError, match=f"{side} must keep at least 1 word, got 0"):
        truncated(ParallelText(("a",), ("b",), "toy"), **{side: 0})
