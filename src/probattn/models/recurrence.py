"""What encoder-decoder networks share: a source that is read once, a recurrence, and words that are read out together.

Size letters: K particles, B sentences, S source positions, T target positions, E embedding, C context (encoder) width,
H decoder width, R readout width, V target words.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from probattn.core import Dense, Memory
from probattn.kernels import Credit, latent_cross_entropy
from probattn.nn import SequenceEncoder

__all__ = ["DecoderState", "encode_source", "select_memory", "source_lengths", "words_log_lik"]


@dataclass(frozen=True)
class DecoderState:
    """State of the recurrence between two steps.

    Attributes:
        hidden: (B, H); of stacked layers (B, L H), the top one last.
        cell: As hidden.
        context: (B, C) what is fed into the next step, or was into the last one; C = 0 without attention.
    """

    hidden: Tensor
    cell: Tensor
    context: Tensor

    @classmethod
    def zeros(cls, like: Tensor, hidden_dim: int, context_dim: int) -> "DecoderState":
        """All zeros for the rows of `like` (B, ...), on its device."""
        hidden = like.new_zeros(like.shape[0], hidden_dim)
        return cls(hidden, hidden, like.new_zeros(like.shape[0], context_dim))

    def select(self, rows: Tensor) -> "DecoderState":
        """Rows by number."""
        return DecoderState(self.hidden[rows], self.cell[rows], self.context[rows])


def encode_source(
    source: Tensor, mask: Tensor, *, embedding: nn.Embedding, encoder: SequenceEncoder, dropout: nn.Module
) -> Memory:
    """Source words as a memory: keys and values (B, S, C), inputs (B, S, E), support with mask (B, 1, S) if need be.

    Args:
        source: (B, S) word numbers.
        mask: (B, S) bool, False for padding.
        embedding: Of source words.
        encoder: From (B, S, E) to (B, S, C).
        dropout: Of embeddings and of encoder states.
    """
    embedded = dropout(embedding(source))
    states: Tensor = dropout(encoder(embedded, mask))
    # a batch of equal lengths needs no mask, which would be applied anew at every step
    support = Dense(None if bool(mask.all()) else mask.unsqueeze(1))
    return Memory(keys=states, values=states, support=support, inputs=embedded)


def select_memory(memory: Memory, rows: Tensor) -> Memory:
    """Sentences of a memory by number, e.g. those of the hypotheses that a search goes on with."""
    mask = memory.support.mask if isinstance(memory.support, Dense) else None
    values = memory.values[rows]
    return Memory(
        keys=values if memory.keys is memory.values else memory.keys[rows],  # copied at every step of a search
        values=values,
        support=Dense(None if mask is None else mask[rows]),
        inputs=None if memory.inputs is None else memory.inputs[rows],
    )


def source_lengths(memory: Memory) -> Tensor:
    """(B,) source positions without padding."""
    support, values = memory.support, memory.values
    if isinstance(support, Dense) and support.mask is not None:
        return support.mask[:, 0].sum(dim=-1)
    return torch.full(values.shape[:1], values.shape[1], dtype=torch.int64, device=values.device)


def words_log_lik(
    hidden: Tensor,
    target: Tensor,
    mask: Tensor,
    *,
    weight: Tensor,
    bias: Tensor | None,
    credit: Credit | None = None,
    skip_below: float = 0.0,
) -> Tensor:
    """Log-likelihood of target words under every particle, zero at padding.

    Args:
        hidden: (K, words, R) hidden states of the readout at the real words, sentence by sentence.
        target: (B, T) words to predict.
        mask: (B, T) bool, False for padding, which is not read out.
        weight: (V, R) output layer.
        bias: (V) of it.
        credit: See `latent_cross_entropy`.
        skip_below: See `latent_cross_entropy`.

    Returns:
        (K, B, T).
    """
    found = latent_cross_entropy(hidden, weight, bias=bias, target=target[mask], credit=credit, skip_below=skip_below)
    log_lik = found.new_zeros(len(found), *mask.shape)
    log_lik[:, mask] = found
    return log_lik
