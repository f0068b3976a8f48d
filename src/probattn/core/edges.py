"""Edges of a graph, grouped by target and by source, as compressed rows.

A sum over the edges of a node is then a loop over one range, in either direction, and nothing is ever added to from
two places.

Size letters: N target nodes, M source nodes that an edge names (the largest one plus one), E edges.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["EdgeLists", "edge_lists"]

_MAX_EDGES = 2**31 - 1


@dataclass(frozen=True)
class EdgeLists:
    """Edges in two orders, int32. The order of targets sorts by target and keeps the caller's order within one.

    Attributes:
        target_start: (N + 1) where the edges of each target begin in the order of targets.
        source_of: (E) sources, in the order of targets.
        edge_of: (E) numbers of the edges in the caller's order, in the order of targets.
        source_start: (M + 1) where the edges of each source begin in the order of sources.
        position_of: (E) places of the edges in the order of targets, in the order of sources.
        target_of: (E) targets, in the order of sources.
    """

    target_start: Tensor
    source_of: Tensor
    edge_of: Tensor
    source_start: Tensor
    position_of: Tensor
    target_of: Tensor

    @property
    def num_sources(self) -> int:
        """M."""
        return len(self.source_start) - 1

    def tensors(self) -> list[Tensor]:
        """All lists, in the order of the attributes."""
        return [
            self.target_start,
            self.source_of,
            self.edge_of,
            self.source_start,
            self.position_of,
            self.target_of,
        ]

    def in_callers_order(self, rows: Tensor) -> Tensor:
        """Rows (E, ...) that are in the order of targets, in the order that the caller gave the edges."""
        place = torch.empty_like(self.edge_of)
        place[self.edge_of] = torch.arange(len(place), dtype=place.dtype, device=place.device)
        return rows.index_select(0, place)


def edge_lists(target: Tensor, source: Tensor | None, num_targets: int) -> EdgeLists:
    """Sort the edges.

    Args:
        target: (E) int64 target of each edge.
        source: (E) int64 source of each edge. None: each edge has a source of its own.
        num_targets: N.

    Raises:
        ValueError: If an edge names a target or source that does not exist, or there are more than 2**31 - 1 edges.

    Example:
        >>> edge_lists(torch.tensor([2, 0, 2]), torch.tensor([0, 1, 1]), 3).target_start
        tensor([0, 1, 1, 3], dtype=torch.int32)
    """
    source = torch.arange(len(target), device=target.device) if source is None else source
    if len(target) > _MAX_EDGES:
        raise ValueError(f"edges are counted in 32 bits: at most {_MAX_EDGES}, got {len(target)}")
    if len(target) and (int(target.min()) < 0 or int(target.max()) >= num_targets or int(source.min()) < 0):
        raise ValueError(
            f"edges go from sources {int(source.min())} to {int(source.max())} to targets {int(target.min())} to "
            f"{int(target.max())}; sources start at 0, and targets are 0 to {num_targets - 1}"
        )
    edge_of = target.argsort(stable=True)
    sorted_source = source[edge_of]
    position_of = sorted_source.argsort(stable=True)
    num_sources = int(source.max()) + 1 if len(source) else 0
    return EdgeLists(
        target_start=_starts(target, num_targets),
        source_of=sorted_source.int(),
        edge_of=edge_of.int(),
        source_start=_starts(source, num_sources),
        position_of=position_of.int(),
        target_of=target[edge_of][position_of].int(),
    )


def _starts(nodes: Tensor, num_nodes: int) -> Tensor:
    """(num_nodes + 1) where each node's edges begin, if edges are sorted by node."""
    degree = torch.bincount(nodes, minlength=num_nodes)
    return torch.cat([degree.new_zeros(1), degree.cumsum(0)]).int()
