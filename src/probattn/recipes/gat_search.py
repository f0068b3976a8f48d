"""Two searches on validation nodes, with budgets that are fixed here: for a KL that acts, and for a regime that helps.

    python -m probattn.recipes.gat_search weights --graph cora     # the settings of the rows "ours"
    python -m probattn.recipes.gat_search regimes --graph cora     # where random attention beats plain attention
    python -m probattn.recipes.gat_search confirm --graph cora     # what the second found, on test nodes, new seeds

Test nodes are looked at by `confirm` only. A trial of `regimes` and `confirm` has labels, rewired edges and replaced
features of its own seed, the same for plain attention, which is not tuned in any of them. Each writes
`results/gat/search/`, and goes on where it was stopped.
"""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jsonargparse import auto_cli

from probattn.recipes.paired import holm, paired_differences
from probattn.recipes.report import as_markdown
from probattn.recipes.results import RowResult
from probattn.recipes.trials import Trial, run_trials

Graph = Literal["cora", "citeseer", "pubmed", "generated"]

ROWS = ("lf-ours", "lc-ours", "wf-ours", "wc-ours")
WEIGHTS = {"w": (3.0, 10.0, 30.0, 100.0), "l": (1.0, 3.0, 10.0, 30.0)}
"""By family: the gradient of a Gamma prior's KL is smaller at the same weight."""
MORE_WEIGHTS: Mapping[str, Mapping[tuple[str, float], tuple[float, ...]]] = {
    "citeseer": {("w", 10.0): (300.0, 1000.0), ("l", 0.1): (100.0,)},
}
"""Added after the first grid, for the better noise: on Citeseer, whose nodes have few neighbours, hardly a KL acted."""
NOISES = {"w": ("concentration", (1.0, 10.0)), "l": ("sigma", (1.0, 0.1))}
PUBMED_WEIGHTS = {("w", 10.0): (10.0, 30.0, 100.0, 300.0), ("l", 0.1): (3.0, 10.0, 30.0, 100.0)}
"""Pubmed's whole grid, fixed before its first run: the noise that Cora and Citeseer chose, around their weights, with
two seeds. A run takes five times as long there."""
LEAST_GRADIENT = 0.05
"""Through the scores, relative to the likelihood's: a KL below it is not said to act."""

REGIMES: Mapping[str, Mapping[str, Any]] = {
    "3 labels a class": {"graph.labels_per_class": 3},
    "5 labels a class": {"graph.labels_per_class": 5},
    "10 labels a class": {"graph.labels_per_class": 10},
    "30% of features replaced": {"graph.feature_noise": 0.3},
    "60% of features replaced": {"graph.feature_noise": 0.6},
    "20% of edges rewired": {"graph.edge_noise": 0.2},
    "40% of edges rewired": {"graph.edge_noise": 0.4},
    "3 layers": {"network.num_layers": 3},
    "4 layers": {"network.num_layers": 4},
}
CANDIDATES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "gat": ("gat", {}),
    "Weibull k=1, no KL": ("no-kl", {"site.posterior.init_args.family.init_args.concentration": 1.0}),
    "Weibull k=3, no KL": ("no-kl", {"site.posterior.init_args.family.init_args.concentration": 3.0}),
    "wc-ours": ("wc-ours", {}),
    "wf-ours": ("wf-ours", {}),
}
SEARCH_SEEDS = (100, 101, 102)
CONFIRM_SEEDS = tuple(range(200, 220))
NUM_CONFIRMED = 3
"""How many pairs of regime and candidate are confirmed."""
KEPT = ("loss/validation_nll", "loss/validation_accuracy", "kl_gradient_scores", "kl_gradient_keys")
TESTED = ("gat/clean/mean/accuracy", "loss/clean/mean/accuracy", "loss/clean/mean/nll", "loss/clean/mean/scaled_nll")


def weights(graph: Graph, *, workers: int = 1, output: Path = Path("results/gat/search")) -> str:
    """Noise and KL weight of every row "ours": the lowest mean validation NLL among those whose KL acts."""
    seeds = SEARCH_SEEDS[:2] if graph == "pubmed" else SEARCH_SEEDS
    grid = {
        (row, noise, weight): [_ours(row, noise, weight, seed) for seed in seeds]
        for row in ROWS
        for noise in NOISES[row[0]][1]
        for weight in _weights(graph, row[0], noise)
    }
    trials = [trial for group in grid.values() for trial in group]
    found = run_trials("gat", graph, trials, output=output / f"{graph}-weights.json", metrics=KEPT, workers=workers)
    lines = []
    for (row, noise, weight), group in grid.items():
        numbers = {name: statistics.fmean(found[trial.key].get(name, math.inf) for trial in group) for name in KEPT}
        lines.append(_Choice(row, noise, weight, numbers))
    chosen = {row: min((one for one in lines if one.row == row), key=_Choice.rank) for row in ROWS}
    cells = [
        [
            one.row,
            f"{NOISES[one.row[0]][0]} {one.noise:g}",
            f"{one.weight:g}",
            f"{one.numbers['loss/validation_nll']:.4f}",
            f"{100 * one.numbers['loss/validation_accuracy']:.2f}",
            f"{one.numbers['kl_gradient_scores']:.2g}",
            _verdict(one, lines, chosen[one.row]),
        ]
        for one in lines
    ]
    return as_markdown(["row", "noise", "KL weight", "valid. NLL", "valid. accuracy", "KL gradient", ""], cells)


