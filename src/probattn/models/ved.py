"""Variational encoder-decoder with variational attention (Bahuleyan et al. 2018).

Two sites: the code z of the source sentence, one per example, and attention, one draw per decoding step, either of the
vector a_j (the paper) or of the weights (its future work). Both draws feed the recurrence

    h_j = LSTM(h_{j-1}, [y_{j-1}; a_j; z]),   p(y_j) = softmax(W h_j),

so each has one particle; several samples of a source are several rows of a batch. Every deterministic row of the paper
is the same network with `Mean` at a site that has no prior, or without attention.

Size letters: B sentences, S source positions, T target positions, E embedding, C encoder width, H decoder width, Z
width of the code, V target words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from probattn.core import Estimator, Evaluation, Latent, Memory
from probattn.core.noise import fold_seed, fresh_seed
from probattn.models.draws import stack_steps
from probattn.models.recurrence import DecoderState, encode_source, words_log_lik
from probattn.nn import Attention, Bottleneck, SequenceEncoder
from probattn.nn.cells import LayerNormLSTMCell

__all__ = ["DroppedEmbedding", "Ved", "VedSource"]


@dataclass(frozen=True)
class VedSource:
    """A batch of source sentences as the decoder sees it.

    Attributes:
        memory: Keys and values (B, S, C), support with mask (B, 1, S).
        summary: (B, C) last state of each direction of the encoder.
        code: (B, Z) draw of z; None for a network without a code.
        latents: The receipt of z; empty without a code.
    """

    memory: Memory
    summary: Tensor
    code: Tensor | None = None
    latents: tuple[Latent, ...] = ()


class DroppedEmbedding(nn.Embedding):
    """An embedding that takes words for the unknown one while training, so that a decoder cannot lean on them alone.

    The first word of a row, begin of sentence, stays.

    Args:
        num_embeddings: Words.
        embedding_dim: E.
        rate: Probability of each word (Bowman et al. 2016; Bahuleyan et al.: 0.25).
        unknown: Number of the unknown word.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, *, rate: float, unknown: int):
        super().__init__(num_embeddings, embedding_dim)
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"DroppedEmbedding(rate) is a probability below one, got {rate}")
        self.rate = rate
        self.unknown = unknown

    def forward(self, words: Tensor) -> Tensor:
        """(B, T, E) of words (B, T); the words (B) of a single step are never dropped."""
        is_dropping = self.training and self.rate > 0.0 and words.dim() == 2
        return super().forward(self.dropped(words) if is_dropping else words)

    def dropped(self, words: Tensor) -> Tensor:
        """(B, T) words, some of them unknown."""
        is_dropped = torch.rand(words.shape, device=words.device) < self.rate
        is_dropped[:, 0] = False
        return words.masked_fill(is_dropped, self.unknown)


