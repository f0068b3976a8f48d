"""Recurrent cells that torch does not have.

Size letters: B rows, D input width, H width of the state.
"""

import torch
from torch import Tensor, nn

__all__ = ["LayerNormLSTMCell", "StackedLSTMCell"]


class LayerNormLSTMCell(nn.Module):
    """An LSTM cell with layer normalisation of every gate and of the cell (Ba et al. 2016).

    The normalised gates have gains and biases of their own, so the products have none. One is added to the forget
    gate, so that a new cell remembers. Called as `nn.LSTMCell` is.

    Args:
        input_dim: D.
        hidden_dim: H.

    Example:
        >>> cell = LayerNormLSTMCell(3, 4)
        >>> hidden, memory = cell(torch.zeros(2, 3), (torch.zeros(2, 4), torch.zeros(2, 4)))
        >>> hidden.shape
        torch.Size([2, 4])
    """

    def __init__(self, input_dim: int, hidden_dim: int):
        super().__init__()
        self.hidden_size = hidden_dim
        self.input = nn.Linear(input_dim, 4 * hidden_dim, bias=False)
        self.recurrent = nn.Linear(hidden_dim, 4 * hidden_dim, bias=False)
        self.gain = nn.Parameter(torch.ones(4, hidden_dim))
        self.bias = nn.Parameter(torch.zeros(4, hidden_dim))
        self.cell_norm = nn.LayerNorm(hidden_dim)
        for layer in (self.input, self.recurrent):
            nn.init.xavier_uniform_(layer.weight)

    def forward(self, inputs: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Hidden state and cell (B, H) after inputs (B, D), from those before."""
        hidden, cell = state
        gates = (self.input(inputs) + self.recurrent(hidden)).unflatten(-1, (4, self.hidden_size))
        gates = nn.functional.layer_norm(gates, (self.hidden_size,)) * self.gain + self.bias
        enter, candidate, keep, leave = gates.unbind(dim=-2)
        cell = self.cell_norm(torch.sigmoid(keep + 1.0) * cell + torch.sigmoid(enter) * torch.tanh(candidate))
        return torch.sigmoid(leave) * torch.tanh(cell), cell


class StackedLSTMCell(nn.Module):
    """LSTM cells on top of each other, called as one `nn.LSTMCell` of width L x H; the top layer's state comes last.

    Args:
        input_dim: D.
        hidden_dim: H, of each layer.
        num_layers: L.
        dropout: Of what a layer hands to the next.

    Example:
        >>> cell = StackedLSTMCell(3, 4, num_layers=2)
        >>> hidden, memory = cell(torch.zeros(2, 3), (torch.zeros(2, 8), torch.zeros(2, 8)))
        >>> hidden.shape
        torch.Size([2, 8])
    """

    def __init__(self, input_dim: int, hidden_dim: int, *, num_layers: int, dropout: float = 0.0):
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got {num_layers}")
        self.hidden_size = num_layers * hidden_dim
        self.layers = nn.ModuleList(
            nn.LSTMCell(hidden_dim if layer else input_dim, hidden_dim) for layer in range(num_layers)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, inputs: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Hidden states and cells (B, L H) after inputs (B, D), from those before."""
        before = zip(*(one.chunk(len(self.layers), dim=-1) for one in state), strict=True)
        hidden: list[Tensor] = []
        cells: list[Tensor] = []
        for number, (layer, (layer_hidden, layer_cell)) in enumerate(zip(self.layers, before, strict=True)):
            below = self.dropout(hidden[-1]) if number else inputs
            layer_hidden, layer_cell = layer(below, (layer_hidden, layer_cell))
            hidden.append(layer_hidden)
            cells.append(layer_cell)
        return torch.cat(hidden, dim=-1), torch.cat(cells, dim=-1)
