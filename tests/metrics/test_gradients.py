"""Noise of a gradient: against a law that is known."""

import pytest
import torch

from probattn.metrics import gradient_noise


def test_variance_and_norm_of_a_known_law() -> None:
    weight = torch.zeros(3, requires_grad=True)
    mean = torch.tensor([1.0, 2.0, 0.0])

    def loss() -> torch.Tensor:  # gradient = mean + 0.5 * standard normal noise
        return (weight * (mean + 0.5 * torch.randn(3))).sum()

    noise = gradient_noise(loss, [weight], repetitions=4000)
    assert noise.variance == pytest.approx(0.75, rel=0.05)
    assert noise.squared_norm == pytest.approx(5.0, rel=0.05)


def test_deterministic_gradient_has_no_variance_and_unused_parameters_count_as_zero() -> None:
    used, unused = torch.ones(2, requires_grad=True), torch.ones(4, requires_grad=True)
    noise = gradient_noise(lambda: used.square().sum(), [used, unused], repetitions=3)
    assert noise.variance == 0.0
    assert noise.squared_norm == pytest.approx(8.0)


def test_one_repetition_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 repetitions"):
        gradient_noise(lambda: torch.zeros(()), [], repetitions=1)
