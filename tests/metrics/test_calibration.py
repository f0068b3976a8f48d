"""Calibration: examples by hand, a plain formula and a grid as second opinions, limit cases, what is refused."""

import math
import sys

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
import torchmetrics.functional.classification
from torch import Tensor

from probattn.metrics import (
    at_temperature,
    brier_score,
    expected_calibration_error,
    fit_temperature,
    mean_nll,
    reliability_bins,
)
from probattn.metrics.calibration import MAX_TEMPERATURE, MIN_TEMPERATURE


def random_case(seed: int, examples: int = 40, classes: int = 4, scale: float = 2.0) -> tuple[Tensor, Tensor]:
    """Log-probabilities (N, C), and labels that agree with them more often than not."""
    generator = torch.Generator().manual_seed(seed)
    scores = scale * torch.randn(examples, classes, generator=generator, dtype=torch.float64)
    labels = scores.softmax(dim=-1).multinomial(1, generator=generator).squeeze(-1)
    return scores.log_softmax(dim=-1), labels


def calibration_error_by_loop(probs: Tensor, labels: Tensor, num_bins: int) -> float:
    """The formula in plain Python: bins from b / B up to (b + 1) / B, the last one with 1."""
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(num_bins)]
    for row, label in zip(probs.tolist(), labels.tolist(), strict=True):
        confidence = max(row)
        bins[min(int(confidence * num_bins), num_bins - 1)].append((confidence, row.index(confidence) == label))
    gaps = [abs(sum(confidence - is_right for confidence, is_right in members)) for members in bins]
    return sum(gaps) / len(labels)


# Expected calibration error


def test_calibration_error_by_hand() -> None:
    # [0.5, 0.75): 0.6 and 0.7, one of two right: |0.5 - 0.65|; [0.75, 1]: 0.9 and 1.0, both right: |1 - 0.95|
    probs = torch.tensor([[0.6, 0.4], [0.3, 0.7], [0.9, 0.1], [1.0, 0.0]])
    labels = torch.tensor([0, 0, 0, 0])
    assert expected_calibration_error(probs, labels, num_bins=4) == pytest.approx((0.15 + 0.05) / 2)


@hypothesis.given(seed=st.integers(0, 2**32), num_bins=st.sampled_from([1, 7, 15]), scale=st.sampled_from([0.5, 50.0]))
def test_calibration_error_by_loop(seed: int, num_bins: int, scale: float) -> None:
    log_probs, labels = random_case(seed, scale=scale)
    probs, labels = log_probs.exp().float(), labels.roll(1)  # labels of other examples: some confidences of 1 are wrong
    expected = calibration_error_by_loop(probs, labels, num_bins)
    assert expected_calibration_error(probs, labels, num_bins=num_bins) == pytest.approx(expected, abs=1e-6)


def test_calibration_error_is_that_of_torchmetrics_below_one() -> None:
    log_probs, labels = random_case(0)
    theirs = torchmetrics.functional.classification.multiclass_calibration_error(log_probs.exp(), labels, 4, n_bins=15)
    assert expected_calibration_error(log_probs.exp(), labels) == pytest.approx(float(theirs), abs=1e-7)


def test_a_confidence_of_one_shares_the_last_bin() -> None:
    # 0.98 right and 1.0 wrong: one bin of accuracy 0.5 and confidence 0.99; two bins would give 0.51
    probs, labels = torch.tensor([[0.98, 0.02], [1.0, 0.0]]), torch.tensor([0, 1])
    assert expected_calibration_error(probs, labels) == pytest.approx(0.49, abs=1e-6)


def test_probabilities_that_rounding_puts_above_one_are_not_taken_for_scores() -> None:
    probs = torch.tensor([[1.0 + 2e-7, 0.0], [0.75, 0.25]])
    assert expected_calibration_error(probs, torch.tensor([0, 0])) == pytest.approx(0.125, abs=1e-6)


def test_labels_drawn_from_the_predictions_are_calibrated() -> None:
    log_probs, labels = random_case(1, examples=20_000)
    assert expected_calibration_error(log_probs.exp(), labels) < 0.02
    assert expected_calibration_error(at_temperature(log_probs, 0.3).exp(), labels) > 0.1


@hypothesis.given(seed=st.integers(0, 2**32), num_bins=st.integers(1, 20))
def test_bins_give_the_calibration_error(seed: int, num_bins: int) -> None:
    log_probs, labels = random_case(seed)
    bins = reliability_bins(log_probs.exp(), labels, num_bins=num_bins)
    assert bins.edges.shape == (num_bins + 1,)
    assert int(bins.count.sum()) == 40
    assert bool(((bins.confidence <= bins.edges[1:]) & (bins.confidence >= bins.edges[:-1]))[bins.count > 0].all())
    error = float((bins.count * (bins.accuracy - bins.confidence).abs()).sum() / 40)
    assert expected_calibration_error(log_probs.exp(), labels, num_bins=num_bins) == pytest.approx(error, abs=1e-6)


