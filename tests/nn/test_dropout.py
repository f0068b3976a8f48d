"""Dropout with few random bits: its law, its gradient, its modes."""

import pytest
import torch
from torch import nn

from probattn.nn import Dropout, evaluating
from probattn.nn.dropout import drops


@pytest.mark.parametrize("p", [0.1, 0.6, 0.97])
def test_share_and_scale_are_those_of_dropout(p: float) -> None:
    torch.manual_seed(0)
    dropped = Dropout(p)(torch.ones(400_001))
    share = float((dropped == 0).float().mean())
    assert share == pytest.approx(p, abs=4 * (p * (1 - p) / 400_001) ** 0.5 + 2**-16)
    assert torch.allclose(dropped[dropped != 0], torch.tensor(1 / (1 - p)), rtol=1e-3)


def test_half_precision_keeps_the_mean() -> None:
    torch.manual_seed(0)
    x = torch.randn(200_000).bfloat16()
    dropped = Dropout(0.1)(x)
    kept = dropped != 0
    scale = dropped[kept].double().abs().sum() / x[kept].double().abs().sum()
    assert float(scale) == pytest.approx(1 / 0.9, rel=3e-4)  # as a bfloat16 it would be off by 1.6e-3


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


class Attention(nn.Module):
    """Applies dropout itself, as the attention of pretrained models does."""

    def __init__(self, rate: float):
        super().__init__()
        self.attention_dropout = rate
        self.is_dropped = True  # no rate


DROPS = {
    "ours": (Dropout(0.1), True),
    "torch": (nn.Dropout2d(0.1), True),
    "rate zero": (nn.Dropout(0.0), False),
    "multi-head attention": (nn.MultiheadAttention(4, 2, dropout=0.1), True),
    "multi-head attention, rate zero": (nn.MultiheadAttention(4, 2), False),
    "recurrent": (nn.LSTM(4, 4, num_layers=2, dropout=0.1), True),
    "transformer layer": (nn.TransformerEncoderLayer(4, 2, dropout=0.1), True),
    "transformer layer, rate zero": (nn.TransformerEncoderLayer(4, 2, dropout=0.0), False),
    "by itself": (Attention(0.1), True),
    "by itself, rate zero": (Attention(0.0), False),
    "normalisation": (nn.BatchNorm1d(4), False),
    "around one": (nn.Sequential(nn.Dropout(0.1)), False),
}


@pytest.mark.parametrize("name", DROPS)
def test_modules_that_drop_are_found(name: str) -> None:
    module, expected = DROPS[name]
    assert drops(module) == expected


@pytest.mark.parametrize("dropout", [False, True])
def test_evaluating_sets_modes_and_restores_each_of_them(dropout: bool) -> None:
    layer = nn.TransformerEncoderLayer(4, 2, dropout=0.5)
    model = nn.Sequential(layer, nn.BatchNorm1d(4), nn.Dropout(0.0)).train()
    layer.linear1.eval()
    before = [module.training for module in model.modules()]
    with evaluating(model, dropout=dropout):
        modes = {name: module.training for name, module in model.named_modules()}
    assert [module.training for module in model.modules()] == before
    on = {"0", "0.self_attn", "0.dropout", "0.dropout1", "0.dropout2"} if dropout else set()
    assert {name for name, is_training in modes.items() if is_training} == on
    with pytest.raises(RuntimeError, match="stop"), evaluating(model, dropout=dropout):
        raise RuntimeError("stop")
    assert [module.training for module in model.modules()] == before
