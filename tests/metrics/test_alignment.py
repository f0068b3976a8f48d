"""Alignment accuracy and entropy: hand-computed examples and one property each."""

import math

import pytest
import torch

from probattn.metrics import alignment_accuracy, weights_entropy


def test_alignment_accuracy_by_hand() -> None:
    weights = torch.tensor([[[0.1, 0.9], [0.8, 0.2]], [[0.4, 0.6], [0.3, 0.7]]])
    assert float(alignment_accuracy(weights, torch.tensor([[1, 1], [1, 1]]))) == 0.75


def test_positions_that_would_be_repeated_are_refused() -> None:
    with pytest.raises(ValueError, match=r"positions of shape \(2, 3\), one for each row of weights, got \(3,\)"):
        alignment_accuracy(torch.rand(2, 3, 4), torch.tensor([0, 1, 2]))


def test_alignment_accuracy_does_not_depend_on_scale() -> None:
    weights = torch.rand(5, 4, 7)
    position = torch.randint(7, (5, 4))
    assert alignment_accuracy(weights, position) == alignment_accuracy(3.0 * weights, position)


def test_entropy_by_hand_and_with_zeros() -> None:
    weights = torch.tensor([[0.25, 0.25, 0.5, 0.0], [1.0, 0.0, 0.0, 0.0]])
    assert math.isclose(float(weights_entropy(weights)), 1.5 * math.log(2.0) / 2, rel_tol=1e-6)


def test_uniform_weights_have_the_largest_entropy() -> None:
    uniform = torch.full((3, 6), 1 / 6)
    assert float(weights_entropy(torch.rand(3, 6).softmax(-1))) < float(weights_entropy(uniform)) + 1e-6
