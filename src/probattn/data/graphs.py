"""A graph with features and labels for node classification, and a generated one.

Size letters: N nodes, E directed edges, F features, C classes.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

__all__ = ["NodeGraph", "block_model", "fewer_labels", "rewired", "swapped_features", "undirected"]


@dataclass(frozen=True)
class NodeGraph:
    """One graph; messages go along edges from source to target.

    Attributes:
        features: (N, F) float32.
        labels: (N) int64.
        edges: (2, E) int64: sources, targets. Undirected graphs hold both directions; no self-loops, no repetitions.
        train: (n) int64 nodes whose labels may be learnt from.
        valid: (n) int64 nodes to select by.
        test: (n) int64 nodes to report.
        name: For messages and tables.
    """

    features: Tensor
    labels: Tensor
    edges: Tensor
    train: Tensor
    valid: Tensor
    test: Tensor
    name: str

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.features.shape[0]

    @property
    def num_classes(self) -> int:
        """C."""
        return int(self.labels.max()) + 1

    def to(self, device: torch.device | str) -> "NodeGraph":
        """The same graph on another device."""
        moved = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return NodeGraph(**moved, name=self.name)


def block_model(
    num_nodes: int,
    *,
    num_classes: int = 4,
    num_features: int = 32,
    degree: float = 6.0,
    homophily: float = 0.8,
    signal: float = 1.0,
    train_per_class: int = 20,
    seed: int = 0,
) -> NodeGraph:
    """A stochastic block model with class-dependent features: a twin of citation graphs, of any size.

    Each node draws `degree / 2` partners, of its own class with probability `homophily`, so time and memory are linear
    in edges. Features are unit Gaussians around a random centre of the class.

    Args:
        num_nodes: N.
        num_classes: C.
        num_features: F.
        degree: Mean number of neighbours.
        homophily: With this probability h a partner is of the own class, else anyone: h + (1 - h) / C of the edges stay
            in a class, and 0 is no structure at all.
        signal: Length of the class centres; 0 makes features useless.
        train_per_class: Labelled nodes of each class. Of the others a quarter is for validation, the rest for the test.
        seed: Which graph.

    Example:
        >>> graph = block_model(200, seed=1)
        >>> graph.num_nodes, graph.num_classes, len(graph.train)
        (200, 4, 80)
    """
    if num_nodes < num_classes * (train_per_class + 2):
        raise ValueError(
            f"{num_nodes} nodes are too few for {num_classes} classes with {train_per_class} training nodes each; "
            f"ask for at least {num_classes * (train_per_class + 2)}"
        )
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(num_nodes) % num_classes  # nodes n and n + C share a class: partners are found by arithmetic
    centres = torch.randn(num_classes, num_features, generator=draw)
    centres = signal * centres / centres.norm(dim=-1, keepdim=True)
    features = centres[labels] + torch.randn(num_nodes, num_features, generator=draw)
    edges = _partners(labels, num_classes, count=round(num_nodes * degree / 2), homophily=homophily, draw=draw)
    order = torch.randperm(num_nodes, generator=draw)
    train = torch.cat([order[labels[order] == one][:train_per_class] for one in range(num_classes)])
    rest = order[~torch.isin(order, train)]
    quarter = len(rest) // 4
    return NodeGraph(
        features, labels, edges, train, rest[:quarter], rest[quarter:], f"block model, {num_nodes:,} nodes"
    )


def _partners(labels: Tensor, num_classes: int, *, count: int, homophily: float, draw: torch.Generator) -> Tensor:
    """(2, E) both directions of `count` random pairs, without self-loops and repetitions."""
    num_nodes = len(labels)
    first = torch.randint(num_nodes, (count,), generator=draw)
    is_own = torch.rand(count, generator=draw) < homophily
    block = torch.randint(num_nodes // num_classes, (count,), generator=draw)
    own = labels[first] + num_classes * block
    anyone = torch.randint(num_nodes, (count,), generator=draw)
    return undirected(torch.stack([first, torch.where(is_own, own, anyone)]), num_nodes)


def undirected(pairs: Tensor, num_nodes: int) -> Tensor:
    """(2, E) both directions of pairs (2, n), sorted by target, without self-loops and repetitions."""
    pairs = pairs[:, pairs[0] != pairs[1]]
    both = torch.cat([pairs, pairs.flip(0)], dim=1)
    codes = torch.unique(both[1] * num_nodes + both[0])
    return torch.stack([codes % num_nodes, codes // num_nodes])


def fewer_labels(graph: NodeGraph, per_class: int, *, seed: int = 0) -> NodeGraph:
    """The same graph with `per_class` random training nodes of each class.

    Raises:
        ValueError: If a class has fewer.
    """
    draw = torch.Generator().manual_seed(seed)
    order = graph.train[torch.randperm(len(graph.train), generator=draw)]
    of_class = [order[graph.labels[order] == one] for one in range(graph.num_classes)]
    least = min(len(nodes) for nodes in of_class)
    if not 1 <= per_class <= least:
        raise ValueError(
            f"{graph.name} has {least} training nodes of its rarest class: ask for 1 to {least}; got {per_class}"
        )
    return replace(graph, train=torch.cat([nodes[:per_class] for nodes in of_class]).sort().values)


def swapped_features(graph: NodeGraph, share: float, *, seed: int = 0) -> NodeGraph:
    """The same graph where a share of the feature entries are replaced by those of another, random node.

    Each node has one donor, drawn with replacement. Bags of words stay sparse and are not normalised again; every
    feature keeps its distribution over nodes in the mean.
    """
    _require_share(share)
    draw = torch.Generator().manual_seed(seed)
    others = torch.randint(graph.num_nodes, (graph.num_nodes,), generator=draw)
    is_swapped = torch.rand(graph.features.shape, generator=draw) < share
    features = torch.where(is_swapped, graph.features[others], graph.features)
    return replace(graph, features=features)


def rewired(graph: NodeGraph, share: float, *, seed: int = 0) -> NodeGraph:
    """The same graph where a share of the edges have one end at a random node.

    An undirected graph, which has both directions of every edge, stays one; else edges keep their directions.
    """
    _require_share(share)
    draw = torch.Generator().manual_seed(seed)
    if not _is_symmetric(graph.edges, graph.num_nodes):
        return replace(graph, edges=_moved(graph.edges, graph.num_nodes, share, draw))
    pairs = graph.edges[:, graph.edges[0] < graph.edges[1]]
    is_turned = torch.rand(pairs.shape[1], generator=draw) < 0.5  # either end may move: nodes are numbered by split
    pairs = torch.where(is_turned, pairs.flip(0), pairs)
    is_moved = torch.rand(pairs.shape[1], generator=draw) < share
    ends = torch.randint(graph.num_nodes, (pairs.shape[1],), generator=draw)
    moved = torch.stack([pairs[0], torch.where(is_moved, ends, pairs[1])])
    return replace(graph, edges=undirected(moved, graph.num_nodes))


def _is_symmetric(edges: Tensor, num_nodes: int) -> bool:
    forth, back = (torch.unique(one[0] * num_nodes + one[1]) for one in (edges, edges.flip(0)))
    return torch.equal(forth, back)


def _moved(edges: Tensor, num_nodes: int, share: float, draw: torch.Generator) -> Tensor:
    """(2, E) directed edges, a share of them with another source or target; no self-loops and repetitions."""
    count = edges.shape[1]
    is_moved = torch.rand(count, generator=draw) < share
    is_source = torch.rand(count, generator=draw) < 0.5
    ends = torch.randint(num_nodes, (count,), generator=draw)
    source = torch.where(is_moved & is_source, ends, edges[0])
    target = torch.where(is_moved & ~is_source, ends, edges[1])
    numbers = torch.unique((source * num_nodes + target)[source != target])
    return torch.stack([numbers // num_nodes, numbers % num_nodes])


def _require_share(share: float) -> None:
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"a share lies between 0 and 1, got {share}")
