"""Weibull, lognormal and gamma weights: the laws of S, densities against SciPy, plug-in against the mean, limits."""

import itertools
import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch

from probattn.core import Dense
from probattn.distributions import (
    Lognormal,
    NormalisedGamma,
    NormalisedLognormal,
    NormalisedWeibull,
    Weibull,
)
from tests.distributions.laws import COPIES, SEED, assert_law, copies, z_scores

MASK = torch.tensor([True, True, False])
SUPPORT = Dense(MASK)
LOCATION = torch.tensor([0.3, -1.2, 44.0], dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [0.5, 1.0, 10.0])
def test_weibull_law(k, dtype):
    made = NormalisedWeibull(LOCATION.to(dtype).expand(COPIES, 3), k, support=SUPPORT)
    sample = made.draw_raw(1, SEED)[0].exp()
    for position in (0, 1):
        assert_law(sample[:, position], scipy.stats.weibull_min(k, scale=math.exp(LOCATION[position])).cdf)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sigma", [0.1, 1.0, 5.0])
def test_lognormal_law(sigma, dtype):
    made = NormalisedLognormal(LOCATION.to(dtype).expand(COPIES, 3), sigma, support=SUPPORT)
    sample = made.draw_raw(1, SEED)[0].exp()
    for position in (0, 1):
        assert_law(sample[:, position], scipy.stats.lognorm(sigma, scale=math.exp(LOCATION[position])).cdf)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("concentration, rate", [(0.5, 1.0), (1.0, 0.2), (30.0, 4.0)])
def test_gamma_law(concentration, rate, dtype):
    shape = torch.tensor([concentration, 2.0, 9.0], dtype=dtype)
    made = NormalisedGamma(shape.expand(COPIES, 3), rate, support=SUPPORT)
    sample = made.draw_raw(1, SEED)[0].exp()
    assert_law(sample[:, 0], scipy.stats.gamma(concentration, scale=1.0 / rate).cdf)
    assert_law(sample[:, 1], scipy.stats.gamma(2.0, scale=1.0 / rate).cdf)


def test_normalised_gamma_weights_are_dirichlet():
    shape = torch.tensor([0.5, 2.0, 9.0], dtype=torch.float64)
    made = NormalisedGamma(shape.expand(COPIES, 3), 3.0, support=SUPPORT)
    weights = made.realise(made.draw_raw(1, SEED))[0]
    assert_law(weights[:, 0], scipy.stats.beta(0.5, 2.0).cdf)