class Ved(nn.Module):
    """Encoder, code, attention, recurrence, output layer.

    Args:
        source_embedding: (source words, E).
        target_embedding: (V, E), e.g. `DroppedEmbedding`.
        encoder: From (B, S, E) to (B, S, C); the first half of C runs forward.
        decoder: The cell: inputs (B, E + C + Z), without C or Z where attention or the code is absent.
        code: The site of z, a bottleneck that reads the encoder's summary (B, C); None for no code.
        attention: Queries (B, 1, H), values C wide; None for no attention.
        bridge: From the encoder's summary (B, C) to hidden state and cell (B, 2 H): the paper's hidden-state
            initialisation, a way around the code. None: the decoder starts from zeros.
        dropout: Of embeddings, encoder states and the output layer's inputs.
    """

    def __init__(
        self,
        source_embedding: nn.Embedding,
        target_embedding: nn.Embedding,
        *,
        encoder: SequenceEncoder,
        decoder: LayerNormLSTMCell | nn.LSTMCell,
        code: Bottleneck | None,
        attention: Attention | None,
        bridge: nn.Linear | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        if code is not None and code.site.unit != "example":
            raise ValueError(f"the code is one per sentence, so site '{code.site.name}' needs unit='example'")
        self.source_embedding = source_embedding
        self.target_embedding = target_embedding
        self.encoder = encoder
        self.decoder = decoder
        self.code = code
        self.attention = attention
        self.bridge = bridge
        self.dropout = nn.Dropout(dropout)
        self.readout = nn.Linear(decoder.hidden_size, target_embedding.num_embeddings)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.readout.weight.device

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites that are visited."""
        attention = () if self.attention is None else (self.attention.weights, self.attention.context)
        found = (None if self.code is None else self.code.site, *attention)
        return tuple(site.name for site in found if site is not None)

    @property
    def is_random_at_steps(self) -> bool:
        """Whether attention has a site, so that every step needs noise of its own."""
        return self.attention is not None and (self.attention.weights or self.attention.context) is not None

    def encode(self, source: Tensor, mask: Tensor, estimators: Mapping[str, Estimator]) -> VedSource:
        """Read source words (B, S) with mask (B, S), and draw the code."""
        memory = encode_source(
            source, mask, embedding=self.source_embedding, encoder=self.encoder, dropout=self.dropout
        )
        summary = _summary(memory.values, mask)
        if self.code is None:
            return VedSource(memory, summary)
        found = self.code(summary, _of(estimators, self.code.site.name))
        _require_one_particle(found.latents[0])
        return VedSource(memory, summary, found.value[0], tuple(found.latents))

    def code_posterior(self, source: Tensor, mask: Tensor) -> Distribution:
        """q(z | x) of source words (B, S) with mask (B, S).

        Raises:
            ValueError: If the network has no code.
        """
        if self.code is None:
            raise ValueError("this network has no code")
        memory = encode_source(
            source, mask, embedding=self.source_embedding, encoder=self.encoder, dropout=self.dropout
        )
        return self.code.posterior(_summary(memory.values, mask))

    def start(self, source: VedSource) -> DecoderState:
        """Zeros, or what the bridge makes of the encoder's last state."""
        context_dim = 0 if self.attention is None else source.memory.values.shape[-1]
        zeros = DecoderState.zeros(source.summary, self.decoder.hidden_size, context_dim)
        if self.bridge is None:
            return zeros
        hidden, cell = self.bridge(source.summary).chunk(2, dim=-1)
        return DecoderState(torch.tanh(hidden), cell, zeros.context)

    def advance(
        self,
        state: DecoderState,
        words: Tensor,
        source: VedSource,
        *,
        estimators: Mapping[str, Estimator],
        seed: Tensor,
        attends: bool = True,
    ) -> tuple[DecoderState, Sequence[Latent], Tensor | None]:
        """One step of the recurrence.

        Args:
            state: Before the step.
            words: (B, E) embedded previous words.
            source: What was read.
            estimators: One per site.
            seed: () of this step's noise.
            attends: False: the attention vector is zero (two-stage training).

        Returns:
            The state after it, receipts of this step's sites, and the expected weights (B, S) where it attended.
        """
        context, latents, weights = state.context, (), None
        if self.attention is not None and attends:
            found = self.attention(state.hidden.unsqueeze(1), source.memory, estimators=estimators, seed=seed)
            context, latents, weights = found.context[0, :, 0], found.latents, found.weights[:, 0]
        parts = [words, context] if source.code is None else [words, context, source.code]
        hidden, cell = self.decoder(torch.cat(parts, dim=-1), (state.hidden, state.cell))
        return DecoderState(hidden, cell, context), latents, weights

    def forward(
        self,
        source: Tensor,
        source_mask: Tensor,
        *,
        target_in: Tensor,
        target_out: Tensor,
        target_mask: Tensor,
        estimators: Mapping[str, Estimator],
        attends: bool = True,
    ) -> Evaluation:
        """Log-likelihood of target words, and the receipts of all sites.

        Args:
            source: (B, S) word numbers.
            source_mask: (B, S) bool.
            target_in: (B, T) previous words, beginning with BOS.
            target_out: (B, T) words to predict, ending with EOS.
            target_mask: (B, T) bool.
            estimators: One per site: `Mean()` or `Pathwise()`.
            attends: False: the attention vector is zero (two-stage training).
        """
        read = self.encode(source, source_mask, estimators)
        hidden, latents = self.decode(read, target_in, estimators=estimators, attends=attends)
        log_lik = words_log_lik(
            self.dropout(hidden[target_mask]).unsqueeze(0),
            target_out,
            target_mask,
            weight=self.readout.weight,
            bias=self.readout.bias,
            credit=lambda found, targets: torch.ones_like(found),  # one particle: every bound gives it all
        )
        return Evaluation(log_lik=log_lik, latents=(*read.latents, *latents), mask=target_mask)

    def decode(
        self, source: VedSource, target_in: Tensor, *, estimators: Mapping[str, Estimator], attends: bool = True
    ) -> tuple[Tensor, tuple[Latent, ...]]:
        """The recurrence over all steps: states (B, T, H), and the receipts of the attention's sites."""
        embedded = self.dropout(self.target_embedding(target_in))
        state, seed = self.start(source), fresh_seed(embedded.device)
        states: list[Tensor] = []
        visits: list[Sequence[Latent]] = []
        for step, word in enumerate(embedded.unbind(dim=1)):
            own = fold_seed(seed, step) if self.is_random_at_steps else seed
            state, latents, _ = self.advance(state, word, source, estimators=estimators, seed=own, attends=attends)
            states.append(state.hidden)
            visits.append(latents)
        stacked = tuple(stack_steps(visit) for visit in zip(*visits, strict=True))
        for latent in stacked:
            _require_one_particle(latent)
        return torch.stack(states, dim=1), stacked

    def log_probs(self, hidden: Tensor) -> Tensor:
        """(..., V) log-probabilities of the next word from states (..., H)."""
        return torch.log_softmax(self.readout(self.dropout(hidden)).float(), dim=-1)


def _summary(states: Tensor, mask: Tensor) -> Tensor:
    """(B, C) the forward half at the last real position, the backward half at the first one."""
    last = (mask.sum(dim=-1) - 1).clamp(min=0)
    half = states.shape[-1] // 2
    rows = torch.arange(len(states), device=states.device)
    return torch.cat([states[rows, last, :half], states[:, 0, half:]], dim=-1)


def _of(estimators: Mapping[str, Estimator], name: str) -> Estimator:
    if name not in estimators:
        raise KeyError(f"site '{name}' needs an estimator: pass estimators={{'{name}': ...}}; got {sorted(estimators)}")
    return estimators[name]


def _require_one_particle(latent: Latent) -> None:
    if latent.draw.num_particles != 1:
        raise ValueError(
            f"the draw of site '{latent.name}' feeds the recurrence, so it has one particle, got "
            f"{latent.draw.num_particles}; for K samples of a sentence repeat its row K times, with Pathwise()"
        )
