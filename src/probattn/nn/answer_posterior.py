"""The inference network of visual question answering: where to look, given question and answer (Deng et al., App. B).

Size letters: B examples, T queries, R regions, D features of a region, Q of a query, A of an answer, H hidden.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from probattn.core.records import Given
from probattn.distributions import Family
from probattn.nn.conditionals import Conditional, require_finite_scores

__all__ = ["AnswerPosterior"]


class AnswerPosterior(Conditional):
    """q(z_i) ∝ exp(u · tanh(U1 (x_i ⊙ relu(V1 h)) + U2 (query ⊙ relu(V2 h)))), with h the answer's embedding.

    The answer chooses features of the region and of the question before they are compared. No biases, as in the paper.

    Args:
        region_dim: D, of the memory's keys.
        query_dim: Q.
        answer_dim: A.
        hidden_dim: H.
        family: How scores become a distribution.
        answer_encoder: Module from `given.target` to (B, T, A), such as an embedding; identity by default.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"target"})

    def __init__(
        self,
        region_dim: int,
        query_dim: int,
        *,
        answer_dim: int,
        hidden_dim: int,
        family: Family,
        answer_encoder: nn.Module | None = None,
    ):
        super().__init__()
        self.family = family
        self.answer_encoder = nn.Identity() if answer_encoder is None else answer_encoder
        self.region_gate = nn.Linear(answer_dim, region_dim, bias=False)  # V1
        self.query_gate = nn.Linear(answer_dim, query_dim, bias=False)  # V2
        self.project_region = nn.Linear(region_dim, hidden_dim, bias=False)  # U1
        self.project_query = nn.Linear(query_dim, hidden_dim, bias=False)  # U2
        self.energy = nn.Linear(hidden_dim, 1, bias=False)  # u

    def forward(self, given: Given) -> Distribution:
        """The posterior over the memory's positions.

        Raises:
            ValueError: If there is no target (use the site's predictive distribution then) or no query.
        """
        if given.target is None or given.query is None:
            absent = "target" if given.target is None else "query"
            raise ValueError(f"AnswerPosterior reads Given.{absent}, which is absent; pass it to the site")
        answer: Tensor = self.answer_encoder(given.target)  # (B, T, A)
        regions = given.memory.keys.unsqueeze(-3) * torch.relu(self.region_gate(answer)).unsqueeze(-2)  # (B, T, R, D)
        query = given.query * torch.relu(self.query_gate(answer))  # (B, T, Q)
        hidden = torch.tanh(self.project_region(regions) + self.project_query(query).unsqueeze(-2))
        scores: Tensor = self.energy(hidden).squeeze(-1)  # (B, T, R)
        require_finite_scores(scores, given.memory.support, "scores of the inference network")
        return self.family(scores, given.memory.support)
