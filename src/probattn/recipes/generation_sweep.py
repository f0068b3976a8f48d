"""The strength of the attention's KL: learning curves for several gamma_a (Bahuleyan et al. 2018, Figure 5).

    python -m probattn.recipes.generation_sweep --scale generated --output runs/gamma
    python -m probattn.recipes.generation_sweep --scale squad --output results/question_generation/gamma

Every value is a comparison of its own in OUTPUT/<value>, resumed where it stopped; `report.html` shows all of them.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jsonargparse import auto_cli

from probattn.recipes.comparison import Comparison, compare
from probattn.recipes.generation_report import write_report
from probattn.recipes.question_generation import RECIPE
from probattn.recipes.results import RowResult
from probattn.recipes.storage import read_results

__all__ = ["collect", "main"]


def main(
    scale: str,
    output: Path,
    row: str = "ved-vattn-h",
    values: Sequence[float] = (0.001, 0.01, 0.1, 1.0),
    code: float = 1.0,
    workers: int = os.cpu_count() or 1,
) -> None:
    """Train a row with several weights of the attention's KL, and compare them.

    Args:
        scale: Of question generation.
        output: Folder of results and report.
        row: Which row.
        values: The weights gamma_a.
        code: The weight of the code's KL.
        workers: Processes at a time, one thread each.
    """
    for value in values:
        overrides = {"weights": f"{{code: {code}, attention: {value}}}"}
        comparison = Comparison(RECIPE, [row], 1, scale, overrides, output / f"{value:g}")
        compare(comparison, workers=workers)
    print(write_report("gamma_a", collect(output, row, values), output))


def collect(output: Path, row: str, values: Sequence[float]) -> list[RowResult]:
    """The results of all values, each called by its value."""
    found = []
    for value in values:
        results = read_results([output / f"{value:g}" / f"{row}-seed0.json"])
        found += [replace(result, row=f"gamma_a = {value:g}") for result in results]
    return found


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
