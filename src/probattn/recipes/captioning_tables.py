"""Tables of captioning: scores beside Table 3 of BAM (Fan et al. 2020), attention, and rows that broke."""

from collections.abc import Mapping, Sequence

from probattn.recipes.report import Column
from probattn.recipes.results import RowResult, summarise

__all__ = ["PUBLISHED", "attention_table", "failures", "score_table"]

Table = tuple[list[str], list[list[str]]]


def _published(*numbers: float) -> dict[str, float]:
    names = ("bleu4", "bleu3", "bleu2", "bleu1", "cider", "rouge_l", "meteor")
    return {f"greedy_{name}": number for name, number in zip(names, numbers, strict=True)}


PUBLISHED: Mapping[str, Mapping[str, float]] = {
    "soft": _published(32.2, 43.6, 58.3, 74.9, 104.0, 54.7, 26.1),
    "hard": _published(26.5, 37.2, 51.9, 69.8, 84.4, 50.7, 23.3),
    "lc": _published(32.7, 44.0, 58.7, 75.1, 105.0, 54.8, 26.3),
    "wc": _published(32.8, 44.1, 58.8, 75.3, 104.5, 54.9, 26.2),
}
"""By row: Table 3, greedy captions on MS-COCO with boxes of a detector. "gaussian-weights" and "sampled-kl": NaN."""

_CEILINGS = {"elbo_ppl": 1e6}
"""A KL of a hundred nats a word makes perplexities that say nothing else."""
_SCORES = {
    **{f"greedy_bleu{n}": f"BLEU-{n}" for n in range(1, 5)},
    **{"greedy_cider": "CIDEr", "greedy_rouge_l": "ROUGE-L", "greedy_meteor": "METEOR"},
    **{"beam_bleu4": "beam BLEU-4", "beam_cider": "beam CIDEr"},
}
_ATTENTION = {
    "ppl": "ppl",
    "drawn_ppl": "drawn ppl",
    "elbo_ppl": "elbo_ppl",
    "kl_per_word": "KL a word",
    "effective_kl_gradient": "KL gradient",
    "attention_mass": "mass on gold",
    "attention_hits": "hits",
    "attention_entropy": "entropy of weights",
    "entropy": "entropy",
    "dist1": "Dist-1",
    "dist2": "Dist-2",
    "greedy_different": "different captions",
    "train_seconds": "seconds",
}


def score_table(results: Sequence[RowResult], *, shows_published: bool = True) -> Table:
    """Scores of captions, with the paper's in brackets; a row that broke says so.

    Args:
        results: Of any rows and seeds.
        shows_published: Whether the paper's numbers, of another corpus, stand beside ours.
    """
    table = _table(results, _SCORES)
    if shows_published:
        names = [name for name in _SCORES if any(name in result.metrics for result in results)]
        for line in table[1]:
            for place, name in enumerate(names, start=1):
                number = PUBLISHED.get(line[0], {}).get(name)
                line[place] += "" if number is None else f" ({number:g})"
    return table


def attention_table(results: Sequence[RowResult]) -> Table:
    """Perplexities, KL, where attention points, diversity of sampled captions, time."""
    return _table(results, _ATTENTION)


def failures(results: Sequence[RowResult]) -> list[str]:
    """A sentence for every run whose training broke."""
    return [
        f"{result.row}, seed {result.seed}: {result.facts['failed']}" for result in results if "failed" in result.facts
    ]


def _table(results: Sequence[RowResult], columns: Mapping[str, str]) -> Table:
    rows = list(dict.fromkeys(result.row for result in results))
    names = [name for name in columns if any(name in result.metrics for result in results)]
    values = {name: summarise(results, name) for name in names}
    broken = {row: [one for one in results if one.row == row and "failed" in one.facts] for row in rows}
    lines = []
    for row in rows:
        cells = [Column(name, "", ceiling=_CEILINGS.get(name)).cell(values[name].get(row)) for name in names]
        if broken[row] and all(cell == "-" for cell in cells) and cells:
            cells[0] = "training broke"
        lines.append([row, *cells])
    return ["row", *(columns[name] for name in names)], lines
