"""Uncertainty over draws: examples by hand, scipy and pair counting as second opinions, what is refused."""

import math
import sys

import hypothesis
import hypothesis.strategies as st
import pytest
import scipy.stats
import torch
from torch import Tensor

from probattn.metrics import (
    PAvPU,
    error_detection,
    expected_entropy,
    mutual_information,
    pavpu,
    predictive_entropy,
    risk_coverage,
    top_two_p_value,
)
from probattn.metrics.uncertainty import p_value_of_top_two, top_two

FLAGS = st.lists(st.booleans(), min_size=1, max_size=12)


def random_probs(seed: int, *shape: int, scale: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(*shape, generator=generator, dtype=torch.float64)).softmax(dim=-1)


def coarse_uncertainty(seed: int, examples: int) -> Tensor:
    """Numbers with many ties, far outside [0, 1]."""
    generator = torch.Generator().manual_seed(seed)
    return 50.0 * torch.randint(-2, 3, (examples,), generator=generator).float()


# Entropies


def test_entropies_by_hand_and_with_zeros() -> None:
    # draws that agree, draws that contradict each other, draws that are both undecided
    probs = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]])
    bit = math.log(2.0)
    assert predictive_entropy(probs).tolist() == pytest.approx([0.0, bit, bit])
    assert expected_entropy(probs).tolist() == pytest.approx([0.0, 0.0, bit])
    assert mutual_information(probs).tolist() == pytest.approx([0.0, bit, 0.0])


def test_mutual_information_is_the_mean_kl_to_the_mean() -> None:
    probs = random_probs(0, 6, 5, 4)
    kl = (probs * (probs / probs.mean(dim=0)).log()).sum(dim=-1).mean(dim=0)
    assert torch.allclose(mutual_information(probs), kl, rtol=1e-12)


@hypothesis.given(seed=st.integers(0, 2**32), draws=st.integers(1, 5), scale=st.sampled_from([1e-6, 1.0, 200.0]))
def test_mutual_information_lies_between_zero_and_its_bounds(seed: int, draws: int, scale: float) -> None:
    probs = random_probs(seed, draws, 4, 3, scale=scale).float()
    information = mutual_information(probs)
    assert bool((information >= 0.0).all())
    assert bool((information <= predictive_entropy(probs) + 1e-12).all())
    assert bool((information <= math.log(draws) + 1e-6).all())


def test_equal_draws_have_no_mutual_information() -> None:
    information = mutual_information(random_probs(1, 1, 200, 5).expand(7, -1, -1))
    assert 0.0 <= float(information.min()) <= float(information.max()) < 1e-14


# The t-test


