"""Back-pointers: what is traced after rows were reordered and dropped."""

import torch

from probattn.decoding import Hypothesis
from probattn.decoding.hypothesis import Trellis


def make_trellis(has_weights=True):
    """Two rows; row 1 is extended twice and row 0 is dropped; then the two swap places."""
    first = torch.tensor([[0.0, 1.0, 9.0], [2.0, 3.0, 9.0]]) if has_weights else None
    second = torch.tensor([[4.0, 5.0, 9.0], [6.0, 7.0, 9.0]]) if has_weights else None
    trellis = Trellis()
    trellis.append([0, 1, 1], [10, 11, 12], weights=first)
    trellis.keep([1, 2])
    trellis.append([1, 0], [20, 21], weights=second)
    return trellis


def test_trace_follows_reordered_rows():
    trellis = make_trellis()
    tokens, weights = trellis.trace(2, 0, source_length=2)
    assert tokens == (12, 20)
    assert weights.tolist() == [[2.0, 3.0], [6.0, 7.0]]
    tokens, weights = trellis.trace(2, 1, source_length=2)
    assert tokens == (11, 21)
    assert weights.tolist() == [[2.0, 3.0], [4.0, 5.0]]


def test_trace_from_an_earlier_level():
    tokens, weights = make_trellis().trace(1, 0, source_length=3)
    assert (tokens, weights.tolist()) == ((11,), [[2.0, 3.0, 9.0]])


def test_the_empty_sentence_has_weights_of_no_rows():
    tokens, weights = make_trellis().trace(0, 0, source_length=2)
    assert (tokens, weights.shape) == ((), (0, 2))


def test_without_weights():
    trellis = make_trellis(has_weights=False)
    assert trellis.trace(2, 0, source_length=2) == ((12, 20), None)
    assert trellis.trace(0, 0, source_length=2) == ((), None)


def test_hypotheses_compare_without_their_weights():
    first = Hypothesis((2, 3), -1.0, -0.5, True, torch.zeros(2, 3))
    assert first == Hypothesis((2, 3), -1.0, -0.5, True, torch.ones(2, 3))
    assert first != Hypothesis((2, 4), -1.0, -0.5, True)
    assert len({first, Hypothesis((2, 3), -1.0, -0.5, True)}) == 1
