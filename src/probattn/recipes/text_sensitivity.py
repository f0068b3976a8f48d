"""Sensitivity of DAVAM to the number of codes, the weight of commitment and the width of codes (its Fig. 4 a-c).

    python -m probattn.recipes.text_sensitivity --scale generated --output runs/sensitivity
    PROBATTN_DATA=... python -m probattn.recipes.text_sensitivity

Row davam-512-places with one setting changed at a time, on 10,000 captions (the paper: on Yahoo). Captions are short:
3,000 updates of longer sentences would cost several times as much.
Every value is a JSON file in OUTPUT/<scale>; a value that is there is not trained again, and a stopped one goes on.

    --axes '[codes]' --seeds '[0, 1]'    # one axis alone, two seeds
    --workers 2                          # two values at a time
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonargparse import auto_cli

from probattn.recipes.later_settings import without_added
from probattn.recipes.provenance import note_commit
from probattn.recipes.recipe import Run
from probattn.recipes.report import as_markdown
from probattn.recipes.text_cells import find_cell, fingerprint, read_cells, run_cells, stages_of, store_cell
from probattn.recipes.text_vae import RECIPE

__all__ = ["AXES", "ROW", "Axis", "main", "sensitivity_table"]

ROW = "davam-512-places"
"""Without places codes carry little of a sentence, whatever their number (docs/text.md)."""
KEPT = (
    "reconstruction",
    "kl",
    "elbo_ppl",
    "davam_ppl",
    "reconstruction_ppl",
    "code_perplexity",
    "codes_used",
    "train_seconds",
)
SCALES: Mapping[str, Mapping[str, Any]] = {
    "captions": {
        "corpus.train_size": 10_000,
        "corpus.test_size": 1000,
        "corpus.vocabulary_size": 4000,
        "updates": 3000,
        "trainer.validate_every": 3000,  # besides, every stage ends with a validation
        "trainer.warmup_updates": 100,
        "sampling": "{num_samples: 10, lengths: [10]}",  # of which nothing is kept
    },
    "generated": {"sampling": "{num_samples: 10, lengths: [5]}"},
}
"""What differs from the row's settings at a scale: nine epochs of a fifth of the captions."""
NUM_VALIDATIONS = 2
"""Of the stage that trains codes: with the ends of the others, four in all."""


@dataclass(frozen=True)
class Axis:
    """A setting that is changed.

    Attributes:
        title: In tables and plots.
        values: Which it takes; the row's own is among them.
        own: The row's own.
    """

    title: str
    values: tuple[float, ...]
    own: float


AXES: Mapping[str, Axis] = {
    "codes": Axis("K", (128, 256, 512, 1024), 512),
    "beta": Axis("beta_max", (0.1, 0.2, 0.5, 1, 5, 10, 20), 5),
    "width": Axis("code dimension", (8, 16, 32, 64, 128, 256), 32),
}
"""The paper's values."""
OWN = {"latent.num_codes": 512, "network.latent_dim": 32}
"""What is not changed, at every scale; the commitment's weight is in the row."""


def main(
    scale: str = "captions",
    output: Path = Path("results/text_sensitivity"),
    work: Path = Path("runs/text_sensitivity"),
    axes: Sequence[str] = tuple(AXES),
    values: Sequence[float] | None = None,
    seeds: Sequence[int] = (0,),
    overrides: Mapping[str, Any] | None = None,
    workers: int = 1,
) -> None:
    """Train the row once for each value of each axis, and print the table.

    Args:
        scale: captions, or generated to see that it runs.
        output: Folder of the results.
        work: Folder of checkpoints.
        axes: Some of codes, beta, width.
        values: Instead of the paper's, for one axis.
        seeds: Of weights and noise.
        overrides: Further settings of the row.
        workers: Processes, one thread and one value each.
    """
    unknown = sorted(set(axes) - set(AXES))
    if unknown or scale not in SCALES:
        raise SystemExit(f"there are the axes {list(AXES)} and the scales {list(SCALES)}, got {unknown} and '{scale}'")
    if values is not None and len(axes) != 1:
        raise SystemExit(f"--values are those of one axis, got the axes {list(axes)}; name one with --axes")
    # by name: the row's own value is on every axis, and two processes must not train it at once
    cells: dict[str, tuple[Any, ...]] = {}
    for seed in seeds:
        for axis in axes:
            for value in AXES[axis].values if values is None else values:
                about = (scale, axis, value, seed, output / scale, work / scale, dict(overrides or {}))
                cells.setdefault(_name(axis, value, seed), about)
    run_cells(_cell, list(cells.values()), workers=workers)
    print(as_markdown(*sensitivity_table(read_cells(output / scale))))


