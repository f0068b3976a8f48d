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
    settings = {trial.key: _settings(recipe, scale, trial) for trial in trials}
    known: dict[str, dict[str, Any]] = json.loads(output.read_text()) if output.exists() else {}
    waiting = [one for one in trials if known.get(one.key, {}).get("settings") != settings[one.key]]
    about = {"scale": scale, "commit": commit()}
    failures: dict[str, Exception] = {}
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
            for one in waiting
        }
        for future in tqdm(as_completed(running), total=len(running), desc="trials", file=sys.stderr):
            trial = running[future]
            try:
                result = future.result()
            except Exception as error:  # of one trial; the others go on
                failures[trial.key] = error
                continue
            kept = {name: result.metrics[name] for name in metrics if name in result.metrics}
            known[trial.key] = {**about, "settings": settings[trial.key], "metrics": kept}
            lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in known.items()]
            write_atomically(output, "{\n" + ",\n".join(lines) + "\n}\n")
    if failures:
        key, first = next(iter(failures.items()))
        raise RuntimeError(
            f"{len(failures)} of {len(trials)} trials failed; the others are in {output}, and the same command runs "
            f"the rest. First: {key}: {first}"
        )
    return {trial.key: known[trial.key]["metrics"] for trial in trials}


def _settings(recipe: str, scale: str, trial: Trial) -> str:
    """A fingerprint of all settings of a trial."""
    comparison = Comparison(
        recipe_by_name(recipe), [trial.row], num_seeds=1, scale=scale, overrides=trial.overrides, output=Path()
    )
    return comparison.fingerprint(trial.row)
