"""Use of latent variables: examples by hand, quadrature and torch as second opinions, limits, what is refused."""

import math
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from probattn.metrics import Bypass, active_units, bypass, kl_per_unit, latent_mutual_information, latent_use

LOG_2 = math.log(2.0)


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# Active units


def test_active_units_by_hand() -> None:
    # variances 0.01 (0.0 and 0.1414), a bit less, 0
    spread = math.sqrt(0.02)
    means = torch.tensor([[0.0, 0.0, 3.0], [spread + 1e-6, spread - 1e-3, 3.0]], dtype=torch.float64)
    assert active_units(means) == 1
    assert active_units(means, threshold=0.001) == 2
    assert active_units(means, threshold=0.0) == 3


def test_active_units_do_not_depend_on_where_the_means_are() -> None:
    means = random(0, 50, 6) * torch.tensor([1.0, 0.5, 0.2, 0.05, 0.01, 0.0])
    assert active_units(means) == 3
    assert active_units(means + 1000.0) == 3
    assert active_units(means.float()) == 3


# KL of every unit


def test_kl_per_unit_is_that_of_torch() -> None:
    mean, log_variance, prior_mean, prior_log_variance = random(1, 4, 5, 3)
    posterior = Normal(mean, (0.5 * log_variance).exp())
    expected = kl_divergence(posterior, Normal(0.0, 1.0)).mean(dim=0)
    assert torch.allclose(kl_per_unit(mean, log_variance), expected, rtol=1e-12)
    prior = Normal(prior_mean, (0.5 * prior_log_variance).exp())
    given = {"prior_mean": prior_mean, "prior_log_variance": prior_log_variance}
    expected = kl_divergence(posterior, prior).mean(dim=0)
    assert torch.allclose(kl_per_unit(mean, log_variance, **given), expected, rtol=1e-12)


def test_kl_per_unit_is_zero_at_the_prior() -> None:
    mean, log_variance = random(2, 2, 7, 4)
    assert kl_per_unit(torch.zeros(7, 4), torch.zeros(7, 4)).tolist() == [0.0] * 4
    at_prior = kl_per_unit(mean, log_variance, prior_mean=mean, prior_log_variance=log_variance)
    assert torch.allclose(at_prior, torch.zeros(4, dtype=torch.float64), atol=1e-15)
    with pytest.raises(ValueError, match=r"broadcasts to the posteriors' \(7, 4\), got one that makes it \(2, 7, 4\)"):
        kl_per_unit(mean, log_variance, prior_mean=torch.zeros(2, 7, 4))


# Mutual information


def test_equal_posteriors_carry_no_information() -> None:
    mean, log_variance = random(3, 2, 1, 8).expand(2, 40, 8)
    assert latent_mutual_information(mean, log_variance, num_samples=3) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("examples", [2, 17, 64])
def test_far_posteriors_tell_the_example(examples: int) -> None:
    mean = 100.0 * torch.arange(examples).unsqueeze(-1).expand(-1, 3)
    assert latent_mutual_information(mean.float(), torch.zeros(examples, 3)) == pytest.approx(math.log(examples))


def test_mutual_information_against_quadrature() -> None:
    # two posteriors in one dimension: mean KL to their mixture, on a grid
    mean, log_variance = torch.tensor([[-0.7], [1.1]], dtype=torch.float64), torch.tensor([[1.0], [-1.5]]).double()
    grid = torch.linspace(-15.0, 15.0, 20001, dtype=torch.float64)
    density = Normal(mean, (0.5 * log_variance).exp()).log_prob(grid).exp()  # (2, grid)
    exact = float(torch.trapezoid(density * (density / density.mean(dim=0)).log(), grid).mean())
    # each posterior 400 times has the same mixture and 400 times as many samples
    many = mean.repeat(400, 1), log_variance.repeat(400, 1)
    runs = torch.tensor([latent_mutual_information(*many, seed=seed) for seed in range(50)], dtype=torch.float64)
    error = float(runs.std()) / math.sqrt(len(runs))
    assert abs(float(runs.mean()) - exact) < 3.5 * error
    assert error < 0.01 * exact, "the test can tell one percent"


