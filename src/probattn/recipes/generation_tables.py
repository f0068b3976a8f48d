"""Tables of text generation: quality and diversity beside Tables 2 and 4 of Bahuleyan et al. 2018, latents, samples."""

from collections.abc import Mapping, Sequence

from probattn.recipes.results import RowResult, Summary, summarise

__all__ = ["PUBLISHED", "collapsed_sites", "latent_table", "objective_table", "quality_table", "sample_table"]

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
    **{f"bleu{n}": f"BLEU-{n}" for n in range(1, 5)},
    **{"entropy": "entropy", "dist1": "Dist-1", "dist2": "Dist-2", "self_bleu": "self-BLEU"},
}
_LATENT = {
    "map_ppl": "map_ppl",
    "elbo_ppl": "elbo_ppl",
    "probed_elbo_ppl": "elbo_ppl, 500",
    "probed_iw_ppl": "iw_ppl, 500",
    "reconstruction_nll": "NLL a word",
    "kl_code": "KL code",
    "kl_attention": "KL attention",
    "active_units": "active code",
    "active_attention": "active attention",
    "code_information": "MI code",
    "bypass_divergence": "bypass JS",
    "bypass_nll_rise": "bypass NLL",
    "parameters": "parameters",
    "train_seconds": "seconds",
}
_OBJECTIVE = {
    "sample_bleu4": "sample BLEU-4",
    **{name: _QUALITY[name] for name in ("entropy", "dist1", "dist2")},
    **{name: _LATENT[name] for name in ("elbo_ppl", "kl_code", "kl_attention")},
    **{name: _LATENT[name] for name in ("active_units", "active_attention", "bypass_divergence")},
}
_MIN_KL = 0.01
"""Nats a sentence below which a KL has vanished, as for the warning while training."""


def quality_table(results: Sequence[RowResult]) -> Table:
    """Quality and diversity, a line for MAP inference and one for samples, and below each what the paper has."""
    published = PUBLISHED.get(str(results[0].facts["corpus"]), {})
    measured = {name for result in results for name in result.metrics}
    shown = {name: title for name, title in _QUALITY.items() if {f"map_{name}", f"sample_{name}", name} & measured}
    rows = []
    for name in dict.fromkeys(result.row for result in results):
        own = [result for result in results if result.row == name]
        for inference, prefix in (("MAP", "map_"), ("samples", "sample_")):
            metrics = [prefix + metric if metric.startswith("bleu") else metric for metric in shown]
            if inference == "MAP":
                metrics = [metric if metric.startswith("map_") else f"map_{metric}" for metric in metrics]
            if any(metric in result.metrics for metric in metrics for result in own):
                rows.append([name, str(len(own)), inference, *(_quality_cell(own, metric) for metric in metrics)])
                paper = {metric: published.get(name, {}).get(metric) for metric in metrics}
                cells = ["" if value is None else f"{value:.{_digits(metric)}f}" for metric, value in paper.items()]
                rows += [[name, "paper", inference, *cells]] if any(cells) else []
    return ["row", "seeds", "by", *shown.values()], rows


def latent_table(results: Sequence[RowResult]) -> Table:
    """Perplexities, KLs and what the latents carry."""
    shown = _measured(results, _LATENT)
    values = {metric: summarise(results, metric) for metric in shown}
    rows = []
    for name in dict.fromkeys(result.row for result in results):
        cells = [str(values[metric][name]) if name in values[metric] else "-" for metric in shown]
        rows.append([name, str(sum(result.row == name for result in results)), *cells])
    return ["row", "seeds", *shown.values()], rows


def objective_table(results: Sequence[RowResult]) -> Table:
    """Rows with eq. 8 beside those with the released code's objective, and what it changes; where both were run."""
    names = {result.row for result in results}
    shown = _measured(results, _OBJECTIVE)
    values = {metric: summarise(results, metric) for metric in shown}
    rows = []
    for name in ("ved-dattn", "ved-vattn-h"):
        released = f"{name}-released"
        if not {name, released} <= names:
            continue
        for row, objective in ((name, "eq. 8"), (released, "released code")):
            cells = [str(values[metric][row]) if row in values[metric] else "-" for metric in shown]
            rows.append([name, objective, *cells])
        both = [(values[metric].get(released), values[metric].get(name)) for metric in shown]
        rows.append([name, "released - eq. 8", *(_difference(left, right) for left, right in both)])
    return ["row", "objective", *shown.values()], rows


def collapsed_sites(results: Sequence[RowResult]) -> list[str]:
    """Sites whose posterior has fallen onto its prior at the end of training, one sentence each."""
    found: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for site, units in (("code", "active_units"), ("attention", "active_attention")):
            kl, active = result.metrics.get(f"kl_{site}"), result.metrics.get(units)
            signs = [f"KL {kl:.2g} nats"] if kl is not None and (kl < _MIN_KL or active == 0.0) else []
            signs += ["no active unit"] if active == 0.0 else []
            if signs:
                found.setdefault((result.row, site), []).append(f"seed {result.seed}: {', '.join(signs)}")
    return [f"`{row}`, {site} ({'; '.join(seeds)})" for (row, site), seeds in found.items()]


def sample_table(results: Sequence[RowResult], number: int) -> Table:
    """Texts of all rows for one source, side by side (Tables 1 and 3), a line each; equal ones are counted once."""
    rows = []
    for result in results:
        texts = list(result.examples[number]["texts"])
        counted = [f"{text} (x{texts.count(text)})" if texts.count(text) > 1 else text for text in dict.fromkeys(texts)]
        rows.append([result.row, "\n".join(counted)])
    return ["row", "texts"], rows


def _measured(results: Sequence[RowResult], titles: Mapping[str, str]) -> dict[str, str]:
    names = {name for result in results for name in result.metrics}
    return {metric: title for metric, title in titles.items() if metric in names}


def _quality_cell(results: Sequence[RowResult], metric: str) -> str:
    found = next(iter(summarise(results, metric).values()), None)
    if found is None:
        return ""
    spread = f" ± {found.spread:.{_digits(metric)}f}" if found.count > 1 else ""
    return f"{found.mean:.{_digits(metric)}f}{spread}"


def _digits(metric: str) -> int:
    """Behind the point, as the paper has them."""
    return 3 if metric in ("entropy", "dist1", "dist2") else 2


def _difference(left: Summary | None, right: Summary | None) -> str:
    return "-" if left is None or right is None else f"{left.mean - right.mean:+.3g}"
