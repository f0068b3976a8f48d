"""Image captioning with Att2in (Rennie et al. 2017): the attended feature enters the LSTM's candidate, not its gates.

The query of a step is the state before it; scores are additive; what is read from the regions becomes part of the
candidate of the new cell. As in the paper, and in the code that Bayesian attention modules were tried with (Luo et
al. 2018), the candidate is a maxout of two linear maps without a tanh:

    i, f, o = sigmoid(W x + U h)          x the previous word, h the state before
    g       = max(g_1, g_2)               (g_1, g_2) = V x + R h + A context
    cell    = f * cell + i * g            state = o * tanh(cell)

The draw feeds the state, so particles of a step cannot be told apart later: there is one, and behind a hard one the
baseline, which branches off for its own step only.

Size letters: K particles, B pictures or captions, R regions, D features of a region, C context width, T words, E
embedding, H state, V words of the vocabulary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from probattn.core import Dense, Draw, Estimator, Evaluation, Given, Latent, Mean, Memory
from probattn.core.bounds import Bound
from probattn.core.noise import fold_seed, fresh_seed
from probattn.models.draws import chunk_credit, stack_steps
from probattn.models.recurrence import DecoderState, words_log_lik
from probattn.models.regions import RegionEncoder
from probattn.nn import Score, Site
from probattn.nn.site import Replay

__all__ = [
    "Att2inCell",
    "Captioner",
    "EncodedImages",
    "with_sampled_kl",
    "with_trajectory_baseline",
]


@dataclass(frozen=True)
class EncodedImages:
    """Pictures as the decoder sees them.

    Attributes:
        memory: Keys and values (B, R, C), support with mask (B, 1, R) where regions are missing.
        prepared: The score function's view of the keys.
    """

    memory: Memory
    prepared: Tensor


class Att2inCell(nn.Module):
    """One step of the recurrence; see the module's text.

    Args:
        word_dim: E.
        hidden_dim: H.
        context_dim: C.
    """

    def __init__(self, word_dim: int, hidden_dim: int, *, context_dim: int):
        super().__init__()
        self.hidden_size = hidden_dim
        self.words = nn.Linear(word_dim, 5 * hidden_dim)
        self.states = nn.Linear(hidden_dim, 5 * hidden_dim, bias=False)
        self.context = nn.Linear(context_dim, 2 * hidden_dim, bias=False)

    def forward(self, words: Tensor, state: DecoderState, context: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states and cells of every particle.

        Args:
            words: (B, 5 H), what `self.words` makes of embedded words: for all steps in one product.
            state: Before the step.
            context: (K, B, C).

        Returns:
            (K, B, H) each.
        """
        size = self.hidden_size
        total = words + self.states(state.hidden)
        entry, keep, out = torch.sigmoid(total[:, : 3 * size]).chunk(3, dim=-1)
        candidate = total[:, 3 * size :] + self.context(context)  # (K, B, 2 H)
        cell = keep * state.cell + entry * torch.maximum(candidate[..., :size], candidate[..., size:])
        return out * torch.tanh(cell), cell


