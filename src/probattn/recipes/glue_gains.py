"""What draws add to a plain prediction of a fine-tuned model, paired by seed: in each row, and as the paper compares.

A paper's table of uncertainty sets plain attention with dropout against Bayesian attention with dropout and noise
(BAM 2020, Appendix B.2.1). Here each kind of draw is also set against the plain prediction of the same model on the
same examples, and beside it what one temperature does, which costs no draws.
"""

from collections.abc import Mapping, Sequence

from probattn.recipes.glue_tables import BASELINE, PUBLISHED, Table
from probattn.recipes.paired import LEVEL, PairedDifference, by_seed, difference_of, holm
from probattn.recipes.results import RowResult

__all__ = ["STAR", "across_tasks", "gain_table", "published_comparison"]

STAR = f"* p < {LEVEL:g} of a paired t-test, adjusted (Holm) for the rows with the same condition and draws"

_CONDITIONS = ("clean", "corrupted")
_DRAWN = ("dropout", "noise", "both")
_METRICS: Mapping[str, tuple[str, float, int]] = {
    "accuracy": ("accuracy", 100.0, 1),
    "exact_match": ("EM", 100.0, 1),
    "matthews": ("Matthews", 100.0, 1),
    "pearson": ("Pearson", 100.0, 2),
    "nll": ("NLL", 1.0, 3),
    "brier": ("Brier", 1.0, 3),
    "ece": ("ECE", 100.0, 1),
    "entropy_auroc": ("AUROC entropy", 100.0, 1),
    "confidence_auroc": ("AUROC confidence", 100.0, 1),
    "entropy_aupr": ("AUPR entropy", 100.0, 1),
    "risk_area": ("risk area", 100.0, 1),
    "entropy_pavpu": ("PAvPU entropy", 100.0, 1),
}
"""Title, unit and digits of what plain predictions have too, in the order of columns."""
_PUBLISHED: Mapping[str, tuple[str, float, int]] = {
    **{name: _METRICS[name] for name in ("accuracy", "exact_match", "pearson")},
    "pavpu": ("PAvPU .05", 100.0, 1),
    "paired_pavpu": ("paired PAvPU .05", 100.0, 1),
    "nll": _METRICS["nll"],
}
"""The same for what draws are compared by."""
_SCALED = {"nll": "scaled_nll", "ece": "scaled_ece"}
"""Numbers that a temperature changes, and how they are called then."""


def across_tasks(tasks: Mapping[str, Sequence[RowResult]]) -> Table:
    """Each row minus plain attention on clean test examples, in percent of the task's metric; first the paper's wc.

    Args:
        tasks: Results by task.
    """
    header, published = ["minus soft"], ["wc in the paper"]
    columns: list[dict[str, str]] = []
    for task, results in tasks.items():
        metric = str(results[0].facts["metric"])
        rows = dict.fromkeys(result.row for result in results if result.row != BASELINE)
        tested = {row: by_seed(results, f"clean/mean/{metric}", row) for row in rows}
        reference = by_seed(results, f"clean/mean/{metric}", BASELINE)
        columns.append(_stars(_differences(tested, dict.fromkeys(rows, reference)), 100.0, 2))
        header.append(f"{task}, {_METRICS[metric][0]}")
        theirs = PUBLISHED[task]
        published.append(f"{theirs['wc'][0] - theirs[BASELINE][0]:+.1f}")
    shown = dict.fromkeys(row for column in columns for row in column)
    return header, [published, *([row, *(column.get(row, "-") for column in columns)] for row in shown)]


def gain_table(results: Sequence[RowResult]) -> Table:
    """Draws of one model minus its plain prediction, by row, condition and kind; "temperature" draws nothing."""
    found = {metric for result in results for metric in result.metrics}
    shown = [name for name in _METRICS if f"clean/plain/{name}" in found]
    lines: dict[tuple[str, str, str], list[str]] = {}
    for condition in _CONDITIONS:
        for mode in ("temperature", *_DRAWN):
            for name in shown:
                column = _stars(_gains(results, condition, mode, name), *_METRICS[name][1:])
                for row, cell in column.items():
                    line = lines.setdefault((row, condition, mode), ["-"] * len(shown))
                    line[shown.index(name)] = cell
    rows = list(dict.fromkeys(result.row for result in results))
    order = sorted(lines, key=lambda key: rows.index(key[0]))  # stable: conditions and modes stay in their order
    return ["row", "condition", "on", *(_METRICS[name][0] for name in shown)], [[*key, *lines[key]] for key in order]


def published_comparison(results: Sequence[RowResult]) -> Table:
    """Random weights with dropout and noise minus plain attention with dropout, as the paper compares them."""
    rows = dict.fromkeys(result.row for result in results if result.row != BASELINE)
    found = {metric for result in results for metric in result.metrics}
    shown = [name for name in _PUBLISHED if f"clean/both/{name}" in found]
    lines: dict[tuple[str, str], list[str]] = {}
    for condition in _CONDITIONS:
        for place, name in enumerate(shown):
            reference = by_seed(results, f"{condition}/dropout/{name}", BASELINE)
            tested = {row: by_seed(results, f"{condition}/both/{name}", row) for row in rows}
            differences = _differences(tested, dict.fromkeys(rows, reference))
            for row, cell in _stars(differences, *_PUBLISHED[name][1:]).items():
                lines.setdefault((row, condition), ["-"] * len(shown))[place] = cell
    return ["row", "condition", *(_PUBLISHED[name][0] for name in shown)], [[*key, *lines[key]] for key in lines]


def _gains(results: Sequence[RowResult], condition: str, mode: str, name: str) -> dict[str, PairedDifference]:
    """By row; empty where a number has no value in a mode."""
    if mode == "temperature":
        if name not in _SCALED:
            return {}
        prefix, name_there = f"{condition}/plain", _SCALED[name]
    else:
        prefix, name_there = f"{condition}/{mode}", name
    rows = dict.fromkeys(result.row for result in results)
    tested = {row: by_seed(results, f"{prefix}/{name_there}", row) for row in rows}
    return _differences(tested, {row: by_seed(results, f"{condition}/plain/{name}", row) for row in rows})


def _differences(
    tested: Mapping[str, Mapping[int, float]], reference: Mapping[str, Mapping[int, float]]
) -> dict[str, PairedDifference]:
    """Of rows that have two seeds or more on both sides."""
    found = {}
    for row, values in tested.items():
        shared = sorted(values.keys() & reference[row].keys())
        if len(shared) > 1:
            found[row] = difference_of([values[seed] - reference[row][seed] for seed in shared])
    return found


def _stars(differences: Mapping[str, PairedDifference], scale: float, digits: int) -> dict[str, str]:
    adjusted = holm({row: one.p_value for row, one in differences.items()})
    return {
        row: f"{scale * one.mean:+.{digits}f} ± {scale * one.standard_error:.{digits}f}"
        + ("*" if adjusted[row] < LEVEL else "")
        for row, one in differences.items()
    }
