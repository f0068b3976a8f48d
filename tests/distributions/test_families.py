"""From scores to distributions: anchors, the two readings of each BAM prior, clamps, errors."""

import math

import pytest
import torch

from probattn.core import Dense
from probattn.distributions import (
    Categorical,
    Concrete,
    Dirichlet,
    GammaPrior,
    GumbelSoftmax,
    Lognormal,
    LognormalPrior,
    MaskedDirichlet,
    MaskedOneHot,
    NormalisedGamma,
    NormalisedLognormal,
    NormalisedWeibull,
    StraightThroughConcrete,
    StraightThroughGumbel,
    Weibull,
    kl,
)

MASK = torch.tensor([[True, True, False], [True, True, True]])
SUPPORT = Dense(MASK)
SCORES = torch.tensor([[0.3, -1.0, 7.0], [0.1, 0.5, -0.4]], dtype=torch.float64)


@pytest.mark.parametrize(
    "family, made",
    [
        (Categorical(), MaskedOneHot),
        (Dirichlet(), MaskedDirichlet),
        (Weibull(), NormalisedWeibull),
        (Lognormal(), NormalisedLognormal),
        (GumbelSoftmax(), Concrete),
        (StraightThroughGumbel(), StraightThroughConcrete),
        (GammaPrior(), NormalisedGamma),
        (LognormalPrior(), NormalisedLognormal),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_each_family_makes_its_distribution(family, made):
    assert type(family(SCORES, SUPPORT)) is made
    assert family == type(family)() and hash(family) == hash(type(family)())


def test_dirichlet_concentration_is_exp_of_clamped_scores():
    made = Dirichlet()(torch.tensor([[1.0, 1e4, -1e4]], dtype=torch.float64), Dense())
    assert torch.allclose(made.concentration, torch.tensor([[1.0, 20.0, -20.0]], dtype=torch.float64).exp())


def test_dirichlet_bound_is_smooth_and_leaves_small_scores():
    scores = torch.tensor([[0.01, 1e4, -1e4, 3.0]], dtype=torch.float64, requires_grad=True)
    made = Dirichlet(log_bound=3.0)(scores, Dense())
    expected = torch.tensor([[0.01, 3.0, -3.0, 3.0 * math.tanh(1.0)]], dtype=torch.float64)
    assert torch.allclose(made.concentration.log(), expected, atol=1e-6)
    (slope,) = torch.autograd.grad(made.concentration.log().sum(), scores)
    assert 0.99 < float(slope[0, 0]) < 1.0 and 0.0 < float(slope[0, 3]) < 0.5  # a clamp would have one or zero
    with pytest.raises(ValueError, match=r"Dirichlet\(log_bound\) must be positive, got 0"):
        Dirichlet(log_bound=0.0)


@pytest.mark.parametrize("family", [Weibull, Lognormal])
def test_anchors_fix_the_mean_of_s(family):
    exp = family(2.0)(SCORES, SUPPORT)
    softmax = family(2.0, anchor="softmax")(SCORES, SUPPORT)
    inside = MASK
    assert torch.allclose(exp.log_mean[inside], SCORES[inside])
    assert torch.allclose(softmax.log_mean[inside], SUPPORT.log_softmax(SCORES)[inside])


@pytest.mark.parametrize("family, prior", [(Weibull(2.0), GammaPrior()), (Lognormal(0.5), LognormalPrior())])
def test_only_the_exp_anchor_feels_a_shift_of_the_scores(family, prior):
    log_psi = SUPPORT.log_softmax(torch.zeros_like(SCORES))
    anchored = type(family)(2.0, anchor="softmax")
    p, seed = prior(log_psi, SUPPORT), torch.tensor(1)
    made, shifted = family(SCORES, SUPPORT), family(SCORES + 1.0, SUPPORT)
    assert torch.allclose(made.realise(made.draw_raw(2, seed)), shifted.realise(shifted.draw_raw(2, seed)))
    assert not torch.allclose(kl(made, p), kl(shifted, p))
    assert torch.allclose(kl(anchored(SCORES, SUPPORT), p), kl(anchored(SCORES + 1.0, SUPPORT), p))


def test_weibull_scale_has_the_mean_that_the_paper_asks_for():
    made = Weibull(0.7)(SCORES, SUPPORT)
    expected = SCORES.exp() / math.gamma(1.0 + 1.0 / 0.7)  # BAM, Sec. 3.2: lambda = exp(Phi) / Gamma(1 + 1/k)
    assert torch.allclose(made.log_scale[MASK].exp(), expected[MASK])


def test_lognormal_location_has_the_mean_that_the_paper_asks_for():
    made = Lognormal(0.7)(SCORES, SUPPORT)
    assert torch.allclose(made.location[MASK], (SCORES - 0.245)[MASK])  # BAM, Sec. 3.2: mu = Phi - sigma² / 2


@pytest.mark.parametrize("concentration, factor", [("psi", 1.0), ("psi_rate", 0.25)])
def test_gamma_prior(concentration, factor):
    log_psi = SUPPORT.log_softmax(SCORES)
    made = GammaPrior(0.25, concentration=concentration)(log_psi, SUPPORT)
    assert torch.allclose(made.concentration[MASK], factor * log_psi.exp()[MASK])
    assert float(made.rate) == 0.25
    mean = made.log_mean.exp()[MASK]
    assert torch.allclose(mean, log_psi.exp()[MASK] * (4.0 if concentration == "psi" else 1.0))


@pytest.mark.parametrize("location", ["psi", "log_psi"])
def test_lognormal_prior(location):
    log_psi = SUPPORT.log_softmax(SCORES)
    made = LognormalPrior(3.0, location=location)(log_psi, SUPPORT)
    expected = log_psi.exp() if location == "psi" else log_psi
    assert torch.allclose(made.location[MASK], expected[MASK])
    assert torch.isfinite(made.location).all() and float(made.sigma) == 3.0


def test_a_key_that_underflows_still_has_a_gamma():
    made = GammaPrior()(torch.tensor([[0.0, -1e4]]), Dense())
    assert (made.concentration > 0).all()
    assert torch.isfinite(made.log_mean).all() and torch.isfinite(torch.lgamma(made.concentration)).all()


def test_one_prior_row_serves_all_queries():
    log_psi = torch.log_softmax(torch.randn(2, 1, 4, dtype=torch.float64), dim=-1)
    scores = torch.randn(2, 3, 4, dtype=torch.float64)
    support = Dense(torch.ones(3, 4, dtype=torch.bool).tril(1))
    for family, prior in ((Weibull(2.0), GammaPrior()), (Lognormal(0.5), LognormalPrior())):
        shared = kl(family(scores, support), prior(log_psi, support))
        written_out = kl(family(scores, support), prior(log_psi.expand(2, 3, 4), support))
        assert shared.shape == (2, 3) and torch.allclose(shared, written_out)


@pytest.mark.parametrize("family", [Weibull, Lognormal])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_noise_needs_a_positive_size(family, value):
    with pytest.raises(
        ValueError, match=rf"{family.__name__}\((concentration|sigma)\) must be positive and finite, got"
    ):
        family(value)


@pytest.mark.parametrize("family", [Weibull, Lognormal])
def test_unknown_anchor(family):
    with pytest.raises(ValueError, match="anchor must be 'exp' or 'softmax', got 'sofmax'"):
        family(2.0, anchor="sofmax")(SCORES, SUPPORT)


@pytest.mark.parametrize("family", [Weibull, Lognormal])
def test_parameter_tensors_follow_the_scores(family):
    made = family(torch.tensor(2.0, dtype=torch.float64))(SCORES.float(), SUPPORT)
    parameter = made.concentration if family is Weibull else made.sigma
    assert parameter.dtype == torch.float32
