"""The diagonal Gaussian: its law, its density, masks, seeds."""

import pytest
import scipy.stats
import torch

from probattn.core.noise import fresh_seed
from probattn.distributions import DiagonalGaussian
from tests.distributions.laws import COPIES, SEED, assert_law, copies, z_scores

MEAN = torch.tensor([0.5, -2.0], dtype=torch.float64)
LOG_VARIANCE = torch.tensor([-1.0, 1.3], dtype=torch.float64)


def gaussian(mask: torch.Tensor | None = None) -> DiagonalGaussian:
    return DiagonalGaussian(torch.randn(3, 4, 2, dtype=torch.float64), LOG_VARIANCE, mask=mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_law(dtype):
    made = DiagonalGaussian(MEAN.to(dtype).expand(COPIES, 2), LOG_VARIANCE.to(dtype))
    sample = made.draw_raw(1, SEED)[0]
    for place in range(2):
        sigma = float((0.5 * LOG_VARIANCE[place]).exp())
        assert_law(sample[:, place], scipy.stats.norm(float(MEAN[place]), sigma).cdf)


def test_density_and_moments_agree_with_torch():
    made = gaussian()
    expected = torch.distributions.Normal(made.mean, (0.5 * made.log_variance).exp())
    raw = made.draw_raw(5, SEED)
    assert torch.allclose(made.log_prob(raw), expected.log_prob(raw).sum(dim=-1))
    assert torch.allclose(made.entropy(), expected.entropy().sum(dim=-1))
    assert torch.allclose(made.variance, expected.variance) and torch.equal(made.plug_in, made.mean)
    assert made.batch_shape == (3, 4) and made.event_shape == (2,)
    assert torch.allclose(made.stddev, expected.stddev)


def test_gradcheck_of_samples_and_density():
    fixed = torch.randn(2, 3, 2, dtype=torch.float64)

    def both(mean: torch.Tensor, log_variance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = DiagonalGaussian(mean, log_variance)
        return made.realise(made.draw_raw(2, SEED)), made.log_prob(fixed)

    inputs = (torch.randn(3, 2, dtype=torch.float64).requires_grad_(), LOG_VARIANCE.clone().requires_grad_())
    assert torch.autograd.gradcheck(both, inputs)


def test_pathwise_gradients_of_moments():
    mean, log_variance = copies(MEAN), copies(LOG_VARIANCE)
    sample = DiagonalGaussian(mean, log_variance).draw_raw(1, SEED)[0]
    of_mean, of_log_variance = torch.autograd.grad(sample.square().sum(), (mean, log_variance))
    assert (z_scores(of_mean, 2.0 * MEAN).abs() < 4.0).all()
    assert (z_scores(of_log_variance, LOG_VARIANCE.exp()).abs() < 4.0).all()


def test_padded_units_cost_nothing():
    mask = torch.tensor([[True, True, False, False]]).expand(3, 4)
    torch.manual_seed(0)
    masked = gaussian(mask)
    torch.manual_seed(0)
    plain = gaussian()
    raw = plain.draw_raw(2, SEED)
    assert torch.equal(masked.log_prob(raw), plain.log_prob(raw).masked_fill(~mask, 0.0))
    assert torch.equal(masked.entropy(), plain.entropy().masked_fill(~mask, 0.0))


def test_padding_and_particles_change_no_number():
    mean = torch.randn(2, 3, 4)
    wide = torch.nn.functional.pad(mean, (0, 0, 0, 5))
    zero = torch.zeros(4)
    small = DiagonalGaussian(mean, zero).draw_raw(1, SEED)
    assert torch.equal(small, DiagonalGaussian(wide, zero).draw_raw(3, SEED)[:1, :, :3])


def test_torch_interface():
    made = gaussian()
    assert torch.equal(made.rsample((2,), seed=SEED), made.draw_raw(2, SEED))
    assert torch.equal(made.rsample(seed=SEED), made.draw_raw(1, SEED)[0])
    torch.manual_seed(4)
    first = made.sample((2,))
    torch.manual_seed(4)
    assert torch.equal(first, made.rsample((2,))) and not first.requires_grad
    with pytest.raises(ValueError, match=r"at most one size \(the particles\), got \(2, 2\)"):
        made.rsample((2, 2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    made = DiagonalGaussian(MEAN.to(dtype), LOG_VARIANCE.to(dtype))
    assert made.draw_raw(2, SEED).dtype == torch.float32 and made.log_prob(MEAN.float()).dtype == torch.float32


def test_meta_device():
    made = DiagonalGaussian(MEAN.to("meta"), LOG_VARIANCE.to("meta"))
    raw = made.draw_raw(3, fresh_seed("meta"))
    assert raw.is_meta and raw.shape == (3, 2) and made.log_prob(raw).shape == (3,)