def test_bins_by_hand() -> None:
    probs = torch.tensor([[0.75, 0.25], [0.0, 1.0], [0.6, 0.4]])
    bins = reliability_bins(probs, torch.tensor([0, 0, 0]), num_bins=4)
    assert bins.count.tolist() == [0, 0, 1, 2]
    assert bins.confidence.tolist() == pytest.approx([0.0, 0.0, 0.6, 0.875])
    assert bins.accuracy.tolist() == pytest.approx([0.0, 0.0, 1.0, 0.5])


# Proper scores


def test_brier_score_by_hand() -> None:
    probs = torch.tensor([[0.5, 0.3, 0.2], [0.0, 1.0, 0.0]])
    expected = (0.25 + 0.09 + 0.04 + 1.0 + 1.0) / 2
    assert brier_score(probs, torch.tensor([0, 2])) == pytest.approx(expected)


def test_mean_nll_by_hand_and_of_an_impossible_label() -> None:
    log_probs = torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.25, 0.5]]).log()
    assert mean_nll(log_probs, torch.tensor([0, 1])) == pytest.approx(1.5 * math.log(2.0))
    assert mean_nll(log_probs, torch.tensor([2, 1])) == math.inf


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_proper_scores_are_best_at_the_true_probabilities(scale: float) -> None:
    log_probs, labels = random_case(2, examples=20_000, scale=scale)
    for temperature in (0.5, 2.0):
        changed = at_temperature(log_probs, temperature)
        assert mean_nll(log_probs, labels) < mean_nll(changed, labels)
        assert brier_score(log_probs.exp(), labels) < brier_score(changed.exp(), labels)


# Temperature


def test_at_temperature_by_hand_and_at_its_limits() -> None:
    log_probs = torch.tensor([[0.8, 0.2], [0.5, 0.5]], dtype=torch.float64).log()
    assert torch.allclose(at_temperature(log_probs, 1.0), log_probs)
    assert torch.allclose(at_temperature(log_probs, 0.5).exp()[0], torch.tensor([16 / 17, 1 / 17]).double())
    assert torch.allclose(at_temperature(log_probs, 1e9).exp(), torch.tensor(0.5).double())
    assert torch.allclose(at_temperature(log_probs, 1e-3).exp()[0], torch.tensor([1.0, 0.0]).double())


def test_at_temperature_keeps_zeros_and_takes_any_leading_axes() -> None:
    log_probs = torch.tensor([0.75, 0.25, 0.0]).log().expand(2, 5, 3)
    assert torch.allclose(at_temperature(log_probs, 2.0).exp()[..., 2], torch.zeros(2, 5))


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.inf, math.nan])
def test_temperatures_that_are_none_are_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match="positive, finite temperature, got .*; 1.0 changes nothing"):
        at_temperature(torch.zeros(1, 1), temperature)


def test_fitted_temperature_by_hand() -> None:
    # says 0.9, is right 3 times of 4: log(9) / T = log(3)
    log_probs = torch.tensor([0.9, 0.1], dtype=torch.float64).log().expand(4, 2)
    assert fit_temperature(log_probs, torch.tensor([0, 0, 0, 1])) == pytest.approx(2.0, rel=1e-12)


@hypothesis.given(seed=st.integers(0, 2**32))
def test_fitted_temperature_is_the_best_of_a_grid(seed: int) -> None:
    log_probs, labels = random_case(seed)
    fitted = mean_nll(at_temperature(log_probs, fit_temperature(log_probs, labels)), labels)
    for step in range(-20, 21):
        assert fitted <= mean_nll(at_temperature(log_probs, 1.25**step), labels) + 1e-12


@hypothesis.given(seed=st.integers(0, 2**32), factor=st.sampled_from([0.25, 3.0]))
def test_fitted_temperature_undoes_a_temperature(seed: int, factor: float) -> None:
    log_probs, labels = random_case(seed)
    fitted = fit_temperature(log_probs, labels)
    hypothesis.assume(0.1 < fitted < 10.0)
    assert fit_temperature(at_temperature(log_probs, factor), labels) == pytest.approx(fitted / factor, rel=1e-6)


def test_true_probabilities_need_no_temperature() -> None:
    log_probs, labels = random_case(3, examples=20_000)
    assert fit_temperature(log_probs.float(), labels) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_all_right_ends_at_the_lower_bound_and_all_wrong_at_the_upper(scale: float) -> None:
    log_probs = (scale * torch.tensor([[3.0, 1.0, 0.0], [0.0, 2.0, 1.0]])).log_softmax(dim=-1)
    assert fit_temperature(log_probs, torch.tensor([0, 1])) == MIN_TEMPERATURE
    assert fit_temperature(log_probs, torch.tensor([2, 0])) == MAX_TEMPERATURE


