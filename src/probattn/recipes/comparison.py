"""Rows times seeds in parallel processes, with results on disk.

Each finished (row, seed) is on disk as JSON. A comparison that was interrupted goes on where it
stopped; a file that was made with other settings is not reused.
"""

import hashlib
import importlib
import json
import multiprocessing
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from probattn import __version__
from probattn.kernels import native
from probattn.recipes.later_settings import without_added
from probattn.recipes.provenance import commit, note_commit, trained_with
from probattn.recipes.recipe import Recipe, Run
from probattn.recipes.results import RowResult
from probattn.recipes.storage import ResultStore, write_atomically

FAILURES_FILE = "failures.json"
"""In a comparison's folder: what went wrong, by row and seed; not there where nothing did."""
_IS_BUSY = threading.Event()  # whether this worker trains
_WAS_INTERRUPTED = threading.Event()  # whether this worker was told to stop


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
        """Changes when a setting (a default, too), a file that an override names, or the version does."""
        found, plain = self.recipe.load(self.recipe.configs(row, self.scale), self.overrides)
        settings = {name: value for name, value in without_added(found, plain).items() if name != "seed"}
        files = [value for value in self.overrides.values() if isinstance(value, str) and Path(value).is_file()]
        digests = [hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in files]
        text = json.dumps([settings, __version__, *digests], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def command(self, row: str) -> str:
        """What a user types to make this result."""
        scale = "" if self.scale is None else f" --scale {self.scale}"
        settings = "".join(f" {name}={value}" for name, value in self.overrides.items())
        settings = f" --set{settings}" if settings else ""
        return f"probattn compare {self.recipe.name} --rows {row} --num_seeds {self.num_seeds}{scale}{settings}"


@dataclass(frozen=True)
class Finished:
    """What there is of a comparison.

    Attributes:
        comparison: Which one.
        results: By row and seed, those that were there before among them.
        failures: What went wrong, by row and seed.
    """

    comparison: Comparison
    results: dict[tuple[str, int], RowResult]
    failures: dict[tuple[str, int], Exception]

    @property
    def is_whole(self) -> bool:
        """Whether no job is left."""
        return len(self.results) + len(self.failures) == len(self.comparison.jobs)


def compare(comparison: Comparison, *, workers: int) -> str:
    """Run what is not there yet, one thread a process, and write the report; returns the text for the terminal."""
    return report(next(compare_all([comparison], workers=workers)))


def compare_all(comparisons: Sequence[Comparison], *, workers: int) -> Iterator[Finished]:
    """Run what is not there yet of several comparisons in one pool of processes, so that none waits for another.

    Args:
        comparisons: In the order their jobs are begun in; no two may share a folder and a row.
        workers: Processes, one thread each.

    Yields:
        Each comparison as soon as nothing of it is left to run.
    """
    for comparison in comparisons:  # unknown names and settings end here, not in a worker
        _check(comparison)
    finished, waiting = [], []
    for place, comparison in enumerate(comparisons):
        results, missing = _finished(comparison)
        if results:
            print(f"{len(results)} of {len(comparison.jobs)} results were there already in {comparison.output}")
        for row, seed in missing if comparison.recipe.keeps_runs else ():
            _set_aside_others(comparison.run_folder(row, seed), comparison.fingerprint(row))
        waiting += [(place, job) for job in missing]
        finished.append(Finished(comparison, results, {}))
    yield from (one for one in finished if one.is_whole)
    evaluated_with = commit()
    for (place, job), outcome in _outcomes(comparisons, waiting, workers=workers):
        comparison = comparisons[place]
        if isinstance(outcome, Exception):
            finished[place].failures[job] = outcome
            print(f"{job[0]}, seed {job[1]}: {outcome}", file=sys.stderr)
        else:
            finished[place].results[job] = outcome
            comparison.store.add(outcome, _about(comparison, outcome, evaluated_with))
        if finished[place].is_whole:
            yield finished[place]


def report(finished: Finished) -> str:
    """Write table, report and what went wrong; returns the text for the terminal.

    Raises:
        RuntimeError: If rows failed; says which, and what the first error was.
    """
    comparison, failures = finished.comparison, finished.failures
    ordered = [finished.results[job] for job in comparison.jobs if job in finished.results]
    text = comparison.recipe.write_report(comparison.recipe.name, ordered, comparison.output) if ordered else ""
    _note_failures(comparison.output, failures)
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
    if "seed" in comparison.overrides:
        raise ValueError("a comparison runs seeds 0, 1, ... of every row; say how many with --num_seeds, not seed=")
    for row in comparison.rows:
        comparison.recipe.load(comparison.recipe.configs(row, comparison.scale), comparison.overrides)


def _note_failures(output: Path, failures: Mapping[tuple[str, int], Exception]) -> None:
    """Say beside the table which rows failed and why, so that nobody takes them for rows that were left out."""
    path, table = output / FAILURES_FILE, output / "table.md"
    if not failures:
        path.unlink(missing_ok=True)
        return
    messages = {f"{row}, seed {seed}": str(error) for (row, seed), error in failures.items()}
    write_atomically(path, json.dumps(messages, indent=1) + "\n")
    lines = [f"- {job}: {message.splitlines()[0] if message else 'no message'}" for job, message in messages.items()]
    known = table.read_text() if table.exists() else ""
    write_atomically(table, "\n".join([known, "Failed, so not in the table:", "", *lines]).lstrip() + "\n")


def _outcomes(
    comparisons: Sequence[Comparison], jobs: Sequence[tuple[int, tuple[str, int]]], *, workers: int
) -> Iterator[tuple[tuple[int, tuple[str, int]], RowResult | Exception]]:
    """Results of jobs (place of the comparison, row and seed), or what went wrong with them, as they come in.

    An interruption starts no further job.
    """
    # fork would copy torch's thread pools, which then hang
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        max_workers=max(1, workers), mp_context=context, initializer=end_with_parent, initargs=(os.getpid(),)
    )
    running = {}
    try:
        for place, job in jobs:
            one = comparisons[place]
            known = (one.recipe.name, one.scale, dict(one.overrides), one.run_folder(*job))
            running[pool.submit(run_job, *known, *job)] = (place, job)
        for future in tqdm(as_completed(running), total=len(running), desc="rows", file=sys.stderr):
            try:
                outcome: RowResult | Exception = future.result()
            except Exception as error:  # of one row; the others go on
                outcome = error
            yield running[future], outcome
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _set_aside_others(folder: Path, fingerprint: str) -> None:
    """Rename a run with other settings, so that this one starts anew and nothing is lost; mark the folder as ours."""
    mark = folder / "comparison"
    if mark.exists() and mark.read_text().strip() != fingerprint:
        aside = folder.with_name(f"{folder.name}-{mark.read_text().strip()}")
        number = 1
        while aside.exists():
            number += 1
            aside = folder.with_name(f"{folder.name}-{mark.read_text().strip()}-{number}")
        folder.rename(aside)
        print(f"{folder} held a run with other settings; it is now {aside}", file=sys.stderr)
    write_atomically(mark, fingerprint + "\n")


