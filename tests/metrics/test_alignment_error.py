"""AER by hand, and links from weights."""

import pytest
import torch

from probattn.metrics import alignment_error_rate, links_from_weights


def test_by_hand() -> None:
    # A = {a, b, c}, S = {a, d}, P = {b} beside S: (1 + 2) / (3 + 2)
    sentence = ({(0, 0), (1, 1), (2, 2)}, {(0, 0), (3, 3)}, {(1, 1)})
    assert alignment_error_rate([sentence]) == pytest.approx(1 - 3 / 5)


def test_perfect_and_useless() -> None:
    sure = {(0, 1), (1, 0)}
    assert alignment_error_rate([(sure, sure, set())]) == 0.0
    assert alignment_error_rate([({(5, 5)}, sure, set())]) == 1.0


def test_is_a_corpus_measure_and_not_a_mean_over_sentences() -> None:
    short = ({(0, 0)}, {(0, 0)}, set())
    long = ({(i, 9) for i in range(8)}, {(i, i) for i in range(8)}, set())
    assert alignment_error_rate([short, long]) == pytest.approx(1 - 2 / 18)


def test_empty_corpus_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        alignment_error_rate([(set(), set(), {(0, 0)})])


def test_links_join_subwords_and_leave_out_eos() -> None:
    weights = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.0, 0.1, 0.9]])
    assert links_from_weights(weights, [0, 0, -1], [0, 1, 2]) == {(0, 0), (0, 1)}
    assert links_from_weights(weights, [0, 1, 2], [0, 0, -1], threshold=0.2) == {(0, 0), (1, 0)}
    with pytest.raises(ValueError, match="expected weights of shape"):
        links_from_weights(weights, [0, 1], [0, 1, 2])
