"""Fluency of what a study's models write, judged by its second language model while all of them are still on disk."""

import sys
from pathlib import Path

from probattn.recipes.study_list import Study
from probattn.recipes.text_fluency import FOLDER, Sampling, measure, store
from probattn.recipes.text_scorer import open_scorer

__all__ = ["judge_fluency"]


def judge_fluency(study: Study, results: Path) -> list[Path]:
    """Judge the first seed of every row whose trained model is there and has no newer record.

    Args:
        study: With a scorer.
        results: The folder of results.

    Returns:
        The records that were written.

    Raises:
        FileNotFoundError: If there is something to judge, and the scorer is not there.
    """
    if study.scorer is None:
        return []
    waiting: list[Path] = []
    for comparison in study.comparisons(results):
        folders = [comparison.run_folder(row, seed) for row, seed in comparison.jobs if seed == 0]
        waiting += [one for one in folders if _is_waiting(one, results / study.folder / FOLDER, study.scorer)]
    if not waiting:
        return []
    judge = results / study.folder / "runs" / study.scorer
    if not (judge / "model").is_dir():
        raise FileNotFoundError(
            f"the fluency of {len(waiting)} runs in {judge.parent} is judged by {study.scorer}, whose model is not "
            f"there; remove {results / study.folder / study.scorer}.json and run the study again, or take "
            f"another scorer: probattn fluency {judge.parent}/*-seed0 --scorer smollm2"
        )
    scorer, made = open_scorer(str(judge)), []
    for run in waiting:
        print(f"fluency of {run} ...", file=sys.stderr)
        made.append(store(measure(run, scorer, Sampling()), results / study.folder / FOLDER))
    return made


def _is_waiting(run: Path, records: Path, scorer: str) -> bool:
    """Whether a run has a trained model that is newer than its record by a scorer, named row-seed<n>."""
    weights = [path.stat().st_mtime for path in (run / "model").glob("*.safetensors")]
    row, _, seed = scorer.rpartition("-")  # a record's name has the corpus between the two
    judged = [path.stat().st_mtime for path in records.glob(f"{run.name}-{row}-*-{seed}.json")]
    return bool(weights) and max(weights) > max(judged, default=0.0)
