"""Nested tensors to padded ones and back."""

import pytest
import torch
from torch import nn

from probattn import GammaPrior, KeyPrior, MultiheadAttention, Weibull, record_latents, sampling
from probattn.nn.nested import pad_nested, to_nested


def rows(*lengths: int) -> list[torch.Tensor]:
    return [torch.randn(n, 8) for n in lengths]


@pytest.mark.parametrize("lengths", [(3, 1, 2), (2, 2), (1,)])
def test_round_trip(lengths: tuple[int, ...]) -> None:
    expected = rows(*lengths)
    padded, padding = pad_nested(torch.nested.as_nested_tensor(expected))
    assert padded.shape == (len(lengths), max(lengths), 8)
    for row, length in enumerate(lengths):
        assert torch.equal(padded[row, :length], expected[row])
        assert not padded[row, length:].any()
        assert padding[row].tolist() == [False] * length + [True] * (max(lengths) - length)
    again = to_nested(padded, padding)
    assert again.is_nested
    assert all(torch.equal(a, b) for a, b in zip(again.unbind(), expected, strict=True))


def test_attention_on_nested_input_equals_padded_input() -> None:
    attention = MultiheadAttention(8, 2, batch_first=True, family=Weibull(2.0)).eval()
    expected = rows(3, 1, 2)
    nested = torch.nested.as_nested_tensor(expected)
    padded, padding = pad_nested(nested)
    with sampling(attention, seed=3), torch.no_grad():
        output, _ = attention(nested, nested, nested, need_weights=False)
        reference, _ = attention(padded, padded, padded, key_padding_mask=padding)
    assert output.is_nested
    for row, result in enumerate(output.unbind()):
        assert torch.equal(result, reference[row, : result.shape[0]])


def test_padding_of_nested_queries_costs_nothing() -> None:
    attention = MultiheadAttention(8, 2, batch_first=True, family=Weibull(2.0), prior=KeyPrior(4, GammaPrior()))
    nested = torch.nested.as_nested_tensor(rows(3, 1))
    with record_latents() as record, torch.no_grad():
        attention(nested, nested, nested)
    (latent,) = record.latents
    assert torch.equal(latent.kl[:, 0] > 0, torch.tensor([[True] * 3, [True, False, False]]))


def test_nested_cross_attention_is_refused() -> None:
    attention = MultiheadAttention(8, 2, batch_first=True)
    nested, other = (torch.nested.as_nested_tensor(rows(2, 1)) for _ in range(2))
    with pytest.raises(ValueError, match="nested tensors are taken in self-attention only; pad query, key and value"):
        attention(nested, other, other)


def test_without_sampling_nested_input_gives_the_output_of_torch() -> None:
    reference = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    attention = MultiheadAttention.from_torch(reference, family=Weibull(2.0))
    nested = torch.nested.as_nested_tensor(rows(3, 2))
    with sampling(attention, False), torch.no_grad():
        found, _ = attention(nested, nested, nested, need_weights=False)
        expected, _ = reference(nested, nested, nested, need_weights=False)
    for mine, theirs in zip(found.unbind(), expected.unbind(), strict=True):
        torch.testing.assert_close(mine, theirs)
