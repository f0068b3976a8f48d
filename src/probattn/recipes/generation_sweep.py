"""The strength of the attention's KL: learning curves for several gamma_a (Bahuleyan et al. 2018, Figure 5).

    python -m probattn.recipes.generation_sweep --scale generated --output runs/gamma
    python -m probattn.recipes.generation_sweep --scale squad --output results/question_generation/gamma

Every value is a comparison of its own in OUTPUT/<value>, resumed where it stopped; what the folder above OUTPUT has
with the same settings (the row itself, with its own gamma_a) is not run again. `report.html` shows all values.
"""

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from jsonargparse import auto_cli

from probattn.recipes.comparison import Comparison, compare
from probattn.recipes.generation_report import write_report
from probattn.recipes.question_generation import RECIPE
from probattn.recipes.results import RowResult

__all__ = ["ROW", "main", "of_value", "swept"]

ROW = "ved-vattn-h"
"""The paper's."""


def main(
    scale: str,
    output: Path,
    row: str = ROW,
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
        workers: Values at a time, one thread each.
    """
    planned = [of_value(value, scale=scale, output=output, row=row, code=code) for value in values]
    beside = [replace(one, output=output.parent) for one in planned]
    missing = [
        one
        for one, other in zip(planned, beside, strict=True)
        if other.store.find(row, 0, other.fingerprint(row)) is None
    ]
    with ThreadPoolExecutor(max(1, workers)) as pool:  # each value trains in a process of its own
        list(pool.map(lambda one: compare(one, workers=1), missing))
    found = {value: result for value, result in swept(output, row).items() if value in values}
    named = [replace(result, row=f"gamma_a = {value:g}") for value, result in sorted(found.items())]
    print(write_report("gamma_a", named, output))


def of_value(value: float, *, scale: str, output: Path, row: str = ROW, code: float = 1.0) -> Comparison:
    """The comparison of one value; arguments as for `main`."""
    overrides = {"weights": f"{{code: {code}, attention: {value}}}"}
    return Comparison(RECIPE, [row], 1, scale, overrides, output / f"{value:g}")


def swept(output: Path, row: str = ROW) -> dict[float, RowResult]:
    """Results by gamma_a: those of the folders in `output`, and the row itself from the folder above it.

    Empty where no value of its own was run.
    """
    own = sorted(output.glob(f"*/{row}-seed0.json"))
    above = [path for path in [output.parent / f"{row}-seed0.json"] if own and path.exists()]
    results = [RowResult(**json.loads(path.read_text())["result"]) for path in (*above, *own)]
    return {float(result.facts["kl_weights"]["attention"]): result for result in results}


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