@pytest.mark.parametrize(
    "made, law",
    [
        (
            NormalisedWeibull(LOCATION.view(1, 3), 1.7, support=SUPPORT),
            lambda place: scipy.stats.weibull_min(1.7, scale=math.exp(LOCATION[place])),
        ),
        (
            NormalisedLognormal(LOCATION.view(1, 3), 0.6, support=SUPPORT),
            lambda place: scipy.stats.lognorm(0.6, scale=math.exp(LOCATION[place])),
        ),
        (
            NormalisedGamma(LOCATION.view(1, 3).abs(), 2.5, support=SUPPORT),
            lambda place: scipy.stats.gamma(abs(float(LOCATION[place])), scale=1.0 / 2.5),
        ),
    ],
    ids=["weibull", "lognormal", "gamma"],
)
def test_densities_agree_with_scipy(made, law):
    raw = made.draw_raw(8, SEED)
    expected = sum(law(place).logpdf(raw[:, 0, place].exp().numpy()) for place in (0, 1))
    np.testing.assert_allclose(made.log_prob(raw)[:, 0].numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize(
    "made, expected",
    [
        (
            NormalisedWeibull(LOCATION, 0.7, support=SUPPORT),
            lambda place: math.exp(LOCATION[place]) * math.gamma(1.0 + 1.0 / 0.7),
        ),
        (
            NormalisedLognormal(LOCATION, 0.9, support=SUPPORT),
            lambda place: math.exp(LOCATION[place] + 0.405),
        ),
        (NormalisedGamma(LOCATION.abs(), 2.5, support=SUPPORT), lambda place: abs(LOCATION[place]) / 2.5),
    ],
    ids=["weibull", "lognormal", "gamma"],
)
def test_log_mean(made, expected):
    for place in (0, 1):
        assert float(made.log_mean[place].exp()) == pytest.approx(float(expected(place)))


@pytest.mark.parametrize("anchor", ["exp", "softmax"])
@pytest.mark.parametrize("family", [Weibull, Lognormal])
def test_plug_in_is_softmax_and_the_mean_is_not(family, anchor):
    """Soft attention at (2, 0, 0) is 0.787; the mean of the weights under k = 1 noise is 0.68."""
    scores = torch.tensor([2.0, 0.0, 0.0], dtype=torch.float64)
    made = family(1.0, anchor=anchor)(scores.expand(COPIES, 3), Dense())
    soft = torch.softmax(scores, dim=0)
    assert torch.allclose(made.plug_in, soft.expand(COPIES, 3))
    first = made.realise(made.draw_raw(1, SEED))[0][:, 0]
    assert float(z_scores(first, float(soft[0]))) < -10.0
    if family is Weibull:
        assert float(soft[0]) == pytest.approx(0.787, abs=5e-4)
        assert float(first.mean()) == pytest.approx(0.68, abs=0.01)


@pytest.mark.parametrize("k", [torch.tensor([[2.0], [5.0]]), torch.tensor([3.0, 0.5, 1.0])])
def test_plug_in_with_one_concentration_per_position_or_row(k):
    scores = torch.randn(2, 3, dtype=torch.float64)
    for made in (Weibull(k)(scores, SUPPORT), Lognormal(1.0 / k)(scores, SUPPORT)):
        assert torch.allclose(made.log_mean[:, :2], scores[:, :2])
        assert torch.allclose(made.plug_in, SUPPORT.log_softmax(scores).exp())


@pytest.mark.parametrize("family", [Weibull, Lognormal])
def test_gradcheck_of_concentration_and_sigma(family):
    fixed = torch.randn(3, 4, 3, dtype=torch.float64)

    def results(parameter: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = family(parameter)(LOCATION.expand(4, 3), SUPPORT)
        raw = made.draw_raw(3, SEED)
        return made.realise(raw), raw[..., :2], made.log_prob(fixed), made.log_mean[..., :2]

    assert torch.autograd.gradcheck(results, torch.tensor(2.0, dtype=torch.float64, requires_grad=True))


@pytest.mark.parametrize("family, error", [(lambda e: Weibull(1.0 / e), 1.3), (Lognormal, 1.0)])
def test_distance_from_soft_attention_shrinks_with_the_noise(family, error):
    """The noise of a score has standard deviation 1.28 / k for Weibull and sigma for lognormal."""
    scores = torch.tensor([2.0, 0.0, 0.0], dtype=torch.float64)
    soft = torch.softmax(scores, dim=0)
    distances = []
    for noise in (1e-1, 1e-2, 1e-3, 1e-4):
        made = family(noise)(scores.expand(2000, 3), Dense())
        distances.append(float((made.realise(made.draw_raw(1, SEED))[0] - soft).square().mean().sqrt()))
    for larger, smaller in itertools.pairwise(distances):
        assert smaller == pytest.approx(larger / 10.0, rel=0.2)
    assert distances[-1] < error * 1e-4


@pytest.mark.parametrize("name, scale", [("weibull", 1.0), ("lognormal", 1.0)])
def test_pathwise_gradient_of_the_mean_weight_by_quadrature(name, scale):
    """Two positions: W_0 = sigmoid(difference of scores + difference of noises), whose mean is one integral."""
    scores = torch.tensor([0.8, -0.1], dtype=torch.float64)
    family = Weibull(1.5) if name == "weibull" else Lognormal(0.9)
    leaf = copies(scores)
    made = family(leaf, Dense())
    weight = made.realise(made.draw_raw(1, SEED))[0][:, 0]
    (gradient,) = torch.autograd.grad(weight.sum(), leaf)
    # log(E) / k differences are logistic with scale 1 / k, Gaussian differences have standard deviation sqrt(2) sigma
    law = scipy.stats.logistic(scale=1 / 1.5) if name == "weibull" else scipy.stats.norm(scale=math.sqrt(2.0) * 0.9)
    grid = np.linspace(-40.0, 40.0, 400_001)
    sigmoid = scipy.special.expit(0.9 + grid)
    expected = float(np.trapezoid(law.pdf(grid) * sigmoid * (1.0 - sigmoid), grid))
    assert (z_scores(gradient, torch.tensor([expected, -expected])).abs() < 4.0).all()


def test_scores_where_exp_overflows_have_weights():
    made = Weibull(5.0)(torch.tensor([[1000.0, 999.0, 0.0]]), Dense())
    weights = made.realise(made.draw_raw(5, SEED))
    assert torch.isfinite(weights).all() and torch.isfinite(made.log_prob(made.draw_raw(5, SEED))).all()
    assert float(made.plug_in[0, 0]) == pytest.approx(math.e / (math.e + 1.0))


def test_sigma_of_1e15_and_1e_minus_15():
    scores = torch.tensor([[2.0, 0.0, 0.0]])
    flat, sharp = Lognormal(1e15)(scores, Dense()), Lognormal(1e-15)(scores, Dense())
    assert torch.isfinite(flat.realise(flat.draw_raw(5, SEED))).all()
    soft = torch.softmax(scores, dim=-1)
    assert torch.allclose(sharp.realise(sharp.draw_raw(5, SEED)), soft.expand(5, 1, 3))
    assert torch.allclose(sharp.plug_in, soft)
    location = NormalisedLognormal(scores, 1e15, support=Dense())
    assert torch.allclose(location.plug_in, soft)


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize(
    "make, name",
    [
        (lambda v: NormalisedWeibull(LOCATION, v, support=SUPPORT), r"NormalisedWeibull\(concentration\)"),
        (lambda v: NormalisedLognormal(LOCATION, v, support=SUPPORT), r"NormalisedLognormal\(sigma\)"),
        (lambda v: NormalisedGamma(LOCATION, v, support=SUPPORT), r"NormalisedGamma\(rate\)"),
    ],
    ids=["weibull", "lognormal", "gamma"],
)
def test_parameters_must_be_positive_and_finite(make, name, value):
    with pytest.raises(ValueError, match=f"{name} must be positive and finite, got {value}"):
        make(value)
