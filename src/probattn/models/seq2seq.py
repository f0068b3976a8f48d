"""Translation with a latent alignment: an LSTM decoder with input feeding and attention (Deng et al., Sec. 4).

The recurrence is fed the *expected* context under the site's predictive distribution, never the draw, so it runs once
whatever the estimator does, and enumeration and per-step rewards are legal. The readout runs for all steps and
particles together, in chunks. A site with `feeds_state` sends its draw through the recurrence instead, one step after
another (an ablation).

Size letters: K particles, B sentences, S source positions, T target positions, E embedding, C context (encoder) width,
H decoder width, L decoder layers, R readout width, V target words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from probattn.core import Draw, Estimator, Evaluation, Given, Latent, Memory
from probattn.core.bounds import Bound
from probattn.core.noise import fold_seed, fresh_seed
from probattn.models.draws import chunk_credit, stack_steps
from probattn.models.recurrence import DecoderState, encode_source, words_log_lik
from probattn.nn import Score, SequenceEncoder, Site, StackedLSTMCell

__all__ = ["Encoded", "Readout", "Seq2Seq", "StatePath"]


@dataclass(frozen=True)
class Encoded:
    """A batch of encoded source sentences.

    Attributes:
        memory: Keys and values (B, S, C), support with mask (B, 1, S), inputs (B, S, E).
        prepared: The score function's view of the keys.
        readout_values: (B, S, R) values as the readout sees them: its projection is linear, so it is applied before
            reading.
    """

    memory: Memory
    prepared: Tensor
    readout_values: Tensor


@dataclass(frozen=True)
class StatePath:
    """Everything the recurrence left behind.

    Attributes:
        queries: (B, T, H) decoder states.
        scores: (B, T, S) attention scores.
        latents: Receipts of a site that feeds the state; empty otherwise.
    """

    queries: Tensor
    scores: Tensor
    latents: tuple[Latent, ...] = ()


class Readout(nn.Module):
    """log softmax(E dropout(tanh(W_q query + W_c context))) with E tied to the target embedding, or of its own.

    Args:
        query_dim: H.
        context_dim: C.
        embedding: The target embedding, (V, R); its weight is the output layer unless `hidden_dim` is given.
        hidden_dim: R of an output layer that is not tied; None: tied.
        dropout: Of the hidden layer; one mask per query is shared by all particles, so that a sample and its baseline
            differ in nothing but the draw.
        skip_below: Particles whose share in the gradient is at most this are left out of it; 0 is exact (see
            `latent_cross_entropy`).
    """

    def __init__(
        self,
        query_dim: int,
        context_dim: int,
        *,
        embedding: nn.Embedding,
        hidden_dim: int | None = None,
        dropout: float = 0.0,
        skip_below: float = 0.0,
    ):
        super().__init__()
        self.embedding = embedding
        width = embedding.embedding_dim if hidden_dim is None else hidden_dim
        self.project_query = nn.Linear(query_dim, width)
        self.project_context = nn.Linear(context_dim, width, bias=False)
        self.output = None if hidden_dim is None else nn.Linear(width, embedding.num_embeddings, bias=False)
        self.bias = nn.Parameter(torch.zeros(embedding.num_embeddings))
        self.dropout = dropout
        self.skip_below = skip_below

    @property
    def weight(self) -> Tensor:
        """(V, R) of the output layer."""
        return self.embedding.weight if self.output is None else self.output.weight

    def hidden(self, query: Tensor, context: Tensor) -> Tensor:
        """(K, *unit, R) from queries (*unit, H) and projected contexts (K, *unit, R)."""
        projected: Tensor = self.project_query(query)
        hidden = torch.tanh(projected + context)
        if self.training and self.dropout > 0.0:
            keep = nn.functional.dropout(torch.ones_like(projected), self.dropout)
            hidden = hidden * keep
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., V)."""
        return nn.functional.linear(hidden, self.weight, self.bias)