def changes(scale: str, axis: str, value: float) -> dict[str, Any]:
    """The settings of a value, as overrides of the row.

    All values of beta and of K have the same warm-up, since each layer has initial weights of its own, and each trains
    it: nine times a minute and a half, of an hour for all axes, do not pay for a way to hand checkpoints from one run
    to others.
    """
    stages = stages_of(ROW, scale)
    coded = next(stage for stage in stages if stage["commitment"]["start"] is not None)  # the one that has a ramp
    coded["num_validations"] = NUM_VALIDATIONS
    if axis == "beta":
        start = min(coded["commitment"]["start"], value)
        coded["commitment"] = {**coded["commitment"], "start": start, "end": float(value)}
    number = {"codes": "latent.num_codes", "width": "network.latent_dim"}.get(axis)
    return {**OWN, **({} if number is None else {number: int(value)}), "stages": json.dumps(stages)}


def sensitivity_table(records: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """A line for each value of each axis and seed."""
    header = ["setting", "value", "seed", "Rec", "KL", "elbo_ppl", "davam_ppl", "code perplexity", "codes used"]
    rows = []
    for axis in AXES:
        for record in sorted(of_axis(records, axis), key=lambda one: (one["value"], one["seed"])):
            found = record["metrics"]
            numbers = [f"{found[name]:.2f}" for name in ("reconstruction", "kl", "elbo_ppl", "davam_ppl")]
            counts = [f"{found['code_perplexity']:.0f}", f"{found['codes_used']:.0f}"]
            rows.append([AXES[axis].title, f"{record['value']:g}", str(record["seed"]), *numbers, *counts])
    return header, rows


def of_axis(records: Sequence[Mapping[str, Any]], axis: str) -> list[Mapping[str, Any]]:
    """The records of an axis; the row's own value belongs to all axes, though it is trained once."""
    own = [{**one, "value": AXES[axis].own} for one in records if one["axis"] == "own"]
    return [*(one for one in records if one["axis"] == axis), *own]


def _name(axis: str, value: float, seed: int) -> str:
    return f"own-seed{seed}" if value == AXES[axis].own else f"{axis}-{value:g}-seed{seed}"


def _cell(
    scale: str, axis: str, value: float, seed: int, output: Path, work: Path, overrides: Mapping[str, Any]
) -> None:
    """Train one value, unless its file is there."""
    changed = {**SCALES[scale], **changes(scale, axis, value), **overrides, "seed": seed}
    settings, plain = RECIPE.load(RECIPE.configs(ROW, scale), changed)
    name = _name(axis, value, seed)
    path, mark = output / f"{name}.json", fingerprint(without_added(settings, plain))
    if find_cell(path, mark) is not None:
        return
    run = work / f"{name}-{mark[:8]}"
    note_commit(run)
    result = RECIPE.train(Run(settings, plain, run, show_progress=False))
    record = {
        "axis": "own" if value == AXES[axis].own else axis,
        "value": value,
        "seed": seed,
        "scale": scale,
        "facts": {**result.facts, "train_size": settings.corpus.train_size},
        "metrics": {metric: result.metrics[metric] for metric in KEPT},
        "curves": {metric: result.curves[metric] for metric in ("reconstruction", "kl", "code_perplexity")},
    }
    store_cell(path, mark, record)
    print(f"{name}: Rec {result.metrics['reconstruction']:.2f}, KL {result.metrics['kl']:.2f}")


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
