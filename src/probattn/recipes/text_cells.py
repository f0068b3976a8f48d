"""Cells of a study of text models: one JSON file each, which a stopped study goes on with."""

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from probattn import __version__
from probattn.kernels.native import settle
from probattn.recipes.engine_run import train_to_end
from probattn.recipes.job_pool import run_jobs, working
from probattn.recipes.provenance import commit
from probattn.recipes.recipe import Run
from probattn.recipes.storage import write_atomically
from probattn.recipes.text_data import TextCorpus
from probattn.recipes.text_settings import TextSettings, engine_stages
from probattn.recipes.text_task import TextTask
from probattn.recipes.text_vae import RECIPE
from probattn.recipes.text_writer import TextWriter
from probattn.training import TrainResult

__all__ = [
    "SHARES",
    "find_cell",
    "fingerprint",
    "read_cells",
    "run_cells",
    "stages_of",
    "store_cell",
    "train_on",
]

SHARES: Mapping[str, float] = {"warm-up": 0.4, "posterior": 0.4, "prior": 0.2}
"""Of the updates for each stage of a row with codes. A study has fewer updates than a comparison, and most of them must
go to what is slow: on Penn Treebank the decoder of davam-512 was 11 nats below a language model after 525 updates of
the warm-up and 52 after 1,800, and quantisation costs all of that at first."""


def fingerprint(*parts: Any) -> str:
    """Changes when plain data, or the version, does.

    Example:
        >>> fingerprint({"updates": 10}) == fingerprint({"updates": 11})
        False
    """
    text = json.dumps([*parts, __version__], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def find_cell(path: Path, mark: str) -> dict[str, Any] | None:
    """The record in a file, if it is there and was made with the settings of this fingerprint."""
    if not path.exists():
        return None
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record if record.get("fingerprint") == mark else None


def store_cell(path: Path, mark: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """Write a record with its fingerprint and the code that made it."""
    whole = {"fingerprint": mark, "commit": commit(), "version": __version__, **record}
    write_atomically(path, json.dumps(whole, indent=1) + "\n")
    return whole


def read_cells(folder: Path) -> list[dict[str, Any]]:
    """All records of a folder, by file name; none where there is no folder."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def stages_of(row: str, scale: str) -> list[dict[str, Any]]:
    """The stages of a row with codes as plain data, to be changed, with the shares of a study."""
    _, plain = RECIPE.load(RECIPE.configs(row, scale), {})
    return [{**stage, "share": SHARES[stage["name"]]} for stage in plain["stages"]]


def run_cells(function: Callable[..., None], cells: Sequence[Sequence[Any]], *, workers: int) -> None:
    """Call a function for every cell, in the order they are given; it stores what it made.

    Args:
        function: Of a module.
        cells: Its arguments; no two may write the same file.
        workers: Processes, one thread each; with one the work is done in this process.

    Raises:
        RuntimeError: If cells failed in processes of their own; the others are stored.
    """
    if workers == 1 or not cells:
        for cell in cells:
            _work_on(function, *cell)
        return
    failures: dict[int, Exception] = {}

    def keep(place: int, outcome: Any) -> None:
        if isinstance(outcome, Exception):
            failures[place] = outcome
            print(f"{cells[place]}: {outcome}", file=sys.stderr)

    run_jobs(_work_on, [(function, *cell) for cell in cells], keep, workers=workers, title="cells")
    if failures:
        first = next(iter(failures.values()))
        raise RuntimeError(
            f"{len(failures)} of {len(cells)} cells failed; the same command runs them again. First error: {first}"
        )


def _work_on(function: Callable[..., None], *arguments: Any) -> None:
    with working():
        torch.set_num_threads(1)
        settle()
        function(*arguments)


def train_on(corpus: TextCorpus, run: Run) -> tuple[TextWriter, TrainResult]:
    """Train a row on a corpus of any origin, or go on with it; the chosen weights are in the writer."""
    settings: TextSettings = run.settings
    task = TextTask(settings, corpus, plain=run.plain)
    result = train_to_end(task, run, settings=settings.trainer, stages=engine_stages(settings), seed=settings.seed)
    return TextWriter(task.model, corpus.tokenizer, settings=settings, lengths=corpus.length_counts), result
