"""Speed and memory of graph attention: a training step beside PyTorch Geometric's, and how it grows with the edges.

    python benchmarks/graphs.py --output runs/bench/graphs.json
    PROBATTN_DATA=... python benchmarks/graphs.py --graph pubmed

Steps are forward, loss, backward and Adam of the two-layer network of BAM's Appendix B.1 with 8 and 8 heads and no
dropout of the input, so that PyG's dense product and ours see the same matrix; times are ratios, interleaved in one run
(see `interleaved`). "C++" is the compiled kernel, "torch" the path without a compiler.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from benchmark_table import render_benchmark
from interleaved import Contestants
from jsonargparse import auto_cli
from meter import Meter, Row
from torch import Tensor, nn

from probattn.core import Elbo, Estimator, Mean, Pathwise, Segments
from probattn.data import planetoid
from probattn.data.graphs import NodeGraph, block_model
from probattn.distributions import Categorical, GammaPrior, Weibull
from probattn.kernels import native
from probattn.models.gat import GAT, GraphAttention, neighbourhoods
from probattn.nn import FromScores, KeyPrior, Site, SparseRows

HEADS, HEAD_DIM, DROPOUT = 8, 8, 0.6
TARGETS = {"stochastic, C++": 1.3, "stochastic, torch": 1.3}
"""Of a step with random weights and KL over the deterministic step of the same kind."""


def site(name: str, width: int, *, is_random: bool) -> Site:
    """Soft attention, or BAM-WC as on Pubmed."""
    if not is_random:
        return Site(name, prior=FromScores(Categorical()), posterior=None)
    prior = KeyPrior(width, GammaPrior(rate=1e-4, concentration="psi_rate"), hidden_dim=5, num_heads=HEADS)
    return Site(name, prior=prior, posterior=FromScores(Weibull(10.0, anchor="softmax")))


class OurStep:
    """A training step of our network.

    Args:
        graph: The data.
        features: (N, F), dense or sparse.
        support: Its neighbourhoods, shared between contestants.
        is_random: Random weights with a KL, or soft attention.
        has_kernel: Whether the compiled kernel may be used.
    """

    def __init__(
        self,
        graph: NodeGraph,
        features: Tensor | SparseRows,
        *,
        support: Segments,
        is_random: bool,
        has_kernel: bool,
    ):
        torch.manual_seed(0)
        width = graph.features.shape[1]
        layers = [
            GraphAttention(
                width, HEAD_DIM, num_heads=HEADS, weights=site("1", HEAD_DIM, is_random=is_random), dropout=DROPOUT
            ),
            GraphAttention(
                HEADS * HEAD_DIM,
                graph.num_classes,
                num_heads=HEADS,
                weights=site("2", graph.num_classes, is_random=is_random),
                concatenates=False,
                dropout=DROPOUT,
            ),
        ]
        self.model = GAT(layers)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01, fused=True)
        self.graph, self.features, self.support, self.has_kernel = graph, features, support, has_kernel
        estimator: Estimator = Pathwise(keeps_log_probs=False) if is_random else Mean()
        self.estimators = {"1": estimator, "2": estimator}
        self.weights = dict.fromkeys(self.estimators, 1e-6) if is_random else {}

    def __call__(self) -> None:
        """One step."""
        with native.switched(self.has_kernel):
            evaluation = self.model(
                self.features,
                self.support,
                labels=self.graph.labels,
                nodes=self.graph.train,
                estimators=self.estimators,
            )
            self.optimizer.zero_grad()
            Elbo()(evaluation, self.weights).loss.sum().backward()
            self.optimizer.step()


def pyg_step(graph: NodeGraph) -> Callable[[], None]:
    """A training step of the same network from PyTorch Geometric."""
    from torch_geometric.nn import GATConv

    torch.manual_seed(0)
    first = GATConv(graph.features.shape[1], HEAD_DIM, heads=HEADS, dropout=DROPOUT)
    second = GATConv(HEADS * HEAD_DIM, graph.num_classes, heads=HEADS, concat=False, dropout=DROPOUT)
    parameters = [*first.parameters(), *second.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=0.01, fused=True)

    def step() -> None:
        logits = second(nn.functional.elu(first(graph.features, graph.edges)), graph.edges)
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits[graph.train], graph.labels[graph.train]).backward()
        optimizer.step()

    return step


def step_table(graph: NodeGraph, meter: Meter) -> dict[str, Any]:
    """Steps on one graph, over the deterministic step with the compiled kernel, or with torch where there is none."""
    support = neighbourhoods(graph.edges, graph.num_nodes)
    contestants: dict[str, Callable[[], None]] = {"PyG GATConv": pyg_step(graph)}
    kinds = ["C++", "torch"] if native.is_active() else ["torch"]
    for kind in kinds:
        for name, is_random in (("deterministic", False), ("stochastic", True)):
            contestants[f"{name}, {kind}"] = OurStep(
                graph, graph.features, support=support, is_random=is_random, has_kernel=kind == "C++"
            )
    share = float((graph.features != 0).float().mean())
    if share < 0.25:
        sparse = SparseRows.from_dense(graph.features)
        contestants["deterministic, sparse features"] = OurStep(
            graph, sparse, support=support, is_random=False, has_kernel=True
        )
    seconds = meter.seconds(contestants)
    rows = meter.rows(contestants, seconds)
    for row in rows:
        name, _, kind = row["name"].partition(", ")
        if name == "stochastic":
            plain = next(one for one in rows if one["name"] == f"deterministic, {kind}")
            row["over_deterministic"] = row["ratio"] / plain["ratio"]
            row["memory_over_deterministic"] = row["megabytes"] / plain["megabytes"]
            row["target_ratio"] = TARGETS[row["name"]]
    sizes = {"nodes": graph.num_nodes, "edges": len(support.index), "features": graph.features.shape[1]}
    return {"title": "Training step", "sizes": sizes, "rows": rows}


def growth_table(meter: Meter, edges: list[int]) -> dict[str, Any]:
    """Stochastic steps on generated graphs of ten edges a node: time and memory an edge."""
    contestants: dict[str, OurStep] = {}
    counts: dict[str, int] = {}
    for count in edges:
        graph = block_model(count // 10, num_features=16, degree=10.0, train_per_class=20)
        support = neighbourhoods(graph.edges, graph.num_nodes)
        name = f"{len(support.index):,} edges"
        counts[name] = len(support.index)
        contestants[name] = OurStep(graph, graph.features, support=support, is_random=True, has_kernel=True)
    calls: Contestants = contestants
    rows: list[Row] = meter.rows(calls, meter.seconds(calls))
    first = next(iter(counts.values()))
    for row in rows:
        row["ratio_per_edge"] = row["ratio"] * first / counts[row["name"]]
        row["bytes_per_edge"] = 1e6 * row["megabytes"] / counts[row["name"]]
    return {"title": "Stochastic step, growing", "sizes": {"heads": HEADS, "head_dim": HEAD_DIM}, "rows": rows}


def main(
    output: Path = Path("runs/bench/graphs.json"),
    graph: Literal["generated", "pubmed"] = "generated",
    rounds: int = 9,
    threads: int = 1,
    quick: bool = False,
) -> None:
    """Run the benchmark.

    Args:
        output: JSON file.
        graph: Of the steps; pubmed is read from PROBATTN_DATA, generated has its size.
        rounds: Rounds of each table.
        threads: Of torch.
        quick: One round at tiny sizes, to see that it runs; the numbers mean nothing.
    """
    torch.manual_seed(0)
    meter = Meter.with_threads(threads, rounds=1 if quick else rounds)
    nodes = 200 if quick else 19_717
    data = planetoid.load("pubmed") if graph == "pubmed" else block_model(nodes, num_features=500, degree=4.5)
    record = {
        "command": f"python benchmarks/graphs.py --graph {graph} --rounds {meter.rounds}",
        "corpus": data.name,
        **meter.about(threads),
        "kernels": native.status().reason.split(":")[0],
        "tables": [
            step_table(data, meter),
            growth_table(meter, [1_000, 3_000] if quick else [10_000, 100_000, 300_000, 1_000_000]),
        ],
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(record, indent=1) + "\n")
    print(render_benchmark(record))
    print(f"written to {output}")


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
