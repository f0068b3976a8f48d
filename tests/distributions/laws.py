"""Helpers of the statistical tests: fixed seeds, z-scores, many independent copies of one distribution."""

import numpy as np
import scipy.stats
import torch
from torch import Tensor

SEED = torch.tensor(2**50 + 11)
COPIES = 20_000


def copies(parameters: Tensor, count: int = COPIES) -> Tensor:
    """(count, S) rows with equal parameters, as a leaf: noise differs from row to row, gradients are per sample."""
    return parameters.expand(count, *parameters.shape).clone().requires_grad_()


def z_scores(samples: Tensor, expected: Tensor | float) -> Tensor:
    """Distance of the mean over the first axis from what is expected, in standard errors."""
    samples = samples.detach().double()
    error = samples.std(dim=0) / samples.shape[0] ** 0.5
    return (samples.mean(dim=0) - expected) / error.clamp(min=1e-12)


def assert_law(samples: Tensor, cdf) -> None:
    """Kolmogorov-Smirnov test of samples against a distribution function."""
    result = scipy.stats.kstest(samples.detach().flatten().numpy().astype(np.float64), cdf)
    assert result.pvalue > 1e-3, f"Kolmogorov-Smirnov: {result}"


def assert_frequencies(counts: Tensor, probabilities: Tensor) -> None:
    """Chi-square test of counts against probabilities."""
    expected = probabilities / probabilities.sum() * counts.sum()
    result = scipy.stats.chisquare(counts.numpy(), expected.numpy())
    assert result.pvalue > 1e-3, f"chi-square: {result}"
