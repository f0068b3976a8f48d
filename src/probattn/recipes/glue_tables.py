"""Tables of fine-tuning results: beside the paper's Table 5, calibration, uncertainty by draws, what the KL does."""

import math
from collections.abc import Mapping, Sequence

from probattn.recipes.paired import holm, paired_differences
from probattn.recipes.results import RowResult, Summary, summarise

__all__ = ["BASELINE", "PUBLISHED", "Table", "calibration_table", "kl_table", "main_table", "uncertainty_table"]

BASELINE = "soft"

_SQUAD = {"soft": (80.86, 88.70), "wc": (81.40, 88.82)}
PUBLISHED: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "mrpc": {"soft": (86.5,), "wc": (88.5,)},
    "cola": {"soft": (54.5,), "wc": (55.8,)},
    "rte": {"soft": (75.8,), "wc": (76.2,)},
    "mnli": {"soft": (85.1,), "wc": (85.6,)},
    "qnli": {"soft": (90.9,), "wc": (91.5,)},
    "qqp": {"soft": (90.8,), "wc": (90.7,)},
    "sst2": {"soft": (92.4,), "wc": (92.7,)},
    "stsb": {"soft": (90.3,), "wc": (91.1,)},
    **dict.fromkeys(("squad", "squad-part", "squad-dev"), _SQUAD),
}
"""BAM 2020, Table 5: ALBERT-base; the split is not named, dev sets by custom. SQuAD has exact match and F1, of training
on all of it."""

Table = tuple[list[str], list[list[str]]]
_CONDITIONS = ("clean", "corrupted")
_PERCENT = frozenset(
    {
        "accuracy",
        "exact_match",
        "f1",
        "matthews",
        "pearson",
        "spearman",
        "ece",
        "scaled_ece",
        "entropy_auroc",
        "spread_auroc",
    }
    | {"confidence_aupr", "entropy_aupr", "spread_aupr"}
    | {"confidence_auroc", "entropy_pavpu", "pavpu", "paired_pavpu", "risk_area"}
    | {"mutual_information_auroc", "mutual_information_aupr", "mutual_information_risk_area"}
)
_TITLES = {
    "accuracy": "accuracy",
    "exact_match": "EM",
    "f1": "F1",
    "matthews": "Matthews",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "mse": "MSE",
    "nll": "NLL",
    "brier": "Brier",
    "ece": "ECE",
    "scaled_nll": "scaled NLL",
    "scaled_ece": "scaled ECE",
    "confidence_auroc": "AUROC confidence",
    "confidence_aupr": "AUPR confidence",
    "entropy_auroc": "AUROC entropy",
    "entropy_aupr": "AUPR entropy",
    "mutual_information_auroc": "AUROC MI",
    "mutual_information_aupr": "AUPR MI",
    "spread_auroc": "AUROC spread",
    "spread_aupr": "AUPR spread",
    "risk_area": "risk area",
    "mutual_information_risk_area": "risk area MI",
    "mutual_information": "mutual inf.",
    "spread": "spread",
    "entropy_pavpu": "PAvPU entropy",
    "pavpu": "PAvPU .05",
    "paired_pavpu": "paired PAvPU .05",
}
"""Numbers of a mode and their column titles, in the order of columns."""
_PLUG_IN = (
    "accuracy", "exact_match", "f1", "matthews", "pearson", "spearman", "mse", "nll", "ece", "scaled_nll", "scaled_ece",
)  # fmt: skip
_BESIDE = {"exact_match": "f1"}
"""The second number of tasks that are judged by two."""


