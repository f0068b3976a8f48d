"""Whether codes pay for themselves in a bound that counts everything: the page, and a verdict fixed before the runs.

Success takes all of this, in every seed: a KL above 0.5 nats, and a perplexity below the language model's and that of
both controls, which have the same decoder and one code, by half a percent; either `counted_ppl` on all test
sentences, or `iw_ppl` against the exact numbers of the others on the same sentences (`probed_ppl`).
"""

from collections.abc import Mapping, Sequence

from probattn.recipes.report import Column, as_markdown, table_cells
from probattn.recipes.results import RowResult

__all__ = ["BARS", "MARGIN", "MIN_KL", "ROW", "TIE", "bounds_page", "verdict"]

ROW = "davam-short-joint"
"""What is judged."""
BARS = ("lstm-lm", "davam-short-control", "davam-short-constant")
"""What it has to be below."""
MIN_KL = 0.5
"""Nats of a sentence; below that the codes say nothing worth the name."""
MARGIN = 0.005
"""Share by which it has to be below; two seeds of the language model differ by 0.6% on Penn Treebank, so that one seed
of the row decides nothing."""
TIE = 0.02
"""A perplexity that is above the best of the others by this share at most is a tie."""
_COLUMNS = (
    Column("reconstruction", "Rec"),
    Column("kl", "KL"),
    Column("elbo_ppl", "elbo_ppl"),
    Column("counted_ppl", "counted_ppl"),
    Column("probed_ppl", "probed_ppl"),
    Column("iw_ppl", "iw_ppl"),
    Column("codes_used", "codes used"),
    Column("parameters", "parameters"),
)


def bounds_page(title: str, results: Sequence[RowResult]) -> str:
    """The table of a study, and the verdict on its row.

    Args:
        title: What the text is.
        results: Of all rows and seeds, those of the language model among them.
    """
    if not any(result.row == ROW for result in results):
        return f"No results of {ROW} on {title} yet.\n"
    updates = sorted({int(result.facts["updates"]) for result in results})
    draws = sorted({str(result.facts["importance"]) for result in results if "importance" in result.facts})
    note = (
        f"{title[0].upper()}{title[1:]}, {' or '.join(map(str, updates))} updates. `iw_ppl`: {'; '.join(draws)}; "
        "`probed_ppl` is the `counted_ppl` of the same sentences. Codes used: of random codes those with a mean "
        "probability above a tenth of an even share, of `davam-128` those that some position has."
    )
    header, rows, _ = table_cells(results, _COLUMNS)
    for cells in rows:
        cells.insert(1, str(sum(result.row == cells[0] for result in results)))
    table = as_markdown([header[0], "seeds", *header[1:]], rows)
    return f"{table}\n{note}\n\n**Verdict**: {verdict(results)}\n"


def verdict(results: Sequence[RowResult]) -> str:
    """Success, tie or loss of the row against the language model and the controls, by seeds that all of them have."""
    found = {row: {one.seed: one.metrics for one in results if one.row == row} for row in (ROW, *BARS)}
    seeds = sorted(set.intersection(*(set(of_row) for of_row in found.values())))
    missing = [row for row, of_row in found.items() if not of_row]
    if missing or not seeds or any("probed_ppl" not in found[row][seed] for row in found for seed in seeds):
        waiting = ", ".join(missing) or "numbers of all rows on the same sentences, of one seed"
        return f"none yet, as it waits for {waiting}."
    kl = min(float(found[ROW][seed]["kl"]) for seed in seeds)
    ratios = {
        name: [_ratio({row: found[row][seed] for row in found}, own, others) for seed in seeds]
        for name, own, others in (("counted_ppl", "counted_ppl", "counted_ppl"), ("iw_ppl", "iw_ppl", "probed_ppl"))
    }
    told = "; ".join(
        f"{name} {' and '.join(f'{100.0 * (one - 1.0):+.1f}%' for one in each)}, {_word(max(each), kl)}"
        for name, each in ratios.items()
    )
    number = "one seed, which decides nothing by itself" if len(seeds) == 1 else f"{len(seeds)} seeds"
    told = f"({told}; against the best of {', '.join(BARS)}, by seed; KL {kl:.2g} nats at least; {number})."
    return f"{_word(min(max(each) for each in ratios.values()), kl)} by the better of two numbers {told}"


def _word(ratio: float, kl: float) -> str:
    """What the largest ratio of all seeds is called, with the smallest KL."""
    if ratio < 1.0 - MARGIN:
        return "success" if kl > MIN_KL else f"a tie, because the KL is not above {MIN_KL:g} nats"
    return "a tie" if ratio <= 1.0 + TIE else "a loss"


def _ratio(metrics: Mapping[str, Mapping[str, float]], own: str, others: str) -> float:
    """The row's perplexity over the lowest of the others."""
    return float(metrics[ROW][own]) / min(float(metrics[row][others]) for row in BARS)
