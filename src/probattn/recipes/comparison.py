"""Rows times seeds in parallel processes, with results on disk.

Each finished (row, seed) is on disk as JSON. A comparison that was interrupted goes on where it
stopped; a file that was made with other settings is not reused.
"""

import hashlib
import importlib
import json
import platform
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from probattn import __version__
from probattn.kernels import native
from probattn.recipes.failure_notes import note_failures
from probattn.recipes.job_pool import run_jobs, working
from probattn.recipes.later_settings import without_added
from probattn.recipes.provenance import commit, note_commit, trained_with
from probattn.recipes.recipe import Recipe, Run
from probattn.recipes.results import RowResult
from probattn.recipes.storage import ResultStore, paths_in, unused_name, write_atomically


@dataclass(frozen=True)
class Comparison:
    """What is compared, and where results go.

    Attributes:
        recipe: The task.
        rows: Names of rows.
        num_seeds: Seeds 0, 1, ... of every row; all rows of a seed come before the next seed.
        scale: Of the task, or None for its default.
        overrides: Settings that all rows share.
        output: Folder of results, runs and report.
    """

    recipe: Recipe
    rows: Sequence[str]
    num_seeds: int
    scale: str | None
    overrides: Mapping[str, Any]
    output: Path

    @property
    def jobs(self) -> list[tuple[str, int]]:
        """(row, seed) pairs, main rows first, further seeds later."""
        return [(row, seed) for seed in range(self.num_seeds) for row in self.rows]

    @property
    def store(self) -> ResultStore:
        """Where finished results are."""
        return ResultStore(self.output, self.recipe.packs_seeds)

    def run_folder(self, row: str, seed: int) -> Path:
        """Where a job keeps checkpoints, logs and the trained model."""
        return self.output / "runs" / f"{row}-seed{seed}"

    def fingerprint(self, row: str) -> str:
        """Changes when a setting (a default, too), a file that one names, or the version does."""
        found, plain = self.recipe.load(self.recipe.configs(row, self.scale), self.overrides)
        settings = {name: value for name, value in without_added(found, plain).items() if name != "seed"}
        files = [Path(value) for value in self.overrides.values() if isinstance(value, str) and Path(value).is_file()]
        # and those that a scale names, or that stand inside of a mapping
        files += [path for path in paths_in(plain) if path.is_file() and path not in files]
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
        text = json.dumps([settings, __version__, *digests], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def command(self, row: str) -> str:
        """What a user types to make this result."""
        scale = "" if self.scale is None else f" --scale {self.scale}"
        settings = "".join(f" {shlex.quote(f'{name}={value}')}" for name, value in self.overrides.items())
        settings = f" --set{settings}" if settings else ""
        return f"probattn compare {self.recipe.name} --rows {row} --num_seeds {self.num_seeds}{scale}{settings}"


@dataclass(frozen=True)
class Finished:
    """What there is of a comparison.

    Attributes:
        comparison: Which one.
        marks: Fingerprints of its rows before anything was run.
        results: By row and seed, those that were there before among them.
        failures: What went wrong, by row and seed.
    """

    comparison: Comparison
    marks: Mapping[str, str]
    results: dict[tuple[str, int], RowResult]
    failures: dict[tuple[str, int], Exception] = field(default_factory=dict)

    @property
    def missing(self) -> list[tuple[str, int]]:
        """Jobs that neither have a result nor failed, main rows first."""
        return [job for job in self.comparison.jobs if job not in self.results and job not in self.failures]


def compare(comparison: Comparison, *, workers: int) -> str:
    """Run what is not there yet, one thread a process, and write the report; returns the text for the terminal."""
    texts: list[str] = []
    compare_all([comparison], lambda finished: texts.append(report(finished)), workers=workers)
    return texts[0]


def compare_all(comparisons: Sequence[Comparison], on_whole: Callable[[Finished], None], *, workers: int) -> None:
    """Run what is not there yet of several comparisons in one pool of processes, so that none waits for another.

    Args:
        comparisons: In the order their jobs are begun in; no two may share a folder and a row.
        on_whole: Called with each of them as soon as nothing of it is left to run.
        workers: Processes, one thread each.
    """
    for comparison in comparisons:  # unknown names and settings end here, not in a worker
        _check(comparison)
    everything: list[Finished] = []
    waiting: list[tuple[Finished, tuple[str, int]]] = []
    for comparison in comparisons:
        finished = _finished(comparison)
        if finished.results:
            print(
                f"{len(finished.results)} of {len(comparison.jobs)} results were there already in {comparison.output}"
            )
        for row, seed in finished.missing if comparison.recipe.keeps_runs else ():
            _set_aside_others(comparison.run_folder(row, seed), finished.marks[row])
        everything.append(finished)
        waiting += [(finished, job) for job in finished.missing]

    def keep(place: int, outcome: Any) -> None:
        finished, job = waiting[place]
        if isinstance(outcome, Exception):
            finished.failures[job] = outcome
            print(f"{job[0]}, seed {job[1]}: {outcome}", file=sys.stderr)
        else:
            result, made_with = outcome
            finished.results[job] = result
            finished.comparison.store.add(result, _about(finished, result, made_with))
        if not finished.missing:
            on_whole(finished)

    for finished in everything:
        if not finished.missing:
            on_whole(finished)
    calls = []
    for finished, job in waiting:
        one = finished.comparison
        calls.append((one.recipe.name, one.scale, dict(one.overrides), one.run_folder(*job), *job))
    run_jobs(run_job, calls, keep, workers=workers, title="rows")


def report(finished: Finished) -> str:
    """Write table, report and what went wrong; returns the text for the terminal.

    Raises:
        RuntimeError: If rows failed; says which, and what the first error was.
    """
    comparison, failures = finished.comparison, finished.failures
    ordered = [finished.results[job] for job in comparison.jobs if job in finished.results]
    try:
        text = comparison.recipe.write_report(comparison.recipe.name, ordered, comparison.output) if ordered else ""
    finally:
        note_failures(comparison.output, failures)
    if failures:
        print(text)
        names = ", ".join(f"{row} (seed {seed})" for row, seed in failures)
        raise RuntimeError(
            f"{len(failures)} of {len(comparison.jobs)} rows failed: {names}. Results of the others are in "
            f"{comparison.output}; the same command runs the rest. First error: {next(iter(failures.values()))}"
        )
    return text


def _check(comparison: Comparison) -> None:
    if comparison.num_seeds < 1:
        raise ValueError(f"num_seeds must be at least 1, got {comparison.num_seeds}")
    if "seed" in comparison.overrides or "trainer.seed" in comparison.overrides:
        raise ValueError("a comparison runs seeds 0, 1, ... of every row; say how many with --num_seeds, not seed=")
    if named := [name for name in ("row", "source") if name in comparison.overrides]:
        raise ValueError(f"{named[0]}= would give all rows of a comparison one {named[0]}; leave it out")
    if len(set(comparison.rows)) < len(comparison.rows):
        raise ValueError(f"every row can be named once, got {', '.join(comparison.rows)}")
    for row in comparison.rows:
        comparison.recipe.load(comparison.recipe.configs(row, comparison.scale), comparison.overrides)


def _set_aside_others(folder: Path, fingerprint: str) -> None:
    """Rename a run with other settings, so that this one starts anew and nothing is lost; mark the folder as ours."""
    mark = folder / "comparison"
    if mark.exists() and mark.read_text().strip() != fingerprint:
        aside = unused_name(folder.with_name(f"{folder.name}-{mark.read_text().strip()}"))
        folder.rename(aside)
        print(f"{folder} held a run with other settings; it is now {aside}", file=sys.stderr)
    write_atomically(mark, fingerprint + "\n")


def recipe_by_name(name: str) -> Recipe:
    """The recipe of a module in `probattn.recipes`."""
    found: Recipe = importlib.import_module(f"probattn.recipes.{name}").RECIPE
    return found


def run_job(
    name: str, scale: str | None, overrides: dict[str, Any], output: Path, row: str, seed: int
) -> tuple[RowResult, str]:
    """Train one row in this process with one thread; `output` is its folder.

    Returns:
        The result, and the commit of the code that made it.
    """
    with working():
        made_with = commit()
        torch.set_num_threads(1)
        native.settle()
        recipe = recipe_by_name(name)
        settings, plain = recipe.load(recipe.configs(row, scale), {**overrides, "seed": seed})
        if recipe.keeps_runs:
            note_commit(output)
        run = Run(settings, plain, output, show_progress=False, keeps_model=recipe.keeps_runs)
        return recipe.train(run), made_with


def _finished(comparison: Comparison) -> Finished:
    """Results that are on disk already with the same settings."""
    marks = {row: comparison.fingerprint(row) for row in comparison.rows}
    found = {(row, seed): comparison.store.find(row, seed, marks[row]) for row, seed in comparison.jobs}
    return Finished(comparison, marks, {job: result for job, result in found.items() if result is not None})


def _about(finished: Finished, result: RowResult, made_with: str) -> dict[str, Any]:
    comparison = finished.comparison
    folder = comparison.run_folder(result.row, result.seed)
    return {
        "fingerprint": finished.marks[result.row],
        "command": comparison.command(result.row),
        "overrides": dict(comparison.overrides),
        "version": __version__,
        "commit": made_with,
        "trained_with": trained_with(folder) if comparison.recipe.keeps_runs else [made_with],
        "torch": torch.__version__.split("+")[0],
        "machine": f"{platform.machine()}, 1 thread",
    }
