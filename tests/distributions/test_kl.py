"""Every registered KL against Monte Carlo, against closed forms of torch, and against numerical integration."""

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch
from torch import Tensor

from probattn.core import Dense
from probattn.distributions import (
    Categorical,
    CodeDelta,
    Concrete,
    DiagonalGaussian,
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
    has_kl,
    kl,
    kl_entries,
)
from tests.distributions.laws import COPIES, SEED, z_scores

MASK = torch.tensor([[True, True, True, False], [True, False, True, True], [False] * 4, [False, True, False, False]])
SUPPORT = Dense(MASK)


def scores(seed: int, scale: float = 0.7) -> Tensor:
    return scale * torch.randn(4, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


MONTE_CARLO = {
    "one-hot": (Categorical(), Categorical()),
    "dirichlet": (Dirichlet(), Dirichlet()),
    "weibull, gamma": (Weibull(1.5), GammaPrior(0.8)),
    "weibull, gamma, code": (Weibull(3.0, anchor="softmax"), GammaPrior(2.0, concentration="psi_rate")),
    "lognormal": (Lognormal(0.7), LognormalPrior(1.2)),
    "lognormal, code": (Lognormal(0.7, anchor="softmax"), LognormalPrior(0.9, location="log_psi")),
}


@pytest.mark.parametrize("name", MONTE_CARLO)
def test_monte_carlo_on_a_padded_support(name):
    family, prior = MONTE_CARLO[name]
    q, p = family(scores(1), SUPPORT), prior(scores(2), SUPPORT)
    raw = q.draw_raw(4000, SEED)
    z = z_scores(q.log_prob(raw) - p.log_prob(raw), kl(q, p))
    assert (z.abs() < 4.0).all()
    spread = (q.log_prob(raw) - p.log_prob(raw)).std(dim=0)
    assert (spread[:2] > 1e-3).all() and float(kl(q, p)[2]) == 0.0  # the test can fail, the empty row cannot


def test_gaussian_monte_carlo():
    q = DiagonalGaussian(scores(1), scores(2))
    p = DiagonalGaussian(scores(3), scores(4))
    raw = q.draw_raw(COPIES, SEED)
    assert (z_scores(q.log_prob(raw) - p.log_prob(raw), kl(q, p)).abs() < 4.0).all()


class TestAgainstTorch:
    def test_one_hot(self):
        a, b = scores(1), scores(2)
        expected = torch.distributions.kl_divergence(
            torch.distributions.Categorical(logits=a), torch.distributions.Categorical(logits=b)
        )
        assert torch.allclose(kl(MaskedOneHot(a, Dense()), MaskedOneHot(b, Dense())), expected)

    def test_one_hot_on_a_subset(self):
        a, b = scores(1), scores(2)
        divergence = kl(MaskedOneHot(a, SUPPORT), MaskedOneHot(b, SUPPORT))
        for row in (0, 1, 3):
            own = torch.distributions.Categorical(logits=a[row, MASK[row]])
            other = torch.distributions.Categorical(logits=b[row, MASK[row]])
            assert float(divergence[row]) == pytest.approx(
                float(torch.distributions.kl_divergence(own, other)), abs=1e-12
            )

    def test_dirichlet(self):
        a, b = scores(1).exp(), scores(2).exp()
        made = kl(MaskedDirichlet(a, support=SUPPORT), MaskedDirichlet(b, support=SUPPORT))
        for row in (0, 1):
            own, other = (torch.distributions.Dirichlet(x[row, MASK[row]]) for x in (a, b))
            assert float(made[row]) == pytest.approx(float(torch.distributions.kl_divergence(own, other)))
        assert float(made[3]) == pytest.approx(0.0, abs=1e-12)  # one position: a point

    def test_lognormal(self):
        q, p = (
            NormalisedLognormal(scores(1), 0.6, support=Dense()),
            NormalisedLognormal(scores(2), 1.7, support=Dense()),
        )
        expected = torch.distributions.kl_divergence(
            torch.distributions.LogNormal(scores(1), 0.6), torch.distributions.LogNormal(scores(2), 1.7)
        )
        assert torch.allclose(kl(q, p), expected.sum(dim=-1))
        assert torch.allclose(kl_entries(q, p), expected)

    def test_weibull_gamma(self):
        # torch has no such pair, but a Weibull with k = 1 and a Gamma with alpha = 1 are exponential
        q = NormalisedWeibull(scores(1), 1.0, support=Dense())
        p = NormalisedGamma(torch.ones(4, 4, dtype=torch.float64), 0.4, support=Dense())
        expected = torch.distributions.kl_divergence(
            torch.distributions.Exponential((-scores(1)).exp()),
            torch.distributions.Exponential(torch.tensor(0.4, dtype=torch.float64)),
        )
        assert torch.allclose(kl(q, p), expected.sum(dim=-1))

    @pytest.mark.parametrize("make_prior", ["ours", "torch's"])
    def test_gaussian(self, make_prior):
        q = DiagonalGaussian(scores(1), scores(2))
        normal = torch.distributions.Normal(scores(3), (0.5 * scores(4)).exp())
        p = DiagonalGaussian(scores(3), scores(4)) if make_prior == "ours" else normal
        own = torch.distributions.Normal(scores(1), (0.5 * scores(2)).exp())
        expected = torch.distributions.kl_divergence(own, normal)
        assert torch.allclose(kl(q, p), expected.sum(dim=-1))
        assert torch.allclose(kl_entries(q, p), expected)

    def test_standard_normal_broadcasts(self):
        q = DiagonalGaussian(scores(1), scores(2))
        standard = DiagonalGaussian(torch.zeros_like(scores(1)), torch.zeros(4, dtype=torch.float64))
        unit = torch.distributions.Normal(torch.zeros((), dtype=torch.float64), 1.0)
        assert torch.allclose(kl(q, standard), kl(q, unit))


@pytest.mark.parametrize("k", [0.6, 1.0, 2.5, 10.0])
@pytest.mark.parametrize("scale", [0.3, 2.0])
@pytest.mark.parametrize("shape, rate", [(0.5, 1.0), (2.0, 0.1), (7.0, 3.0)])
def test_weibull_gamma_by_numerical_integration(k, scale, shape, rate):
    q = NormalisedWeibull(torch.tensor([[math.log(scale)]], dtype=torch.float64), k, support=Dense())
    p = NormalisedGamma(torch.tensor([[shape]], dtype=torch.float64), rate, support=Dense())
    weibull, gamma = scipy.stats.weibull_min(k, scale=scale), scipy.stats.gamma(shape, scale=1.0 / rate)

    def integrand(level: float) -> float:  # by the quantile of q, so that the integral runs over (0, 1)
        s = weibull.ppf(level)
        return weibull.logpdf(s) - gamma.logpdf(s)

    expected, error = scipy.integrate.quad(integrand, 0.0, 1.0, limit=400)
    assert error < 1e-4 * max(1.0, abs(expected))
    assert float(kl(q, p)) == pytest.approx(expected, rel=2e-4, abs=2e-4)


class TestDispatch:
    def test_concrete_uses_the_kl_of_the_choice(self):
        a, b = scores(1), scores(2)
        expected = kl(MaskedOneHot(a, SUPPORT), MaskedOneHot(b, SUPPORT))
        for family in (GumbelSoftmax(0.3), StraightThroughGumbel(0.3)):
            assert torch.equal(kl(family(a, SUPPORT), MaskedOneHot(b, SUPPORT)), expected)

    def test_straight_through_is_found_by_its_base_class(self):
        assert has_kl(StraightThroughConcrete, MaskedOneHot) and has_kl(Concrete, MaskedOneHot)

    @pytest.mark.parametrize(
        "q, p",
        [(MaskedOneHot, Concrete), (NormalisedGamma, NormalisedWeibull), (MaskedDirichlet, NormalisedGamma)],
    )
    def test_pairs_without_a_closed_form(self, q, p):
        assert not has_kl(q, p)

    def test_asking_for_such_a_pair(self):
        with pytest.raises(NotImplementedError):
            kl(MaskedOneHot(scores(1), SUPPORT), Concrete(scores(2), 1.0, support=SUPPORT))

    def test_entries_of_pairs_that_are_no_sum(self):
        assert kl_entries(MaskedOneHot(scores(1), SUPPORT), MaskedOneHot(scores(2), SUPPORT)) is None

    def test_subclasses_keep_their_entries(self):
        class Narrow(DiagonalGaussian):
            pass

        q, p = Narrow(scores(1), scores(2)), DiagonalGaussian(scores(3), scores(4))
        assert torch.allclose(kl_entries(q, p).sum(dim=-1), kl(q, p))


class TestCodeDelta:
    codes = torch.randn(3, 2, dtype=torch.float64)
    encoded = torch.randn(2, 5, 2, dtype=torch.float64)
    logits = torch.randn(2, 5, 3, dtype=torch.float64)

    def test_kl_is_the_cross_entropy_of_the_chosen_code(self):
        q = CodeDelta(self.encoded, self.codes)
        expected = torch.nn.functional.cross_entropy(
            self.logits.flatten(0, 1), q.index.flatten(), reduction="none"
        ).view(2, 5)
        assert torch.allclose(kl(q, MaskedOneHot(self.logits, Dense())), expected)
        assert torch.allclose(kl(q, torch.distributions.Categorical(logits=self.logits)), expected)

    def test_padded_positions_cost_nothing(self):
        mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
        q, plain = CodeDelta(self.encoded, self.codes, mask=mask), CodeDelta(self.encoded, self.codes)
        for p in (MaskedOneHot(self.logits, Dense()), torch.distributions.Categorical(logits=self.logits)):
            assert torch.equal(kl(q, p), kl(plain, p).masked_fill(~mask, 0.0))

    def test_gradient_reaches_the_prior_alone(self):
        logits, encoded = self.logits.clone().requires_grad_(), self.encoded.clone().requires_grad_()
        divergence = kl(CodeDelta(encoded, self.codes), MaskedOneHot(logits, Dense())).sum()
        of_logits, of_encoded = torch.autograd.grad(divergence, (logits, encoded), allow_unused=True)
        assert of_logits.abs().sum() > 0 and of_encoded is None


class TestGaussianMask:
    def test_padded_units_cost_nothing(self):
        mask = torch.tensor([True, False, True, False])
        q = DiagonalGaussian(scores(1), scores(2), mask=mask)
        p = DiagonalGaussian(scores(3), scores(4))
        plain = kl(DiagonalGaussian(scores(1), scores(2)), p)
        assert torch.equal(kl(q, p), plain.masked_fill(~mask, 0.0))
        assert torch.allclose(kl_entries(q, p).sum(dim=-1), kl(q, p))
        normal = torch.distributions.Normal(scores(3), (0.5 * scores(4)).exp())
        assert torch.allclose(kl(q, normal), kl(q, p))

    def test_gradcheck(self):
        def divergence(*parameters: Tensor) -> Tensor:
            q_mean, q_log_variance, p_mean, p_log_variance = parameters
            return kl(DiagonalGaussian(q_mean, q_log_variance), DiagonalGaussian(p_mean, p_log_variance))

        assert torch.autograd.gradcheck(divergence, tuple(scores(seed).requires_grad_() for seed in range(4)))


class TestNumerics:
    def test_probabilities_that_underflow(self):
        """In float32 exp(-300) is 0, and the stock KL is infinite or NaN there."""
        a = torch.tensor([[0.0, -300.0, -400.0]], requires_grad=True)
        b = torch.tensor([[-300.0, 0.0, -500.0]], requires_grad=True)
        divergence = kl(MaskedOneHot(a, Dense()), MaskedOneHot(b, Dense()))
        assert float(divergence.detach()) == pytest.approx(300.0)
        divergence.sum().backward()
        assert torch.isfinite(a.grad).all() and torch.isfinite(b.grad).all()

    def test_scores_of_minus_infinity_inside_the_support(self):
        """What a float mask that was added to the scores leaves behind, without a bool mask that says so."""
        a, b = scores(1).requires_grad_(), scores(2).requires_grad_()
        hidden = torch.tensor([False, True, False, False])
        q, p = (MaskedOneHot(x.masked_fill(hidden, -math.inf), Dense()) for x in (a, b))
        expected = kl(MaskedOneHot(a, Dense(~hidden)), MaskedOneHot(b, Dense(~hidden)))
        assert torch.allclose(kl(q, p), expected)
        kl(q, p).sum().backward()
        assert torch.isfinite(a.grad).all() and torch.isfinite(b.grad).all()

    @pytest.mark.parametrize("family", [Categorical(), GumbelSoftmax(0.1), Dirichlet()])
    def test_scores_of_ten_thousand(self, family):
        prior = Categorical() if isinstance(family, GumbelSoftmax) else family
        a, b = (1e4 * scores(seed).sign().float() for seed in (1, 2))
        a, b = a.requires_grad_(), b.requires_grad_()
        divergence = kl(family(a, SUPPORT), prior(b, SUPPORT))
        assert torch.isfinite(divergence).all() and (divergence[:2] >= 0).all() and (divergence > 1.0).any()
        divergence.sum().backward()
        assert torch.isfinite(a.grad).all() and torch.isfinite(b.grad).all()

    @pytest.mark.parametrize(
        "family, prior",
        [(Weibull(2.0, anchor="softmax"), GammaPrior()), (Lognormal(0.5, anchor="softmax"), LognormalPrior())],
    )
    def test_the_softmax_anchor_is_finite_at_ten_thousand(self, family, prior):
        a = (1e4 * scores(1).sign().float()).requires_grad_()
        divergence = kl(family(a, SUPPORT), prior(SUPPORT.log_softmax(scores(2).float()), SUPPORT))
        assert torch.isfinite(divergence).all()
        divergence.sum().backward()
        assert torch.isfinite(a.grad).all()

    def test_the_exp_anchor_overflows_to_infinity_and_not_to_nan(self):
        prior = GammaPrior()(SUPPORT.log_softmax(scores(2).float()), SUPPORT)
        divergence = kl(Weibull(2.0)(torch.full((4, 4), 1e4), SUPPORT), prior)
        assert torch.isposinf(divergence[[0, 1, 3]]).all() and float(divergence[2]) == 0.0

    @pytest.mark.parametrize("anchor", ["exp", "softmax"])
    @pytest.mark.parametrize("rate", [1e-15, 1e-10, 1.0])
    @pytest.mark.parametrize("reading", ["psi", "psi_rate"])
    def test_bam_gamma_priors(self, rate, anchor, reading):
        """beta = 1e-15 makes alpha = 1e-15 in the released code's reading."""
        a = scores(1).float().requires_grad_()
        log_psi = SUPPORT.log_softmax(scores(2).float()).requires_grad_()
        p = GammaPrior(rate, concentration=reading)(log_psi, SUPPORT)
        divergence = kl(Weibull(10.0, anchor=anchor)(a, SUPPORT), p)
        assert torch.isfinite(divergence).all()
        divergence.sum().backward()
        assert torch.isfinite(a.grad).all() and torch.isfinite(log_psi.grad).all()

    def test_a_tiny_rate_is_multiplied_before_exp_overflows(self):
        p = NormalisedGamma(torch.ones(1, 1), 1e-30, support=Dense())
        divergence = kl(Weibull(10.0)(torch.full((1, 1), 100.0), Dense()), p)  # exp(100) overflows float32
        assert torch.isfinite(divergence).all()

    @pytest.mark.parametrize(  # not (1e15, 1e-15): its true KL of 1e60 passes float32
        "sigma_q, sigma_p",
        [(1e-15, 1e-15), (1e-15, 1.0), (1e-15, 1e15), (1.0, 1e-15), (1.0, 1e15), (1e15, 1.0), (1e15, 1e15)],
    )
    def test_bam_lognormal_priors(self, sigma_q, sigma_p):
        a, b = scores(1).float().requires_grad_(), scores(2).float().requires_grad_()
        q = NormalisedLognormal(a, sigma_q, support=SUPPORT)
        p = NormalisedLognormal(b, sigma_p, support=SUPPORT)
        divergence = kl(q, p)
        exact = kl(
            NormalisedLognormal(a.detach().double(), sigma_q, support=SUPPORT),
            NormalisedLognormal(b.detach().double(), sigma_p, support=SUPPORT),
        )
        assert torch.isfinite(divergence).all()
        np.testing.assert_allclose(divergence.detach().numpy(), exact.numpy(), rtol=1e-4)
        divergence.sum().backward()
        assert torch.isfinite(a.grad).all() and torch.isfinite(b.grad).all()
