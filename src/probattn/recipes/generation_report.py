"""Table and HTML report of a comparison of generating models."""

from collections.abc import Sequence
from pathlib import Path

from probattn.recipes.generation_tables import PUBLISHED, latent_table, quality_table, sample_table
from probattn.recipes.report import as_markdown
from probattn.recipes.results import RowResult
from probattn.recipes.storage import write_atomically
from probattn.viz import Section, curve_plot, render_page, render_table

__all__ = ["write_report"]

_QUALITY = (
    "MAP: every latent variable at its mean. Sample: the mean over samples of the corpus BLEU, each sample with draws "
    "of its own. Entropy (nats), Dist-1 and Dist-2 are those of the words and word pairs in the samples of one source, "
    "averaged over sources; self-BLEU holds each sample against the others of its source, so low is diverse. All fall "
    "or rise with the number and the length of samples."
)
_LATENT = (
    "map_ppl is the reference's perplexity with latents at their means, which is no bound; elbo_ppl counts every KL at "
    "weight one; iw_ppl has 20 joint draws of all latents for 500 pairs. KLs are nats per sentence, the attention's "
    "summed over all steps. 'MI code': mutual information of source and code, over 500 sources that differ (at most "
    "log 500 = 6.2). 'bypass': what happens to the predicted words when the code is replaced by a draw of its prior: "
    "the Jensen-Shannon divergence of the two predictions (at most 0.69) and the rise in nats per word. Near zero the "
    "code is bypassed."
)
_CURVES = {
    "sample_bleu2": "BLEU-2 of samples",
    "sample_bleu4": "BLEU-4 of samples",
    "entropy": "entropy of samples (nats)",
    "dist1": "Dist-1 of samples",
    "kl_code": "KL of the code (nats per sentence)",
    "kl_attention": "KL of attention (nats per sentence)",
    "elbo_ppl": "perplexity by the ELBO",
}
_LOGARITHMIC = ("elbo_ppl", "kl_attention")


def write_report(task: str, results: Sequence[RowResult], output: Path) -> str:
    """Write `report.html` and `table.md`; return the tables and where the report is, for the terminal."""
    text = f"{as_markdown(*quality_table(results))}\n{as_markdown(*latent_table(results))}"
    write_atomically(output / "table.md", text)
    write_atomically(output / "report.html", _page(task, results))
    return f"{text}\nReport: {output / 'report.html'}"


def _page(task: str, results: Sequence[RowResult]) -> str:
    facts = results[0].facts
    seeds = sorted({result.seed for result in results})
    lead = (
        f"Corpus {facts['corpus']}, {facts['epochs']} epochs ({facts['updates']} updates) for every row, seeds "
        f"{seeds}. "
        "The same network, text, updates and learning rate for all rows; rows differ in what is random, and in its "
        "prior."
    )
    first_seed = [result for result in results if result.seed == seeds[0]]
    note = f"{facts['draws']} samples of a source." + (
        " In brackets: the paper, with other training text." if facts["corpus"] in PUBLISHED else ""
    )
    sections = [
        Section("Quality and diversity", _QUALITY, render_table(*quality_table(results)), note),
        Section("Latent variables", _LATENT, render_table(*latent_table(results))),
        *_curves(first_seed),
        *_samples(first_seed),
    ]
    return render_page(f"probattn: {task}", lead, sections)


def _curves(results: Sequence[RowResult]) -> list[Section]:
    """The paper's Figure 4, and the KLs behind it."""
    sections = []
    for metric, title in _CURVES.items():
        curves = {result.row: result.curves[metric] for result in results if result.curves.get(metric)}
        is_log = metric in _LOGARITHMIC and all(value > 0 for points in curves.values() for _, value in points)
        if curves:
            plot = curve_plot(curves, x="update", y=title, is_log=is_log)
            sections.append(Section(f"During training: {title}", "On the validation split, first seed.", plot))
    return sections


def _samples(results: Sequence[RowResult]) -> list[Section]:
    count = min((len(result.examples) for result in results), default=0)
    sections = []
    for number in range(count):
        example = results[0].examples[number]
        lead = f"Source: {example['source']} Reference: {example['reference']}"
        sections.append(Section(f"Samples, source {number + 1}", lead, render_table(*sample_table(results, number))))
    return sections
