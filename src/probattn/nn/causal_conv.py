"""Gated causal convolutions: the network of an autoregressive prior (DAVAM, Sec. III-C), with cached sampling.

Position s of the output sees positions up to s of the input. Sampling keeps the last inputs of every layer, so that a
sequence of S positions costs S steps instead of S passes over all of it.

Size letters: B sequences, S positions, D input width, W channels, M kernel size, O output width.
"""

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

__all__ = ["CausalConvolutions", "Incremental"]

Cache = list[Tensor]
"""Of every layer, its last M - 1 inputs (B, W, M - 1)."""


@runtime_checkable
class Incremental(Protocol):
    """A causal network that can be run position by position."""

    def begin(self, batch_size: int) -> Cache:
        """The cache before the first position."""
        ...

    def step(self, x: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        """Output (B, O) of the next position from its input (B, D), and the cache behind it."""
        ...


class CausalConvolutions(nn.Module):
    """A stack of residual gated convolutions: x + V (tanh(a) * sigmoid(b)), (a, b) = convolution of x.

    Args:
        input_dim: D.
        output_dim: O: number of codes, or mean and log-variance.
        channels: W (the paper's code: 512).
        num_layers: Convolutions (15 or 16).
        kernel_size: M (5).
        hidden_dim: Width of the hidden layer before the output; W / 2 by default.
        dropout: Of the input of every layer's convolution.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        *,
        channels: int = 512,
        num_layers: int = 16,
        kernel_size: int = 5,
        hidden_dim: int | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        if min(channels, num_layers, kernel_size) < 1:
            raise ValueError(
                "channels, num_layers and kernel_size must be at least 1, got "
                f"{channels}, {num_layers} and {kernel_size}"
            )
        hidden_dim = max(1, channels // 2) if hidden_dim is None else hidden_dim
        self.channels = channels
        self.kernel_size = kernel_size
        self.enter = nn.Linear(input_dim, channels)
        self.convolutions = nn.ModuleList(nn.Conv1d(channels, 2 * channels, kernel_size) for _ in range(num_layers))
        self.leave = nn.ModuleList(nn.Conv1d(channels, channels, 1) for _ in range(num_layers))
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Sequential(nn.Linear(channels, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, output_dim))

    @property
    def receptive_field(self) -> int:
        """Positions that an output can see, its own included."""
        return 1 + len(self.convolutions) * (self.kernel_size - 1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, S, O) from (B, S, D). What stands at padding behind a sequence changes nothing before it."""
        x = self.enter(x).transpose(1, 2)  # (B, W, S)
        for convolution, leave in zip(self.convolutions, self.leave, strict=True):
            padded = nn.functional.pad(self.dropout(x), (self.kernel_size - 1, 0))
            x = x + leave(_gated(convolution(padded)))
        out: Tensor = self.head(x.transpose(1, 2))
        return out

    def begin(self, batch_size: int) -> Cache:
        """The cache before the first position: zeros, as the padding in front of a sequence."""
        weight = self.enter.weight
        return [weight.new_zeros(batch_size, self.channels, self.kernel_size - 1) for _ in self.convolutions]

    def step(self, x: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        """Output (B, O) of the next position from its input (B, D), and the cache behind it."""
        x = self.enter(x)  # (B, W)
        behind: Cache = []
        for convolution, leave, past in zip(self.convolutions, self.leave, cache, strict=True):
            window = torch.cat([past, self.dropout(x).unsqueeze(-1)], dim=-1)  # (B, W, M)
            behind.append(window[:, :, 1:])
            x = x + _only_position(leave, _gated(_only_position(convolution, window)).unsqueeze(-1))
        out: Tensor = self.head(x)
        return out, behind


def _only_position(convolution: nn.Module, window: Tensor) -> Tensor:
    """(B, O) of a window (B, W, M) as wide as the kernel: a matrix product takes half the time of a convolution."""
    if not isinstance(convolution, nn.Conv1d):
        raise TypeError(f"expected a Conv1d, got {type(convolution).__name__}")
    return nn.functional.linear(window.flatten(1), convolution.weight.flatten(1), convolution.bias)


def _gated(values: Tensor) -> Tensor:
    candidate, gate = values.chunk(2, dim=1)
    return torch.tanh(candidate) * torch.sigmoid(gate)
