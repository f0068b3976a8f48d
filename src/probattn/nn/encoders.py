"""Recurrent encoders of sequences, aware of padding.

Size letters: B examples, L positions, D input width, H width a direction.
"""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

__all__ = ["BiLSTM", "SequenceEncoder"]


class SequenceEncoder(nn.Module):
    """Base of encoders that are told which positions are real: `forward(x, mask) -> encoded`."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Encode (B, L, D); mask (B, L) is False for padding."""
        raise NotImplementedError


class BiLSTM(SequenceEncoder):
    """A bidirectional LSTM; padding changes nothing, and batches without padding are not packed.

    Args:
        input_dim: D.
        hidden_dim: H; the output has 2 H features.
        num_layers: Layers.
        dropout: Between layers.
    """

    def __init__(self, input_dim: int, hidden_dim: int, *, num_layers: int = 1, dropout: float = 0.0):
        super().__init__()
        between = dropout if num_layers > 1 else 0.0
        self.lstm = nn.LSTM(input_dim, hidden_dim, num_layers, batch_first=True, bidirectional=True, dropout=between)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Encode.

        Args:
            x: (B, L, D).
            mask: (B, L) bool, False for padding behind the sequence; None: all real.

        Returns:
            (B, L, 2 H), zero at padding.
        """
        if mask is None or bool(mask.all()):
            encoded: Tensor = self.lstm(x)[0]
            return encoded
        lengths = mask.sum(dim=-1).cpu()
        if not bool(
            (mask == (torch.arange(mask.shape[1], device=mask.device) < lengths.to(mask.device)[:, None])).all()
        ):
            raise ValueError(
                "BiLSTM expects padding behind the sequence; a mask has a real position after a padded one"
            )
        packed = pack_padded_sequence(x, lengths.clamp(min=1), batch_first=True, enforce_sorted=False)
        padded, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=x.shape[1])
        result: Tensor = padded.masked_fill(~mask.unsqueeze(-1), 0.0)
        return result
