"""Dropout with few random bits: its law, its gradient, its modes."""

import pytest
import torch

from probattn.nn import Dropout


@pytest.mark.parametrize("p", [0.1, 0.6, 0.97])
def test_share_and_scale_are_those_of_dropout(p: float) -> None:
    torch.manual_seed(0)
    dropped = Dropout(p)(torch.ones(400_001))
    share = float((dropped == 0).float().mean())
    assert share == pytest.approx(p, abs=4 * (p * (1 - p) / 400_001) ** 0.5 + 2**-16)
    assert torch.allclose(dropped[dropped != 0], torch.tensor(1 / (1 - p)), rtol=1e-3)


def test_every_place_is_dropped_alike_and_neighbours_are_independent() -> None:
    torch.manual_seed(1)
    kept = torch.stack([Dropout(0.5)(torch.ones(8)) > 0 for _ in range(4000)]).float()
    assert (kept.mean(dim=0) - 0.5).abs().max() < 4 * 0.5 / 4000**0.5
    correlation = torch.corrcoef(kept.T) - torch.eye(8)
    assert correlation.abs().max() < 5 / 4000**0.5


def test_gradient_is_the_mask() -> None:
    x = torch.randn(50, requires_grad=True)
    dropped = Dropout(0.4)(x)
    dropped.sum().backward()
    assert x.grad is not None and torch.allclose(x.grad * x.detach(), dropped.detach())


def test_evaluation_and_rate_zero_change_nothing() -> None:
    x = torch.randn(5)
    assert Dropout(0.7).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_rate_one_drops_everything() -> None:
    assert torch.equal(Dropout(1.0)(torch.ones(9)), torch.zeros(9))


def test_seeds_repeat() -> None:
    masks = []
    for _ in range(2):
        torch.manual_seed(3)
        masks.append(Dropout(0.5)(torch.ones(33)))
    assert torch.equal(*masks)


def test_a_wrong_rate_is_named() -> None:
    with pytest.raises(ValueError, match=r"between 0 and 1, got 1\.5"):
        Dropout(1.5)