@hypothesis.given(seed=st.integers(0, 2**32), examples=st.integers(1, 9), scale=st.sampled_from([0.01, 1.0, 30.0]))
def test_mutual_information_never_exceeds_its_bound(seed: int, examples: int, scale: float) -> None:
    mean, log_variance = scale * random(seed, examples, 4), random(seed + 1, examples, 4)
    assert latent_mutual_information(mean, log_variance, seed=seed) <= math.log(examples) + 1e-12


def test_chunks_and_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    mean, log_variance = random(5, 2, 23, 4)
    whole = latent_mutual_information(mean, log_variance, num_samples=2, seed=1)
    assert latent_mutual_information(mean, log_variance, num_samples=2, seed=1) == whole
    assert latent_mutual_information(mean, log_variance, num_samples=2, seed=2) != whole
    monkeypatch.setattr(latent_use, "_CHUNK", 3 * 23 * 4)  # three rows at a time, two in the last chunk
    assert latent_mutual_information(mean, log_variance, num_samples=2, seed=1) == pytest.approx(whole, rel=1e-12)
    monkeypatch.setattr(latent_use, "_CHUNK", 1)
    assert latent_mutual_information(mean, log_variance, num_samples=2, seed=1) == pytest.approx(whole, rel=1e-12)


def test_global_generator_is_left_alone() -> None:
    state = torch.get_rng_state()
    latent_mutual_information(*random(6, 2, 5, 2))
    assert torch.equal(torch.get_rng_state(), state)


# Bypass


def predictions(seed: int, *shape: int, scale: float = 3.0) -> Tensor:
    return (scale * random(seed, *shape)).log_softmax(dim=-1)


def test_bypass_by_hand() -> None:
    # P = (1, 0), Q = (1/2, 1/2), M = (3/4, 1/4)
    first = torch.tensor([[1.0, 0.0]]).log()
    second = torch.tensor([[0.5, 0.5]]).log()
    one = bypass(first, second, targets=torch.tensor([0]), mask=torch.tensor([True]))
    expected = 0.5 * math.log(4 / 3) + 0.5 * (0.5 * math.log(2 / 3) + 0.5 * LOG_2)
    assert one.divergence == pytest.approx(expected)
    assert one.nll_rise == pytest.approx(LOG_2)
    assert one.words == 1


def test_bypass_limits() -> None:
    same = predictions(7, 2, 3, 5)
    targets, mask = torch.zeros(2, 3, dtype=torch.int64), torch.ones(2, 3, dtype=torch.bool)
    ignored = bypass(same, same, targets=targets, mask=mask)
    assert ignored.divergence == pytest.approx(0.0, abs=1e-15) and ignored.nll_rise == 0.0
    disjoint = torch.eye(2, dtype=torch.float64).log()
    used = bypass(disjoint, disjoint.flip(0), targets=torch.tensor([0, 1]), mask=torch.tensor([True, True]))
    assert used.divergence == pytest.approx(LOG_2) and used.nll_rise == math.inf
    neither = bypass(disjoint, disjoint, targets=torch.tensor([1, 0]), mask=torch.tensor([True, True]))
    assert neither.nll_rise == 0.0, "both give the target probability zero"


@hypothesis.given(seed=st.integers(0, 2**32), scale=st.sampled_from([1e-3, 1.0, 300.0]))
def test_divergence_is_symmetric_and_bounded(seed: int, scale: float) -> None:
    first, second = predictions(seed, 4, 6, scale=scale).float(), predictions(seed + 1, 4, 6, scale=scale).float()
    given: dict[str, Tensor] = {"targets": torch.tensor([0, 1, 2, 3]), "mask": torch.ones(4, dtype=torch.bool)}
    there, back = bypass(first, second, **given), bypass(second, first, **given)
    assert 0.0 <= there.divergence <= LOG_2
    assert there.divergence == pytest.approx(back.divergence, abs=1e-9)
    assert there.nll_rise == pytest.approx(-back.nll_rise)


