"""Language models with a latent variable: none, one per sentence, or one per word with attention (DAVAM, Sec. III).

`SentenceVae` is the LSTM language model, the text VAE of Bowman et al. (2016) with all its remedies, and DAVAM-q,
whose one code is quantised. `MemoryVae` has a memory of latents that the decoder attends to: VAE + Attn, GAVAM and
DAVAM. Rows differ in the site's prior and posterior, in schedules and stages, not in the network.

Size letters: K particles, B sentences, S positions of the memory, T target positions, E embedding, H width of encoder
and decoder, A width of projected latents, Z width of a latent, V words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from probattn.core import Dense, Estimator, Evaluation, Latent
from probattn.models.recurrence import DecoderState, words_log_lik
from probattn.nn import Bottleneck, EvenReading, LastReading, PooledReading, Score, fold_particles

__all__ = ["Attended", "MemoryVae", "ReadText", "SentenceVae"]


@dataclass(frozen=True)
class ReadText:
    """What was read of a batch, or drawn from a prior.

    Attributes:
        value: (K, B, S, Z) latents; S = 1 for one per sentence, Z = 0 without a latent.
        mask: (B, S) bool, False for padding.
        encoding: (B, S, D) what the posterior was made from, e.g. to update a codebook; None for draws of a prior.
        latents: The receipt; empty without a latent, and for draws of a prior.
    """

    value: Tensor
    mask: Tensor
    encoding: Tensor | None = None
    latents: Sequence[Latent] = ()

    @classmethod
    def drawn(cls, value: Tensor, mask: Tensor | None = None) -> "ReadText":
        """Latents (B, S, Z) of a prior, to be decoded."""
        mask = torch.ones(value.shape[:2], dtype=torch.bool, device=value.device) if mask is None else mask
        return cls(value.unsqueeze(0), mask)


class SentenceVae(nn.Module):
    """An LSTM over words, with one latent per sentence in its input and its first state, or none.

    Args:
        embedding: (V, E).
        decoder: LSTM with inputs (E + Z), batch first, one layer.
        encoder: LSTM with inputs E, batch first; its last state is read. None without a latent.
        latent: The site; its posterior reads (B, 1, H). None for a language model.
        latent_dim: Z.
        dropout: Of the decoder's words and states; what an encoder reads has none, as in the released code of He et al.
            and of DAVAM.
        project: From the last state (B, 1, H) to what the posterior reads: a linear layer before a codebook; None for
            the state itself.
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        decoder: nn.LSTM,
        *,
        encoder: nn.LSTM | None = None,
        latent: Bottleneck | None = None,
        latent_dim: int = 0,
        dropout: float = 0.0,
        project: nn.Module | None = None,
    ):
        super().__init__()
        if (encoder is None) != (latent is None) or (latent is None) != (latent_dim == 0):
            raise ValueError("an encoder, a latent and a latent_dim above zero go together; a language model has none")
        self.embedding = embedding
        self.encoder = encoder
        self.project = project
        self.latent = latent
        self.decoder = decoder
        self.first_cell = nn.Linear(latent_dim, decoder.hidden_size) if latent is not None else None
        self.dropout = nn.Dropout(dropout)
        self.readout = nn.Linear(decoder.hidden_size, embedding.num_embeddings)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.readout.weight.device

    def encode(self, words: Tensor, mask: Tensor, estimators: Mapping[str, Estimator]) -> ReadText:
        """Read sentences (B, S) with mask (B, S), and draw the latent."""
        if self.encoder is None or self.latent is None:
            return ReadText(self.readout.weight.new_zeros(1, len(words), 1, 0), mask[:, :1])
        states = self.encoder(self.embedding(words))[0]
        rows = torch.arange(len(words), device=words.device)
        last = states[rows, (mask.sum(dim=-1) - 1).clamp(min=0)].unsqueeze(1)  # (B, 1, H): behind it is padding only
        last = last if self.project is None else self.project(last)
        found = self.latent(last, estimators[self.latent.site.name])
        return ReadText(found.value, mask[:, :1], last, tuple(found.latents))

    def forward(
        self,
        words: Tensor,
        words_mask: Tensor,
        *,
        target_in: Tensor,
        target_out: Tensor,
        target_mask: Tensor,
        estimators: Mapping[str, Estimator],
    ) -> Evaluation:
        """Log-likelihood of sentences, and the receipt of the latent.

        Args:
            words: (B, S) what the encoder reads.
            words_mask: (B, S) bool.
            target_in: (B, T) previous words, beginning with BOS.
            target_out: (B, T) words to predict, ending with EOS.
            target_mask: (B, T) bool.
            estimators: Of the site, where there is one; K samples give K trajectories.
        """
        return self.decode(
            self.encode(words, words_mask, estimators),
            target_in=target_in,
            target_out=target_out,
            target_mask=target_mask,
        )

    def decode(self, read: ReadText, *, target_in: Tensor, target_out: Tensor, target_mask: Tensor) -> Evaluation:
        """Log-likelihood of sentences given what was read."""
        count = read.value.shape[0]
        code = fold_particles(read.value)[:, 0]  # (K * B, Z)
        embedded = self.dropout(self.embedding(target_in)).repeat(count, 1, 1)
        hidden = self._run(embedded, code).unflatten(0, (count, len(target_in)))  # (K, B, T, H)
        log_lik = words_log_lik(
            self.dropout(hidden[:, target_mask]),
            target_out,
            target_mask,
            weight=self.readout.weight,
            bias=self.readout.bias,
            credit=(lambda found, targets: torch.ones_like(found)) if count == 1 else None,
        )
        return Evaluation(log_lik=log_lik, latents=tuple(read.latents), mask=target_mask)

    def start(self, read: ReadText) -> DecoderState:
        """The state before the first word, of one row per sentence; its context is the latent."""
        code = read.value[0, :, 0]
        if self.first_cell is None:
            return DecoderState.zeros(code, self.decoder.hidden_size, 0)
        cell = self.first_cell(code)
        return DecoderState(torch.tanh(cell), cell, code)

    def advance(self, state: DecoderState, words: Tensor) -> tuple[DecoderState, Tensor]:
        """One step: the state behind words (B), and log-probabilities (B, V) of the next ones."""
        inputs = torch.cat([self.embedding(words), state.context], dim=-1).unsqueeze(1)
        output, (hidden, cell) = self.decoder(inputs, (state.hidden.unsqueeze(0), state.cell.unsqueeze(0)))
        log_probs = torch.log_softmax(self.readout(output[:, 0]).float(), dim=-1)
        return replace(state, hidden=hidden[0], cell=cell[0]), log_probs

    def _run(self, embedded: Tensor, code: Tensor) -> Tensor:
        """(N, T, H) states over all steps."""
        if self.first_cell is None:
            states: Tensor = self.decoder(embedded)[0]
            return states
        cell = self.first_cell(code)
        spread = code.unsqueeze(1).expand(-1, embedded.shape[1], -1)
        first = (torch.tanh(cell).unsqueeze(0), cell.unsqueeze(0))
        states = self.decoder(torch.cat([embedded, spread], dim=-1), first)[0]
        return states


