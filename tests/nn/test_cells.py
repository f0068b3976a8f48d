"""Recurrent cells against torch's."""

import pytest
import torch
from torch import nn

from probattn.nn import StackedLSTMCell


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_stacked_cells_are_torchs_stacked_lstm(layers: int) -> None:
    torch.manual_seed(0)
    whole = nn.LSTM(3, 4, num_layers=layers).double()
    cell = StackedLSTMCell(3, 4, num_layers=layers).double()
    for number, layer in enumerate(cell.layers):
        layer.load_state_dict(
            {
                name.removesuffix(f"_l{number}"): one
                for name, one in whole.named_parameters()
                if name.endswith(f"_l{number}")
            }
        )
    words = torch.randn(5, 2, 3, dtype=torch.float64)
    expected, (last_hidden, last_cell) = whole(words)
    state = (torch.zeros(2, cell.hidden_size).double(), torch.zeros(2, cell.hidden_size).double())
    for step, word in enumerate(words):
        state = cell(word, state)
        torch.testing.assert_close(state[0][:, -4:], expected[step])  # the top layer comes last
    torch.testing.assert_close(state[0], torch.cat(list(last_hidden), dim=-1))
    torch.testing.assert_close(state[1], torch.cat(list(last_cell), dim=-1))


def test_dropout_is_between_layers_only() -> None:
    inputs, zeros = torch.ones(1, 3), torch.zeros(1, 8)
    cell = StackedLSTMCell(3, 4, num_layers=2, dropout=0.9)
    drawn = torch.stack([cell(inputs, (zeros, zeros))[0][0] for _ in range(8)])
    assert bool((drawn[:, :4] == drawn[:1, :4]).all()) and bool((drawn[:, 4:] != drawn[:1, 4:]).any())


def test_no_layers_are_refused() -> None:
    with pytest.raises(ValueError, match="num_layers must be at least 1, got 0"):
        StackedLSTMCell(3, 4, num_layers=0)
