"""Graph attention alone: the compiled kernel beside plain torch, and how its time grows with the edges.

    PROBATTN_KERNELS=on python benchmarks/graph_kernel.py --output runs/bench/graph_kernel.json

A call is forward and backward of one layer's attention on a block model, without the projections around it. Times are
ratios, interleaved in one run (see `interleaved`).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from benchmark_table import render_benchmark
from jsonargparse import auto_cli
from meter import Meter, Row
from torch import Tensor

from probattn.core import Dense, Segments
from probattn.data.graphs import block_model
from probattn.distributions import GammaPrior, NormalisedGamma, Weibull
from probattn.kernels import native
from probattn.kernels.graph_attention import graph_attention
from probattn.models.gat import neighbourhoods

HEADS, HEAD_DIM = 8, 8
TARGETS = {"Weibull, constant prior, C++": 1.2, "deterministic, torch": 1 / 0.3}
"""Time over the deterministic kernel's; torch is to take at least this much."""


@dataclass(frozen=True)
class Law:
    """Which attention is computed."""

    name: str
    has_noise: bool = False
    prior: str | None = None


LAWS = [
    Law("deterministic"),
    Law("Weibull, no prior", has_noise=True),
    Law("Weibull, constant prior", has_noise=True, prior="constant"),
    Law("Weibull, contextual prior", has_noise=True, prior="contextual"),
]


class Layer:
    """Forward and backward of the attention of one layer.

    Args:
        support: The edges.
        law: Of the weights.
        has_kernel: Whether the compiled kernel may be used.
    """

    def __init__(self, support: Segments, law: Law, *, has_kernel: bool):
        torch.manual_seed(0)
        nodes = support.num_segments
        self.target, self.source, self.logits = (torch.randn(nodes, HEADS, requires_grad=True) for _ in range(3))
        self.values = torch.randn(nodes, HEADS, HEAD_DIM, requires_grad=True)
        self.grad_context, self.grad_kl = torch.randn(nodes, HEADS, HEAD_DIM), torch.ones(nodes, HEADS)
        self.support, self.law, self.has_kernel = support, law, has_kernel

    def __call__(self) -> None:
        """Once."""
        with native.switched(self.has_kernel):
            made = graph_attention(
                self.target,
                self.source,
                values=self.values,
                support=self.support,
                family=Weibull(10.0, anchor="softmax") if self.law.has_noise else None,
                prior=self._prior(),
                seed=torch.tensor(1) if self.law.has_noise else None,
            )
            outputs, gradients = [made.context], [self.grad_context]
            if self.law.prior is not None:
                outputs, gradients = [*outputs, made.kl], [*gradients, self.grad_kl]
            torch.autograd.backward(outputs, gradients)
        for leaf in (self.target, self.source, self.logits, self.values):
            leaf.grad = None

    def _prior(self) -> NormalisedGamma | None:
        if self.law.prior is None:
            return None
        log_psi: Tensor = torch.zeros(1, HEADS)
        if self.law.prior == "contextual":
            log_psi = torch.log_softmax(self.logits, dim=0)
        return GammaPrior(rate=1e-4, concentration="psi_rate")(log_psi, Dense())


def graph_of(edges: int, degree: float) -> Segments:
    """Neighbourhoods in a block model with about this many edges, self-loops included."""
    graph = block_model(round(edges / (degree + 1.0)), num_features=1, degree=degree)
    return neighbourhoods(graph.edges, graph.num_nodes)


def kernel_table(meter: Meter, edges: int) -> dict[str, Any]:
    """All laws in C++ and in torch, over the deterministic kernel."""
    support = graph_of(edges, degree=4.5)
    kinds = ["C++", "torch"] if native.is_active() else ["torch"]
    contestants: dict[str, Callable[[], None]] = {
        f"{law.name}, {kind}": Layer(support, law, has_kernel=kind == "C++") for kind in kinds for law in LAWS
    }
    rows = meter.rows(contestants, meter.seconds(contestants))
    for row in rows:
        if kinds[0] == "C++" and row["name"] in TARGETS:
            row["target_ratio"] = TARGETS[row["name"]]
    return {"title": "Attention of one layer", "sizes": _sizes(support), "rows": rows}


def growth_table(meter: Meter, edges: list[int]) -> dict[str, Any]:
    """Weibull weights with a contextual prior on ten edges a node: time and memory an edge."""
    supports = {f"{len(one.index):,} edges": one for one in (graph_of(count, degree=9.0) for count in edges)}
    contestants: dict[str, Callable[[], None]] = {
        name: Layer(support, LAWS[-1], has_kernel=True) for name, support in supports.items()
    }
    rows: list[Row] = meter.rows(contestants, meter.seconds(contestants))
    first = len(next(iter(supports.values())).index)
    for row in rows:
        count = len(supports[row["name"]].index)
        row["ratio_per_edge"] = row["ratio"] * first / count
        row["bytes_per_edge"] = 1e6 * row["megabytes"] / count
    return {"title": "Contextual prior, growing", "sizes": {"heads": HEADS, "head_dim": HEAD_DIM}, "rows": rows}


def _sizes(support: Segments) -> dict[str, int]:
    return {"nodes": support.num_segments, "edges": len(support.index), "heads": HEADS, "head_dim": HEAD_DIM}


def main(
    output: Path = Path("runs/bench/graph_kernel.json"), rounds: int = 15, threads: int = 1, quick: bool = False
) -> None:
    """Run the benchmark.

    Args:
        output: JSON file.
        rounds: Rounds of each table.
        threads: Of torch.
        quick: One round at tiny sizes, to see that it runs; the numbers mean nothing.
    """
    meter = Meter.with_threads(threads, rounds=1 if quick else rounds)
    record = {
        "command": f"python benchmarks/graph_kernel.py --rounds {meter.rounds}",
        "corpus": "block model",
        **meter.about(threads),
        "kernels": native.status().reason.split(":")[0],
        "tables": [
            kernel_table(meter, 1_000 if quick else 110_000),
            growth_table(meter, [1_000, 3_000] if quick else [10_000, 100_000, 300_000, 1_000_000]),
        ],
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(record, indent=1) + "\n")
    print(render_benchmark(record))
    print(f"written to {output}")


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
