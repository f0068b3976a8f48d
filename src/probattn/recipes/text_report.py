"""Table and HTML report of a comparison of text models, beside DAVAM's Tables II and V."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from probattn.recipes.report import as_markdown
from probattn.recipes.results import RowResult, summarise
from probattn.recipes.storage import write_atomically
from probattn.recipes.text_published import DIVERSITY, PUBLISHED, SMALLER
from probattn.viz import Section, curve_plot, render_page, render_table

__all__ = ["model_table", "scratch_table", "with_position_kl", "write_report"]

Table = tuple[list[str], list[list[str]]]

_MODEL = {
    "reconstruction": "Rec",
    "kl": "KL",
    "kl_position": "KL a position",
    "elbo_ppl": "elbo_ppl",
    "counted_ppl": "counted_ppl",
    "probed_ppl": "probed_ppl",
    "iw_ppl": "iw_ppl",
    "davam_ppl": "davam_ppl",
    "active_units": "active units",
    "mutual_information": "MI",
    "code_perplexity": "code perplexity",
    "codes_used": "codes used",
    "decoder_updates": "decoder updates",
    "bursts_until": "bursts until",
    "parameters": "parameters",
    "train_seconds": "seconds",
}
_SCRATCH = {"entropy": "entropy", "dist1": "Dist-1", "dist2": "Dist-2", "repetition": "repetition"}
_TEXT = (
    "Rec is the negative log-likelihood of a sentence given one draw of its latents, KL is summed over positions, both "
    "in nats per sentence; the paper's KL is that of a position. elbo_ppl counts both; counted_ppl also has the number "
    "of latents, which tells the length of a sentence, and bounds the perplexity; a language model has both exactly. "
    "iw_ppl has importance-weighted draws and, of a memory, pays for its length as counted_ppl does; it is measured on "
    "fewer sentences, and probed_ppl is the counted_ppl of the same ones, a language model's too. Active units and MI "
    "of a memory are those of single positions. davam_ppl is what that paper publishes: it averages the KL over the "
    "positions of a sentence and adds it to a summed reconstruction, so it bounds nothing. Of rows with one Gaussian "
    "per sentence the paper publishes iw_ppl."
)
_SCRATCH_TEXT = (
    "Latents from the prior; then the most probable words, or words drawn from the model, as a language model's are. "
    "Every text has exactly so many words: none may end before, and it is cut off there. Entropy (nats), Dist-1 and "
    "Dist-2 are those of all texts of a length together; repetition is the share of word pairs that a text has twice."
)


def write_report(task: str, results: Sequence[RowResult], output: Path) -> str:
    """Write `report.html` and `table.md`; return the tables and where the report is, for the terminal."""
    text = f"{as_markdown(*model_table(results))}\n{as_markdown(*scratch_table(results))}"
    write_atomically(output / "table.md", text)
    write_atomically(output / "report.html", _page(task, results))
    return f"{text}\nReport: {output / 'report.html'}"


def model_table(results: Sequence[RowResult]) -> Table:
    """Reconstruction, KL and perplexities; the paper's number in brackets where it has one."""
    corpus = str(results[0].facts["corpus"])
    published = PUBLISHED.get(corpus, {}) if corpus not in SMALLER else {}
    results = [with_position_kl(result) for result in results]
    measured = {name for result in results for name in result.metrics}
    shown = {metric: title for metric, title in _MODEL.items() if metric in measured}
    values = {metric: summarise(results, metric) for metric in shown}
    names = list(dict.fromkeys(result.row for result in results))
    rows = []
    for name in names:
        cells = []
        for metric in shown:
            value, paper = values[metric].get(name), published.get(name, {}).get(metric)
            cells.append("-" if value is None else f"{value}" + (f" ({paper:g})" if paper is not None else ""))
        rows.append([name, str(sum(result.row == name for result in results)), *cells])
    return ["row", "seeds", *shown.values()], rows


def with_position_kl(result: RowResult) -> RowResult:
    """The same with the KL averaged over a sentence's positions, which the published perplexity has added.

    Rows with one latent per sentence have no positions to average over; of Gaussian ones the paper does not publish it.
    """
    metrics = dict(result.metrics)
    if result.row.startswith("vae") and result.row != "vae-attn":
        metrics.pop("davam_ppl", None)
    elif result.row != "davam-q" and {"davam_ppl", "reconstruction_ppl"} <= metrics.keys():
        per_token = math.log(metrics["reconstruction_ppl"])
        tokens = metrics["reconstruction"] / per_token if per_token > 0.0 else 0.0
        metrics["kl_position"] = tokens * (math.log(metrics["davam_ppl"]) - per_token)
    return replace(result, metrics=metrics)


def scratch_table(results: Sequence[RowResult]) -> Table:
    """Diversity and repetition of text from scratch, by length; the paper's number in brackets where it has one.

    A row with latents has two lines, one for its most probable words and one for drawn ones. The paper does not say
    which it has; its entropies are those of drawn words, so it is held against these where they are there.
    """
    lengths = sorted(
        {int(name.rpartition("_")[2]) for result in results for name in result.metrics if name.startswith("dist1_")}
    )
    is_paper = results[0].facts["corpus"] in PUBLISHED
    rows = []
    for name in dict.fromkeys(result.row for result in results):
        own = [result for result in results if result.row == name]
        has_drawn = any(metric.startswith("dist1_drawn_") for result in own for metric in result.metrics)
        kinds = [("", _words(own[0])), *([("drawn_", "drawn")] if has_drawn else [])]
        for mark, words in kinds:
            for length in lengths:
                paper = DIVERSITY.get(name, {}).get(length, {}) if is_paper and (mark or not has_drawn) else {}
                cells = []
                for metric in _SCRATCH:
                    value = summarise(own, f"{metric}_{mark}{length}").get(name)
                    known = f" ({paper[metric]:g})" if metric in paper else ""
                    cells.append("-" if value is None else f"{value}{known}")
                rows.append([name, words, str(length), *cells])
    return ["row", "words are", "length", *_SCRATCH.values()], rows


def _words(result: RowResult) -> str:
    """How a row chooses its words where nothing else is asked for."""
    known = result.facts.get("words")
    if known is None:  # an older result
        known = "drawn" if "kl" not in result.metrics or "choice_entropy" in result.metrics else "most probable"
    return str(known)


def _page(task: str, results: Sequence[RowResult]) -> str:
    facts = results[0].facts
    seeds = sorted({result.seed for result in results})
    lead = (
        f"Corpus {facts['corpus']}, {facts['updates']} updates for every row, seeds {seeds}. The same sizes, text and "
        "updates for all rows; rows differ in what is random, its prior, and the stages of training."
    )
    first_seed = [result for result in results if result.seed == seeds[0]]
    sections = [
        Section("Language modelling", _TEXT, render_table(*model_table(results))),
        Section("Text from scratch", _SCRATCH_TEXT, render_table(*scratch_table(results))),
    ]
    for metric, title in (("reconstruction", "reconstruction (nats per sentence)"), ("kl", "KL (nats per sentence)")):
        curves = {result.row: result.curves[metric] for result in first_seed if result.curves.get(metric)}
        if curves:
            plot = curve_plot(curves, x="update", y=title)
            sections.append(Section(f"During training: {title}", "On the validation split, first seed.", plot))
    for result in first_seed:
        for example in result.examples:
            cells = [[text] for text in example["texts"]]
            sections.append(Section(f"{result.row}: {example['kind']}", "", render_table(["text"], cells)))
    return render_page(f"probattn: {task}", lead, sections)
