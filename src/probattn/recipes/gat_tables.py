"""Tables of graph-attention results: beside the paper's Table 1, calibration and uncertainty, the KL's gradient."""

import math
from collections.abc import Mapping, Sequence

from probattn.recipes.paired import holm, paired_differences
from probattn.recipes.results import RowResult, Summary, summarise

__all__ = [
    "BASELINE",
    "CHECKPOINT_RULES",
    "PUBLISHED",
    "accuracy_table",
    "calibration_table",
    "difference_table",
    "gradient_table",
    "uncertainty_table",
]

BASELINE = "gat"

PUBLISHED: Mapping[str, Mapping[str, float]] = {
    "cora": {"gat": 83.00, "no-kl": 83.39, "lf": 83.24, "lc": 83.34, "wf": 83.48, "wc": 83.81},
    "citeseer": {"gat": 72.50, "no-kl": 72.91, "lf": 72.86, "lc": 73.04, "wf": 73.18, "wc": 73.52},
    "pubmed": {"gat": 77.26, "no-kl": 78.50, "lf": 78.30, "lc": 78.76, "wf": 78.50, "wc": 78.82},
}
"""BAM 2020, Table 1: test accuracy."""

CHECKPOINT_RULES = {"gat": "GAT's rule", "loss": "lowest loss"}
"""How an epoch was chosen, by its name in metrics."""

Table = tuple[list[str], list[list[str]]]


def accuracy_table(results: Sequence[RowResult]) -> Table:
    """Test accuracy in percent under both checkpoint rules, with paired differences to plain attention."""
    graph = str(results[0].facts["graph"])
    header = ["row", "seeds", "paper"]
    columns = []
    for rule, title in CHECKPOINT_RULES.items():
        metric = f"{rule}/clean/mean/accuracy"
        differences = paired_differences(results, metric, baseline=BASELINE)
        columns.append((summarise(results, metric), differences, holm({k: d.p_value for k, d in differences.items()})))
        header += [title, f"minus {BASELINE}", "Holm p"]
    rows = []
    for row in _names(results):
        paper = PUBLISHED.get(graph, {}).get(row.removesuffix("-paper").removesuffix("-code"))
        cells = [row, str(columns[0][0][row].count), "-" if paper is None else f"{paper:.2f}"]
        for summary, differences, adjusted in columns:
            has_difference = row in differences
            cells += [
                _percent(summary[row]),
                differences[row].text(scale=100.0) if has_difference else "-",
                f"{adjusted[row]:.2g}" if has_difference and not math.isnan(adjusted[row]) else "-",
            ]
        rows.append(cells)
    return header, rows


def calibration_table(results: Sequence[RowResult]) -> Table:
    """NLL and calibration error of plug-in predictions, raw and after temperature scaling, clean and noisy."""
    metrics = {
        "accuracy": ("clean/mean/accuracy", 100.0),
        "NLL": ("clean/mean/nll", 1.0),
        "ECE": ("clean/mean/ece", 100.0),
        "scaled NLL": ("clean/mean/scaled_nll", 1.0),
        "scaled ECE": ("clean/mean/scaled_ece", 100.0),
        "noisy accuracy": ("noisy/mean/accuracy", 100.0),
        "noisy NLL": ("noisy/mean/nll", 1.0),
        "noisy scaled NLL": ("noisy/mean/scaled_nll", 1.0),
    }
    return _numbers(results, {title: (f"loss/{name}", scale) for title, (name, scale) in metrics.items()})


