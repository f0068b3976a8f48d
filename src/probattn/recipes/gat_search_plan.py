"""Plans and tables of the two searches on graphs: what is tried, and what was found. `gat_search` runs them."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from probattn.recipes.paired import holm, paired_differences
from probattn.recipes.report import as_markdown
from probattn.recipes.results import RowResult
from probattn.recipes.trials import Trial

__all__ = [
    "CANDIDATES",
    "CONFIRM_SEEDS",
    "KEPT",
    "REGIMES",
    "TESTED",
    "WEIGHTS",
    "Graph",
    "Pair",
    "best_pairs",
    "confirm_plan",
    "confirm_table",
    "regimes_plan",
    "regimes_table",
    "trials_of",
    "weights_plan",
    "weights_table",
]

Pair = tuple[str, str]
"""A regime and a candidate."""
Found = Mapping[str, Mapping[str, float]]
"""Metrics by a trial's key."""

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


def trials_of(plan: Mapping[Any, Sequence[Trial]]) -> list[Trial]:
    """All trials of a plan, in its order."""
    return [trial for group in plan.values() for trial in group]


def weights_plan(graph: Graph) -> dict[tuple[str, float, float], list[Trial]]:
    """Trials by row, noise and KL weight."""
    seeds = SEARCH_SEEDS[:2] if graph == "pubmed" else SEARCH_SEEDS
    return {
        (row, noise, weight): [_ours(row, noise, weight, seed) for seed in seeds]
        for row in ROWS
        for noise in NOISES[row[0]][1]
        for weight in _weights(graph, row[0], noise)
    }


def weights_table(graph: Graph, found: Found) -> str:
    """What every noise and KL weight gave, and which one was chosen for each row."""
    lines = []
    for (row, noise, weight), group in weights_plan(graph).items():
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


def regimes_plan() -> dict[Pair, list[Trial]]:
    """Trials of every candidate in every regime."""
    return {(regime, name): _group(regime, name, SEARCH_SEEDS) for regime in REGIMES for name in CANDIDATES}


def regimes_table(found: Found) -> str:
    """Every candidate against plain attention with the same seeds, the largest gain in accuracy first."""
    rows = []
    for regime in REGIMES:
        results = _results(regimes_plan(), found, regime)
        accuracy = paired_differences(results, "loss/validation_accuracy", baseline="gat")
        nll = paired_differences(results, "loss/validation_nll", baseline="gat")
        rows += [
            (accuracy[name].mean, [regime, name, accuracy[name].text(scale=100.0), nll[name].text(digits=3)])
            for name in accuracy
        ]
    rows.sort(key=lambda item: -item[0])
    return as_markdown(["regime", "candidate", "valid. accuracy", "valid. NLL"], [cells for _, cells in rows])


def best_pairs(found: Found) -> list[Pair]:
    """The pairs that are confirmed."""
    gains = {
        (regime, name): difference.mean
        for regime in REGIMES
        for name, difference in paired_differences(
            _results(regimes_plan(), found, regime), "loss/validation_accuracy", baseline="gat"
        ).items()
    }
    return sorted(gains, key=lambda pair: -gains[pair])[:NUM_CONFIRMED]


def confirm_plan(chosen: Sequence[Pair]) -> dict[Pair, list[Trial]]:
    """Trials of the chosen pairs and of plain attention in their regimes, with new seeds."""
    pairs = [(regime, name) for regime, candidate in chosen for name in ("gat", candidate)]
    return {(regime, name): _group(regime, name, CONFIRM_SEEDS) for regime, name in pairs}


def confirm_table(chosen: Sequence[Pair], found: Found) -> str:
    """Differences to plain attention on test nodes, p-values adjusted for all of them."""
    plan = confirm_plan(chosen)
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