def recipe_by_name(name: str) -> Recipe:
    """The recipe of a module in `probattn.recipes`."""
    found: Recipe = importlib.import_module(f"probattn.recipes.{name}").RECIPE
    return found


def end_with_parent(parent: int) -> None:
    """Have this worker save and stop when the command that started it, process `parent`, is gone, e.g. killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)  # a training run saves first
        while _IS_BUSY.is_set():
            time.sleep(0.2)
        os._exit(1)  # nobody is left to ask for more work or to hear of an error

    threading.Thread(target=watch, daemon=True).start()


def run_job(name: str, scale: str | None, overrides: dict[str, Any], output: Path, row: str, seed: int) -> RowResult:
    """Train one row in this process with one thread; `output` is its folder."""
    if _WAS_INTERRUPTED.is_set():
        raise SystemExit(f"{row}, seed {seed}: not begun, the comparison was interrupted")
    _IS_BUSY.set()
    try:
        torch.set_num_threads(1)
        native.settle()
        recipe = recipe_by_name(name)
        settings, plain = recipe.load(recipe.configs(row, scale), {**overrides, "seed": seed})
        if recipe.keeps_runs:
            note_commit(output)
        return recipe.train(Run(settings, plain, output, show_progress=False, keeps_model=recipe.keeps_runs))
    except SystemExit:  # a signal came; what else is queued for this worker is not begun
        _WAS_INTERRUPTED.set()
        raise
    finally:
        _IS_BUSY.clear()


def _finished(comparison: Comparison) -> tuple[dict[tuple[str, int], RowResult], list[tuple[str, int]]]:
    """Results that are on disk already with the same settings, and the jobs that are left."""
    marks = {row: comparison.fingerprint(row) for row in comparison.rows}
    found = {(row, seed): comparison.store.find(row, seed, marks[row]) for row, seed in comparison.jobs}
    done = {job: result for job, result in found.items() if result is not None}
    return done, [job for job in comparison.jobs if job not in done]


def _about(comparison: Comparison, result: RowResult, evaluated_with: str) -> dict[str, Any]:
    folder = comparison.run_folder(result.row, result.seed)
    return {
        "fingerprint": comparison.fingerprint(result.row),
        "command": comparison.command(result.row),
        "overrides": dict(comparison.overrides),
        "version": __version__,
        "commit": evaluated_with,
        "trained_with": trained_with(folder) if comparison.recipe.keeps_runs else [evaluated_with],
        "torch": torch.__version__.split("+")[0],
        "machine": f"{platform.machine()}, 1 thread",
    }
