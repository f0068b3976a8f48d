"""Gamma samples in log space: their law for small and large concentrations, and their implicit gradient."""

import math

import numpy as np
import pytest
import scipy.special
import torch

from probattn.core.noise import uniform
from probattn.distributions import gamma_noise
from probattn.distributions.gamma_noise import log_gamma_sample
from tests.distributions.laws import COPIES, SEED, assert_law, copies, z_scores

CONCENTRATIONS = [0.01, 0.5, 1.0, 3.0, 30.0, 1000.0]


def log_gamma_cdf(concentration: float):
    """P(log G <= x); where exp(x) underflows the first term of the series, exp(a x) / Gamma(a + 1), is exact."""

    def cdf(x: np.ndarray) -> np.ndarray:
        series = np.exp(concentration * np.minimum(x, -40.0) - math.lgamma(concentration + 1.0))
        return np.where(x < -40.0, series, scipy.special.gammainc(concentration, np.exp(np.minimum(x, 700.0))))

    return cdf


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("concentration", CONCENTRATIONS)
def test_law(concentration, dtype):
    sample = log_gamma_sample(torch.full((50, 400), concentration, dtype=dtype), 1, SEED)
    assert sample.dtype == dtype and sample.shape == (1, 50, 400)
    assert_law(sample, log_gamma_cdf(concentration))


@pytest.mark.parametrize("concentration", [1e-15, 1e-4])
def test_tiny_concentrations_do_not_underflow(concentration):
    sample = log_gamma_sample(torch.full((50, 400), concentration), 1, SEED)
    assert torch.isfinite(sample).all()
    assert_law(concentration * sample.double(), lambda x: np.minimum(np.exp(x), 1.0))  # G^a is almost uniform


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("concentration", [1e-300, 1e-37, 1e-30, 1e-18, 1e-15, math.exp(20.0)])
def test_extreme_concentrations_have_finite_samples_and_gradients(concentration, dtype):
    leaf = torch.full((4, 50), concentration, dtype=dtype).clamp(min=torch.finfo(dtype).tiny).requires_grad_()
    sample = log_gamma_sample(leaf, 3, SEED)
    assert torch.isfinite(sample).all()
    torch.softmax(sample, dim=-1).square().sum().backward()
    assert torch.isfinite(leaf.grad).all()


@pytest.mark.parametrize("concentration", [0.05, 0.5, 1.0, 3.0, 30.0])
def test_gradient_is_the_derivative_of_the_sample_at_a_fixed_value_of_its_cdf(concentration):
    leaf = torch.full((5, 20), concentration, dtype=torch.float64, requires_grad=True)
    sample = log_gamma_sample(leaf, 1, SEED)[0]
    (gradient,) = torch.autograd.grad(sample.sum(), leaf)
    log_u = uniform(SEED, (1, 5, 20), stream=2 * gamma_noise._PROPOSALS, dtype=torch.float64)[0].log()
    boosted = (sample.detach() - log_u / concentration).exp().numpy()  # the factor that is Gamma(concentration + 1)
    shape, step = concentration + 1.0, 1e-5
    above, below = (scipy.special.gammainc(shape + sign * step, boosted) for sign in (1, -1))
    density = np.exp((shape - 1.0) * np.log(boosted) - boosted - math.lgamma(shape))
    implicit = -(above - below) / (2.0 * step) / density / boosted
    expected = implicit - log_u.numpy() / concentration**2
    # torch's derivative of the incomplete gamma function is an approximation, good to four digits
    np.testing.assert_allclose(gradient.numpy(), expected, rtol=5e-4)


@pytest.mark.parametrize("concentration", [0.3, 1.0, 4.0, 30.0])
def test_gradients_of_expectations(concentration):
    leaf = copies(torch.tensor([concentration], dtype=torch.float64))
    sample = log_gamma_sample(leaf, 1, SEED)[0]
    (of_log,) = torch.autograd.grad(sample.sum(), leaf, retain_graph=True)
    (of_value,) = torch.autograd.grad(sample.exp().sum(), leaf, retain_graph=True)
    (of_square,) = torch.autograd.grad((2.0 * sample).exp().sum(), leaf)
    assert abs(z_scores(of_log, float(scipy.special.polygamma(1, concentration)))) < 4.0
    assert abs(z_scores(of_value, 1.0)) < 4.0  # E[G] = a
    assert abs(z_scores(of_square, 2.0 * concentration + 1.0)) < 4.0  # E[G²] = a² + a


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch works through the examples one by one
def test_works_under_transforms_of_functions():
    concentration = torch.tensor([[0.3, 2.0], [5.0, 0.1]]).double()
    found = torch.func.vmap(torch.func.grad(lambda one: log_gamma_sample(one, 2, SEED).sin().sum()))(concentration)
    for row, gradient in zip(concentration, found, strict=True):
        leaf = row.clone().requires_grad_()
        (expected,) = torch.autograd.grad(log_gamma_sample(leaf, 2, SEED).sin().sum(), leaf)
        torch.testing.assert_close(gradient, expected)


def test_a_second_derivative_is_refused():
    leaf = torch.tensor([0.3, 2.0], requires_grad=True)
    (gradient,) = torch.autograd.grad(log_gamma_sample(leaf, 2, SEED).sum(), leaf, create_graph=True)
    with pytest.raises(NotImplementedError, match="_standard_gamma_grad"):
        gradient.sum().backward()


def test_particles_and_padding_change_no_number():
    concentration = torch.rand(3, 4, dtype=torch.float64) + 0.1
    wide = torch.nn.functional.pad(concentration, (0, 5, 0, 2), value=1.0)
    assert torch.equal(log_gamma_sample(concentration, 1, SEED), log_gamma_sample(wide, 4, SEED)[:1, :3, :4])


def test_proposals_that_are_all_rejected_still_give_a_number(monkeypatch):
    """With one proposal about one in twenty is rejected; the proposal itself is kept then, if it is positive."""
    monkeypatch.setattr(gamma_noise, "_PROPOSALS", 1)
    sample = log_gamma_sample(torch.full((COPIES,), 1e-3), 1, SEED)
    assert torch.isfinite(sample).all()
