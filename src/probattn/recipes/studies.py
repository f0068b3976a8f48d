"""Every comparison behind a table of the documentation: what there is of it, and how the rest is run.

    python -m probattn.recipes.studies status                              # runs that are there, by folder of results/
    python -m probattn.recipes.studies run gat/pubmed nmt_multi30k         # what is missing, the most wanted rows first

A run counts where its settings are those of this version; what was made with others is run again. Data come from the
folder that PROBATTN_DATA names. Searches and studies that are not comparisons are on the pages of their tasks.
"""

import argparse
import difflib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from probattn.recipes.comparison import Comparison, Finished, compare_all, recipe_by_name, report
from probattn.recipes.failure_notes import note_failures
from probattn.recipes.report import as_markdown
from probattn.recipes.study_list import STUDIES, Study

__all__ = ["run", "status", "study_table"]

RESULTS = Path("results")


def study_table(results: Path = RESULTS) -> tuple[list[str], list[list[str]]]:
    """Header and rows: every study, how many runs it wants and how many are there."""
    cells = []
    for study in STUDIES:
        for (rows, num_seeds), comparison in zip(study.seeds, study.comparisons(results), strict=True):
            marks = {row: comparison.fingerprint(row) for row in comparison.rows}
            there = sum(comparison.store.find(row, seed, marks[row]) is not None for row, seed in comparison.jobs)
            which = rows if rows != "*" else "all" if len(study.seeds) == 1 else "all others"
            task = study.recipe if study.scale is None else f"{study.recipe}, {study.scale}"
            cells.append([study.folder, task, which, str(num_seeds), f"{there} of {len(comparison.jobs)}"])
    return ["results/", "recipe, scale", "rows", "seeds", "runs there"], cells


def status(results: Path = RESULTS) -> str:
    """What there is of every study."""
    return as_markdown(*study_table(results))


def run(folders: Sequence[str], *, workers: int = 1, results: Path = RESULTS) -> str:
    """Run what is missing of some studies, or of all where none is named, in one pool of processes.

    Args:
        folders: Names of studies.
        workers: Processes, one thread each.
        results: The folder of results.

    Returns:
        The new status.
    """
    known = {study.folder: study for study in STUDIES}
    for folder in folders:
        if folder not in known:
            close = difflib.get_close_matches(folder, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else "."
            raise SystemExit(f"there is no study {folder!r}{hint} Known: {', '.join(known)}")
    failures = []
    failed: dict[str, dict[tuple[str, int], Exception]] = {}  # by folder, which several comparisons may share

    def tell(finished: Finished) -> None:
        folder = finished.comparison.output.relative_to(results).as_posix()
        failed.setdefault(folder, {}).update(finished.failures)
        for write in (lambda: print(report(finished)), lambda: _report(known[folder], results, failed[folder])):
            try:
                write()
            except Exception as error:  # rows failed, or a table; other comparisons do not depend on them
                print(error, file=sys.stderr)
                failures.append(f"{folder}: {error}")
        judge(known[folder], finished.comparison)

    def judge(study: Study, comparison: Comparison | None = None) -> None:
        """The fluency of one comparison's models as soon as they are there, or of all at the end."""
        if study.scorer is None:
            return
        from probattn.recipes.study_fluency import has_judge, judge_fluency  # import a recipe, and torch's models

        if comparison is None or has_judge(study, results):
            try:
                judge_fluency(study, results, comparison)
            except (FileNotFoundError, ValueError) as error:
                print(error, file=sys.stderr)
                failures.append(f"{study.folder}: {error}")

    wanted = [known[name] for name in dict.fromkeys(folders or known)]
    compare_all([one for study in wanted for one in study.comparisons(results)], tell, workers=workers)
    for study in wanted:
        judge(study)
    if failures:
        told = list(dict.fromkeys(failures))
        raise SystemExit("\n".join([f"{len(told)} comparisons have failures:", *told]))
    return status(results)


def _report(study: Study, results: Path, failed: Mapping[tuple[str, int], Exception]) -> None:
    """The table and report of all comparisons of a study together; each of them has written its own."""
    found = []
    for comparison in study.comparisons(results):
        marks = {row: comparison.fingerprint(row) for row in comparison.rows}
        stored = (comparison.store.find(row, seed, marks[row]) for row, seed in comparison.jobs)
        found += [result for result in stored if result is not None]
    if found:
        recipe = recipe_by_name(study.recipe)
        places = {row: place for place, row in enumerate(recipe.rows)}
        found.sort(key=lambda result: (places[result.row], result.seed))
        recipe.write_report(recipe.name, found, results / study.folder)
    note_failures(results / study.folder, failed)


def main(words: Sequence[str] | None = None) -> None:
    """The two commands."""
    parser = argparse.ArgumentParser(
        prog="python -m probattn.recipes.studies", description="The comparisons behind the tables of the documentation."
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of results (default: %(default)s)")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("status", help="what there is of every study")
    runner = commands.add_parser("run", help="run what is missing; a run that was stopped goes on")
    runner.add_argument("folders", nargs="*", help="names of studies, as `status` has them; all where none is given")
    runner.add_argument("--workers", type=int, default=1, help="processes, one thread each (default: %(default)s)")
    asked = parser.parse_args(words)
    if asked.command == "status" and not asked.results.is_dir():
        parser.error(f"there is no folder {asked.results}; run this in the clone, or name its results with --results")
    if asked.command == "status":
        print(status(asked.results))
    else:
        print(run(asked.folders, workers=asked.workers, results=asked.results))


if __name__ == "__main__":
    main()
