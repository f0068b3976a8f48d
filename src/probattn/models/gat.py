"""Graph attention with random weights (Veličković et al. 2018; BAM, Sec. 4.1), in plain torch and linear in edges.

Size letters: N nodes, E edges with self-loops, H heads, D features of a head, F input features, C classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from probattn.core import Estimator, Evaluation, Given, Latent, Memory, Segments
from probattn.core.checks import require_finite
from probattn.core.noise import fold_seed
from probattn.nn import Dropout, Site, SparseRows
from probattn.nn.fused_graph import dropout_factors, visit_fused
from probattn.nn.scores import GraphAdditive

__all__ = ["GAT", "GraphAttention", "neighbourhoods"]


def neighbourhoods(edges: Tensor, num_nodes: int) -> Segments:
    """Each node attends to the sources of its edges and to itself.

    Args:
        edges: (2, E) int64: sources, targets. Self-loops among them are dropped: every node gets one.
        num_nodes: N.

    Raises:
        TypeError: If edges are not int64.
        ValueError: If they have another shape, or name a node that does not exist.
    """
    if edges.dtype != torch.int64:
        raise TypeError(f"edges must be int64 node numbers, got {edges.dtype}; convert them with .long()")
    if edges.dim() != 2 or edges.shape[0] != 2:
        raise ValueError(f"edges must have shape (2, E): sources, targets; got {tuple(edges.shape)}")
    if edges.numel() and (int(edges.min()) < 0 or int(edges.max()) >= num_nodes):
        raise ValueError(
            f"edges name nodes {int(edges.min())} to {int(edges.max())}, but there are only nodes 0 to {num_nodes - 1}"
        )
    edges = edges[:, edges[0] != edges[1]]
    loops = torch.arange(num_nodes, device=edges.device)
    return Segments(torch.cat([edges[1], loops]), num_nodes, source=torch.cat([edges[0], loops]))


class GraphAttention(nn.Module):
    """One layer: project, score edges, weigh, read.

    Args:
        in_features: F.
        head_dim: D.
        num_heads: H.
        weights: Site of the attention weights; its posterior (or prior) reads the scores.
        concatenates: Whether heads are put side by side (H * D features out) or averaged (D).
        dropout: Of the normalised weights.
    """

    def __init__(
        self,
        in_features: int,
        head_dim: int,
        *,
        num_heads: int,
        weights: Site,
        concatenates: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.head_dim, self.num_heads = head_dim, num_heads
        self.project = nn.Linear(in_features, num_heads * head_dim, bias=False)
        self.score = GraphAdditive(head_dim, num_heads)
        self.weights = weights
        self.concatenates = concatenates
        self.bias = nn.Parameter(torch.zeros(num_heads * head_dim if concatenates else head_dim))
        self.dropout = Dropout(dropout)
        nn.init.xavier_uniform_(self.project.weight)

    def forward(
        self,
        features: Tensor | SparseRows,
        support: Segments,
        estimator: Estimator,
        *,
        seed: Tensor | None = None,
        has_kl: bool = True,
    ) -> tuple[Tensor, Latent]:
        """Attend to all neighbours.

        Args:
            features: (N, F); sparse ones, e.g. bags of words, are multiplied as such.
            support: From `neighbourhoods`.
            estimator: With one particle: the next layer reads what this one drew.
            seed: () int64; drawn from torch's generator if absent.
            has_kl: False where a kernel may leave the KL of the receipt at zero, because nobody asks for it.

        Returns:
            (N, H * D) or (N, D), and the receipt.
        """
        is_sparse = isinstance(features, SparseRows)
        projected = features @ self.project.weight.T.contiguous() if is_sparse else self.project(features)
        nodes = projected.view(-1, self.num_heads, self.head_dim)  # (N, H, D)
        fused = visit_fused(
            self.weights,
            estimator,
            nodes=nodes,
            support=support,
            score=self.score,
            dropout=self.dropout,
            seed=seed,
            has_kl=has_kl,
        )
        context, latent = self._visit(nodes, support, estimator, seed) if fused is None else fused
        out = context.flatten(1) if self.concatenates else context.mean(dim=1)
        whole_graph = torch.zeros(len(nodes), dtype=torch.int64, device=nodes.device)
        return out + self.bias, replace(latent, example=whole_graph)

    def _visit(
        self, nodes: Tensor, support: Segments, estimator: Estimator, seed: Tensor | None
    ) -> tuple[Tensor, Latent]:
        """(N, H, D) context and the receipt, by way of the site."""
        memory = Memory(keys=nodes, values=nodes, support=support)
        given = Given(memory=memory, query=nodes, scores=self.score(nodes, memory))
        latent: Latent = self.weights(given, estimator, seed=seed)
        if latent.draw.value is None or latent.draw.num_particles != 1:
            raise ValueError(
                "graph attention passes one draw of weights on to the next layer; use Mean() or Pathwise() as the "
                f"estimator of site '{self.weights.name}'"
            )
        weights = latent.draw.value
        if self.dropout.training and self.dropout.p > 0.0:
            factors = dropout_factors(weights[0], self.dropout.p, latent.seed)  # those of the kernel
            weights = weights * factors
        return support.read(replace(latent.draw, value=weights), nodes)[0], latent


class GAT(nn.Module):
    """Layers of graph attention with ELU between them and dropout of their inputs; the last one gives class logits.

    Args:
        layers: `GraphAttention` modules whose sites have different names.
        dropout: Of each layer's input.
    """

    def __init__(self, layers: Sequence[GraphAttention], *, dropout: float = 0.0):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.dropout = Dropout(dropout)
        self.names = tuple(layer.weights.name for layer in layers)
        self.num_heads = tuple(layer.num_heads for layer in layers)
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"the sites of the layers need different names, got {list(self.names)}")

    def logits(
        self,
        features: Tensor | SparseRows,
        support: Segments,
        *,
        estimators: Mapping[str, Estimator],
        seed: Tensor | None = None,
    ) -> tuple[Tensor, tuple[Latent, ...]]:
        """(N, C) class logits, and one receipt a layer."""
        return self._run(features, support, estimators=estimators, seed=seed, has_kl=True)

    def predict(
        self,
        features: Tensor | SparseRows,
        support: Segments,
        *,
        estimators: Mapping[str, Estimator],
        seed: Tensor | None = None,
    ) -> Tensor:
        """(N, C) class logits without receipts, which saves the KLs."""
        return self._run(features, support, estimators=estimators, seed=seed, has_kl=False)[0]

    def _run(
        self,
        features: Tensor | SparseRows,
        support: Segments,
        *,
        estimators: Mapping[str, Estimator],
        seed: Tensor | None,
        has_kl: bool,
    ) -> tuple[Tensor, tuple[Latent, ...]]:
        entries = features.values if isinstance(features, SparseRows) else features
        require_finite(entries, "the node features", "Clean them before training.")
        latents = []
        hidden = entries  # of the first layer: its input
        for number, (name, layer) in enumerate(zip(self.names, self.layers, strict=True)):
            own = None if seed is None else fold_seed(seed, number)
            dropped = self.dropout(nn.functional.elu(hidden) if number > 0 else hidden)
            if number == 0 and isinstance(features, SparseRows):
                dropped = replace(features, values=dropped)
            hidden, latent = layer(dropped, support, estimators[name], seed=own, has_kl=has_kl)
            latents.append(latent)
        return hidden, tuple(latents)

    def forward(
        self,
        features: Tensor | SparseRows,
        support: Segments,
        *,
        labels: Tensor,
        nodes: Tensor,
        estimators: Mapping[str, Estimator],
        seed: Tensor | None = None,
    ) -> Evaluation:
        """Log-likelihood of some nodes' labels; a transductive graph is one example, its KL counts every edge.

        Args:
            features: (N, F).
            support: From `neighbourhoods`.
            labels: (N) int64.
            nodes: (n) int64 nodes whose labels are scored.
            estimators: One per layer, by the site's name.
            seed: () int64; drawn from torch's generator if absent.
        """
        logits, latents = self.logits(features, support, estimators=estimators, seed=seed)
        chosen = torch.log_softmax(logits[nodes].float(), dim=-1).gather(-1, labels[nodes].unsqueeze(-1)).squeeze(-1)
        example = torch.zeros_like(nodes)
        return Evaluation(log_lik=chosen.unsqueeze(0), latents=latents, example=example, num_examples=1)