def test_all_temperatures_are_alike_for_uniform_predictions() -> None:
    assert fit_temperature(torch.full((5, 3), 1 / 3).log(), torch.tensor([0, 1, 2, 0, 1])) == 1.0


def test_classes_of_probability_zero_do_not_disturb_the_fit() -> None:
    log_probs = torch.tensor([0.9, 0.1, 0.0], dtype=torch.float64).log().expand(4, 3)
    assert fit_temperature(log_probs, torch.tensor([0, 0, 0, 1])) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="positive probability, got 1 of 4 with log-probability -inf; take the log"):
        fit_temperature(log_probs, torch.tensor([0, 0, 0, 2]))


# What is refused


@pytest.mark.parametrize("measure", [expected_calibration_error, reliability_bins, brier_score])
def test_bad_probabilities_are_refused(measure) -> None:  # type: ignore[no-untyped-def]
    probs, labels = torch.tensor([[0.5, 0.5], [0.9, 0.1]]), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="shape \\(N, C\\), none of them 0, got \\(1, 2, 2\\); average K draws"):
        measure(probs.unsqueeze(0), labels)
    with pytest.raises(TypeError, match="expected labels as a tensor, got list; torch.as_tensor"):
        measure(probs, labels.tolist())
    with pytest.raises(TypeError, match="expected probs as a tensor, got ndarray"):
        measure(probs.numpy(), labels)
    with pytest.raises(ValueError, match="without NaN, got 4"):
        measure(probs * math.nan, labels)
    with pytest.raises(ValueError, match="got sums from 0.5 to 0.5; scores.softmax"):
        measure(probs / 2, labels)
    with pytest.raises(ValueError, match="at least 0, got -2.303"):
        measure(probs.log(), labels)


@pytest.mark.parametrize("measure", [mean_nll, fit_temperature])
def test_bad_log_probabilities_are_refused(measure) -> None:  # type: ignore[no-untyped-def]
    log_probs, labels = torch.tensor([[0.5, 0.5], [0.9, 0.1]]).log(), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="shape \\(N, C\\), none of them 0, got \\(1, 2, 2\\); mix K draws"):
        measure(log_probs.unsqueeze(0), labels)
    with pytest.raises(ValueError, match="log_probs without NaN, got 4"):
        measure(log_probs * math.nan, labels)
    with pytest.raises(
        ValueError, match="log_probs of distributions, .* got sums from 2.718 to 2.718; scores.log_soft"
    ):
        measure(log_probs + 1.0, labels)
    with pytest.raises(ValueError, match="log_probs of distributions, .* got sums from 3.297 to 3.565"):
        measure(log_probs.exp(), labels)


@pytest.mark.parametrize("measure", [expected_calibration_error, reliability_bins, brier_score])
def test_bad_labels_are_refused(measure) -> None:  # type: ignore[no-untyped-def]
    probs = torch.tensor([[0.5, 0.5], [0.9, 0.1]])
    with pytest.raises(ValueError, match="labels from 0 to 1, got 0 to 2; leave out examples without a label"):
        measure(probs, torch.tensor([0, 2]))
    with pytest.raises(ValueError, match="labels from 0 to 1, got -100 to 1"):
        measure(probs, torch.tensor([-100, 1]))
    with pytest.raises(ValueError, match="2 whole numbers, .* got torch.float32 of shape \\(2, 2\\); turn one-hot"):
        measure(probs, probs)
    with pytest.raises(ValueError, match="2 whole numbers, .* got torch.bool"):
        measure(probs, torch.tensor([True, False]))


@pytest.mark.parametrize("measure", [expected_calibration_error, reliability_bins])
def test_bins_need_two_classes_and_at_least_one_bin(measure) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="two or more classes, got one; for a yes-no question pass both columns"):
        measure(torch.ones(2, 1), torch.tensor([0, 0]))
    with pytest.raises(ValueError, match="num_bins of at least 1, got 0"):
        measure(torch.tensor([[0.5, 0.5]]), torch.tensor([0]), num_bins=0)


def test_gradients_do_not_get_in_the_way() -> None:
    scores = torch.randn(6, 3, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    log_probs = scores.log_softmax(dim=-1)
    numbers = [mean_nll(log_probs, labels), fit_temperature(log_probs, labels), brier_score(log_probs.exp(), labels)]
    assert all(math.isfinite(number) for number in [*numbers, expected_calibration_error(log_probs.exp(), labels)])


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchmetrics.functional.classification", None)
    with pytest.raises(ImportError, match="needs torchmetrics; install it with: pip install 'probattn\\[eval\\]'"):
        expected_calibration_error(torch.tensor([[0.5, 0.5]]), torch.tensor([0]))
