"""Encoders of padded sequences, alone and inside an inference network.

Sizes: B examples, L positions, D input width, H width a direction.
"""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from probattn.core import Dense
from probattn.distributions import Categorical
from probattn.nn import Bilinear, BiLSTM, InferenceNetwork, SequenceEncoder
from tests.nn.zoo import B, D, S, T, make_given

H, L = 3, 4
MASK = torch.tensor([[True] * 4, [True, True, False, False]])


@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("junk", [1e4, float("nan"), float("inf")])
def test_padding_changes_nothing(num_layers: int, junk: float) -> None:
    """Each sequence is encoded as if it were alone; the backward direction starts at its last real position."""
    encoder = BiLSTM(D, H, num_layers=num_layers)
    x = torch.randn(B, L, D)
    padded = torch.where(MASK.unsqueeze(-1), x, junk)
    encoded = encoder(padded, MASK)
    assert encoded.shape == (B, L, 2 * H)
    for row in range(B):
        length = int(MASK[row].sum())
        alone, _ = encoder.lstm(x[row : row + 1, :length])
        torch.testing.assert_close(encoded[row, :length], alone[0])
        assert not encoded[row, length:].any()
    grads = torch.autograd.grad(encoded.sum(), list(encoder.parameters()))
    assert all(torch.isfinite(grad).all() for grad in grads)


def test_without_padding() -> None:
    encoder, x = BiLSTM(D, H), torch.randn(B, L, D)
    expected = encoder.lstm(x)[0]
    assert torch.equal(encoder(x), expected)
    assert torch.equal(encoder(x, torch.ones(B, L, dtype=torch.bool)), expected)


def test_a_sequence_of_nothing_is_zero() -> None:
    encoded = BiLSTM(D, H)(torch.randn(B, L, D), torch.tensor([[True] * L, [False] * L]))
    assert not encoded[1].any()
    assert encoded[0].any()


def test_padding_in_front_is_refused() -> None:
    with pytest.raises(
        ValueError, match="expects padding behind the sequence; a mask has a real position after a padded"
    ):
        BiLSTM(D, H)(torch.randn(1, L, D), torch.tensor([[False, True, True, True]]))


def test_dropout_between_layers() -> None:
    x = torch.randn(B, L, D)
    one, two = BiLSTM(D, H, dropout=0.5), BiLSTM(D, H, num_layers=2, dropout=0.5)
    assert torch.equal(one(x), one(x))  # one layer has nothing between layers
    assert not torch.equal(two(x), two(x))


def test_the_base_class_encodes_nothing() -> None:
    with pytest.raises(NotImplementedError):
        SequenceEncoder()(torch.zeros(B, L, D))


# Inside an inference network


def network() -> InferenceNetwork:
    return InferenceNetwork(
        Bilinear(2 * H, 2 * H), Categorical(), target_encoder=BiLSTM(D, H), memory_encoder=BiLSTM(D, H)
    )


def support_of(kind: str, extra: int) -> Dense:
    """Masks of the same S real positions and `extra` padded ones, in the shapes that a support may have."""
    mask = torch.ones(T, S, dtype=torch.bool)
    if "T" in kind:  # queries may differ in what they see; the memory has what any of them sees
        mask[0, 0] = mask[-1, -1] = False
    mask = nn.functional.pad(mask, (0, extra), value=False)
    rows = mask if "T" in kind else mask[:1]
    return Dense({"(S)": rows[0], "(T, S)": rows, "(1, 1, S)": rows[None]}.get(kind, rows.expand(B, -1, -1)))


@pytest.mark.parametrize("kind", ["(S)", "(T, S)", "(1, 1, S)", "(B, 1, S)", "(B, T, S)"])
def test_memory_padding_changes_nothing(kind: str) -> None:
    posterior = network()
    results = []
    for extra in (0, 2):
        given = make_given(extra)
        memory = replace(given.memory, support=support_of(kind, extra))
        results.append(posterior(replace(given, memory=memory)).plug_in[..., :S])
    torch.testing.assert_close(*results)
    given, support = make_given(), support_of(kind, 0)
    keys = posterior.memory_encoder.lstm(given.memory.inputs)[0]  # all S positions, whatever one query may see
    query = posterior.score.project(posterior.target_encoder(given.target))
    expected = support.log_softmax(query @ keys.transpose(-1, -2)).exp()
    torch.testing.assert_close(results[0], expected)


def test_target_padding_changes_nothing() -> None:
    """Padded steps are told by Given.mask; they must not reach real steps through the backward direction."""
    posterior, given = network(), make_given()

    def run(extra: int) -> Tensor:
        target = nn.functional.pad(given.target, (0, 0, 0, extra), value=50.0)
        mask = nn.functional.pad(torch.ones(B, T, dtype=torch.bool), (0, extra), value=False)
        return posterior(replace(given, target=target, mask=mask)).plug_in[:, :T]

    torch.testing.assert_close(run(2), run(0))
