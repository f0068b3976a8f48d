"""A fixed number of vectors from sequences of any length: which states are read, and that padding is not."""

import pytest
import torch
from torch import Tensor, nn

from probattn.nn import EvenReading, LastReading, PooledReading

STATES = torch.arange(24.0).view(2, 12, 1)
MASK = torch.arange(12) < torch.tensor([[12], [5]])
READINGS = (EvenReading, LastReading, PooledReading)


class Multiples(nn.Module):
    """(B, H) to (B, M * H): once, twice, ... so much."""

    def __init__(self, count: int):
        super().__init__()
        self.count = count

    def forward(self, state: Tensor) -> Tensor:
        return torch.cat([number * state for number in range(1, self.count + 1)], dim=-1)


def test_even_reading_takes_the_ends_of_equal_parts() -> None:
    found, found_mask = EvenReading(4, nn.Identity())(STATES, MASK)
    assert found[..., 0].tolist() == [[2.0, 5.0, 8.0, 11.0], [13.0, 14.0, 15.0, 16.0]]
    assert bool(found_mask.all()) and found_mask.shape == (2, 4)
    short, _ = EvenReading(4, nn.Identity())(STATES[:, :2], MASK[:, :2])
    assert short[0, :, 0].tolist() == [0.0, 0.0, 1.0, 1.0]


def test_last_reading_makes_all_of_the_last_state() -> None:
    found, found_mask = LastReading(3, Multiples(3))(STATES, MASK)
    assert found[..., 0].tolist() == [[11.0, 22.0, 33.0], [16.0, 32.0, 48.0]]
    assert bool(found_mask.all()) and found_mask.shape == (2, 3)


def test_pooled_reading_has_the_largest_of_every_feature() -> None:
    both = torch.cat([STATES, -STATES], dim=-1)
    found, found_mask = PooledReading(2, Multiples(2))(both, MASK)
    assert found.tolist() == [[[11.0, 0.0], [22.0, 0.0]], [[16.0, -12.0], [32.0, -24.0]]]
    assert bool(found_mask.all()) and found_mask.shape == (2, 2)
    states = torch.randn(2, 12, 3, requires_grad=True)
    PooledReading(2, Multiples(2))(states, MASK)[0].sum().backward()
    assert states.grad is not None and int((states.grad != 0.0).sum()) == 2 * 3  # the places where they are


@pytest.mark.parametrize("kind", READINGS)
def test_padding_is_not_read_and_an_empty_sequence_has_nothing(kind: type[EvenReading]) -> None:
    reading = kind(4, nn.Identity() if kind is EvenReading else Multiples(4))
    found, _ = reading(STATES, MASK)
    junk = torch.where(MASK.unsqueeze(-1), STATES, torch.tensor(1e4))
    junk = torch.cat([junk, torch.full((2, 3, 1), 1e4)], dim=1)
    longer = torch.cat([MASK, torch.zeros(2, 3, dtype=torch.bool)], dim=1)
    assert torch.equal(found, reading(junk, longer)[0])
    empty, mask = reading(STATES, torch.zeros_like(MASK))
    assert not bool(mask.any()) and bool(torch.isfinite(empty).all())


@pytest.mark.parametrize("kind", READINGS)
def test_wrong_arguments_are_named(kind: type[EvenReading]) -> None:
    with pytest.raises(ValueError, match=rf"{kind.__name__}\(num_positions\) must be at least 1, got 0"):
        kind(0, nn.Identity())
