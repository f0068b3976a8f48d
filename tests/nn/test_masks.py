"""Numbers of a float mask that hide a position are not in the KL, whatever convention wrote them."""

import pytest
import torch
from torch import nn

import probattn as pa
from probattn.nn.masks import hidden_by, with_infinities

CAUSAL = torch.ones(5, 5).triu(1).bool()
LAWS = {
    "weibull": (pa.Weibull(10.0, anchor="softmax"), pa.Fixed(pa.GammaPrior(rate=0.01), 0.1)),
    "lognormal": (pa.Lognormal(0.3, anchor="softmax"), pa.Fixed(pa.LognormalPrior(location="log_psi"), 0.1)),
}


def inputs(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def test_what_hides():
    mask = torch.tensor([0.0, -100.0, -9999.0, -1e4, -1e9, torch.finfo(torch.float32).min, -torch.inf])
    assert hidden_by(mask).tolist() == [False, False, False, True, True, True, True]
    assert with_infinities(None) is None and with_infinities(CAUSAL) is CAUSAL
    assert torch.isneginf(with_infinities(torch.tensor([-65504.0], dtype=torch.float16))).all()  # float16's smallest


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("lowest", [-1e4, -1e9])
@pytest.mark.parametrize("law", LAWS)
def test_the_kl_is_over_what_a_query_sees(law, lowest, need_weights):
    family, prior = LAWS[law]
    x = inputs(2, 5, 8)
    found = [
        pa.scaled_dot_product_attention(
            *(x, x, x),
            attn_mask=torch.zeros(5, 5).masked_fill(CAUSAL, value),
            family=family,
            prior=prior,
            need_weights=need_weights,
            seed=torch.tensor(1),
        )
        for value in (lowest, -torch.inf)
    ]
    torch.testing.assert_close(found[0].kl, found[1].kl)
    torch.testing.assert_close(found[0].context, found[1].context)


def test_padding_by_a_large_number_in_the_drop_in():
    family, prior = LAWS["weibull"]
    layer = pa.MultiheadAttention(8, 2, batch_first=True, family=family, prior=prior)
    pa.set_sampling(layer, True, seed=3)
    x, padding = inputs(2, 5, 8), torch.tensor([[False] * 5, [False, False, False, True, True]])
    found = []
    for mask in (padding, torch.zeros(2, 5).masked_fill(padding, -1e9)):
        output, result = layer.forward_with_latents(x, x, x, key_padding_mask=mask)
        found.append((output[1, :3].detach(), result.kl.detach()))
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("lowest", [-1e4, -1e9, torch.finfo(torch.float32).min])
@pytest.mark.parametrize("anchor", ["exp", "softmax"])
def test_a_row_that_is_hidden_as_a_whole(anchor, lowest):
    """Switched off it is torch's, which is even over such a row; drawn it reads nothing; it has no KL either way."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(8, 2, batch_first=True)
    family, prior = pa.Weibull(10.0, anchor=anchor), pa.Fixed(pa.GammaPrior(rate=0.01), 0.1)
    ours = pa.MultiheadAttention.from_torch(theirs, family=family, prior=prior)
    x, mask = inputs(2, 5, 8), torch.zeros(5, 5)
    mask[2], mask[1, 3] = lowest, lowest
    expected = theirs(x, x, x, attn_mask=mask)[0]
    for is_drawn in (False, True):
        with pa.sampling(ours, is_drawn):
            output, result = ours.forward_with_latents(x, x, x, attn_mask=mask)
        kl = result.kl.detach()
        assert float(kl[..., 2].abs().max()) == 0.0 and 0.0 < float(kl.max()) < 1e3
        if not is_drawn:
            torch.testing.assert_close(output, expected)
        else:
            torch.testing.assert_close(output[:, 2], theirs.out_proj.bias.expand(2, 8))