def difference_table(results: Sequence[RowResult]) -> Table:
    """Plug-in predictions minus plain attention's with the same seeds under both checkpoint rules.

    A star where Holm's p, adjusted for the rows of one column and rule, is below 0.05.
    """
    metrics = {
        "scaled NLL": ("clean/mean/scaled_nll", 1.0, 4),
        "scaled ECE": ("clean/mean/scaled_ece", 100.0, 2),
        "noisy accuracy": ("noisy/mean/accuracy", 100.0, 2),
        "noisy scaled NLL": ("noisy/mean/scaled_nll", 1.0, 4),
    }
    cells: dict[tuple[str, str], list[str]] = {}  # by row and rule
    for rule in CHECKPOINT_RULES:
        for place, (name, scale, digits) in enumerate(metrics.values()):
            found = paired_differences(results, f"{rule}/{name}", baseline=BASELINE)
            adjusted = holm({row: one.p_value for row, one in found.items()})
            for row, one in found.items():
                star = " *" if adjusted[row] < 0.05 else ""
                cells.setdefault((row, rule), ["-"] * len(metrics))[place] = one.text(digits, scale) + star
    rows = [
        [row, title, *cells[row, rule]]
        for row in _names(results)
        for rule, title in CHECKPOINT_RULES.items()
        if (row, rule) in cells
    ]
    return ["row", "checkpoint", *(f"{title} minus {BASELINE}" for title in metrics)], rows


def uncertainty_table(results: Sequence[RowResult]) -> Table:
    """Predictions by draws: of dropout for plain attention, of dropout and attention noise for random attention."""
    header = ["row", "condition", "on", "accuracy", "NLL", "ECE", "entropy", "mutual inf.", "AUROC entropy", "AUROC MI"]
    header += ["PAvPU .05", "paired PAvPU .05"]
    names = ["accuracy", "nll", "ece", "entropy", "mutual_information", "entropy_auroc", "mutual_information_auroc"]
    names += ["pavpu_0.05", "paired_pavpu_0.05"]
    percent = {"accuracy", "ece", "entropy_auroc", "mutual_information_auroc", "pavpu_0.05", "paired_pavpu_0.05"}
    rows = []
    for row in _names(results):
        for condition in ("clean", "noisy"):
            for mode in ("dropout", "noise", "both"):
                found = [summarise(results, f"loss/{condition}/{mode}/{name}").get(row) for name in names]
                if found[0] is None:
                    continue
                cells = [
                    "-" if one is None else _cell(one, 100.0 if name in percent else 1.0)
                    for name, one in zip(names, found, strict=True)
                ]
                rows.append([row, condition, mode, *cells])
    return header, rows


def gradient_table(results: Sequence[RowResult]) -> Table:
    """Norm of the weighted KL's gradient over the likelihood's: median over training, mean over seeds."""
    metrics = {"whole KL": "kl_gradient", "through scores": "kl_gradient_scores", "through keys": "kl_gradient_keys"}
    header = ["row", *metrics, "KL"]
    rows = []
    for row in _names(results):
        found = [summarise(results, metric).get(row) for metric in metrics.values()]
        if found[0] is None:
            continue
        reduction = next(result.facts["kl_reduction"] for result in results if result.row == row)
        rows.append([row, *("-" if one is None else f"{one.mean:.2g}" for one in found), str(reduction)])
    return header, rows


def _numbers(results: Sequence[RowResult], metrics: Mapping[str, tuple[str, float]]) -> Table:
    summaries = {title: (summarise(results, metric), scale) for title, (metric, scale) in metrics.items()}
    rows = []
    for row in _names(results):
        cells = [_cell(found[row], scale) if row in found else "-" for found, scale in summaries.values()]
        rows.append([row, *cells])
    return ["row", *metrics], rows


def _names(results: Sequence[RowResult]) -> list[str]:
    return list(dict.fromkeys(result.row for result in results))


def _percent(summary: Summary) -> str:
    return _cell(summary, 100.0, digits=2)


def _cell(summary: Summary, scale: float, *, digits: int | None = None) -> str:
    """Mean and standard error."""
    digits = digits if digits is not None else (1 if scale == 100.0 else 3)
    error = summary.spread / math.sqrt(summary.count)
    spread = f" ± {scale * error:.{digits}f}" if summary.count > 1 else ""
    return f"{scale * summary.mean:.{digits}f}{spread}"
