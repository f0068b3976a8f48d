"""Many short runs of a recipe with different settings, in one file that a stopped search goes on with."""

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tqdm import tqdm

from probattn.recipes.comparison import Comparison, end_with_parent, recipe_by_name, run_job
from probattn.recipes.provenance import commit
from probattn.recipes.storage import write_atomically

__all__ = ["Trial", "run_trials"]


@dataclass(frozen=True)
class Trial:
    """One run.

    Attributes:
        row: Of the recipe.
        seed: Of weights and noise.
        overrides: Settings beside the row's.
    """

    row: str
    seed: int
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Identifies the run in a file."""
        return json.dumps([self.row, self.seed, dict(self.overrides)], sort_keys=True)


def run_trials(
    recipe: str, scale: str, trials: Sequence[Trial], *, output: Path, metrics: Sequence[str], workers: int = 1
) -> dict[str, dict[str, float]]:
    """Run what is not in the file yet, or was run with other settings of its row.

    Args:
        recipe: Its name.
        scale: Of all trials.
        trials: In the order they are begun.
        output: JSON file with one line a trial.
        metrics: Which ones are kept.
        workers: Processes, one thread each.

    Returns:
        The kept metrics by the trial's key.
    """
    comparison = Comparison(
        recipe_by_name(recipe), rows=[], num_seeds=1, scale=scale, overrides={}, output=output.parent
    )
    settings = {row: comparison.fingerprint(row) for row in {trial.row for trial in trials}}
    known: dict[str, dict[str, Any]] = json.loads(output.read_text()) if output.exists() else {}
    done = {
        trial.key: known[trial.key]
        for trial in trials
        if trial.key in known and known[trial.key]["settings"] == settings[trial.row]
    }
    about = {"scale": scale, "commit": commit()}
    with (
        tempfile.TemporaryDirectory() as scratch,
        ProcessPoolExecutor(
            max_workers=workers,
            mp_context=get_context("spawn"),
            initializer=end_with_parent,
            initargs=(os.getpid(),),
        ) as pool,
    ):
        running = {
            pool.submit(run_job, recipe, scale, dict(one.overrides), Path(scratch), one.row, one.seed): one
            for one in trials
            if one.key not in done
        }
        for future in tqdm(as_completed(running), total=len(running), desc="trials", file=sys.stderr):
            trial, result = running[future], future.result()
            kept = {name: result.metrics[name] for name in metrics if name in result.metrics}
            done[trial.key] = {**about, "settings": settings[trial.row], "metrics": kept}
            lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in done.items()]
            write_atomically(output, "{\n" + ",\n".join(lines) + "\n}\n")
    return {trial.key: done[trial.key]["metrics"] for trial in trials}
