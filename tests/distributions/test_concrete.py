"""The Concrete relaxation: its law, its density against torch's, the limit of low temperature, straight-through."""

import math

import pytest
import scipy.stats
import torch

from probattn.core import Dense
from probattn.distributions import Concrete, MaskedOneHot, StraightThroughConcrete
from tests.core.problems import problem, random_scores
from tests.distributions.laws import COPIES, SEED, assert_frequencies, assert_law, z_scores

MASK = torch.tensor([True, True, False, True])
SCORES = torch.tensor([0.5, -0.7, 8.0, 0.1], dtype=torch.float64)


def concrete(temperature: float, count: int = COPIES) -> Concrete:
    return Concrete(SCORES.expand(count, 4), temperature, support=Dense(MASK))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 4.0])
def test_log_odds_of_two_positions_are_logistic(temperature, dtype):
    made = Concrete(SCORES[:2].to(dtype).expand(COPIES, 2), temperature, support=Dense())
    raw = made.draw_raw(1, SEED)[0].double()
    odds = temperature * (raw[:, 0] - raw[:, 1])
    assert_law(odds, scipy.stats.logistic(loc=float(SCORES[0] - SCORES[1])).cdf)


@pytest.mark.parametrize("temperature", [0.05, 1.0, 5.0])
def test_the_largest_weight_is_a_categorical_choice_at_every_temperature(temperature):
    made = concrete(temperature)
    choice = made.realise(made.draw_raw(1, SEED))[0].argmax(dim=-1)
    counts = torch.bincount(choice, minlength=4)
    assert counts[2] == 0
    assert_frequencies(counts[MASK], torch.softmax(SCORES[MASK], dim=0))


def test_low_temperature_is_the_hard_choice_with_the_same_noise():
    made = concrete(1e-7, 500)
    hard = MaskedOneHot(SCORES.expand(500, 4), Dense(MASK))
    weights = made.realise(made.draw_raw(1, SEED))
    assert torch.allclose(weights, hard.draw_raw(1, SEED), atol=1e-3)


def test_high_temperature_is_uniform_on_the_support():
    weights = concrete(1e6, 100).realise(concrete(1e6, 100).draw_raw(1, SEED))
    assert torch.allclose(weights, MASK.double().expand(1, 100, 4) / 3.0, atol=1e-3)


@pytest.mark.parametrize("temperature", [0.1, 0.7, 3.0])
def test_density_agrees_with_torch_on_the_positions_that_are_there(temperature):
    made = concrete(temperature, 1)
    torch_law = torch.distributions.relaxed_categorical.ExpRelaxedCategorical(
        torch.tensor(temperature, dtype=torch.float64), logits=SCORES[MASK], validate_args=False
    )
    raw = made.draw_raw(6, SEED)
    assert torch.allclose(made.log_prob(raw)[:, 0], torch_law.log_prob(raw[:, 0, MASK]))


def test_density_ratio_integrates_to_one():
    """E_q[p / q] = 1 for two temperatures on the same support."""
    q, p = concrete(1.0), concrete(1.5)
    raw = q.draw_raw(1, SEED)
    assert abs(float(z_scores((p.log_prob(raw) - q.log_prob(raw)).exp()[0], 1.0))) < 4.0


def test_plug_in_is_soft_attention():
    assert torch.allclose(concrete(0.1, 1).plug_in[0, MASK], torch.softmax(SCORES[MASK], dim=0))


class TestStraightThrough:
    case = problem()

    @pytest.mark.parametrize("name", ["dense", "segments"])
    def test_one_hot_forward_and_concrete_backward(self, name):
        scores = random_scores(2, 5, 5, scale=1.0)
        support, scores = (
            (self.case.dense, scores) if name == "dense" else (self.case.segments, self.case.to_edges(scores))
        )
        gradients = []
        for family in (Concrete, StraightThroughConcrete):
            leaf = scores.clone().requires_grad_()
            made = family(leaf, 0.7, support=support)
            weights = made.realise(made.draw_raw(3, SEED))
            target = torch.randn(weights.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
            gradients.append(torch.autograd.grad((weights * target).sum(), leaf)[0])
            if family is StraightThroughConcrete:
                soft = Concrete(scores, 0.7, support=support)
                relaxed = soft.realise(soft.draw_raw(3, SEED))
                assert torch.allclose(weights, weights.round(), atol=1e-12)
                largest = relaxed == support.spread(_largest(relaxed, support))
                assert torch.equal(weights.round() > 0.5, largest & (relaxed > 0))
        assert torch.equal(gradients[0], gradients[1]) and gradients[0].abs().sum() > 0

    def test_nothing_to_choose_from(self):
        made = StraightThroughConcrete(torch.zeros(2, 0), 1.0, support=Dense())
        assert made.realise(made.draw_raw(3, SEED)).shape == (3, 2, 0)


def _largest(weights: torch.Tensor, support) -> torch.Tensor:
    if isinstance(support, Dense):
        return weights.max(dim=-1).values
    largest = torch.zeros(support.unit_shape(weights), dtype=weights.dtype)
    index = support.index.view(1, -1, 1).expand_as(weights)
    return largest.scatter_reduce(1, index, weights, reduce="amax")


@pytest.mark.parametrize("family", [Concrete, StraightThroughConcrete])
@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_temperature_must_be_positive(family, temperature):
    with pytest.raises(ValueError, match=rf"{family.__name__}\(temperature\) must be positive, got {temperature}"):
        family(SCORES, temperature, support=Dense())


def test_density_with_one_position_is_zero():
    made = Concrete(torch.randn(2, 1), 0.3, support=Dense())
    raw = made.draw_raw(2, SEED)
    assert torch.equal(raw, torch.zeros(2, 2, 1)) and torch.equal(made.log_prob(raw), torch.zeros(2, 2))
    assert math.isfinite(float(made.plug_in.sum()))
