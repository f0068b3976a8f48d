"""Tables of text generation: quality and diversity beside Tables 2 and 4 of Bahuleyan et al. 2018, latents, samples."""

from collections.abc import Mapping, Sequence

from probattn.recipes.results import RowResult, Summary, summarise, verdict

__all__ = ["PUBLISHED", "claims", "latent_table", "quality_table", "sample_table"]

Table = tuple[list[str], list[list[str]]]

PUBLISHED: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "squad": {
        "ded": {"map_bleu1": 29.31, "map_bleu2": 12.42, "map_bleu3": 6.55, "map_bleu4": 3.61},
        "ded-dattn": {"map_bleu1": 30.24, "map_bleu2": 14.33, "map_bleu3": 8.26, "map_bleu4": 4.96},
        "ved-dattn": {
            **{"map_bleu1": 31.02, "map_bleu2": 14.57, "map_bleu3": 8.49, "map_bleu4": 5.02},
            **{"sample_bleu1": 30.87, "sample_bleu2": 14.71, "sample_bleu3": 8.61, "sample_bleu4": 5.08},
            **{"entropy": 2.214, "dist1": 0.132, "dist2": 0.176},
        },
        "ved-dattn-2stage": {
            **{"map_bleu1": 28.88, "map_bleu2": 13.02, "map_bleu3": 7.33, "map_bleu4": 4.16},
            **{"sample_bleu1": 29.25, "sample_bleu2": 13.21, "sample_bleu3": 7.45, "sample_bleu4": 4.25},
            **{"entropy": 2.241, "dist1": 0.140, "dist2": 0.188},
        },
        "ved-vattn-0": {
            **{"map_bleu1": 29.70, "map_bleu2": 14.17, "map_bleu3": 8.21, "map_bleu4": 4.92},
            **{"sample_bleu1": 30.22, "sample_bleu2": 14.22, "sample_bleu3": 8.28, "sample_bleu4": 4.87},
            **{"entropy": 2.320, "dist1": 0.165, "dist2": 0.231},
        },
        "ved-vattn-h": {
            **{"map_bleu1": 30.23, "map_bleu2": 14.30, "map_bleu3": 8.28, "map_bleu4": 4.93},
            **{"sample_bleu1": 30.47, "sample_bleu2": 14.35, "sample_bleu3": 8.39, "sample_bleu4": 4.96},
            **{"entropy": 2.316, "dist1": 0.162, "dist2": 0.228},
        },
    },
    "cornell": {
        "ded-dattn": {"map_bleu2": 1.84},
        "ved-dattn": {"map_bleu2": 1.68, "sample_bleu2": 1.68, "entropy": 2.113, "dist1": 0.311, "dist2": 0.450},
        "ved-vattn-h": {"map_bleu2": 1.78, "sample_bleu2": 1.79, "entropy": 2.167, "dist1": 0.324, "dist2": 0.467},
    },
    "captions": {"vae": {"entropy": 2.52}, "vae-init": {"entropy": 2.01}},
}
"""By corpus and row: Tables 2 and 4, and Table 1's entropies (on SNLI sentences)."""

_QUALITY = {
    **{f"map_bleu{n}": f"MAP BLEU-{n}" for n in range(1, 5)},
    **{f"sample_bleu{n}": f"sample BLEU-{n}" for n in range(1, 5)},
    **{"entropy": "entropy", "dist1": "Dist-1", "dist2": "Dist-2", "self_bleu": "self-BLEU"},
}
_LATENT = {
    "map_ppl": "map_ppl",
    "elbo_ppl": "elbo_ppl",
    "iw_ppl": "iw_ppl",
    "reconstruction_nll": "NLL a word",
    "kl_code": "KL code",
    "kl_attention": "KL attention",
    "active_units": "active units",
    "code_information": "MI code",
    "bypass_divergence": "bypass JS",
    "bypass_nll_rise": "bypass NLL",
    "parameters": "parameters",
    "train_seconds": "seconds",
}


_TOLERANCE = 0.3
"""BLEU that variational attention may lose."""
_PAIRS = {
    "ved-vattn-0": "ved-dattn",
    "ved-vattn-h": "ved-dattn",
    "ved-vattn-h-released": "ved-dattn-released",
}
"""Rows with variational attention, and those with soft attention that they are held against."""


def quality_table(results: Sequence[RowResult]) -> Table:
    """Quality and diversity; the paper's number in brackets where it has one."""
    published = PUBLISHED.get(str(results[0].facts["corpus"]), {})
    return _table(results, _QUALITY, published)


def latent_table(results: Sequence[RowResult]) -> Table:
    """Perplexities, KLs and what the code carries."""
    return _table(results, _LATENT, {})


def claims(results: Sequence[RowResult]) -> Table:
    """What the paper leads to expect, and whether it holds here, noise between seeds considered.

    Only claims whose rows were run.
    """
    bleu = "sample_bleu2" if str(results[0].facts["corpus"]) == "cornell" else "sample_bleu4"
    found = {metric: summarise(results, metric) for metric in ("entropy", "dist1", "dist2", bleu)}
    rows = []
    for variational, soft in _PAIRS.items():
        for metric in ("entropy", "dist1", "dist2"):
            text = f"{_QUALITY[metric]} of {variational} above {soft}"
            rows += _claim(text, found[metric].get(variational), found[metric].get(soft))
        text = f"{_QUALITY[bleu]} of {variational} at most {_TOLERANCE:g} below {soft}"
        rows += _claim(text, found[bleu].get(variational), found[bleu].get(soft), tolerance=_TOLERANCE)
    text = "entropy without hidden-state initialisation above that with it"
    rows += _claim(text, found["entropy"].get("vae"), found["entropy"].get("vae-init"))
    return ["claim", "left", "right", "verdict"], rows


def _claim(text: str, left: Summary | None, right: Summary | None, *, tolerance: float = 0.0) -> list[list[str]]:
    """A line that says whether left is above right, or at most a tolerance below it; none where one was not run."""
    if left is None or right is None:
        return []
    return [[text, f"{left.mean:.3g}", f"{right.mean:.3g}", verdict(right.mean - tolerance - left.mean, left, right)]]


def sample_table(results: Sequence[RowResult], number: int) -> Table:
    """Texts of all rows for one source, side by side (Tables 1 and 3); equal ones are counted once."""
    rows = []
    for result in results:
        texts = list(result.examples[number]["texts"])
        counted = [f"{text} (x{texts.count(text)})" if texts.count(text) > 1 else text for text in dict.fromkeys(texts)]
        rows.append([result.row, " / ".join(counted)])
    return ["row", "texts"], rows


def _table(
    results: Sequence[RowResult], titles: Mapping[str, str], published: Mapping[str, Mapping[str, float]]
) -> Table:
    measured = {name for result in results for name in result.metrics}
    shown = {metric: title for metric, title in titles.items() if metric in measured}
    values = {metric: summarise(results, metric) for metric in shown}
    names = list(dict.fromkeys(result.row for result in results))
    counts = {name: sum(result.row == name for result in results) for name in names}
    rows = []
    for name in names:
        cells = [_cell(values[metric].get(name), published.get(name, {}).get(metric)) for metric in shown]
        rows.append([name, str(counts[name]), *cells])
    return ["row", "seeds", *shown.values()], rows


def _cell(value: Summary | None, paper: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if paper is None else f"{value} ({paper:g})"
