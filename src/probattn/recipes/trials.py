"""Many short runs of a recipe with different settings, in one file that a stopped search goes on with."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probattn.recipes.comparison import Comparison, recipe_by_name, run_job
from probattn.recipes.job_pool import run_jobs
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
    failures: dict[str, Exception] = {}

    def keep(place: int, outcome: Any) -> None:
        trial = waiting[place]
        if isinstance(outcome, Exception):
            failures[trial.key] = outcome
            return
        result, made_with = outcome
        kept = {name: result.metrics[name] for name in metrics if name in result.metrics}
        about = {"scale": scale, "commit": made_with, "settings": settings[trial.key]}
        known[trial.key] = {**about, "metrics": kept}
        lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in known.items()]
        write_atomically(output, "{\n" + ",\n".join(lines) + "\n}\n")

    with tempfile.TemporaryDirectory() as scratch:
        calls = [(recipe, scale, dict(one.overrides), Path(scratch), one.row, one.seed) for one in waiting]
        run_jobs(run_job, calls, keep, workers=workers, title="trials")
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
