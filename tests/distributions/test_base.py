"""What the families share: precision, shapes on edge lists, and the parts that each family must define."""

import pytest
import torch

from probattn.core import Dense, Segments
from probattn.distributions import VectorDistribution, WeightsDistribution
from probattn.distributions.base import at_least_float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_becomes_float32(dtype):
    assert at_least_float32(torch.ones(2, dtype=dtype)).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_other_precisions_stay(dtype):
    x = torch.ones(2, dtype=dtype)
    assert at_least_float32(x) is x


def test_shapes():
    dense = WeightsDistribution(torch.zeros(2, 3, 4), Dense())
    assert dense.batch_shape == (2, 3) and dense.event_shape == (4,)
    edges = WeightsDistribution(torch.zeros(5, 2), Segments(torch.tensor([0, 0, 1, 2, 2]), 3))
    assert edges.batch_shape == (3, 2)


def test_a_family_defines_sampling_and_plug_in():
    unfinished = WeightsDistribution(torch.zeros(2, 3), Dense())
    with pytest.raises(NotImplementedError):
        unfinished.draw_raw(1, torch.tensor(0))
    with pytest.raises(NotImplementedError):
        _ = unfinished.plug_in


def test_vectors_are_their_own_value():
    raw = torch.randn(2, 3)
    assert VectorDistribution(validate_args=False).realise(raw) is raw