class MemoryVae(nn.Module):
    """An LSTM decoder that attends to a memory of latents, one per word of the sentence (DAVAM's released code).

    c_0 = W z_S, h_0 = tanh(c_0); the input of a step is [word; context; h_0], where the context is what the previous
    state attends to by an additive score on projected latents; words are read out of [state; context].

    Args:
        embedding: (V, E).
        encoder: LSTM with inputs E, batch first, one direction.
        project: From its states (B, S, H) to what the posterior reads: a linear layer before a codebook, else identity;
            an `EvenReading`, `LastReading` or `PooledReading` for a memory of fewer latents than words.
        latent: The site, unit "example", one vector per position.
        values: From latents (Z) to what is attended to (A).
        score: Of decoder states (H) against it.
        decoder_dim: H.
        dropout: Of the decoder's words and states, not of contexts, and not of what the encoder reads.
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        encoder: nn.LSTM,
        *,
        project: nn.Module,
        latent: Bottleneck,
        values: nn.Linear,
        score: Score,
        decoder_dim: int,
        dropout: float = 0.0,
    ):
        super().__init__()
        if latent.site.unit != "example":
            raise ValueError(f"a memory is drawn as a whole, so site '{latent.site.name}' needs unit='example'")
        self.embedding = embedding
        self.encoder = encoder
        self.project = project
        self.latent = latent
        self.values = values
        self.score = score
        self.first_cell = nn.Linear(values.in_features, decoder_dim)
        self.decoder = nn.LSTMCell(embedding.embedding_dim + values.out_features + decoder_dim, decoder_dim)
        self.dropout = nn.Dropout(dropout)
        self.readout = nn.Linear(decoder_dim + values.out_features, embedding.num_embeddings)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.readout.weight.device

    def encode(self, words: Tensor, mask: Tensor, estimators: Mapping[str, Estimator]) -> ReadText:
        """Read sentences (B, S) with mask (B, S), and draw their memories."""
        states = self.encoder(self.embedding(words))[0]  # padding is behind, and one direction
        if isinstance(self.project, EvenReading | LastReading | PooledReading):
            encoding, mask = self.project(states, mask)
        else:
            encoding = self.project(states)
        found = self.latent(encoding, estimators[self.latent.site.name], mask=mask)
        if found.value.shape[0] != 1:
            raise ValueError(
                f"the memory feeds the recurrence, so it has one particle, got {found.value.shape[0]}; for K samples "
                "of a sentence repeat its row K times"
            )
        return ReadText(found.value, mask, encoding, tuple(found.latents))

    def forward(
        self,
        words: Tensor,
        words_mask: Tensor,
        *,
        target_in: Tensor,
        target_out: Tensor,
        target_mask: Tensor,
        estimators: Mapping[str, Estimator],
    ) -> Evaluation:
        """Log-likelihood of sentences, and the receipt of the memory. Arguments as for `SentenceVae`."""
        read = self.encode(words, words_mask, estimators)
        return self.decode(read, target_in=target_in, target_out=target_out, target_mask=target_mask)

    def decode(self, read: ReadText, *, target_in: Tensor, target_out: Tensor, target_mask: Tensor) -> Evaluation:
        """Log-likelihood of sentences given their memories."""
        memory = self.attended(read)
        state = self.start(read)
        first, outputs = state.hidden, []
        for word in self.dropout(self.embedding(target_in)).unbind(dim=1):
            state = self._step(state, word, first, memory)
            outputs.append(torch.cat([self.dropout(state.hidden), state.context], dim=-1))
        hidden = torch.stack(outputs, dim=1)[target_mask].unsqueeze(0)  # (1, words, H + A)
        log_lik = words_log_lik(
            hidden,
            target_out,
            target_mask,
            weight=self.readout.weight,
            bias=self.readout.bias,
            credit=lambda found, targets: torch.ones_like(found),  # one particle: every bound gives it all
        )
        return Evaluation(log_lik=log_lik, latents=tuple(read.latents), mask=target_mask)

    def attended(self, read: ReadText) -> "Attended":
        """The memory as the attention sees it."""
        values = self.values(read.value[0])
        support = Dense(None if bool(read.mask.all()) else read.mask.unsqueeze(1))
        return Attended(values, self.score.prepare(values), support)

    def start(self, read: ReadText) -> DecoderState:
        """The state before the first word, from the last latent of each memory."""
        value, mask = read.value[0], read.mask
        rows = torch.arange(len(value), device=value.device)
        cell = self.first_cell(value[rows, (mask.sum(dim=-1) - 1).clamp(min=0)])
        return DecoderState(torch.tanh(cell), cell, cell.new_zeros(len(cell), self.values.out_features))

    def advance(
        self, state: DecoderState, words: Tensor, first: Tensor, memory: "Attended"
    ) -> tuple[DecoderState, Tensor]:
        """One step: the state behind words (B), and log-probabilities (B, V) of the next ones.

        Args:
            state: Before the step.
            words: (B) previous words.
            first: (B, H) the first hidden state, h_0.
            memory: What is attended to.
        """
        state = self._step(state, self.embedding(words), first, memory)
        output = torch.cat([state.hidden, state.context], dim=-1)
        return state, torch.log_softmax(self.readout(output).float(), dim=-1)

    def _step(self, state: DecoderState, word: Tensor, first: Tensor, memory: "Attended") -> DecoderState:
        scores = self.score.compare(state.hidden.unsqueeze(1), memory.prepared)  # (B, 1, S)
        weights = memory.support.log_softmax(scores).exp()
        context = torch.bmm(weights.to(memory.values.dtype), memory.values).squeeze(1)
        inputs = torch.cat([word, context, first], dim=-1)
        hidden, cell = self.decoder(inputs, (state.hidden, state.cell))
        return DecoderState(hidden, cell, context)


@dataclass(frozen=True)
class Attended:
    """A memory that a decoder attends to.

    Attributes:
        values: (B, S, A) projected latents.
        prepared: The score function's view of them.
        support: Which positions are there.
    """

    values: Tensor
    prepared: Tensor
    support: Dense

    def select(self, rows: Tensor) -> "Attended":
        """Memories by number."""
        mask = self.support.mask
        return Attended(self.values[rows], self.prepared[rows], Dense(None if mask is None else mask[rows]))