def main_table(results: Sequence[RowResult]) -> Table:
    """The task's metric in percent on the test set, plug-in predictions, with paired differences to plain attention."""
    task, metric = str(results[0].facts["task"]), str(results[0].facts["metric"])
    beside = _BESIDE.get(metric)
    header, columns = ["row", "seeds", "paper"], []
    for condition in _CONDITIONS:
        name = f"{condition}/mean/{metric}"
        differences = paired_differences(results, name, baseline=BASELINE)
        adjusted = holm({row: found.p_value for row, found in differences.items()})
        second = summarise(results, f"{condition}/mean/{beside}")
        columns.append((summarise(results, name), differences, adjusted, second))
        header += [f"{_TITLES[metric]}, {condition}", f"minus {BASELINE}", "Holm p"]
        header += [f"{_TITLES[beside]}, {condition}"] if beside else []
    rows = []
    for row in _names(results):
        paper = PUBLISHED.get(task, {}).get(row, ())
        count = sum(result.row == row for result in results)
        cells = [row, str(count), "/".join(f"{value:.1f}" for value in paper) or "-"]
        for summary, differences, adjusted, second in columns:
            has_difference = row in differences
            cells += [
                _percent(summary, row),
                differences[row].text(scale=100.0) if has_difference else "-",
                f"{adjusted[row]:.2g}" if has_difference and not math.isnan(adjusted[row]) else "-",
            ]
            cells += [_percent(second, row)] if beside else []
        rows.append(cells)
    return header, rows


def calibration_table(results: Sequence[RowResult]) -> Table:
    """Plug-in predictions of the whole test set, clean and corrupted: metrics of the task, likelihood, calibration."""
    shown = [name for name in _PLUG_IN if any(f"clean/mean/{name}" in result.metrics for result in results)]
    rows = [
        [row, condition, *_cells(results, row, f"{condition}/mean", shown)]
        for row in _names(results)
        for condition in _CONDITIONS
    ]
    return ["row", "condition", *(_TITLES[name] for name in shown)], rows


def uncertainty_table(results: Sequence[RowResult]) -> Table:
    """What draws of dropout masks, attention weights or both add to plain predictions of the same examples."""
    modes = ("plain", "dropout", "noise", "both")
    names = [name for name in _TITLES if not name.startswith("scaled_") and name not in ("f1", "mse", "spearman")]
    found = {metric for result in results for metric in result.metrics}
    shown = [name for name in names if any(f"clean/{mode}/{name}" in found for mode in modes)]
    rows = []
    for row in _names(results):
        have = {metric for result in results if result.row == row for metric in result.metrics}
        for condition in _CONDITIONS:
            for mode in modes:
                if f"{condition}/{mode}/nll" in have:
                    rows.append([row, condition, mode, *_cells(results, row, f"{condition}/{mode}", shown)])
    return ["row", "condition", "on", *(_TITLES[name] for name in shown)], rows


def kl_table(results: Sequence[RowResult]) -> Table:
    """The KL in nats per attention weight before and after training, and its gradient over the likelihood's."""
    metrics = {"KL, first update": "kl_first", "KL, last updates": "kl_last", "KL gradient": "kl_gradient"}
    metrics |= {"largest": "kl_gradient_max", "diverged in update": "diverged_at"}
    summaries = [summarise(results, metric) for metric in metrics.values()]
    rows = [
        [row, *(f"{found[row].mean:.3g}" if row in found else "-" for found in summaries)]
        for row in _names(results)
        if row in summaries[0] or row in summaries[-1]
    ]
    return ["row", *metrics], rows


def _cells(results: Sequence[RowResult], row: str, prefix: str, names: Sequence[str]) -> list[str]:
    cells = []
    num_seeds = sum(result.row == row for result in results)
    for name in names:
        summary = summarise(results, f"{prefix}/{name}").get(row)
        if summary is None:
            cells.append("-")
            continue
        missing = f" ({summary.count} of {num_seeds})" if summary.count < num_seeds else ""
        cells.append(_cell(summary, 100.0 if name in _PERCENT else 1.0) + missing)
    return cells


def _names(results: Sequence[RowResult]) -> list[str]:
    return list(dict.fromkeys(result.row for result in results))


def _percent(summaries: Mapping[str, Summary], row: str) -> str:
    return _cell(summaries[row], 100.0, digits=2) if row in summaries else "-"


def _cell(summary: Summary, scale: float, *, digits: int | None = None) -> str:
    """Mean and standard error."""
    digits = digits if digits is not None else (1 if scale == 100.0 else 3)
    error = summary.spread / math.sqrt(summary.count)
    spread = f" ± {scale * error:.{digits}f}" if summary.count > 1 else ""
    return f"{scale * summary.mean:.{digits}f}{spread}"
