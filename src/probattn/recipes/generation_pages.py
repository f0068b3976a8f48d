"""Pages of the documentation on text generation, from stored results, with the plots of Figures 4 and 5.

A page comes with its plots, SVG by name; the page refers to them as `assets/<name>.svg`.
"""

from collections.abc import Mapping, Sequence

from probattn.recipes.generation_claims import claims, sweep_claims
from probattn.recipes.generation_tables import (
    collapsed_sites,
    latent_table,
    objective_table,
    quality_table,
    sample_table,
)
from probattn.recipes.paired import VERDICT_RULE
from probattn.recipes.report import as_markdown
from probattn.recipes.results import RowResult
from probattn.viz.panel_plots import Panel, panel_plot

__all__ = ["curve_panels", "generation_page", "sweep_page"]

Page = tuple[str, dict[str, str]]

_NUM_SOURCES = 3
"""Whose texts are on the page; the report of a comparison has all."""
_ROWS = ("ded-dattn", "ved-dattn", "ved-dattn-2stage", "ved-vattn-0", "ved-vattn-h", "ved-dirichlet", "ved-weibull")
_DRAWN = (*_ROWS, "vae", "vae-init")
"""Rows of the curves: the paper's, and its future work."""
_TEXTS = ("ded-dattn", "ved-dattn", "ved-vattn-0", "ved-vattn-h", "ved-vattn-h-released", "vae", "vae-init")
"""Rows whose texts stand side by side."""
_FIGURE = {
    "sample_bleu2": "BLEU-2 of samples",
    "sample_bleu4": "BLEU-4 of samples",
    "entropy": "entropy of samples (nats)",
    "dist1": "Dist-1 of samples",
}
_KLS = {"kl_code": "KL of the code (nats)", "kl_attention": "KL of attention (nats)"}
_RULE = VERDICT_RULE + " BLEU may be {tolerance} lower."
_SPECIAL = {"&": "&amp;", "<": "&lt;", "|": "&#124;", "`": "&#96;", "*": "&#42;", "_": "&#95;"}


def generation_page(name: str, results: Sequence[RowResult], *, scale: str) -> Page:
    """One corpus: quality and diversity beside the paper's, latents, verdicts, curves, samples.

    Args:
        name: Of the folder of results.
        results: All rows and seeds, in the order of the tables.
        scale: Of the recipe.
    """
    if not results:
        return f"No results of {name} yet.\n", {}
    facts = results[0].facts
    note = (
        f"Corpus {facts['corpus']}, {facts['epochs']} epochs ({facts['updates']} updates) for every row, "
        f"{facts['draws']} samples of a source; means and standard deviations over seeds, below them the paper's "
        f"numbers. Made by `python -m probattn.recipes.studies run {name}`, scale `{scale}`."
    )
    parts = [as_markdown(*quality_table(results)), note, "\n**Latent variables**\n"]
    parts += [as_markdown(*latent_table(results)), *_collapses(results)]
    verdicts, objectives = claims(results), objective_table(results)
    if verdicts[1]:
        parts += ["\n**The paper's claims**\n", as_markdown(*verdicts), _RULE.format(tolerance="0.3")]
    if objectives[1]:
        parts += ["\n**What the corrected objective changes against the released one**\n", as_markdown(*objectives)]
    first_seed = [result for result in results if result.seed == results[0].seed]
    panels = curve_panels([result for result in first_seed if result.row in _DRAWN])
    plots = {}
    if panels:
        plots[f"generation_{name}"] = panel_plot(panels)
        about = f"Validation split, seed {results[0].seed}, after every epoch; KLs a sentence, on a logarithmic axis."
        parts += ["\n**Learning curves** (Figure 4)\n", f"![Learning curves](assets/generation_{name}.svg)\n", about]
    return "\n".join([*parts, *_samples(first_seed)]).rstrip("\n") + "\n", plots


def sweep_page(row: str, sweep: Mapping[float, RowResult], soft: RowResult | None) -> Page:
    """One row with several weights of the attention's KL: learning curves, tests and verdicts (Figure 5).

    Args:
        row: Its name.
        sweep: Results by gamma_a.
        soft: The row with soft attention; None where it was not run.
    """
    if len(sweep) < 2:
        return "No results of the sweep yet.\n", {}
    named = {f"γ_a = {value:g}": sweep[value] for value in sorted(sweep)}
    renamed = [RowResult(**{**vars(result), "row": label}) for label, result in named.items()]
    facts = renamed[0].facts
    note = (
        f"Row `{row}`, corpus {facts['corpus']}, {facts['epochs']} epochs, one seed; in the plot the validation split "
        "after every epoch, in the table the test split."
    )
    header, rows = quality_table(renamed)
    lines = [[line[0], *line[3:]] for line in rows if line[1:3] == ["1", "samples"]]
    parts = ["![Learning curves for several γ_a](assets/generation_gamma.svg)\n", note, ""]
    parts += [as_markdown([header[0], *header[3:]], lines), as_markdown(*latent_table(renamed))]
    parts += [*_collapses(renamed), "\n**The paper's claims**\n", as_markdown(*sweep_claims(sweep, soft))]
    return "\n".join(parts).rstrip("\n") + "\n", {"generation_gamma": panel_plot(curve_panels(renamed))}


def curve_panels(results: Sequence[RowResult]) -> list[Panel]:
    """Quality, diversity and KLs over epochs, of what rows have of them."""
    panels = []
    for metric, title in {**_FIGURE, **_KLS}.items():
        curves = {result.row: _by_epoch(result, metric) for result in results if result.curves.get(metric)}
        is_positive = all(value > 0.0 for points in curves.values() for _, value in points)
        if curves:
            panels.append(Panel("epoch", title, curves, has_log_values=metric in _KLS and is_positive))
    return panels


def _by_epoch(result: RowResult, metric: str) -> list[tuple[float, float]]:
    updates = result.facts["updates"] / result.facts["epochs"]
    return [(update / updates, value) for update, value in result.curves[metric]]


def _collapses(results: Sequence[RowResult]) -> list[str]:
    found = collapsed_sites(results)
    if not found:
        return ["No site has collapsed: every KL is above 0.01 nats and every counted site has active units."]
    return [f"Collapsed, so that draws tell nothing of the source: {'; '.join(found)}."]


def _samples(results: Sequence[RowResult]) -> list[str]:
    """Texts of some rows for the first sources, side by side (Tables 1 and 3)."""
    shown = [result for result in results if result.row in _TEXTS and result.examples]
    parts = []
    for number in range(min((len(result.examples) for result in shown), default=0))[:_NUM_SOURCES]:
        example = shown[0].examples[number]
        header, rows = sample_table(shown, number)
        texts = [[row, escaped(text).replace("\n", "<br>")] for row, text in rows]
        about = f"Source: *{escaped(example['source'])}* Reference: *{escaped(example['reference'])}*"
        parts += [f"\n**Samples.** {about}\n", as_markdown(header, texts)]
    return parts


def escaped(text: str) -> str:
    """Plain text for Markdown: tokenised text is full of quotation marks that would open code."""
    return "".join(_SPECIAL.get(character, character) for character in text)
