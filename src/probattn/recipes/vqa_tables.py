"""Tables of visual question answering: accuracy beside the papers', noise, uncertainty, attention."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from probattn.recipes.results import RowResult, Summary, summarise

__all__ = ["PUBLISHED", "attention_table", "drawn_note", "kind_table", "main_table", "uncertainty_table"]

_MOST_DRAWN = 1000  # of results that do not say for how many questions draws were made

PUBLISHED: Mapping[str, tuple[str, ...]] = {
    "soft": ("1.76", "58.93", "", "2.70"),
    "marginal": ("1.69", "60.33", "", "2.66"),
    "hard-enum": ("1.78", "57.60", "", "0.73"),
    "hard-sample": ("1.82", "56.30", "", "0.58"),
    "variational-enum": ("1.69", "58.44", "", "2.07"),
    "variational-sample": ("1.75", "57.52", "", "2.44"),
    "mcan-soft": ("", "66.95", "61.25", ""),
    "mcan-lf": ("", "66.89", "61.43", ""),
    "mcan-lc": ("", "66.93", "61.58", ""),
    "mcan-wf": ("", "66.93", "61.60", ""),
    "mcan-wc": ("", "67.02", "62.89", ""),
}
"""NLL, accuracy, accuracy under noise and attention entropy on VQA 2.0: Deng et al. 2018, Tables 1 and 3; BAM 2020,
Table 2."""
PUBLISHED_PAVPU: Mapping[str, tuple[str, str]] = {
    "mcan-soft": ("70.04", "65.34"),
    "mcan-lf": ("69.92", "65.48"),
    "mcan-lc": ("70.14", "65.60"),
    "mcan-wf": ("70.09", "65.62"),
    "mcan-wc": ("71.21", "66.75"),
}
"""BAM 2020, Table 2: clean and noisy."""

Table = tuple[list[str], list[list[str]]]
_CONDITIONS = ("clean", "noise1", "noise5")


def main_table(results: Sequence[RowResult]) -> Table:
    """NLL and accuracy of all test questions, clean and with noise on the features, beside the papers'."""
    header = ["row", "seeds", "NLL is", "NLL", "accuracy", "accuracy, noise 1", "accuracy, noise 5", "ECE"]
    header += ["paper: NLL", "accuracy", "noisy"]
    majority = f"{100.0 * results[0].metrics['majority_accuracy']:.1f}"
    rows = [["majority", "-", "-", "-", majority, *["-"] * (len(header) - 5)]]
    for row in row_names(results):
        first = next(result for result in results if result.row == row)
        paper = PUBLISHED.get(row, ("", "", "", ""))
        rows.append(
            [
                row,
                str(sum(result.row == row for result in results)),
                str(first.facts["nll_kind"]),
                cell(results, row, "clean/mean/nll", 1.0, 3),
                *(cell(results, row, f"{condition}/mean/accuracy") for condition in _CONDITIONS),
                cell(results, row, "clean/mean/ece"),
                *(value or "-" for value in paper[:3]),
            ]
        )
    return header, rows


def uncertainty_table(results: Sequence[RowResult]) -> Table:
    """The mean over draws, and the same questions without: PAvPU beside the paper's, error detection, calibration."""
    header = ["row", "drawn", "condition", "accuracy", "no draws", "NLL", "no draws", "ECE", "PAvPU", "paper"]
    header += ["paired PAvPU"]
    header += ["AUROC entropy", "AUROC MI"]
    rows = []
    for row in row_names(results):
        first = next(result for result in results if result.row == row)
        for condition in _CONDITIONS:
            start = f"{condition}/drawn"
            paper = PUBLISHED_PAVPU.get(row, ("-", "-"))
            rows.append(
                [
                    row,
                    str(first.facts["drawn"]),
                    condition,
                    cell(results, row, f"{start}/accuracy"),
                    cell(results, row, f"{condition}/plain/accuracy"),
                    cell(results, row, f"{start}/nll", 1.0, 3),
                    cell(results, row, f"{condition}/plain/nll", 1.0, 3),
                    cell(results, row, f"{start}/ece"),
                    cell(results, row, f"{start}/pavpu"),
                    {"clean": paper[0], "noise5": paper[1]}.get(condition, "-"),
                    cell(results, row, f"{start}/paired_pavpu"),
                    cell(results, row, f"{start}/entropy_auroc"),
                    cell(results, row, f"{start}/mutual_information_auroc"),
                ]
            )
    return header, rows


def attention_table(results: Sequence[RowResult]) -> Table:
    """Entropy of the weights over regions, and where gold regions are known, mass on them and hits of the largest."""
    has_gold = any("clean/attention/mass" in result.metrics for result in results)
    header = ["row", "entropy", "paper"]
    header += ["mass on gold", "largest on gold"] if has_gold else []
    kinds = {"posterior": "q", "exact": "exact posterior"}
    shown = {
        kind: title
        for kind, title in kinds.items()
        if any(f"clean/attention/{kind}_entropy" in result.metrics for result in results)
    }
    for title in shown.values():
        header += [f"entropy, {title}", *([f"mass, {title}", f"largest, {title}"] if has_gold else [])]
    header += ["KL gradient"]
    rows = []
    for row in row_names(results):
        cells = [row, cell(results, row, "clean/attention/entropy", 1.0, 2), PUBLISHED.get(row, ("",) * 4)[3] or "-"]
        for prefix in ("", *(f"{kind}_" for kind in shown)):
            start = f"clean/attention/{prefix}"
            cells += [cell(results, row, f"{start}entropy", 1.0, 2)] if prefix else []
            cells += [cell(results, row, f"{start}{name}") for name in ("mass", "hit")] if has_gold else []
        gradient = summarise(results, "effective_kl_gradient").get(row)
        rows.append([*cells, "-" if gradient is None else f"{gradient.mean:.1e}"])
    return header, rows


def kind_table(results: Sequence[RowResult]) -> Table:
    """Accuracy of each type of answer, clean."""
    start = "clean/accuracy of "
    kinds = sorted({name.removeprefix(start) for one in results for name in one.metrics if name.startswith(start)})
    rows = [[row, *(cell(results, row, f"{start}{kind}") for kind in kinds)] for row in row_names(results)]
    return ["row", *kinds], rows


def row_names(results: Sequence[RowResult]) -> list[str]:
    """In the order of the results."""
    return list(dict.fromkeys(result.row for result in results))


def cell(results: Sequence[RowResult], row: str, metric: str, scale: float = 100.0, digits: int = 1) -> str:
    """Mean and standard error of a metric over seeds; "-" where a row has none."""
    summary: Summary | None = summarise(results, metric).get(row)
    if summary is None:
        return "-"
    error = summary.spread / math.sqrt(summary.count)
    spread = f" ± {scale * error:.{digits}f}" if summary.count > 1 else ""
    return f"{scale * summary.mean:.{digits}f}{spread}"


def drawn_note(facts: Mapping[str, Any]) -> str:
    """Which questions draws are made for."""
    count = facts.get("drawn_questions", min(_MOST_DRAWN, int(facts["test_questions"])))
    return (
        f"Draws are made for {count} of the {facts['test_questions']} test questions, the same for all rows; 'no "
        "draws' is of those questions too, so compare with it and not with the table of all questions."
    )
