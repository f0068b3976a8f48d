"""Fluency of what a study's models write, judged by its second language model while they are still on disk."""

import sys
from pathlib import Path

from probattn.recipes.comparison import Comparison
from probattn.recipes.study_list import Study
from probattn.recipes.text_fluency import FOLDER, Sampling, measure, store
from probattn.recipes.text_scorer import open_scorer

__all__ = ["has_judge", "judge_fluency"]


def has_judge(study: Study, results: Path) -> bool:
    """Whether the language model that judges a study is trained, and there."""
    return study.scorer is not None and _written(_judge(study, results)) > 0.0


def judge_fluency(study: Study, results: Path, comparison: Comparison | None = None) -> list[Path]:
    """Judge the first seed of every row whose trained model is there and has no newer record.

    Args:
        study: With a scorer.
        results: The folder of results.
        comparison: One of the study's, whose runs alone are judged; all by default.

    Returns:
        The records that were written.

    Raises:
        FileNotFoundError: If there is something to judge, and the scorer is not there.
    """
    if study.scorer is None:
        return []
    judge, waiting = _judge(study, results), list[Path]()
    for one in study.comparisons(results) if comparison is None else [comparison]:
        folders = [one.run_folder(row, seed) for row, seed in one.jobs if seed == 0]
        waiting += [run for run in folders if _is_waiting(run, results / study.folder / FOLDER, judge)]
    if not waiting:
        return []
    if not has_judge(study, results):
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


def _judge(study: Study, results: Path) -> Path:
    """The run of the scorer."""
    return results / study.folder / "runs" / str(study.scorer)


def _is_waiting(run: Path, records: Path, judge: Path) -> bool:
    """Whether a run has a trained model, and no record that is newer than it and its scorer, a run row-seed<n>."""
    row, _, seed = judge.name.rpartition("-")  # a record's name has the corpus between the two
    judged = [path.stat().st_mtime for path in records.glob(f"{run.name}-{row}-*-{seed}.json")]
    written = _written(run)
    return written > 0.0 and max(written, _written(judge)) > max(judged, default=0.0)


def _written(run: Path) -> float:
    """When the model of a run was written; 0 where there is none."""
    return max((path.stat().st_mtime for path in (run / "model").glob("*.safetensors")), default=0.0)
