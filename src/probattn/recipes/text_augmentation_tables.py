"""Tables and plot of the study of augmentation, from the records of its cells."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from probattn.recipes.paired import difference_of
from probattn.viz.panel_plots import Panel, panel_plot

__all__ = ["augmentation_plot", "augmentation_table", "verdicts"]

Record = Mapping[str, Any]
NONE = "none"
_LEVEL = 0.05


def augmentation_table(records: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """Test perplexity by corpus and generator, a column for each number of times; mean and deviation over seeds."""
    times = sorted({record["times"] for record in records if record["generator"] != NONE})
    header = ["corpus", "generator", "alone", *(f"x {value:g}" for value in times), "new sentences"]
    rows = []
    for size in _sizes(records):
        for generator in _generators(records):
            cells = [_cell(_values(records, size, generator, value)) for value in times]
            new = [one["new"] for one in records if one["size"] == size and one["generator"] == generator]
            if new:
                share = f"{statistics.fmean(new):.0%}"
                rows.append([f"{size:,}", generator, _cell(_values(records, size, NONE, 0.0)), *cells, share])
    return header, rows


def verdicts(records: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """The best number of times of every generator, chosen on validation, against no augmentation."""
    header = ["corpus", "generator", "times", "test perplexity", "change", "standard error", "verdict"]
    rows = []
    for size in _sizes(records):
        alone = {one["seed"]: one["test_ppl"] for one in records if one["size"] == size and one["generator"] == NONE}
        for generator in _generators(records):
            own = [one for one in records if one["size"] == size and one["generator"] == generator]
            times = sorted({one["times"] for one in own})
            if not times or not alone:
                continue
            best = min(
                times, key=lambda value: statistics.fmean(one["valid_ppl"] for one in own if one["times"] == value)
            )
            found = {one["seed"]: one["test_ppl"] for one in own if one["times"] == best}
            changes = [math.log(found[seed] / alone[seed]) for seed in found if seed in alone]
            if changes:
                rows.append([f"{size:,}", generator, f"{best:g}", _cell(list(found.values())), *_verdict(changes)])
    return header, rows


def augmentation_plot(records: Sequence[Record]) -> str:
    """Test perplexity over times, a panel for each corpus; the dashed line has no augmentation."""
    panels = []
    for size in _sizes(records):
        curves: dict[str, list[tuple[float, float]]] = {}
        spreads: dict[str, list[float]] = {}
        for generator in _generators(records):
            own = {one["times"] for one in records if one["size"] == size and one["generator"] == generator}
            for value in sorted(own):
                numbers = _values(records, size, generator, value)
                curves.setdefault(generator, []).append((value, statistics.fmean(numbers)))
                spreads.setdefault(generator, []).append(statistics.stdev(numbers) if len(numbers) > 1 else 0.0)
        alone = _values(records, size, NONE, 0.0)
        level = statistics.fmean(alone) if alone else None
        titles = {"x": "times", "y": "test perplexity", "title": f"{size:,} captions"}
        panels.append(Panel(**titles, curves=curves, is_log=True, level=level, spreads=spreads))
    return panel_plot(panels)


def _verdict(changes: Sequence[float]) -> list[str]:
    """Relative change of the perplexity over seeds; a verdict only where a paired t-test tells it from none at 5%."""
    if len(changes) == 1:
        return [f"{math.expm1(changes[0]):+.1%}", "-", "one seed"]
    found = difference_of(changes)
    word = "no difference seen" if not found.p_value < _LEVEL else "helps" if found.mean < 0.0 else "hurts"
    return [f"{math.expm1(found.mean):+.1%}", f"{found.standard_error:.1%}", word]


def _values(records: Sequence[Record], size: int, generator: str, times: float) -> list[float]:
    return [
        one["test_ppl"]
        for one in records
        if one["size"] == size and one["generator"] == generator and one["times"] == times
    ]


def _sizes(records: Sequence[Record]) -> list[int]:
    return sorted({record["size"] for record in records})


def _generators(records: Sequence[Record]) -> list[str]:
    return sorted({record["generator"] for record in records} - {NONE})


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "-"
    mean = statistics.fmean(values)
    return f"{mean:.1f}" if len(values) == 1 else f"{mean:.1f} ± {statistics.stdev(values):.1f}"
