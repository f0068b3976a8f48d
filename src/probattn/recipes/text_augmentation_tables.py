"""Tables and plot of the study of augmentation, from the records of its cells."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from probattn.recipes.paired import LEVEL, difference_of, holm
from probattn.viz.panel_plots import Panel, panel_plot

__all__ = ["augmentation_plot", "augmentation_table", "count_cut", "duels", "verdicts"]

Record = Mapping[str, Any]
Table = tuple[list[str], list[list[str]]]
NONE = "none"
RIVALS = {"davam-small": "lstm-small", "davam-all": "lstm-all"}
"""Generators with codes, and those without that saw the same text, which the paper does not compare with."""


def augmentation_table(records: Sequence[Record]) -> Table:
    """Test perplexity by corpus and generator, a column for each number of times; mean and deviation over seeds.

    Updates are those of the judged model: alone, and the fewest and the most with added text.
    """
    times = sorted({record["times"] for record in records if record["generator"] != NONE})
    header = ["corpus", "generator", "alone", *(f"x {value:g}" for value in times), "new sentences", "updates"]
    rows = []
    for size in _sizes(records):
        for generator in _generators(records):
            cells = [_cell(_values(records, size, generator, value)) for value in times]
            own = [one for one in records if one["size"] == size and one["generator"] == generator]
            if own:
                alone = [one for one in records if one["size"] == size and one["generator"] == NONE]
                share = f"{statistics.fmean(one['new'] for one in own):.0%}"
                updates = ", ".join(_range([one["updates"] for one in some]) for some in (alone, own) if some)
                rows.append([f"{size:,}", generator, _cell(_values(records, size, NONE, 0.0)), *cells, share, updates])
    return header, rows


def count_cut(records: Sequence[Record]) -> int:
    """How many judged models were stopped by the number of updates, before validation said that they were done."""
    return sum(record["updates"] >= record["study"]["updates"] for record in records)


def verdicts(records: Sequence[Record]) -> Table:
    """The best number of times of every generator, chosen on validation, against no augmentation."""
    header = ["corpus", "generator", "times", "test perplexity", "change", "standard error", "verdict"]
    rows, tested = [], []
    for size in _sizes(records):
        alone = {one["seed"]: one["test_ppl"] for one in records if one["size"] == size and one["generator"] == NONE}
        for generator in _generators(records):
            times, found = _best(records, size, generator)
            if changes := _changes(found, alone):
                rows.append([f"{size:,}", generator, f"{times:g}", _cell(list(found.values()))])
                tested.append(changes)
    return header, [[*row, *cells] for row, cells in zip(rows, _judged(tested), strict=True)]


def duels(records: Sequence[Record]) -> Table:
    """Every generator with codes against the language model that saw the same text, both at their best times."""
    header = ["corpus", "generator", "times", "against", "its times", "difference", "standard error", "verdict"]
    rows, tested = [], []
    for size in _sizes(records):
        for generator, name in RIVALS.items():
            times, found = _best(records, size, generator)
            rival_times, rival = _best(records, size, name)
            if changes := _changes(found, rival):
                rows.append([f"{size:,}", generator, f"{times:g}", name, f"{rival_times:g}"])
                tested.append(changes)
    judged = _judged(tested, words=("better", "worse"))
    return header, [[*row, *cells] for row, cells in zip(rows, judged, strict=True)]


def _best(records: Sequence[Record], size: int, generator: str) -> tuple[float, dict[int, float]]:
    """The number of times with the best validation, and test perplexities by seed with it; none without records."""
    own = [one for one in records if one["size"] == size and one["generator"] == generator]
    valid = {
        times: statistics.fmean(one["valid_ppl"] for one in own if one["times"] == times)
        for times in sorted({one["times"] for one in own})
    }
    if not valid:
        return 0.0, {}
    best = min(valid, key=lambda times: valid[times])
    return best, {one["seed"]: one["test_ppl"] for one in own if one["times"] == best}


def _changes(found: Mapping[int, float], other: Mapping[int, float]) -> list[float]:
    """Logarithms of the ratio, for the seeds that both have."""
    return [math.log(found[seed] / other[seed]) for seed in found if seed in other]


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
        title = f"{size:,} captions"
        panels.append(Panel("times", "test perplexity", curves, title, is_log=True, level=level, spreads=spreads))
    return panel_plot(panels)


def _judged(tested: Sequence[Sequence[float]], words: tuple[str, str] = ("helps", "hurts")) -> list[list[str]]:
    """For each line of a table its relative change of the perplexity, the error of that, and a verdict.

    A verdict only where a paired t-test over seeds tells the change from none at 5%, adjusted (Holm) for the lines.

    Args:
        tested: For each line the logarithms of ratios, one a seed.
        words: For a fall and for a rise.
    """
    found = {str(line): difference_of(changes) for line, changes in enumerate(tested) if len(changes) > 1}
    adjusted = holm({line: one.p_value for line, one in found.items()})
    cells = []
    for line, changes in enumerate(tested):
        one = found.get(str(line))
        if one is None:
            cells.append([f"{math.expm1(changes[0]):+.1%}", "-", "one seed"])
            continue
        word = words[one.mean >= 0.0] if adjusted[str(line)] < LEVEL else "no difference seen"
        cells.append([f"{math.expm1(one.mean):+.1%}", f"{one.standard_error:.1%}", word])
    return cells


def _values(records: Sequence[Record], size: int, generator: str, times: float) -> list[float]:
    return [
        one["test_ppl"]
        for one in records
        if one["size"] == size and one["generator"] == generator and one["times"] == times
    ]


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _sizes(records: Sequence[Record]) -> list[int]:
    return sorted({record["size"] for record in records})


def _generators(records: Sequence[Record]) -> list[str]:
    return sorted({record["generator"] for record in records} - {NONE})


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "-"
    mean = statistics.fmean(values)
    return f"{mean:.1f}" if len(values) == 1 else f"{mean:.1f} ± {statistics.stdev(values):.1f}"
