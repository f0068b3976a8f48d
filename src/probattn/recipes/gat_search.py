"""Two searches on validation nodes, with budgets that are fixed here: for a KL that acts, and for a regime that helps.

    python -m probattn.recipes.gat_search weights --graph cora     # the settings of the rows "ours"
    python -m probattn.recipes.gat_search regimes --graph cora     # where random attention beats plain attention
    python -m probattn.recipes.gat_search confirm --graph cora     # what the second found, on test nodes, new seeds

Test nodes are looked at by `confirm` only. A trial of `regimes` and `confirm` has labels, rewired edges and replaced
features of its own seed, the same for plain attention, which is not tuned in any of them. Each writes
`results/gat/search/`, and goes on where it was stopped.
"""

import json
from pathlib import Path

from jsonargparse import auto_cli

from probattn.recipes.gat_search_plan import (
    CANDIDATES,
    KEPT,
    REGIMES,
    TESTED,
    Graph,
    Pair,
    best_pairs,
    confirm_plan,
    confirm_table,
    regimes_plan,
    regimes_table,
    trials_of,
    weights_plan,
    weights_table,
)
from probattn.recipes.trials import run_trials

FOLDER = Path("results/gat/search")


def weights(graph: Graph, *, workers: int = 1, output: Path = FOLDER) -> str:
    """Noise and KL weight of every row "ours": the lowest mean validation NLL among those whose KL acts."""
    trials = trials_of(weights_plan(graph))
    found = run_trials("gat", graph, trials, output=output / f"{graph}-weights.json", metrics=KEPT, workers=workers)
    return weights_table(graph, found)


def regimes(graph: Graph, *, workers: int = 1, output: Path = FOLDER) -> str:
    """Every candidate in every regime, on validation nodes, against plain attention with the same seeds."""
    trials = trials_of(regimes_plan())
    found = run_trials("gat", graph, trials, output=output / f"{graph}-regimes.json", metrics=KEPT, workers=workers)
    (output / f"{graph}-best.json").write_text(json.dumps(best_pairs(found), indent=1) + "\n")
    return regimes_table(found)


def confirm(graph: Graph, *, workers: int = 1, output: Path = FOLDER) -> str:
    """The best pairs of `regimes` with new seeds, on test nodes."""
    path = output / f"{graph}-best.json"
    if not path.exists():
        raise SystemExit(f"{path} is not there; run `regimes --graph {graph}` first, which writes it")
    chosen: list[Pair] = [tuple(pair) for pair in json.loads(path.read_text())]
    unknown = [pair for pair in chosen if pair[0] not in REGIMES or pair[1] not in CANDIDATES]
    if unknown:
        raise SystemExit(f"{path} names {unknown}, which this version does not know; run `regimes` again")
    trials = trials_of(confirm_plan(chosen))
    found = run_trials("gat", graph, trials, output=output / f"{graph}-confirm.json", metrics=TESTED, workers=workers)
    return confirm_table(chosen, found)


if __name__ == "__main__":
    print(auto_cli([weights, regimes, confirm], as_positional=False))
