"""The masked one-hot distribution: frequencies, probabilities of positions, what is left beside the most probable."""

import math

import pytest
import torch

from probattn.core import Dense
from probattn.distributions import MaskedOneHot
from tests.core.problems import problem, random_scores
from tests.distributions.laws import COPIES, SEED, assert_frequencies

MASK = torch.tensor([True, True, False, True, True])
SCORES = torch.tensor([1.0, -1.0, 9.0, 0.3, -0.2], dtype=torch.float64)


def one_hot(count: int = COPIES) -> MaskedOneHot:
    return MaskedOneHot(SCORES.expand(count, 5), Dense(MASK))


def test_frequencies_by_chi_square():
    made = one_hot()
    index = made.draw_index(1, SEED)[0]
    counts = torch.bincount(index, minlength=5)
    assert counts[2] == 0
    assert_frequencies(counts[MASK], torch.softmax(SCORES[MASK], dim=0))


def test_frequencies_without_some_positions():
    made = one_hot()
    without = torch.tensor([0, 4]).view(2, 1).expand(2, COPIES)
    counts = torch.bincount(made.draw_index(1, SEED, without=without)[0], minlength=5)
    assert counts[[0, 2, 4]].sum() == 0
    assert_frequencies(counts[[1, 3]], torch.softmax(SCORES[[1, 3]], dim=0))


def test_frequencies_on_an_edge_list():
    case, scores = problem(), random_scores(1, 5, 5, scale=1.0)
    edges = case.to_edges(scores)
    made = MaskedOneHot(edges, case.segments)
    counts = made.draw_raw(4000, SEED).sum(dim=0)
    for row in range(5):
        own = case.segments.index == row
        if own.sum() > 1:
            assert_frequencies(counts[own, 0], torch.softmax(edges[own, 0], dim=0))


def test_agrees_with_torch_on_the_positions_that_are_there():
    made, kept = one_hot(1), torch.distributions.Categorical(logits=SCORES[MASK])
    for place, position in enumerate([0, 1, 3, 4]):
        log_prob = made.log_prob_index(torch.tensor([[position]]))
        assert float(log_prob) == pytest.approx(float(kept.log_prob(torch.tensor(place))))
        vector = torch.nn.functional.one_hot(torch.tensor([[position]]), 5).double()
        assert torch.equal(made.log_prob(vector), log_prob)
    assert float(made.entropy()) == pytest.approx(float(kept.entropy()))
    assert float(made.log_prob_index(torch.tensor([[2]]))) == -math.inf


def test_enumerate_support_lists_every_position_once():
    made = one_hot(1)
    vectors = made.enumerate_support()  # (5, 1, 5): the padded position gives a vector of zeros
    assert vectors.shape == (5, 1, 5)
    assert torch.equal(vectors.sum(dim=0)[0], MASK.double())
    assert float(made.log_prob(vectors[:4]).exp().sum()) == pytest.approx(1.0)


def test_top_index_is_ordered_by_probability():
    assert one_hot(1).top_index(2).flatten().tolist() == [0, 3]
    assert one_hot(1).top_index(None).shape == (5, 1)
    assert one_hot(1).top_index(None).flatten().tolist()[:4] == [0, 3, 4, 1]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_log_rest(count):
    made = one_hot(1)
    probabilities = torch.softmax(SCORES[MASK], dim=0).sort(descending=True).values
    rest = made.log_rest(made.top_index(count))
    assert float(rest) == pytest.approx(float(probabilities[count:].sum().log()))


def test_log_rest_of_everything_is_minus_infinity_without_nan_gradient():
    scores = SCORES.view(1, 5).clone().requires_grad_()
    made = MaskedOneHot(scores, Dense(MASK))
    rest = made.log_rest(made.top_index(4))
    assert torch.isneginf(rest).all()
    rest.exp().sum().backward()
    assert torch.isfinite(scores.grad).all()


def test_empty_sets_have_the_one_outcome_nothing():
    scores = torch.randn(2, 3, requires_grad=True)
    made = MaskedOneHot(scores, Dense(torch.tensor([[True, True, False], [False, False, False]])))
    assert made.is_empty().tolist() == [False, True]
    index = made.draw_index(4, SEED)
    assert (made.log_prob_index(index)[:, 1] == 0).all() and (made.draw_raw(4, SEED)[:, 1] == 0).all()
    entropy = made.entropy()
    assert entropy[1] == 0
    (entropy.sum() + made.log_prob_index(index).sum()).backward()
    assert torch.isfinite(scores.grad).all() and (scores.grad[1] == 0).all()


def test_probabilities_that_underflow_keep_their_logarithm():
    made = MaskedOneHot(torch.tensor([[0.0, -500.0]]), Dense())
    assert float(made.plug_in[0, 1]) == 0.0 and float(made.log_probs[0, 1]) == -500.0
    assert float(made.log_prob_index(torch.tensor([[1]]))) == -500.0


def test_a_hard_choice_needs_a_position():
    made = MaskedOneHot(torch.zeros(2, 0), Dense())
    with pytest.raises(ValueError, match=r"needs at least one position, but the memory is empty \(scores \(2, 0\)\)"):
        made.draw_index(1, SEED)
    with pytest.raises(ValueError, match="Give the memory a position, or use Mean, which reads a context of zeros"):
        made.top_index(1)


def test_a_batch_without_examples_is_no_error():
    assert MaskedOneHot(torch.zeros(0, 3), Dense()).draw_index(2, SEED).shape == (2, 0)


def test_vectors_and_positions_outside_the_support_have_no_probability() -> None:
    p = MaskedOneHot(torch.zeros(3), Dense(torch.tensor([True, True, False])))
    torch.testing.assert_close(p.log_prob(torch.eye(3)), p.log_prob_index(torch.arange(3)))
    assert float(p.log_prob(torch.eye(3))[2]) == -torch.inf
