"""A small search for k on validation examples, with a budget that is fixed here.

    python -m probattn.recipes.glue_search --task mrpc

Test examples are not looked at: only validation numbers are kept. Plain attention has no k and is not tuned. Writes
`results/glue/search/<task>.json`, and goes on where it was stopped. Use what it finds with `--set attention.k=...`.
"""

import math
import statistics
from pathlib import Path
from typing import Any, Literal

from jsonargparse import auto_cli

from probattn.recipes.comparison import recipe_by_name
from probattn.recipes.report import as_markdown
from probattn.recipes.trials import Trial, run_trials

Task = Literal["mrpc", "cola", "rte", "stsb", "sst2", "squad", "generated"]

ROWS = ("no-kl", "wc", "lc")
KS = (2.0, 10.0, 50.0)
"""Beside the paper's k of the task: noise of 0.64, 0.13 and 0.026 in a score."""
SEEDS = (100, 101)
"""None of those that are compared on test examples."""
_METRICS = {"cola": "matthews", "stsb": "pearson", "squad": "exact_match"}
"""What a task is judged by; accuracy where nothing is said."""
_FEW = {"evaluation.draws": 2, "evaluation.max_drawn": 2}  # draws of test examples are not needed


def search(
    task: Task, *, precision: Literal["no", "bf16"] = "no", workers: int = 1, output: Path = Path("results/glue/search")
) -> str:
    """Train every row with every k; a table of validation numbers with the best k of each row in front.

    Args:
        task: A scale of the recipe.
        precision: Of training; see `optimiser.precision`.
        workers: Processes, one thread each.
        output: Folder of the result file.
    """
    recipe = recipe_by_name("glue")
    settings, _ = recipe.load(recipe.configs("wc", task), {})
    metric = _METRICS.get(task, "accuracy")
    ks = sorted({*KS, float(settings.attention.k)})
    common: dict[str, Any] = _FEW if precision == "no" else {**_FEW, "optimiser.precision": precision}
    grid = {(row, k): [Trial(row, seed, {**common, "attention.k": k}) for seed in SEEDS] for row in ROWS for k in ks}
    grid["soft", math.inf] = [Trial("soft", seed, common) for seed in SEEDS]
    trials = [trial for group in grid.values() for trial in group]
    kept = (f"validation/{metric}", "validation/nll")
    found = run_trials("glue", task, trials, output=output / f"{task}.json", metrics=kept, workers=workers)
    lines: list[tuple[str, float, float, float]] = []
    for (row, k), group in grid.items():
        value, nll = (statistics.fmean(found[trial.key].get(name, math.nan) for trial in group) for name in kept)
        lines.append((row, k, value, nll))
    # the best k of a row first; what is no number, e.g. the correlation of constant scores, last
    lines.sort(key=lambda line: (line[0], math.isnan(line[2]), -line[2], math.isnan(line[3]), line[3]))
    cells = [
        [row, "-" if math.isinf(k) else f"{k:g}", f"{100.0 * value:.2f}", f"{nll:.3f}"] for row, k, value, nll in lines
    ]
    return as_markdown(["row", "k", f"validation {metric}", "validation NLL"], cells)


if __name__ == "__main__":
    print(auto_cli(search, as_positional=False))