def test_padding_changes_nothing_and_batches_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = predictions(8, 6, 5, 9), predictions(9, 6, 5, 9)
    targets = torch.arange(30).view(6, 5) % 9
    mask = torch.arange(5) < torch.tensor([5, 1, 3, 0, 2, 4]).unsqueeze(-1)
    whole = bypass(first, second, targets=targets, mask=mask)
    assert whole.words == 15
    padding = ~mask
    first[padding], second[padding], targets[padding] = math.nan, 17.0, -100
    assert bypass(first, second, targets=targets, mask=mask) == whole
    batches = [slice(0, 2), slice(2, 4), slice(4, 6)]
    parts = [bypass(first[b], second[b], targets=targets[b], mask=mask[b]) for b in batches]
    total = sum(parts, start=Bypass())
    assert (total.divergence, total.nll_rise) == pytest.approx((whole.divergence, whole.nll_rise))
    monkeypatch.setattr(latent_use, "_CHUNK", 4 * 9)
    chunked = bypass(first, second, targets=targets, mask=mask)
    assert (chunked.divergence, chunked.nll_rise) == pytest.approx((whole.divergence, whole.nll_rise))
    assert chunked.words == total.words == 15


def test_a_batch_without_words_has_no_mean() -> None:
    empty = bypass(predictions(0, 1, 3), predictions(0, 1, 3), targets=torch.tensor([0]), mask=torch.tensor([False]))
    assert empty == Bypass()
    for name in ("divergence", "nll_rise"):
        with pytest.raises(ValueError, match="at least one word; add batches, or look at the mask"):
            getattr(empty, name)


# What is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"log_probs_prior": torch.zeros(2, 4)}, r"of one shape .*, got \(2, 3\), \(2, 4\), \(2,\) and \(2,\)"),
        ({"targets": torch.zeros(3, dtype=torch.int64)}, r"got \(2, 3\), \(2, 3\), \(3,\) and \(2,\)"),
        ({"mask": torch.ones(2, 1, dtype=torch.bool)}, r"and \(2, 1\)"),
        ({"mask": torch.ones(2)}, "a mask of booleans, True at the words that count, got torch.float32"),
        ({"log_probs_posterior": torch.zeros(2, 3)}, "sum to 1 over the last axis"),
        ({"targets": torch.tensor([0, 3])}, "labels from 0 to 2, got 0 to 3"),
    ],
)
def test_bypass_refuses(change: dict[str, Tensor], message: str) -> None:
    given: dict[str, Any] = {
        "log_probs_posterior": predictions(0, 2, 3),
        "log_probs_prior": predictions(1, 2, 3),
        "targets": torch.tensor([0, 1]),
        "mask": torch.tensor([True, True]),
    }
    with pytest.raises(ValueError, match=message):
        bypass(**{**given, **change})


@pytest.mark.parametrize("function", [kl_per_unit, latent_mutual_information])
@pytest.mark.parametrize(
    ("mean", "log_variance", "message"),
    [
        (torch.zeros(2, 3, 4), torch.zeros(2, 3, 4), r"mean of shape \(N, Z\).*got \(2, 3, 4\); flatten steps into N"),
        (torch.zeros(2, 3), torch.zeros(3), r"log_variance of shape \(N, Z\)"),
        (torch.zeros(2, 3), torch.zeros(1, 3), r"of one shape \(N, Z\), got \(2, 3\) and \(1, 3\)"),
        (torch.tensor([[math.nan, 0.0]]), torch.zeros(1, 2), "mean of finite numbers, got 1 that are not"),
    ],
)
def test_bad_posteriors(function: Any, mean: Tensor, log_variance: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        function(mean, log_variance)


def test_too_little_to_measure() -> None:
    with pytest.raises(ValueError, match="at least 2 examples, got 1; collect more batches"):
        active_units(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="posterior_means of shape"):
        active_units(torch.zeros(4, 0))
    with pytest.raises(ValueError, match="at least 1 sample for each example, got 0"):
        latent_mutual_information(torch.zeros(2, 2), torch.zeros(2, 2), num_samples=0)