class Seq2Seq(nn.Module):
    """Encoder, recurrence, site, readout.

    Args:
        source_embedding: (source words, E).
        encoder: From (B, S, E) to (B, S, C).
        score: Between decoder states and encoder states.
        weights: The site of the alignment.
        readout: The output layer; it holds the target embedding.
        decoder: From an embedded word and a context, E + C, to H, or to L H where it has layers: the first one is fed
            the context, the top one is the query.
        dropout: Of embeddings and encoder states.
    """

    def __init__(
        self,
        source_embedding: nn.Embedding,
        encoder: SequenceEncoder,
        *,
        score: Score,
        weights: Site,
        readout: Readout,
        decoder: nn.LSTMCell | StackedLSTMCell,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.source_embedding = source_embedding
        self.encoder = encoder
        self.score = score
        self.weights = weights
        self.readout = readout
        self.cell = decoder
        self.query_dim = readout.project_query.in_features
        self.dropout = nn.Dropout(dropout)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.source_embedding.weight.device

    def encode(self, source: Tensor, mask: Tensor) -> Encoded:
        """Encode source words (B, S) with mask (B, S)."""
        memory = encode_source(
            source, mask, embedding=self.source_embedding, encoder=self.encoder, dropout=self.dropout
        )
        return Encoded(memory, self.score.prepare(memory.keys), self.readout.project_context(memory.values))

    def start(self, encoded: Encoded) -> DecoderState:
        """Zeros (Deng et al.'s code)."""
        values = encoded.memory.values
        return DecoderState.zeros(values, self.cell.hidden_size, values.shape[-1])

    def advance(self, state: DecoderState, words: Tensor, encoded: Encoded) -> tuple[DecoderState, Tensor, Tensor]:
        """One step of the recurrence, fed with the expected context.

        Args:
            state: Before the step.
            words: (B, E) embedded previous words.
            encoded: The source.

        Returns:
            The state after it, its scores (B, S) and its expected weights (B, S).
        """
        hidden, cell = self.cell(torch.cat([words, state.context], dim=-1), (state.hidden, state.cell))
        query = hidden[:, -self.query_dim :].unsqueeze(1)
        scores = self.score.compare(query, encoded.prepared)  # (B, 1, S)
        weights = self.weights.expected(Given(memory=encoded.memory, query=query, scores=scores))
        context = torch.bmm(weights.to(encoded.memory.values.dtype), encoded.memory.values).squeeze(1)
        return DecoderState(hidden, cell, context), scores.squeeze(1), weights.squeeze(1)

    def query(self, state: DecoderState) -> Tensor:
        """(B, H) what asks and is read out: the state of the top layer."""
        return state.hidden[:, -self.query_dim :]

    def forward(
        self,
        source: Tensor,
        source_mask: Tensor,
        *,
        target_in: Tensor,
        target_out: Tensor,
        target_mask: Tensor,
        estimators: Mapping[str, Estimator],
        bound: Bound | None = None,
        use_posterior: bool = True,
    ) -> Evaluation:
        """Log-likelihood of target words under every particle.

        Args:
            source: (B, S) word numbers.
            source_mask: (B, S) bool.
            target_in: (B, T) previous words, beginning with BOS.
            target_out: (B, T) words to predict, ending with EOS.
            target_mask: (B, T) bool.
            estimators: One per site.
            bound: What the result will be handed to; its gradient is then formed inside the readout's chunks.
            use_posterior: False: draw from the predictive distribution, as if the target were unknown (q = p).
        """
        encoded = self.encode(source, source_mask)
        estimator = estimators[self.weights.name]
        path = self._run(encoded, self.dropout(self.readout.embedding(target_in)), estimator)
        if path.latents:
            latent = path.latents[0]
        else:
            target = self.readout.embedding(target_out) if use_posterior else None
            given = Given(encoded.memory, query=path.queries, scores=path.scores, target=target, mask=target_mask)
            latent = self.weights(given, estimator) if use_posterior else self.weights.predict(given, estimator)
        context = encoded.memory.support.read(latent.draw, encoded.readout_values)  # (K, B, T, R)
        hidden = self.readout.hidden(path.queries[target_mask], context[:, target_mask])  # (K, words, R): no padding
        log_lik = words_log_lik(
            hidden,
            target_out,
            target_mask,
            weight=self.readout.weight,
            bias=self.readout.bias,
            credit=None if bound is None else chunk_credit(bound, latent.draw, target_mask),
            skip_below=self.readout.skip_below,
        )
        return Evaluation(log_lik=log_lik, latents=(latent,), mask=target_mask)

    def _run(self, encoded: Encoded, words: Tensor, estimator: Estimator) -> StatePath:
        """The recurrence over all steps; words (B, T, E) are embedded previous words."""
        state = self.start(encoded)
        queries, scores, latents = [], [], []
        seed = fresh_seed(words.device)
        for step, word in enumerate(words.unbind(dim=1)):
            state, step_scores, _ = self.advance(state, word, encoded)
            if self.weights.feeds_state:
                given = Given(encoded.memory, query=self.query(state).unsqueeze(1), scores=step_scores.unsqueeze(1))
                latent: Latent = self.weights(given, estimator, seed=fold_seed(seed, step))
                drawn = encoded.memory.support.read(latent.draw, encoded.memory.values)[0, :, 0]
                state = replace(state, context=drawn)
                latents.append(latent)
            queries.append(self.query(state))
            scores.append(step_scores)
        stacked = (stack_steps(latents),) if latents else ()
        return StatePath(torch.stack(queries, dim=1), torch.stack(scores, dim=1), stacked)

    def predictive(self, query: Tensor, scores: Tensor, encoded: Encoded, estimator: Estimator) -> tuple[Tensor, Draw]:
        """Log-probabilities of the next word, mixed over particles.

        Args:
            query: (B, H) decoder states.
            scores: (B, S) attention scores.
            encoded: The source.
            estimator: How the predictive distribution is approximated: Mean, Enumerate(), Enumerate(5), Pathwise(32),
                ...

        Returns:
            (B, V) log-probabilities, and the draw.
        """
        given = Given(encoded.memory, query=query.unsqueeze(1), scores=scores.unsqueeze(1))
        draw = self.weights.predict(given, estimator).draw
        context = encoded.memory.support.read(draw, encoded.readout_values)  # (K, B, 1, R)
        logits = self.readout.logits(self.readout.hidden(query.unsqueeze(1), context)).squeeze(2)  # (K, B, V)
        # Mixed as probabilities, which takes half the passes over (K, B, V); what is below float32's smallest is that.
        probs = torch.softmax(logits.float(), dim=-1).mul_(draw.log_weight.exp()).sum(dim=0)
        return probs.clamp_(min=torch.finfo(probs.dtype).tiny).log(), draw
