"""A small network for the recall task: attention over slots, then a readout of the symbol.

The same network serves every row of the comparison; rows differ in its sites, and in estimators and bounds, which it
does not know.

Size letters: K particles, B examples, T queries, S slots, D width of the data, H width of the model, V symbols.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from probattn.core import Dense, Estimator, Evaluation, Mean, Memory
from probattn.nn import Attention, AttentionOutput, Bilinear, Site

__all__ = ["RecallInputs", "RecallModel", "RecallPrediction"]


class RecallInputs(Protocol):
    """What the network reads of a batch; `probattn.data.RecallBatch` is one."""

    @property
    def query(self) -> Tensor:
        """(B, T, D)."""

    @property
    def keys(self) -> Tensor:
        """(B, S, D)."""

    @property
    def values(self) -> Tensor:
        """(B, S, D)."""

    @property
    def mask(self) -> Tensor:
        """(B, S) bool."""

    @property
    def target(self) -> Tensor:
        """(B, T) int64."""


@dataclass(frozen=True)
class RecallPrediction:
    """What the network says when the target is unknown.

    Attributes:
        log_probs: (B, T, V) mixed over particles.
        attention: What was read, and the receipts.
    """

    log_probs: Tensor
    attention: AttentionOutput


class RecallModel(nn.Module):
    """score -> weights -> context -> tanh(W [query; context]) -> symbol (Deng et al.'s readout).

    Args:
        weights: Site of the weights, or None.
        context: Site of the context vector, or None.
        dim: D.
        hidden_dim: H.
        num_symbols: V.
    """

    def __init__(
        self, weights: Site | None, context: Site | None = None, *, dim: int, hidden_dim: int, num_symbols: int
    ):
        super().__init__()
        self.encode_query = nn.Linear(dim, hidden_dim)
        self.encode_key = nn.Linear(dim, hidden_dim)
        self.encode_value = nn.Linear(dim, hidden_dim)
        self.target_embedding = nn.Embedding(num_symbols, hidden_dim)
        self.attention = Attention(Bilinear(hidden_dim, hidden_dim), weights=weights, context=context)
        self.readout = nn.Sequential(
            nn.Linear(2 * hidden_dim, 2 * hidden_dim), nn.Tanh(), nn.Linear(2 * hidden_dim, num_symbols)
        )

    def forward(
        self, batch: RecallInputs, estimators: Mapping[str, Estimator], *, use_posterior: bool = True
    ) -> Evaluation:
        """Log-likelihood of the targets under every particle.

        Args:
            batch: The data.
            estimators: One per site.
            use_posterior: False: draw from the predictive distributions, as if the targets were unknown (q = p).
        """
        output, logits = self._attend(batch, estimators, use_target=use_posterior)
        log_probs = torch.log_softmax(logits, dim=-1)
        target = batch.target.expand(logits.shape[0], -1, -1).unsqueeze(-1)
        return Evaluation(log_lik=log_probs.gather(-1, target).squeeze(-1), latents=output.latents)

    def predict(self, batch: RecallInputs, estimators: Mapping[str, Estimator]) -> RecallPrediction:
        """Distribution of the symbol under the sites' predictive distributions, mixed over particles."""
        output, logits = self._attend(batch, estimators, use_target=False)
        log_probs = torch.log_softmax(logits, dim=-1)  # (K, B, T, V)
        several = [latent.draw for latent in output.latents if latent.draw.num_particles > 1]
        log_weight = several[0].log_weight if several else torch.zeros(1, *logits.shape[1:3])
        mixed = torch.logsumexp(log_weight.unsqueeze(-1) + log_probs, dim=0)
        return RecallPrediction(mixed, output)

    def posterior_weights(self, batch: RecallInputs) -> Tensor | None:
        """(B, T, S) plug-in weights of the inference network; None where the weights have none."""
        site = self.attention.weights
        if site is None or site.posterior is None or "target" not in site.posterior.needs:
            return None
        output, _ = self._attend(batch, {site.name: Mean()}, use_target=True)
        value = output.latents[0].draw.value
        return None if value is None else value[0]

    def _attend(
        self, batch: RecallInputs, estimators: Mapping[str, Estimator], *, use_target: bool
    ) -> tuple[AttentionOutput, Tensor]:
        query, keys, values = (
            self.encode_query(batch.query),
            self.encode_key(batch.keys),
            self.encode_value(batch.values),
        )
        memory = Memory(
            keys=keys,
            values=values,
            support=Dense(batch.mask.unsqueeze(1)),
            inputs=torch.cat([keys, values], dim=-1),  # the inference network compares answers with values
        )
        target = torch.cat([query, self.target_embedding(batch.target)], dim=-1) if use_target else None
        output: AttentionOutput = self.attention(query, memory, estimators=estimators, target=target)
        repeated = query.expand(output.context.shape[0], -1, -1, -1)
        logits: Tensor = self.readout(torch.cat([repeated, output.context], dim=-1))  # (K, B, T, V)
        return output, logits
