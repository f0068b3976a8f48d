"""Which positions compete for attention: the only place that knows padding or graph edges.

`Dense` has the attended axis last, `Segments` has one entry per edge and the heads after it. All sums, normalisations
and look-ups over the attended set go through a support, so that a distribution is written once and runs on both.
Positions outside the support have weight zero and log-weight -inf, and a set with nothing in it has an answer:
weights zero, sum zero, context zero.

Size letters: K particles, T queries, S positions, E edges, N nodes, H heads, D features. `*unit` is (*lead, T) or (N,
H).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from probattn.core.edges import EdgeLists, edge_lists
from probattn.core.records import Draw

__all__ = ["Dense", "Segments", "Support"]

_NEGATIVE_INFINITY = float("-inf")
# The position that stands for "this set has nothing more".
_NOTHING = -1


@runtime_checkable
class Support(Protocol):
    """The attended sets of one attention call. Scores are (*unit, S) on `Dense` and (E, H) on `Segments`."""

    def unit_shape(self, scores: Tensor) -> torch.Size:
        """Shape of a reduction over the attended sets."""
        ...

    def log_softmax(self, scores: Tensor) -> Tensor:
        """Normalised log-weights, -inf outside the support."""
        ...

    def logsumexp(self, scores: Tensor) -> Tensor:
        """Log of the summed exponentials, (*unit); -inf for an empty set."""
        ...

    def sum(self, x: Tensor) -> Tensor:
        """Sum over each attended set, (*unit)."""
        ...

    def spread(self, total: Tensor) -> Tensor:
        """A number per set, brought back to the shape of the scores."""
        ...

    def fill_outside(self, x: Tensor, value: float) -> Tensor:
        """The same tensor with `value` at positions outside the support."""
        ...

    def top_k(self, scores: Tensor, k: int) -> Tensor:
        """Positions of the k largest scores of each set, (min(k, S), *unit)."""
        ...

    def size(self, scores: Tensor) -> int:
        """The largest number of positions any set can have."""
        ...

    def take(self, x: Tensor, index: Tensor) -> Tensor:
        """X at the given positions: (*unit, S) and (K, *unit) give (K, *unit)."""
        ...

    def scatter(self, index: Tensor, like: Tensor) -> Tensor:
        """Zeros with ones at the given positions, (K, *scores)."""
        ...

    def contains(self, index: Tensor) -> Tensor:
        """Whether each position lies inside the support of its set, (K, *unit) bool."""
        ...

    def key_log_softmax(self, logits: Tensor) -> Tensor:
        """Log-softmax of one logit per key over *all* keys, shaped like the scores. Shared by all queries."""
        ...

    def set_log_softmax(self, logits: Tensor) -> Tensor:
        """Log-softmax of one logit per key over each attended set, shaped like the scores."""
        ...

    def zero_unseen(self, rows: Tensor) -> Tensor:
        """Rows of a memory, (*lead, S, D), with zeros where no query may look: 0 * inf is NaN, in gradients too."""
        ...

    def read(self, draw: Draw, values: Tensor) -> Tensor:
        """Context of each particle, (K, *unit, D): gathered for one-hot particles, contracted for others."""
        ...


def _normalise(filled: Tensor, is_empty: Tensor) -> Tensor:
    """Log-softmax over the last axis of rows that may be all -inf; such rows stay -inf, without NaN gradients."""
    safe = filled.masked_fill(is_empty, 0.0)
    return torch.log_softmax(safe, dim=-1).masked_fill(is_empty, _NEGATIVE_INFINITY)


@dataclass(frozen=True)
class Dense:
    """Each query attends to a row of the memory; the attended axis is the last one.

    Attributes:
        mask: Bool, broadcastable to the scores (*lead, T, S), True where a query may look. None: everywhere.

    Example:
        >>> support = Dense(torch.tensor([[True, True, False]]))
        >>> support.log_softmax(torch.zeros(1, 3)).exp()
        tensor([[0.5000, 0.5000, 0.0000]])
    """

    mask: Tensor | None = None

    def __post_init__(self) -> None:
        if self.mask is not None and self.mask.dtype != torch.bool:
            raise TypeError(
                f"Dense(mask) wants a bool tensor, True where a query may look, got {self.mask.dtype}. "
                "Add a float mask to the scores instead and pass mask = (float_mask > -inf)."
            )

    def unit_shape(self, scores: Tensor) -> torch.Size:
        """(*unit): all axes but the last."""
        return scores.shape[:-1]

    def size(self, scores: Tensor) -> int:
        """S."""
        return scores.shape[-1]

    def log_softmax(self, scores: Tensor) -> Tensor:
        """See `Support.log_softmax`."""
        if self.mask is None:
            return torch.log_softmax(scores, dim=-1)
        filled = scores.masked_fill(~self.mask, _NEGATIVE_INFINITY)
        weights = _normalise(filled, ~self.mask.any(dim=-1, keepdim=True))
        return weights.masked_fill(~self.mask, _NEGATIVE_INFINITY)

    def logsumexp(self, scores: Tensor) -> Tensor:
        """See `Support.logsumexp`."""
        if self.mask is None:
            return torch.logsumexp(scores, dim=-1)
        is_empty = ~self.mask.any(dim=-1)
        filled = scores.masked_fill(~self.mask, _NEGATIVE_INFINITY).masked_fill(is_empty.unsqueeze(-1), 0.0)
        return torch.logsumexp(filled, dim=-1).masked_fill(is_empty, _NEGATIVE_INFINITY)

    def sum(self, x: Tensor) -> Tensor:
        """See `Support.sum`."""
        return self.fill_outside(x, 0.0).sum(dim=-1)

    def spread(self, total: Tensor) -> Tensor:
        """See `Support.spread`."""
        return total.unsqueeze(-1)

    def fill_outside(self, x: Tensor, value: float) -> Tensor:
        """See `Support.fill_outside`."""
        return x if self.mask is None else x.masked_fill(~self.mask, value)

    def top_k(self, scores: Tensor, k: int) -> Tensor:
        """See `Support.top_k`."""
        filled = self.fill_outside(scores, _NEGATIVE_INFINITY)
        index = filled.topk(min(k, filled.shape[-1]), dim=-1).indices
        return index.movedim(-1, 0)

    def take(self, x: Tensor, index: Tensor) -> Tensor:
        """See `Support.take`."""
        x = x.expand(*index.shape[1:], x.shape[-1])
        return x.gather(-1, index.movedim(0, -1)).movedim(-1, 0)

    def scatter(self, index: Tensor, like: Tensor) -> Tensor:
        """See `Support.scatter`."""
        one_hot = torch.zeros(*index.shape, like.shape[-1], dtype=like.dtype, device=like.device)
        return self.fill_outside(one_hot.scatter(-1, index.unsqueeze(-1), 1.0), 0.0)

    def contains(self, index: Tensor) -> Tensor:
        """See `Support.contains`."""
        if self.mask is None:
            return torch.ones_like(index, dtype=torch.bool)
        if self.mask.shape[-1] == 1:  # one answer for all positions of a query
            return self.mask.squeeze(-1).expand(index.shape)
        return self.take(self.mask, index)

    def key_log_softmax(self, logits: Tensor) -> Tensor:
        """Log-softmax over all keys that any query may see. (*lead, S) gives (*lead, 1, S)."""
        logits = logits.unsqueeze(-2)
        if self.mask is None:
            return torch.log_softmax(logits, dim=-1)
        mask = self.mask if self.mask.dim() > 1 else self.mask.unsqueeze(0)
        key_mask = mask.any(dim=-2, keepdim=True)  # causal masks differ per query, the prior over keys does not
        return Dense(key_mask).log_softmax(logits)

    def set_log_softmax(self, logits: Tensor) -> Tensor:
        """(*lead, S) gives (*lead, T, S); T is 1 where all queries see the same keys."""
        return self.log_softmax(logits.unsqueeze(-2))

    def zero_unseen(self, rows: Tensor) -> Tensor:
        """See `Support.zero_unseen`."""
        if self.mask is None:
            return rows
        is_seen = self.mask if self.mask.dim() < 2 else self.mask.any(dim=-2)  # (*lead, S)
        return torch.where(is_seen.unsqueeze(-1), rows, 0.0)

    def read(self, draw: Draw, values: Tensor) -> Tensor:
        """Context of each particle. Values (*lead, S, D) and unit (*lead, T) give (K, *lead, T, D)."""
        contexts = []
        if draw.index is not None:
            contexts.append(self._gather(draw.index, values))
        if draw.value is not None:
            contexts.append(torch.matmul(draw.value.to(values.dtype), self.zero_unseen(values)))
        return contexts[0] if len(contexts) == 1 else torch.cat(contexts)

    def _gather(self, index: Tensor, values: Tensor) -> Tensor:
        columns, size = index.movedim(0, -2), values.shape[-1]  # (*lead, K, T)
        lead = torch.broadcast_shapes(columns.shape[:-2], values.shape[:-2])  # one memory may serve all examples
        values = values.expand(*lead, *values.shape[-2:])
        columns = columns.expand(*lead, *columns.shape[-2:]).flatten(-2)  # (*lead, K * T)
        picked = values.gather(-2, columns.unsqueeze(-1).expand(*columns.shape, size))  # (*lead, K * T, D)
        picked = picked.view(*lead, index.shape[0], index.shape[-1], size).movedim(-3, 0)  # (K, *lead, T, D)
        return picked.masked_fill(~self.contains(index).unsqueeze(-1), 0.0)


@dataclass(frozen=True)
class Segments:
    """Each edge belongs to the set of its target node; edges come first, heads after: scores (E, H), totals (N, H).

    Attributes:
        index: (E) int64 set (target node) of each edge.
        num_segments: N, the number of sets, empty ones included.
        source: (E) int64 position in the memory that each edge reads. None: the memory has one row per edge.

    Example:
        >>> support = Segments(torch.tensor([0, 0, 2]), 3)
        >>> support.log_softmax(torch.zeros(3, 1)).exp().flatten()
        tensor([0.5000, 0.5000, 1.0000])
    """

    index: Tensor
    num_segments: int
    source: Tensor | None = None

    def __post_init__(self) -> None:
        if self.index.dim() != 1 or self.index.dtype != torch.int64:
            raise TypeError(
                f"Segments(index) wants an int64 tensor of shape (E,), got {self.index.dtype} of shape "
                f"{tuple(self.index.shape)}"
            )
        if self.source is not None and self.source.shape != self.index.shape:
            raise ValueError(
                f"Segments(source) wants one source per edge, shape {tuple(self.index.shape)}, "
                f"got {tuple(self.source.shape)}"
            )

    @cached_property
    def edge_lists(self) -> EdgeLists:
        """The edges grouped by target and by source; sorted at the first use and kept."""
        return edge_lists(self.index, self.source, self.num_segments)

    def unit_shape(self, scores: Tensor) -> torch.Size:
        """(N, H), with any particle axes before it."""
        return torch.Size((*scores.shape[:-2], self.num_segments, scores.shape[-1]))

    def size(self, scores: Tensor) -> int:
        """The largest degree. Reads the edge list."""
        if self.index.numel() == 0:
            return 0
        return int(self._degree().max())

    def log_softmax(self, scores: Tensor) -> Tensor:
        """See `Support.log_softmax`."""
        # The largest score is taken off first: 1e4 + log(2) keeps three digits of the log(2) in float32.
        shifted = scores - self.spread(self._largest(scores))
        total = self.sum(shifted.exp())
        return shifted - self.spread(total.masked_fill(total == 0, 1.0).log())

    def logsumexp(self, scores: Tensor) -> Tensor:
        """See `Support.logsumexp`."""
        top = self._largest(scores)
        total = self.sum((scores - self.spread(top)).exp())
        is_empty = total == 0
        log_total = total.masked_fill(is_empty, 1.0).log() + top
        return log_total.masked_fill(is_empty, _NEGATIVE_INFINITY)

    def sum(self, x: Tensor) -> Tensor:
        """See `Support.sum`."""
        flat = x.flatten(0, -3) if x.dim() > 2 else x.unsqueeze(0)  # a loop: index_add is fast along its first axis
        totals = [one.new_zeros(self.num_segments, x.shape[-1]).index_add(0, self.index, one) for one in flat]
        return torch.stack(totals).view(self.unit_shape(x))

    def spread(self, total: Tensor) -> Tensor:
        """See `Support.spread`."""
        return total.index_select(-2, self.index)

    def fill_outside(self, x: Tensor, value: float) -> Tensor:
        """Nothing lies outside: padding does not exist in an edge list."""
        return x

    def top_k(self, scores: Tensor, k: int) -> Tensor:
        """See `Support.top_k`. (k, N, H) edge numbers, -1 where a set has fewer edges."""
        if k > 1 or scores.shape[0] == 0:  # one edge per set needs no look at the degrees, which are data
            k = min(k, self.size(scores))
        by_score = scores.argsort(dim=0, descending=True, stable=True)  # (E, H)
        by_set = self.index[by_score].argsort(dim=0, stable=True)
        order = by_score.gather(0, by_set)  # (E, H) edges sorted by set, then by falling score
        degree = self._degree()
        start = degree.cumsum(0) - degree  # (N,)
        ranks = torch.arange(k, device=scores.device).view(-1, 1)  # (k, 1)
        place = (start + ranks).clamp(max=max(0, scores.shape[0] - 1))  # (k, N)
        return order[place].masked_fill((ranks >= degree).unsqueeze(-1), _NOTHING)  # (k, N, H)

    def take(self, x: Tensor, index: Tensor) -> Tensor:
        """See `Support.take`. (E, H) and (K, N, H) give (K, N, H)."""
        flat = index.clamp(min=0).reshape(-1, index.shape[-1])
        return x.expand(-1, index.shape[-1]).gather(0, flat).view(index.shape)

    def scatter(self, index: Tensor, like: Tensor) -> Tensor:
        """See `Support.scatter`. (K, E, H)."""
        one_hot = torch.zeros(index.shape[0], *like.shape, dtype=like.dtype, device=like.device)
        return one_hot.scatter_add(1, index.clamp(min=0), self.contains(index).to(like.dtype))

    def contains(self, index: Tensor) -> Tensor:
        """See `Support.contains`."""
        own = torch.arange(self.num_segments, device=index.device).view(-1, 1)
        return (index >= 0) & (self.index[index.clamp(min=0)] == own)

    def key_log_softmax(self, logits: Tensor) -> Tensor:
        """Log-softmax over all rows of the memory, (N, H) or (E, H), brought to the edges: (E, H)."""
        weights = torch.log_softmax(logits, dim=0)
        return weights if self.source is None else weights.index_select(0, self.source)

    def set_log_softmax(self, logits: Tensor) -> Tensor:
        """(N, H) or (E, H) logits give (E, H)."""
        return self.log_softmax(logits if self.source is None else logits.index_select(0, self.source))

    def zero_unseen(self, rows: Tensor) -> Tensor:
        """The same rows: a node that no edge reads takes no part in any sum."""
        return rows

    def read(self, draw: Draw, values: Tensor) -> Tensor:
        """Context of each particle. Values (N, H, D), or (E, H, D) without `source`, give (K, N, H, D)."""
        rows = values if self.source is None else values.index_select(0, self.source)  # (E, H, D)
        contexts = []
        if draw.index is not None:
            heads = torch.arange(rows.shape[1], device=rows.device)
            picked = rows[draw.index.clamp(min=0), heads]  # (K, N, H, D)
            contexts.append(picked.masked_fill(~self.contains(draw.index).unsqueeze(-1), 0.0))
        if draw.value is not None:
            weighted = draw.value.to(rows.dtype).unsqueeze(-1) * rows  # (K, E, H, D)
            total = weighted.new_zeros(weighted.shape[0], self.num_segments, *weighted.shape[2:])
            contexts.append(total.index_add(1, self.index, weighted))
        return contexts[0] if len(contexts) == 1 else torch.cat(contexts)

    def _degree(self) -> Tensor:
        """(N) number of edges of each set."""
        return self.index.new_zeros(self.num_segments).index_add(0, self.index, torch.ones_like(self.index))

    def _largest(self, scores: Tensor) -> Tensor:
        """(*unit) largest score of each set, detached; zero where a set is empty."""
        largest = scores.new_full(self.unit_shape(scores), _NEGATIVE_INFINITY)
        index = self.index.view(-1, 1).expand(scores.shape)
        largest = largest.scatter_reduce(-2, index, scores.detach(), reduce="amax")
        return largest.masked_fill(~torch.isfinite(largest), 0.0)
