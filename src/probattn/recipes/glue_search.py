"""A small search on validation examples, with a budget that is fixed here: the noise, and the weight of the KL.

    python -m probattn.recipes.glue_search --task cola --precision bf16

Noise without a KL is tried with several k; rows with a KL have the paper's k and are tried with several weights. Test
examples are not looked at: only validation numbers are kept. Plain attention has neither and is not tuned. Writes
`results/glue/search/<task>.json`, and goes on where it was stopped.
"""

import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jsonargparse import auto_cli

from probattn.recipes.comparison import recipe_by_name
from probattn.recipes.report import as_markdown
from probattn.recipes.trials import Trial, run_trials

__all__ = ["Candidate", "plan", "search", "stored_table"]

Task = Literal["mrpc", "cola", "rte", "stsb", "sst2", "squad", "generated"]
Precision = Literal["no", "bf16"]

KS = (2.0, 10.0, 50.0)
"""Beside the paper's k of the task: noise of 0.64, 0.13 and 0.026 in a score."""
KL_WEIGHTS = (0.1, 0.01, 0.001, 1.0)
"""Of the mean over attention weights; one is the released code's."""
FIRST_SEED = 100
"""None of those that are compared on test examples."""
OUTPUT = Path("results/glue/search")
_METRICS = {"cola": "matthews", "stsb": "pearson", "squad": "exact_match"}
"""What a task is judged by; accuracy where nothing is said."""
_FEW = {"evaluation.draws": 2, "evaluation.max_drawn": 2}  # draws of test examples are not needed
_NEVER = math.nan  # a row without noise, or without a KL


@dataclass(frozen=True)
class Candidate:
    """Settings of a row that are tried.

    Attributes:
        row: Its name.
        k: Of its noise; NaN for none.
        kl_weight: Of its KL; NaN for none.
    """

    row: str
    k: float = _NEVER
    kl_weight: float = _NEVER

    @property
    def overrides(self) -> dict[str, Any]:
        """Beside the row's settings."""
        values = {"attention.k": self.k, "attention.kl_weight.init_args.value": self.kl_weight}
        return {name: value for name, value in values.items() if not math.isnan(value)}


def plan(task: Task, *, precision: Precision = "no", num_seeds: int = 1) -> dict[Candidate, list[Trial]]:
    """What is tried, in the order it is run."""
    recipe = recipe_by_name("glue")
    settings, _ = recipe.load(recipe.configs("no-kl", task), {})
    k = float(settings.attention.k)
    candidates = [Candidate("soft")]
    candidates += [Candidate(row, k, weight) for weight in KL_WEIGHTS[:-1] for row in ("wc", "lc")]
    candidates += [Candidate("no-kl", one) for one in sorted({*KS, k})]
    candidates += [Candidate(row, k, KL_WEIGHTS[-1]) for row in ("wc", "lc")]  # hardly a candidate, but the code's
    common: dict[str, Any] = _FEW if precision == "no" else {**_FEW, "optimiser.precision": precision}
    seeds = range(FIRST_SEED, FIRST_SEED + num_seeds)
    return {one: [Trial(one.row, seed, {**common, **one.overrides}) for seed in seeds] for one in candidates}


def search(
    task: Task, *, precision: Precision = "no", num_seeds: int = 1, workers: int = 1, output: Path = OUTPUT
) -> str:
    """Train every candidate; a table of validation numbers with the best one of each row in front.

    Args:
        task: A scale of the recipe.
        precision: Of training; see `optimiser.precision`.
        num_seeds: Seeds 100, 101, ... of every candidate.
        workers: Processes, one thread each.
        output: Folder of the result file.
    """
    tried = plan(task, precision=precision, num_seeds=num_seeds)
    trials = [trial for group in tried.values() for trial in group]
    path = output / f"{task}.json"
    found = run_trials("glue", task, trials, output=path, metrics=_kept(task), workers=workers)
    return _table(task, tried, found)


def stored_table(task: Task, *, precision: Precision = "no", num_seeds: int = 1, output: Path = OUTPUT) -> str:
    """The table of what is on disk; empty where nothing is."""
    path = output / f"{task}.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    found = {key: entry["metrics"] for key, entry in known.items()}
    tried = plan(task, precision=precision, num_seeds=num_seeds)
    whole = {one: group for one, group in tried.items() if all(trial.key in found for trial in group)}
    return _table(task, whole, found) if whole else ""


def _kept(task: Task) -> tuple[str, ...]:
    return f"validation/{_METRICS.get(task, 'accuracy')}", "validation/nll", "kl_gradient"


def _table(task: Task, tried: Mapping[Candidate, list[Trial]], found: Mapping[str, Mapping[str, float]]) -> str:
    lines: list[tuple[Candidate, float, float, float]] = []
    for one, group in tried.items():
        means = [statistics.fmean(found[trial.key].get(name, math.nan) for trial in group) for name in _kept(task)]
        lines.append((one, means[0], means[1], means[2]))
    # the best of a row first; what is no number, e.g. the correlation of constant scores, last
    lines.sort(key=lambda line: (line[0].row, math.isnan(line[1]), -line[1], math.isnan(line[2]), line[2]))
    cells = [
        [one.row, _text(one.k), _text(one.kl_weight), _text(gradient, ".2g"), f"{100.0 * value:.2f}", f"{nll:.3f}"]
        for one, value, nll, gradient in lines
    ]
    header = ["row", "k", "KL weight", "KL gradient", f"validation {_METRICS.get(task, 'accuracy')}", "validation NLL"]
    return as_markdown(header, cells)


def _text(value: float, form: str = "g") -> str:
    return "-" if math.isnan(value) else f"{value:{form}}"


if __name__ == "__main__":
    print(auto_cli(search, as_positional=False))