def test_p_value_by_hand() -> None:
    # 0.7, 0.8, 0.7 against 0.3, 0.2, 0.3, variance 1/300 each: t = 0.4667 / sqrt(2 / 900) = 9.899
    probs = torch.tensor([[[0.7, 0.3]], [[0.8, 0.2]], [[0.7, 0.3]]])
    assert float(top_two_p_value(probs)) == pytest.approx(5.844e-4, rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_p_values_are_those_of_scipy(dtype: torch.dtype) -> None:
    probs = random_probs(2, 8, 20, 5).to(dtype)
    for example, (p_value, paired) in enumerate(
        zip(top_two_p_value(probs), top_two_p_value(probs, paired=True), strict=True)
    ):
        draws = probs[:, example].double().numpy()
        second, first = draws.mean(axis=0).argsort()[-2:]
        two_sample = scipy.stats.ttest_ind(draws[:, first], draws[:, second])
        assert float(p_value) == pytest.approx(two_sample.pvalue, rel=1e-9)
        scores = torch.from_numpy(draws).log() + 3.0 * torch.randn(8, 1)  # log-probabilities up to a shift per draw
        on_scores = scipy.stats.ttest_rel(scores[:, first], scores[:, second])
        assert float(paired) == pytest.approx(on_scores.pvalue, rel=1e-6)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("draws", [2, 3, 7, 10])
def test_equal_draws_have_a_defined_p_value(paired: bool, draws: int) -> None:
    # 0.1 + 0.1 + 0.1 is not 3 * 0.1: a variance around the rounded mean would not be zero
    probs = torch.tensor([[0.7, 0.1, 0.2], [0.1, 0.45, 0.45], [1.0, 0.0, 0.0]], dtype=torch.float64)
    assert top_two_p_value(probs.expand(draws, -1, -1), paired=paired).tolist() == [0.0, 1.0, 0.0]


def test_two_draws_that_swap_the_classes_say_nothing() -> None:
    probs = torch.tensor([[[0.9, 0.1]], [[0.1, 0.9]]], dtype=torch.float64)
    assert float(top_two_p_value(probs)) == pytest.approx(1.0)
    assert float(top_two_p_value(probs, paired=True)) == pytest.approx(1.0)


def test_zero_probabilities_do_not_break_the_paired_test() -> None:
    probs = torch.tensor([[[1.0, 0.0]], [[0.6, 0.4]], [[1.0, 0.0]]])
    assert 0.0 < float(top_two_p_value(probs, paired=True)) < 1.0


@hypothesis.given(seed=st.integers(0, 2**32), paired=st.booleans())
def test_p_values_do_not_depend_on_the_order_of_draws_and_classes(seed: int, paired: bool) -> None:
    probs = random_probs(seed, 5, 3, 4)
    p_value = top_two_p_value(probs, paired=paired)
    assert bool(((p_value >= 0.0) & (p_value <= 1.0)).all())
    shuffled = probs[torch.randperm(5)][..., torch.randperm(4)]
    assert torch.allclose(top_two_p_value(shuffled, paired=paired), p_value, rtol=1e-6)


def test_top_two_are_chosen_by_the_mean_over_draws() -> None:
    probs = torch.tensor([[[0.1, 0.3, 0.6]], [[0.1, 0.8, 0.1]]])
    assert torch.equal(top_two(probs), torch.tensor([[[0.3, 0.6]], [[0.8, 0.1]]]))


def test_p_value_needs_only_the_top_two() -> None:
    probs = random_probs(4, 6, 9, 5)
    for paired in (False, True):
        assert torch.equal(p_value_of_top_two(top_two(probs), paired=paired), top_two_p_value(probs, paired=paired))


def test_the_t_test_needs_two_draws_and_two_classes() -> None:
    with pytest.raises(ValueError, match="at least 2 draws and 2 classes, got 1 and 3; predict with more draws"):
        top_two_p_value(random_probs(0, 1, 2, 3))
    with pytest.raises(ValueError, match="at least 2 draws and 2 classes, got 4 and 1"):
        top_two_p_value(torch.ones(4, 2, 1))


# PAvPU


def test_pavpu_by_hand() -> None:
    # n_ac = 2, n_au = 1, n_ic = 1, n_iu = 3
    accuracy = torch.tensor([True, True, True, False, False, False, False])
    is_certain = torch.tensor([True, True, False, True, False, False, False])
    assert pavpu(accuracy, is_certain) == PAvPU(5 / 7, accurate_if_certain=2 / 3, uncertain_if_inaccurate=3 / 4)


def test_pavpu_with_soft_accuracies_by_hand() -> None:
    # two of ten people said the first answer: min(2 / 3, 1); n_ac = 2/3 + 1, n_ic = 1/3, n_au = 1/4, n_iu = 3/4
    measured = pavpu(torch.tensor([2 / 3, 1.0, 0.25]), torch.tensor([True, True, False]))
    assert measured.value == pytest.approx((5 / 3 + 3 / 4) / 3)
    assert measured.accurate_if_certain == pytest.approx((5 / 3) / 2)
    assert measured.uncertain_if_inaccurate == pytest.approx((3 / 4) / (3 / 4 + 1 / 3))


@pytest.mark.parametrize(
    ("accuracy", "is_certain", "expected"),
    [
        ([True, True], [True, True], PAvPU(1.0, 1.0, 1.0)),  # nothing is inaccurate
        ([True, False], [False, False], PAvPU(0.5, 1.0, 1.0)),  # nothing is certain
        ([True, True], [False, False], PAvPU(0.0, 1.0, 1.0)),  # neither
        ([False, False], [True, True], PAvPU(0.0, 0.0, 0.0)),
    ],
)
def test_pavpu_has_no_nan(accuracy: list[bool], is_certain: list[bool], expected: PAvPU) -> None:
    assert pavpu(torch.tensor(accuracy), torch.tensor(is_certain)) == expected


@hypothesis.given(flags=FLAGS, seed=st.integers(0, 2**32))
def test_pavpu_is_linear_in_the_accuracy(flags: list[bool], seed: int) -> None:
    is_certain = torch.tensor(flags)
    accuracy = torch.rand(len(flags), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    value = pavpu(accuracy, is_certain).value
    assert value == pytest.approx(float(torch.where(is_certain, accuracy, 1 - accuracy).mean()))
    assert pavpu(1 - accuracy, is_certain).value == pytest.approx(1 - value)


def test_pavpu_refuses_percentages_and_certainties_that_are_no_booleans() -> None:
    with pytest.raises(TypeError, match="expected accuracy as a tensor, got list; torch.as_tensor"):
        pavpu([1.0, 0.0], torch.tensor([True, False]))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected is_certain as a tensor, got list"):
        pavpu(torch.tensor([1.0, 0.0]), [True, False])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="accuracy between 0 and 1, got 0 to 70; divide percentages by 100"):
        pavpu(torch.tensor([0.0, 70.0]), torch.tensor([True, True]))
    with pytest.raises(ValueError, match="expected is_certain as 2 booleans, .* got torch.float32 of shape"):
        pavpu(torch.tensor([0.0, 1.0]), torch.tensor([0.9, 0.1]))
    with pytest.raises(ValueError, match="expected is_certain as 2 booleans, .* of shape \\(3,\\)"):
        pavpu(torch.tensor([0.0, 1.0]), torch.tensor([True, True, False]))
    with pytest.raises(ValueError, match="accuracy of shape \\(N\\), none of them 0, got \\(0,\\)"):
        pavpu(torch.zeros(0), torch.zeros(0, dtype=torch.bool))


# Errors and uncertainty


def pair_counting(uncertainty: Tensor, is_wrong: Tensor) -> float:
    """AUROC as the share of (wrong, right) pairs in the right order, ties half."""
    gaps = uncertainty[is_wrong].unsqueeze(1) - uncertainty[~is_wrong]
    return float(((gaps > 0).double() + 0.5 * (gaps == 0).double()).mean())


def precision_at_each_recall(uncertainty: Tensor, is_wrong: Tensor) -> float:
    """Average precision: precision among the examples at least as uncertain, averaged over the wrong ones."""
    found = [is_wrong[uncertainty >= level].double().mean() for level in uncertainty[is_wrong]]
    return float(torch.stack(found).mean())


def test_error_detection_by_hand() -> None:
    uncertainty = torch.tensor([0.1, 0.2, 0.3, 0.4])
    detected = error_detection(uncertainty, torch.tensor([False, True, False, True]))
    assert detected.auroc == pytest.approx(3 / 4)
    assert detected.aupr == pytest.approx((1 + 2 / 3) / 2)


@hypothesis.given(flags=FLAGS, seed=st.integers(0, 2**32))
def test_error_detection_by_counting(flags: list[bool], seed: int) -> None:
    is_wrong, uncertainty = torch.tensor(flags), coarse_uncertainty(seed, len(flags))
    hypothesis.assume(0 < sum(flags) < len(flags))
    detected = error_detection(uncertainty, is_wrong)
    assert detected.auroc == pytest.approx(pair_counting(uncertainty, is_wrong), abs=1e-6)
    assert detected.aupr == pytest.approx(precision_at_each_recall(uncertainty, is_wrong), abs=1e-6)


def test_error_detection_keeps_large_numbers_apart() -> None:
    is_wrong = torch.tensor([False, True, False, True])
    assert error_detection(torch.tensor([100.0, 300.0, 200.0, math.inf]), is_wrong).auroc == 1.0


def test_uncertainty_that_says_nothing_detects_by_chance() -> None:
    detected = error_detection(torch.full((5,), 0.3), torch.tensor([True, False, False, True, False]))
    assert (detected.auroc, detected.aupr) == (0.5, pytest.approx(0.4))


@pytest.mark.parametrize("is_wrong", [True, False])
def test_error_detection_is_nan_where_there_is_nothing_to_tell_apart(is_wrong: bool) -> None:
    detected = error_detection(torch.rand(4), torch.full((4,), is_wrong))
    assert math.isnan(detected.auroc) and math.isnan(detected.aupr)


def test_risk_coverage_by_hand() -> None:
    curve = risk_coverage(torch.tensor([3.0, 1.0, 2.0, 4.0]), torch.tensor([True, False, False, False]))
    assert curve.coverage.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert curve.risk.tolist() == pytest.approx([0.0, 0.0, 1 / 3, 1 / 4])
    assert curve.area == pytest.approx((1 / 3 + 1 / 4) / 4)


def test_risk_coverage_averages_over_the_orders_of_ties() -> None:
    uncertainty, is_wrong = torch.tensor([1.0, 1.0, 0.0, 1.0]), torch.tensor([True, False, True, False])
    curves = []
    for order in ([0, 1, 3], [1, 0, 3], [1, 3, 0]):  # the wrong one of the three ties first, second, third
        errors = torch.cat([is_wrong[2:3], is_wrong[order]]).double().cumsum(dim=0)
        curves.append(errors / torch.arange(1, 5))
    assert torch.allclose(risk_coverage(uncertainty, is_wrong).risk, torch.stack(curves).mean(dim=0))


@hypothesis.given(flags=FLAGS, seed=st.integers(0, 2**32))
def test_risk_coverage_ends_at_the_error_rate_and_the_oracle_is_best(flags: list[bool], seed: int) -> None:
    is_wrong, uncertainty = torch.tensor(flags), coarse_uncertainty(seed, len(flags))
    curve = risk_coverage(uncertainty, is_wrong)
    assert float(curve.risk[-1]) == pytest.approx(sum(flags) / len(flags))
    assert risk_coverage(is_wrong.float(), is_wrong).area <= curve.area + 1e-12
    assert curve.area <= risk_coverage(-is_wrong.float(), is_wrong).area + 1e-12
    order = torch.randperm(len(flags))
    assert torch.allclose(risk_coverage(uncertainty[order], is_wrong[order]).risk, curve.risk)


def test_one_uncertainty_for_all_has_a_flat_risk() -> None:
    assert risk_coverage(torch.zeros(4), torch.tensor([True, False, False, False])).risk.tolist() == [0.25] * 4


# What is refused


@pytest.mark.parametrize("measure", [predictive_entropy, expected_entropy, mutual_information, top_two_p_value])
def test_bad_probabilities_are_refused(measure) -> None:  # type: ignore[no-untyped-def]
    probs = random_probs(0, 3, 4, 2)
    with pytest.raises(ValueError, match="shape \\(K, N, C\\), none of them 0, got \\(4, 2\\); one draw is"):
        measure(probs[0])
    with pytest.raises(ValueError, match="got \\(3, 0, 2\\)"):
        measure(probs[:, :0])
    with pytest.raises(ValueError, match="without NaN, got 1"):
        measure(probs.masked_fill(torch.arange(24).reshape(3, 4, 2) == 5, math.nan))
    with pytest.raises(ValueError, match="sum to 1 over the last axis, got sums from 2 to 2; scores.softmax"):
        measure(2.0 * probs)
    with pytest.raises(ValueError, match="at least 0, got -2; scores.softmax"):
        measure(torch.tensor([[[3.0, -2.0]], [[3.0, -2.0]]]))
    with pytest.raises(ValueError, match="floating point, got torch.int64"):
        measure(torch.ones(3, 4, 1, dtype=torch.int64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rounding_of_half_precision_is_no_error(dtype: torch.dtype) -> None:
    probs = random_probs(3, 4, 50, 7)
    assert torch.allclose(predictive_entropy(probs.to(dtype)), predictive_entropy(probs), atol=0.02)


@pytest.mark.parametrize("measure", [error_detection, risk_coverage])
def test_bad_uncertainties_are_refused(measure) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="expected uncertainty without NaN, got 1 in 2 examples"):
        measure(torch.tensor([0.1, math.nan]), torch.tensor([True, False]))
    with pytest.raises(ValueError, match="expected uncertainty of shape \\(N\\), none of them 0, got \\(1, 2\\)"):
        measure(torch.zeros(1, 2), torch.tensor([True, False]))
    with pytest.raises(ValueError, match="is_wrong as 2 booleans, .* torch.int64 .* such as predicted != labels"):
        measure(torch.zeros(2), torch.tensor([1, 0]))


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("scipy.stats", "torchmetrics.functional.classification"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match="needs scipy; install it with: pip install 'probattn\\[eval\\]'"):
        top_two_p_value(random_probs(0, 3, 2, 2))
    with pytest.raises(ImportError, match="needs torchmetrics; install it with: pip install 'probattn\\[eval\\]'"):
        error_detection(torch.rand(2), torch.tensor([True, False]))