class Captioner(nn.Module):
    """Regions, attention with a site, recurrence, output layer.

    Args:
        embedding: (V, E).
        regions: From features to keys and values.
        score: Between states and regions.
        weights: The site of the attention weights; its draw feeds the state.
        hidden_dim: H.
        bridge: From the mean region (B, C) to the first state and cell (B, 2 H) (Xu et al. 2015); None: zeros, as in
            the code of Luo et al.
        dropout: Of embedded words, regions and the output layer's input.
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        regions: RegionEncoder,
        *,
        score: Score,
        weights: Site,
        hidden_dim: int,
        bridge: nn.Linear | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        if not weights.feeds_state:
            raise ValueError(f"the draw of site '{weights.name}' enters the state here: build it with feeds_state=True")
        if weights.posterior is not None and "target" in weights.posterior.needs:
            raise ValueError(
                f"site '{weights.name}': {type(weights.posterior).__name__} reads the caption, which a step of the "
                "recurrence does not know; use a posterior of the scores"
            )
        self.embedding = embedding
        self.regions = regions
        self.score = score
        self.weights = weights
        self.cell = Att2inCell(embedding.embedding_dim, hidden_dim, context_dim=regions.context_dim)
        self.bridge = bridge
        self.dropout = nn.Dropout(dropout)
        self.readout = nn.Linear(hidden_dim, embedding.num_embeddings)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.readout.weight.device

    def encode(self, features: Tensor, mask: Tensor) -> EncodedImages:
        """Read features (B, R, D) with mask (B, R), False where there is no region."""
        if features.shape[-1] != self.regions.feature_dim:
            raise ValueError(
                f"expected features of width {self.regions.feature_dim}, got {features.shape[-1]}; extract them as the "
                "training features were"
            )
        values = self.regions(features)
        if self.training and self.dropout.p > 0.0:  # a feature is dropped in all regions of a picture: few numbers
            values = values * nn.functional.dropout(torch.ones_like(values[:, :1]), self.dropout.p)
        support = Dense(None if bool(mask.all()) else mask.unsqueeze(1))
        memory = Memory(keys=values, values=support.zero_unseen(values), support=support)
        return EncodedImages(memory, self.score.prepare(values))

    def start(self, image: EncodedImages) -> DecoderState:
        """Zeros, or what the bridge makes of the mean region."""
        values, support = image.memory.values, image.memory.support
        zeros = DecoderState.zeros(values, self.cell.hidden_size, 0)
        if self.bridge is None:
            return zeros
        uniform = support.log_softmax(values.new_zeros(values.shape[0], 1, values.shape[1])).exp()
        hidden, cell = self.bridge(torch.bmm(uniform, values).squeeze(1)).chunk(2, dim=-1)
        return DecoderState(torch.tanh(hidden), cell, zeros.context)

    def given(self, state: DecoderState, image: EncodedImages) -> Given:
        """What the site may look at in a step."""
        query = state.hidden.unsqueeze(1)
        return Given(image.memory, query=query, scores=self.score.compare(query, image.prepared))

    def advance(
        self, state: DecoderState, words: Tensor, image: EncodedImages, *, draw: Draw
    ) -> tuple[DecoderState, Tensor]:
        """One step of the recurrence with a draw of the weights.

        Args:
            state: Before the step.
            words: (B, 5 H) of `cell.words`.
            image: What is looked at.
            draw: (K, B, 1) particles; the first one goes on.

        Returns:
            The state after it, and the hidden states (K, B, H) of all particles.
        """
        context = image.memory.support.read(draw, image.memory.values)[:, :, 0]  # (K, B, C)
        hidden, cell = self.cell(words, state, context)
        return DecoderState(hidden[0], cell[0], state.context), hidden

    def forward(
        self,
        features: Tensor,
        region_mask: Tensor,
        *,
        target_in: Tensor,
        target_out: Tensor,
        target_mask: Tensor,
        estimators: Mapping[str, Estimator],
        bound: Bound | None = None,
    ) -> Evaluation:
        """Log-likelihood of captions, and the receipt of the site.

        Args:
            features: (B, R, D).
            region_mask: (B, R) bool.
            target_in: (B, T) previous words, beginning with BOS.
            target_out: (B, T) words to predict, ending with EOS.
            target_mask: (B, T) bool.
            estimators: One for the site: `Mean()`, `Pathwise()` or `ScoreFunction(1, ...)`.
            bound: What the result will be handed to; its gradient is then formed inside the readout's chunks.
        """
        image = self.encode(features, region_mask)
        hidden, latent = self._decode(image, target_in, _of(estimators, self.weights.name))
        real = hidden[:, target_mask]  # (K, words, H)
        if self.training and self.dropout.p > 0.0:  # one mask for all particles: they differ in nothing but the draw
            real = real * nn.functional.dropout(torch.ones_like(real[0]), self.dropout.p)
        log_lik = words_log_lik(
            real,
            target_out,
            target_mask,
            weight=self.readout.weight,
            bias=self.readout.bias,
            credit=None if bound is None else chunk_credit(bound, latent.draw, target_mask),
        )
        return Evaluation(log_lik=log_lik, latents=(latent,), mask=target_mask)

    def _decode(self, image: EncodedImages, target_in: Tensor, estimator: Estimator) -> tuple[Tensor, Latent]:
        """Hidden states (K, B, T, H) of all steps, and the receipts of all visits."""
        projected = self.cell.words(self.dropout(self.embedding(target_in)))  # (B, T, 5 H)
        state, seed = self.start(image), fresh_seed(projected.device)
        states: list[Tensor] = []
        visits: list[Latent] = []
        for step, words in enumerate(projected.unbind(dim=1)):
            given = self.given(state, image)
            latent: Latent = self.weights(given, estimator, seed=fold_seed(seed, step))
            require_one_sample(latent)
            state, hidden = self.advance(state, words, image, draw=latent.draw)
            states.append(hidden)
            visits.append(latent)
        return torch.stack(states, dim=2), stack_steps(visits)

    def log_probs(self, hidden: Tensor) -> Tensor:
        """(..., V) log-probabilities of the next word from states (..., H)."""
        return torch.log_softmax(self.readout(hidden).float(), dim=-1)

    @torch.no_grad()
    def trace(self, features: Tensor, region_mask: Tensor, target_in: Tensor) -> Sequence[Replay]:
        """Posterior and prior of every step on the deterministic path through a caption, for pictures and plots.

        Args:
            features: (B, R, D).
            region_mask: (B, R) bool.
            target_in: (B, T) previous words, beginning with BOS.

        Returns:
            For each of the T steps the distributions of the site, unit (B, 1), with the plug-in draw.
        """
        image = self.encode(features, region_mask)
        projected = self.cell.words(self.embedding(target_in))
        state, seed = self.start(image), fresh_seed(projected.device)
        found = []
        for words in projected.unbind(dim=1):
            given = self.given(state, image)
            made = self.weights.replay(given, Mean(), seed)
            state, _ = self.advance(state, words, image, draw=made.draw)
            found.append(made)
        return found


def with_trajectory_baseline(evaluation: Evaluation, other: Evaluation) -> Evaluation:
    """The evaluation with a baseline for its hard draws: what another trajectory gains from each step on.

    The other trajectory, e.g. that of soft attention, does not depend on the draws, so the gradient stays unbiased
    (the idea of Rennie et al.'s self-critical baseline, with log-likelihoods for rewards).

    Args:
        evaluation: With hard draws of a site that feeds the state.
        other: Of the same captions.
    """
    gains = other.log_lik[0].detach()
    gains = gains if other.mask is None else gains.masked_fill(~other.mask, 0.0)
    to_go = gains.flip(-1).cumsum(dim=-1).flip(-1)  # (B, T)
    latents = [
        replace(latent, draw=replace(latent.draw, baseline_offset=to_go)) if latent.draw.score is not None else latent
        for latent in evaluation.latents
    ]
    return replace(evaluation, latents=tuple(latents))


def with_sampled_kl(evaluation: Evaluation) -> Evaluation:
    """The evaluation with every KL estimated at its draw, log q - log p, in place of the closed form (an ablation).

    Raises:
        ValueError: If a draw has no log-probabilities.
    """

    def sampled(latent: Latent) -> Latent:
        draw = latent.draw
        if draw.log_posterior is None or draw.log_prior is None:
            raise ValueError(f"a sampled KL of site '{latent.name}' needs Pathwise(keeps_log_probs=True) and a prior")
        return replace(latent, kl=(draw.log_posterior - draw.log_prior).mean(dim=0))

    return replace(evaluation, latents=tuple(sampled(latent) for latent in evaluation.latents))


def require_one_sample(latent: Latent) -> None:
    """Refuse several samples of a step, which would need several trajectories."""
    samples = latent.draw.num_particles - latent.draw.has_baseline
    if samples != 1 or latent.draw.is_enumerated:
        raise ValueError(
            f"the draw of site '{latent.name}' feeds the recurrence, so it has one sample, got {samples} particle(s) "
            f"of a step{' by enumeration' if latent.draw.is_enumerated else ''}; for K samples of a caption repeat its "
            "row K times, with one sample each"
        )


def _of(estimators: Mapping[str, Estimator], name: str) -> Estimator:
    if name not in estimators:
        raise KeyError(f"site '{name}' needs an estimator: pass estimators={{'{name}': ...}}; got {sorted(estimators)}")
    return estimators[name]
