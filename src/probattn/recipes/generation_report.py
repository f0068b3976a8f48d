"""Table and HTML report of a comparison of generating models."""

from collections.abc import Sequence
from pathlib import Path

from probattn.recipes.generation_claims import claims
from probattn.recipes.generation_pages import curve_panels
from probattn.recipes.generation_tables import (
    PUBLISHED,
    collapsed_sites,
    latent_table,
    objective_table,
    quality_table,
    sample_table,
)
from probattn.recipes.paired import VERDICT_RULE
from probattn.recipes.report import as_markdown
from probattn.recipes.results import RowResult
from probattn.recipes.storage import write_atomically
from probattn.viz import Section, render_page, render_table
from probattn.viz.panel_plots import panel_plot

__all__ = ["write_report"]

_QUALITY = (
    "MAP: every latent variable at its mean. Sample: the mean over samples of the corpus BLEU, each sample with draws "
    "of its own. Entropy (nats), Dist-1 and Dist-2 are those of the words and word pairs in the samples of one source, "
    "averaged over sources; self-BLEU holds each sample against the others of its source, so low is diverse. All fall "
    "or rise with the number and the length of samples."
)
_LATENT = (
    "map_ppl is the reference's perplexity with latents at their means, which is no bound; elbo_ppl counts every KL "
    "at weight one; iw_ppl has 20 joint draws of all latents, for 500 pairs from all over the text, beside the "
    "elbo_ppl of the same. KLs are nats per sentence, the attention's summed over all steps. 'MI code': mutual "
    "information of source and code, over 500 sources that differ (at most log 500 = 6.2). 'bypass': what happens to "
    "the predicted words when the code is replaced by a draw of its prior: the Jensen-Shannon divergence of the two "
    "predictions (at most 0.69) and the rise in nats per word. Near zero the code is bypassed. A unit of the code is "
    "active where its mean moves with the source, one of the attention vector where its mean moves away from the "
    "prior's."
)


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
        " Lines of the paper: with other training text." if facts["corpus"] in PUBLISHED else ""
    )
    collapsed = collapsed_sites(results)
    warning = f"Collapsed, so that draws tell nothing of the source: {'; '.join(collapsed)}." if collapsed else ""
    sections = [
        Section("Quality and diversity", _QUALITY, render_table(*quality_table(results)), note),
        Section("Latent variables", _LATENT, render_table(*latent_table(results)), warning.replace("`", "")),
    ]
    for heading, text, table in (
        ("The paper's claims", VERDICT_RULE, claims(results)),
        ("The corrected objective and the released one", "", objective_table(results)),
    ):
        sections += [Section(heading, text, render_table(*table))] if table[1] else []
    panels = curve_panels(first_seed)
    if panels:
        about = "On the validation split after every epoch, first seed (the paper's Figure 4, and the KLs behind it)."
        sections.append(Section("During training", about, panel_plot(panels)))
    return render_page(f"probattn: {task}", lead, [*sections, *_samples(first_seed)])


def _samples(results: Sequence[RowResult]) -> list[Section]:
    count = min((len(result.examples) for result in results), default=0)
    sections = []
    for number in range(count):
        example = results[0].examples[number]
        lead = f"Source: {example['source']} Reference: {example['reference']}"
        sections.append(
            Section(f"Samples, source {number + 1}", lead, render_table(*sample_table(results, number), has_text=True))
        )
    return sections