def _weights(graph: Graph, family: str, noise: float) -> tuple[float, ...]:
    """KL weights that are tried with one noise."""
    if graph == "pubmed":
        return PUBMED_WEIGHTS.get((family, noise), ())
    return (*WEIGHTS[family], *MORE_WEIGHTS.get(graph, {}).get((family, noise), ()))


@dataclass(frozen=True)
class _Choice:
    row: str
    noise: float
    weight: float
    numbers: Mapping[str, float]

    @property
    def acts(self) -> bool:
        """Whether the KL moves the scores."""
        return self.numbers["kl_gradient_scores"] >= LEAST_GRADIENT

    def rank(self) -> tuple[bool, float]:
        """Those that act come first; then the lower loss."""
        return not self.acts, self.numbers["loss/validation_nll"]


def _verdict(one: _Choice, lines: Sequence[_Choice], chosen: _Choice) -> str:
    best = min(
        (other for other in lines if other.row == one.row), key=lambda other: other.numbers["loss/validation_nll"]
    )
    words = ["best"] if one is best else []
    if one is chosen:
        words.append("chosen" if one.acts else "none acts")
    return ", ".join(words)


def regimes(graph: Graph, *, workers: int = 1, output: Path = Path("results/gat/search")) -> str:
    """Every candidate in every regime, on validation nodes, against plain attention with the same seeds."""
    plan = {(regime, name): _group(regime, name, SEARCH_SEEDS) for regime in REGIMES for name in CANDIDATES}
    trials = [trial for group in plan.values() for trial in group]
    found = run_trials("gat", graph, trials, output=output / f"{graph}-regimes.json", metrics=KEPT, workers=workers)
    rows = []
    for regime in REGIMES:
        results = _results(plan, found, regime)
        accuracy = paired_differences(results, "loss/validation_accuracy", baseline="gat")
        nll = paired_differences(results, "loss/validation_nll", baseline="gat")
        rows += [
            (accuracy[name].mean, [regime, name, accuracy[name].text(scale=100.0), nll[name].text(digits=3)])
            for name in accuracy
        ]
    rows.sort(key=lambda item: -item[0])
    best = [[cells[0], cells[1]] for _, cells in rows[:NUM_CONFIRMED]]
    (output / f"{graph}-best.json").write_text(json.dumps(best, indent=1) + "\n")
    return as_markdown(["regime", "candidate", "valid. accuracy", "valid. NLL"], [cells for _, cells in rows])


def confirm(graph: Graph, *, workers: int = 1, output: Path = Path("results/gat/search")) -> str:
    """The best pairs of `regimes` with new seeds, on test nodes."""
    path = output / f"{graph}-best.json"
    if not path.exists():
        raise SystemExit(f"{path} is not there; run `regimes --graph {graph}` first, which writes it")
    chosen: list[list[str]] = json.loads(path.read_text())
    unknown = [pair for pair in chosen if pair[0] not in REGIMES or pair[1] not in CANDIDATES]
    if unknown:
        raise SystemExit(f"{path} names {unknown}, which this version does not know; run `regimes` again")
    pairs = [(regime, name) for regime, candidate in chosen for name in ("gat", candidate)]
    plan = {(regime, name): _group(regime, name, CONFIRM_SEEDS) for regime, name in pairs}
    trials = [trial for group in plan.values() for trial in group]
    found = run_trials("gat", graph, trials, output=output / f"{graph}-confirm.json", metrics=TESTED, workers=workers)
    differences = {
        (regime, candidate, metric): paired_differences(_results(plan, found, regime), metric, baseline="gat")[
            candidate
        ]
        for regime, candidate in chosen
        for metric in TESTED
    }
    adjusted = holm({"/".join(key): one.p_value for key, one in differences.items()})
    rows = []
    for regime, candidate in chosen:
        cells = []
        for metric in TESTED:
            scale = 100.0 if metric.endswith("accuracy") else 1.0
            text = differences[regime, candidate, metric].text(digits=2 if scale > 1.0 else 3, scale=scale)
            cells.append(f"{text}, Holm {adjusted['/'.join((regime, candidate, metric))]:.2g}")
        rows.append([regime, candidate, *cells])
    header = ["regime", "candidate", "accuracy, GAT's rule", "accuracy, lowest loss", "NLL", "scaled NLL"]
    return as_markdown(header, rows)


def _ours(row: str, noise: float, weight: float, seed: int) -> Trial:
    name = NOISES[row[0]][0]
    overrides = {f"site.posterior.init_args.family.init_args.{name}": noise, "kl.weight.init_args.value": weight}
    return Trial(row, seed, overrides)


def _group(regime: str, candidate: str, seeds: Sequence[int]) -> list[Trial]:
    row, own = CANDIDATES[candidate]
    return [Trial(row, seed, {**REGIMES[regime], **own, "graph.graph_seed": seed}) for seed in seeds]


def _results(
    plan: Mapping[tuple[str, str], Sequence[Trial]], found: Mapping[str, Mapping[str, float]], regime: str
) -> list[RowResult]:
    return [
        RowResult(row=name, source="", seed=trial.seed, facts={}, metrics=found[trial.key])
        for (place, name), group in plan.items()
        if place == regime
        for trial in group
    ]


if __name__ == "__main__":
    print(auto_cli([weights, regimes, confirm], as_positional=False))
