"""Settings of a graph-attention row, and the network they describe."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch

from probattn.core import Constant, Estimator, Schedule, Segments
from probattn.data import planetoid
from probattn.data.graph_files import read_graph
from probattn.data.graphs import NodeGraph, block_model, fewer_labels, rewired, swapped_features
from probattn.models.gat import GAT, GraphAttention
from probattn.nn import Site
from probattn.recipes.blueprints import SiteBlueprint, Sizes

_WEIGHT_SEEDS = 1000  # at most so many layers


@dataclass(frozen=True)
class GraphSettings:
    """The graph, and what is done to it before training."""

    name: str = "generated"
    """cora, citeseer or pubmed (Planetoid, public split), generated (a stochastic block model), or an .npz file."""
    may_download: bool = False
    """Whether missing files may be fetched from the official source."""
    num_nodes: int = 1200
    """Of the generated graph."""
    graph_seed: int = 0
    """Of the generated graph and of everything random below; the same for all rows and seeds of a comparison."""
    labels_per_class: int | None = None
    """Keep only so many training nodes of each class; null keeps all."""
    feature_noise: float = 0.0
    """Share of the feature entries that are replaced by another node's before training."""
    edge_noise: float = 0.0
    """Share of the edges that lead to a random node instead."""


@dataclass(frozen=True)
class NetworkSettings:
    """Sizes of the network (BAM, Appendix B.1)."""

    hidden_heads: int = 8
    """Heads of all layers but the last; their outputs are put side by side."""
    head_dim: int = 8
    """Features of such a head."""
    out_heads: int = 1
    """Heads of the last layer; their logits are averaged."""
    num_layers: int = 2
    """Layers of attention."""
    dropout: float = 0.6
    """Of the inputs of every layer and of the normalised weights."""


@dataclass(frozen=True)
class KlSettings:
    """How the KL enters the loss."""

    reduction: Literal["sum", "mean"] = "sum"
    """Over layers, heads and edges: "sum" beside the *summed* log-likelihood of the training nodes (the paper), "mean"
    beside its *mean* (the released code). So they differ by the number of training nodes, too."""
    weight: Schedule = field(default_factory=Constant)
    """Of the reduced KL, by epoch."""


@dataclass(frozen=True)
class OptimiserSettings:
    """Adam and early stopping (BAM, Appendix B.1)."""

    learning_rate: float = 0.005
    """Adam's."""
    weight_decay: float = 5e-4
    """L2 penalty on all parameters."""
    max_epochs: int = 2000
    """One update each."""
    patience: int = 100
    """Epochs without a better validation loss or accuracy after which training stops."""

    def __post_init__(self) -> None:
        if self.max_epochs < 1 or self.patience < 1:
            raise ValueError(f"max_epochs and patience must be at least 1, got {self.max_epochs} and {self.patience}")


@dataclass(frozen=True)
class EvaluationSettings:
    """What is measured after training."""

    draws: int = 20
    """Draws of weights and dropout masks for uncertainty."""
    feature_noise: float = 0.5
    """Share of the feature entries that are replaced by another node's in the noisy condition."""
    gradient_every: int = 25
    """Epochs between two measurements of the KL's gradient; only where there is a KL."""


@dataclass
class GatSettings:
    """One row on one graph."""

    row: str
    """Name of the row in tables and file names."""
    source: str
    """Where the row comes from: paper, section, table."""
    site: SiteBlueprint
    """The attention weights, alike in all layers."""
    estimator: Estimator
    """How their expectation is approximated in training; predictions use plug-in weights, or draws."""
    kl: KlSettings = field(default_factory=KlSettings)
    """Without effect where the site has no KL."""
    graph: GraphSettings = field(default_factory=GraphSettings)
    """The data."""
    network: NetworkSettings = field(default_factory=NetworkSettings)
    """Sizes."""
    optimiser: OptimiserSettings = field(default_factory=OptimiserSettings)
    """Training."""
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    """After training."""
    seed: int = 0
    """Of initial weights, dropout and noise; graph and split do not depend on it."""


def is_file_name(name: str) -> bool:
    """Whether the name of a graph is that of a file, and not of a graph that the library knows.

    Example:
        >>> is_file_name("cora"), is_file_name("mine.npz")
        (False, True)
    """
    return name.endswith(".npz")


def load_graph(settings: GraphSettings) -> NodeGraph:
    """The graph as it is trained on."""
    if settings.name == "generated":
        graph = block_model(settings.num_nodes, signal=2.0, homophily=0.7, seed=settings.graph_seed)
    elif is_file_name(settings.name):
        graph = read_graph(settings.name)
    elif settings.name in planetoid.NUM_NODES:
        graph = planetoid.load(settings.name, may_download=settings.may_download)
    else:
        known = ", ".join([*planetoid.NUM_NODES, "generated"])
        raise ValueError(f"graph.name must be one of {known}, or an .npz file with a graph; got '{settings.name}'")
    if settings.labels_per_class is not None:
        graph = fewer_labels(graph, settings.labels_per_class, seed=settings.graph_seed)
    if settings.edge_noise > 0.0:
        graph = rewired(graph, settings.edge_noise, seed=settings.graph_seed)
    if settings.feature_noise > 0.0:
        graph = swapped_features(graph, settings.feature_noise, seed=settings.graph_seed)
    return graph


def build_model(settings: GatSettings, *, num_features: int, num_classes: int) -> GAT:
    """The network with its initial weights, a function of the seed; those that rows share are the same in all rows."""
    torch.manual_seed(settings.seed)
    sizes = settings.network
    layers = []
    width = num_features
    for number in range(1, sizes.num_layers + 1):
        is_last = number == sizes.num_layers
        head_dim, heads = (num_classes, sizes.out_heads) if is_last else (sizes.head_dim, sizes.hidden_heads)
        site: Site = settings.site.build(f"layer{number}", Sizes(keys=head_dim, heads=heads))
        torch.manual_seed(_WEIGHT_SEEDS * (settings.seed + 1) + number)  # whatever the priors have drawn
        layers.append(
            GraphAttention(
                width, head_dim, num_heads=heads, weights=site, concatenates=not is_last, dropout=sizes.dropout
            )
        )
        width = heads * head_dim
    torch.manual_seed(settings.seed)
    return GAT(layers, dropout=sizes.dropout)


def kl_weights(
    settings: GatSettings, model: GAT, support: Segments, *, num_train: int, epoch: int
) -> Mapping[str, float]:
    """Weight of each layer's summed KL beside the summed log-likelihood; the loss divides both by `num_train`."""
    weight = settings.kl.weight(epoch)
    if settings.kl.reduction == "sum":
        return dict.fromkeys(model.names, weight)
    num_entries = len(support.index) * sum(model.num_heads)
    return dict.fromkeys(model.names, weight * num_train / num_entries)
