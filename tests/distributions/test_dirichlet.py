"""The masked Dirichlet: Beta marginals on a padded support, density against SciPy, gradients of expectations."""

import pytest
import scipy.stats
import torch

from probattn.core import Dense, Segments
from probattn.distributions import MaskedDirichlet, kl
from tests.distributions.laws import COPIES, SEED, assert_law, copies, z_scores

MASK = torch.tensor([True, False, True, True])
CONCENTRATION = torch.tensor([0.4, 7.0, 1.5, 3.0], dtype=torch.float64)
KEPT = CONCENTRATION[MASK]


def dirichlet(concentration: torch.Tensor) -> MaskedDirichlet:
    return MaskedDirichlet(concentration, support=Dense(MASK))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_marginals_are_beta_on_the_positions_that_are_there(dtype):
    made = dirichlet(CONCENTRATION.to(dtype).expand(COPIES, 4))
    weights = made.realise(made.draw_raw(1, SEED))[0]
    for position, own in zip([0, 2, 3], KEPT.tolist(), strict=True):
        assert_law(weights[:, position], scipy.stats.beta(own, float(KEPT.sum()) - own).cdf)


def test_marginals_on_an_edge_list():
    index = torch.tensor([0, 1, 0, 0, 1])
    concentration = torch.tensor([0.4, 2.0, 1.5, 3.0, 0.7], dtype=torch.float64).view(5, 1)
    made = MaskedDirichlet(concentration.expand(5, 4000), support=Segments(index, 2))
    weights = made.realise(made.draw_raw(1, SEED))[0]
    for edge, own in enumerate(concentration.flatten().tolist()):
        total = float(concentration[index == index[edge]].sum())
        assert_law(weights[edge], scipy.stats.beta(own, total - own).cdf)


def test_covariance_is_negative_as_on_a_simplex():
    made = dirichlet(CONCENTRATION.expand(COPIES, 4))
    weights = made.realise(made.draw_raw(1, SEED))[0][:, MASK]
    total, mean = KEPT.sum(), KEPT / KEPT.sum()
    products = (weights.unsqueeze(-1) * weights.unsqueeze(-2)).flatten(1)
    expected = (mean.outer(mean) * total + torch.diag(mean)) / (total + 1.0)
    assert (z_scores(products, expected.flatten()).abs() < 4.0).all()


def test_density_agrees_with_scipy_on_the_positions_that_are_there():
    made = dirichlet(CONCENTRATION.view(1, 4))
    raw = made.draw_raw(6, SEED)
    for sample, log_prob in zip(raw[:, 0], made.log_prob(raw)[:, 0], strict=True):
        weights = sample[MASK].exp()
        expected = scipy.stats.dirichlet.logpdf((weights / weights.sum()).numpy(), KEPT.numpy())
        assert float(log_prob) == pytest.approx(expected, abs=1e-9)


def test_plug_in_is_the_mean():
    made = dirichlet(CONCENTRATION.expand(COPIES, 4))
    assert torch.allclose(made.plug_in[0, MASK], KEPT / KEPT.sum())
    assert torch.allclose(made.total, KEPT.sum().expand(COPIES))
    weights = made.realise(made.draw_raw(1, SEED))[0]
    assert (z_scores(weights[:, MASK], KEPT / KEPT.sum()).abs() < 4.0).all()


@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
def test_pathwise_gradients_of_the_first_two_moments(scale):
    leaf = copies(scale * CONCENTRATION)
    made = dirichlet(leaf)
    weights = made.realise(made.draw_raw(1, SEED))[0]
    own = (scale * KEPT).clone().requires_grad_()
    mean = own / own.sum()
    second = mean * (own + 1.0) / (own.sum() + 1.0)
    for place, position in enumerate([0, 2, 3]):
        for power, moment in ((1, mean), (2, second)):
            (expected,) = torch.autograd.grad(moment[place], own, retain_graph=True)
            (gradient,) = torch.autograd.grad(weights[:, position].pow(power).sum(), leaf, retain_graph=True)
            assert (gradient[:, 1] == 0).all()
            assert (z_scores(gradient[:, MASK], expected).abs() < 4.0).all()


def test_one_position_and_no_position():
    made = MaskedDirichlet(
        torch.tensor([[2.0, 3.0], [2.0, 3.0]], requires_grad=True),
        support=Dense(torch.tensor([[False, True], [False, False]])),
    )
    raw = made.draw_raw(3, SEED)
    assert made.realise(raw).tolist() == [[[0.0, 1.0], [0.0, 0.0]]] * 3
    assert torch.allclose(made.log_prob(raw), torch.zeros(3, 2), atol=1e-6)


@pytest.mark.parametrize("padding", [0.0, -3.0, float("nan")])
def test_padded_positions_need_no_concentration(padding):
    """Torch's Dirichlet rejects them; here they are no part of the simplex."""
    leaf = CONCENTRATION.masked_fill(~MASK, padding).view(1, 4).requires_grad_()
    made, expected = dirichlet(leaf), dirichlet(CONCENTRATION.view(1, 4))
    raw = made.draw_raw(3, SEED)
    assert torch.equal(made.realise(raw), expected.realise(expected.draw_raw(3, SEED)))
    assert torch.equal(made.log_prob(raw), expected.log_prob(raw)) and torch.equal(made.plug_in, expected.plug_in)
    (made.realise(raw).square().sum() + made.log_prob(raw).sum() + kl(made, expected).sum()).backward()
    assert torch.isfinite(leaf.grad).all() and (leaf.grad[0, MASK] != 0).all()


@pytest.mark.parametrize("log_concentration", [0.0, 8.0, 14.0, 20.0])
def test_density_of_float32_draws_is_that_of_their_weights(log_concentration):
    """At large concentrations, lgamma and log W rounded to float32 would each be wrong by tens to thousands of nats."""
    concentration = torch.tensor([[0.3, 0.0, -0.4, 0.1]]).add(log_concentration).exp()
    made = dirichlet(concentration)
    raw = made.draw_raw(50, SEED)
    exact = dirichlet(concentration.double()).log_prob(torch.log_softmax(raw.double().masked_fill(~MASK, -1e300), -1))
    assert torch.allclose(made.log_prob(raw).double(), exact, atol=1e-3, rtol=1e-6)
    entropy = torch.distributions.Dirichlet(concentration.double()[:, MASK]).entropy()
    assert z_scores(-made.log_prob(raw).double(), entropy).abs().max() < 4.0
