"""Score functions: how well each position of the memory answers each query.

A score is a module called with a query and a memory. On a `Dense` support it gives (*lead, T, S), on `Segments` (E,
H). Masking is the support's business, not the score's.

Size letters: T queries, S positions, E edges, N nodes, H heads, D features.
"""

import math

import torch
from torch import Tensor, nn

from probattn.core.records import Memory
from probattn.core.support import Segments

__all__ = ["Additive", "Bilinear", "Dot", "GraphAdditive", "Placed", "Score"]


class Score(nn.Module):
    """Base of all score functions: `forward(query, memory) -> scores`.

    A decoder that asks step by step calls `prepare` once and `compare` for every step.
    """

    def forward(self, query: Tensor, memory: Memory) -> Tensor:
        """Scores of every position for every query."""
        return self.compare(query, self.prepare(memory.keys))

    def prepare(self, keys: Tensor) -> Tensor:
        """What can be computed from the keys alone."""
        return keys

    def compare(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Scores of queries (*lead, T, D) against prepared keys (*lead, S, ...): (*lead, T, S)."""
        raise NotImplementedError


class Dot(Score):
    """query . key * scale, with scale 1/sqrt(D) unless given (Vaswani et al. 2017).

    Args:
        scale: Factor of the product.
    """

    def __init__(self, scale: float | None = None):
        super().__init__()
        self.scale = scale

    def compare(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Scores of queries (*lead, T, D) against keys (*lead, S, D)."""
        _require_width(query, prepared, "Dot")
        scale = 1.0 / math.sqrt(query.shape[-1]) if self.scale is None else self.scale
        return torch.matmul(query * scale, prepared.transpose(-2, -1))


class Bilinear(Score):
    """query^T W key, without a scale: Luong's "general" score (Deng et al.'s inference network; Bahuleyan et al.).

    Args:
        query_dim: Width of queries.
        key_dim: Width of keys.
    """

    def __init__(self, query_dim: int, key_dim: int):
        super().__init__()
        self.project = nn.Linear(query_dim, key_dim, bias=False)

    def compare(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Scores of queries (*lead, T, D) against keys (*lead, S, D')."""
        return torch.matmul(self.project(query), prepared.transpose(-2, -1))


class Additive(Score):
    """v^T tanh(W query + U key), without biases (Bahdanau et al. 2015; Deng et al.: dimension 512).

    Args:
        query_dim: Width of queries.
        key_dim: Width of keys.
        hidden_dim: Width of the hidden layer.
    """

    def __init__(self, query_dim: int, key_dim: int, *, hidden_dim: int):
        super().__init__()
        self.project_query = nn.Linear(query_dim, hidden_dim, bias=False)
        self.project_key = nn.Linear(key_dim, hidden_dim, bias=False)
        self.energy = nn.Linear(hidden_dim, 1, bias=False)

    def prepare(self, keys: Tensor) -> Tensor:
        """Projected keys, (*lead, S, hidden_dim)."""
        projected: Tensor = self.project_key(keys)
        return projected

    def compare(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Scores of queries (*lead, T, D) against projected keys. Makes one (*lead, T, S, hidden_dim) tensor."""
        hidden = self.project_query(query).unsqueeze(-2) + prepared.unsqueeze(-3)
        scores: Tensor = self.energy(torch.tanh(hidden)).squeeze(-1)  # (*lead, T, S)
        return scores


class Placed(Score):
    """Another score that also sees at which place a key stands: sinusoids (Vaswani et al. 2017) are added to the keys.

    For memories whose vectors are few different ones, e.g. codes: without places the score cannot tell two equal codes
    apart, so that a decoder that has to find the next one needs the place inside of the code.

    Args:
        score: Of queries against keys of an even width.

    Example:
        >>> score = Placed(Dot(scale=1.0))
        >>> keys = torch.ones(1, 3, 4)  # three equal ones
        >>> score.compare(torch.ones(1, 1, 4), score.prepare(keys)).squeeze().unique().numel()
        3
    """

    def __init__(self, score: Score):
        super().__init__()
        self.score = score

    def prepare(self, keys: Tensor) -> Tensor:
        """The other score's view of keys (*lead, S, D) at their places."""
        return self.score.prepare(keys + sinusoids(keys.shape[-2], keys.shape[-1]).to(keys))

    def compare(self, query: Tensor, prepared: Tensor) -> Tensor:
        """The other score."""
        return self.score.compare(query, prepared)


def sinusoids(count: int, width: int) -> Tensor:
    """(count, width) sines, then cosines, of places 0, 1, ... at wavelengths from 2 pi to 10,000 times as long.

    Raises:
        ValueError: If the width is odd.
    """
    if width % 2 != 0:
        raise ValueError(f"places are told by sines and cosines, so the keys need an even width, got {width}")
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))  # (width / 2)
    angles = torch.arange(count).unsqueeze(-1) * rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class GraphAdditive(Score):
    """leaky_relu(a . query_target + b . key_source) on every edge (graph attention; BAM, Sec. 4.1).

    Args:
        head_dim: Width of one head.
        num_heads: Number of heads.
        negative_slope: Of the leaky ReLU.
    """

    def __init__(self, head_dim: int, num_heads: int, *, negative_slope: float = 0.2):
        super().__init__()
        self.target_weight = nn.Parameter(torch.empty(num_heads, head_dim))
        self.source_weight = nn.Parameter(torch.empty(num_heads, head_dim))
        self.negative_slope = negative_slope
        nn.init.xavier_uniform_(self.target_weight)
        nn.init.xavier_uniform_(self.source_weight)

    def forward(self, query: Tensor, memory: Memory) -> Tensor:
        """Scores of edges.

        Args:
            query: (N, H, D) one row per target node.
            memory: Keys (N, H, D), or (E, H, D) where the support has no `source`.

        Returns:
            (E, H).
        """
        support = memory.support
        if not isinstance(support, Segments):
            raise TypeError(f"GraphAdditive scores edges, so it needs a Segments support, got {type(support).__name__}")
        target, source = self.parts(query, memory.keys)
        source = source if support.source is None else source.index_select(0, support.source)  # (E, H)
        return nn.functional.leaky_relu(support.spread(target) + source, self.negative_slope)

    def parts(self, query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """(N, H) what the target and (N, H) what the source adds to the score of an edge, before the leaky ReLU."""
        if query is keys:  # one small matrix product for both
            columns = torch.cat([_block_diagonal(self.target_weight), _block_diagonal(self.source_weight)], dim=-1)
            target, source = (query.flatten(1) @ columns).chunk(2, dim=-1)
            return target, source
        return (query * self.target_weight).sum(dim=-1), (keys * self.source_weight).sum(dim=-1)


def _block_diagonal(weight: Tensor) -> Tensor:
    """(H * D, H) from (H, D): column h holds row h at the places of head h, and zeros elsewhere."""
    return torch.diag_embed(weight.T).movedim(1, 0).flatten(0, 1)


def _require_width(query: Tensor, keys: Tensor, who: str) -> None:
    if query.shape[-1] != keys.shape[-1]:
        raise ValueError(
            f"{who} needs queries and keys of one width, got query {tuple(query.shape)} and keys {tuple(keys.shape)}; "
            "use Bilinear or Additive for different widths"
        )
