"""Pages of the documentation on text models, from stored results: one per corpus, sensitivity, augmentation.

A page comes with its plots, SVG by name; the page refers to them as `assets/<name>.svg`.
"""

import html
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from probattn.recipes.report import as_markdown
from probattn.recipes.results import RowResult
from probattn.recipes.text_augmentation_tables import augmentation_plot, augmentation_table, count_cut, duels, verdicts
from probattn.recipes.text_claims import claims, fluency_claims, sensitivity_claims
from probattn.recipes.text_fluency import fluency_table
from probattn.recipes.text_published import SMALLER, SUMMED
from probattn.recipes.text_report import model_table, scratch_table
from probattn.recipes.text_sensitivity import AXES, ROW, of_axis, sensitivity_table
from probattn.viz.panel_plots import Panel, panel_plot

__all__ = ["augmentation_page", "comparison_page", "sensitivity_page"]

Record = Mapping[str, Any]
Page = tuple[str, dict[str, str]]
_CODES = ("davam-128", "davam-512", "davam-512-places")
_DYNAMIC = ("vae-anneal", "gavam", *_CODES)
_OF_YAHOO = "whose corpus it does not name (the sentences that it shows are Yahoo's)"
_INSTEAD = {"captions": "SNLI, which captions stand in for"}


def comparison_page(scale: str, results: Sequence[RowResult], fluency: Sequence[Record]) -> str:
    """All rows on one corpus beside the paper's tables, with verdicts on what the paper leads to expect."""
    if not results:
        return f"No results of text_{scale} yet.\n"
    facts = results[0].facts
    brackets = f", in brackets the paper's Table II ({_INSTEAD.get(scale, 'PTB')})" if scale not in SMALLER else ""
    note = (
        f"Corpus {facts['corpus']}, {facts['updates']} updates for every row; nats per sentence{brackets}. Made by "
        f"`python -m probattn.recipes.studies run text_{scale}`."
    )
    perplexities = (
        "`elbo_ppl` has the KL summed over positions; `counted_ppl` pays for the length of a memory too, and bounds "
        "the perplexity; `davam_ppl`, the paper's, averages the KL and bounds nothing. With the sum, the paper's DAVAM "
        f"(K = 512) would have about {SUMMED[scale]:g}."
    )
    parts = [as_markdown(*model_table(results)), note, "", perplexities, *_remarks(results)]
    parts += ["\n**What the paper leads to expect**\n", as_markdown(*claims(results))]
    parts += [f"\n**Text from scratch**; in brackets the paper's Table V, {_OF_YAHOO}\n"]
    parts += [as_markdown(*scratch_table(results))]
    for scorer in sorted({str(record["scorer"]) for record in fluency}):
        own = sorted((record for record in fluency if record["scorer"] == scorer), key=_place(results))
        heading = f"\n**Fluency by {scorer}**; in brackets the paper's Tables IV (by GPT-2) and V, {_OF_YAHOO}\n"
        parts += [heading, as_markdown(*fluency_table(own))]
        header, lines = fluency_claims(own)
        parts += ["", as_markdown(header, lines)] if lines else []
    parts += _examples(results)
    return "\n".join(parts).rstrip("\n") + "\n"


def _place(results: Sequence[RowResult]) -> Callable[[Record], Any]:
    """A key that sorts records as rows are, those with drawn words first."""
    places = {row: place for place, row in enumerate(dict.fromkeys(result.row for result in results))}
    return lambda record: (places.get(record["row"], len(places)), record["seed"], not record["draws_words"])


def _examples(results: Sequence[RowResult]) -> list[str]:
    """What every row makes of one test sentence, and one sentence that it wrote from scratch."""
    sentence, rows = "", []
    for result in (one for one in results if one.seed == 0):
        texts = {str(example["kind"]): list(example["texts"]) for example in result.examples}
        read, again = "", "-"
        if len(pairs := texts.get("reconstruction", [])) > 1:
            read, _, again = pairs[1].partition(" => ")
        sentence = read or sentence
        if scratch := texts.get("from scratch", []):
            rows.append([result.row, _cell(again), _cell(scratch[-1])])
    if not sentence:
        return []
    note = (
        "**Examples**, seed 0, not chosen: the second test sentence again, from the mean of its latent, and the last "
        "of five sentences from scratch, with the most probable words where there are latents. The sentence: "
        f'"{_cell(sentence)}"\n'
    )
    return ["\n" + note, as_markdown(["row", "the sentence again", "from scratch"], rows)]


def _cell(text: str) -> str:
    """A sentence in a cell of a table: `<unk>` is no tag, and a bar no border."""
    return html.escape(text, quote=False).replace("|", "\\|")


def _remarks(results: Sequence[RowResult]) -> list[str]:
    """How `iw_ppl` was measured, and what an update of bursts is, where rows have them."""
    remarks = []
    draws = {str(result.facts["importance"]) for result in results if "importance" in result.facts}
    if draws:
        told = "; `probed_ppl` is the `counted_ppl` of the same sentences, exact for the language model"
        remarks += ["", f"`iw_ppl`: {'; '.join(sorted(draws))}{told}."]
    if any("decoder_updates" in result.metrics for result in results):
        remarks += [
            "",
            "A step of a burst counts as an update, so that `vae-aggressive` has the time of the other rows with one "
            "latent; 'decoder updates' are those that moved more than its encoder.",
        ]
    return remarks


def sensitivity_page(records: Sequence[Record], results: Sequence[RowResult]) -> Page:
    """What the number of codes, the commitment's weight and the width of codes do; training dynamics (Fig. 4)."""
    plots, parts = {}, []
    if records:
        facts = records[0]["facts"]
        plots["text_sensitivity"] = _sensitivity_plot(records)
        parts += [
            "![Rec and KL over the settings](assets/text_sensitivity.svg)\n",
            as_markdown(*sensitivity_table(records)),
            f"Row {ROW} with one setting changed, {facts['train_size']:,} sentences of {facts['corpus']}, "
            f"{facts['updates']} updates; nats per sentence, KL summed over positions. Made by `python -m "
            f"probattn.recipes.text_sensitivity --scale {records[0]['scale']}`.",
        ]
        expected = sensitivity_claims(records)
        parts += ["\n**What the paper sees** (Fig. 4 a-c)\n", as_markdown(*expected)] if expected[1] else []
    else:
        parts.append("No results of the sensitivity study yet.")
    first = [result for result in results if result.seed == 0 and result.row in _DYNAMIC]
    panels = _dynamics_panels(first)
    if panels:
        plots["text_dynamics"] = panel_plot(panels)
        parts += [
            "\n**Training dynamics** (Fig. 4d)\n",
            "![Rec, KL and codes over updates](assets/text_dynamics.svg)\n",
            f"Corpus {first[0].facts['corpus']}, seed 0; nats per sentence, KL summed over positions. In front the "
            "validation split, then the training text, means of 50 updates with dropout. Rows with codes train the "
            "prior in their last updates only, so that their KL means little before, and read no words then.",
        ]
    else:
        parts.append("\nNo curves of training dynamics yet.")
    return "\n".join(parts) + "\n", plots


def _dynamics_panels(results: Sequence[RowResult]) -> list[Panel]:
    """Rec, KL and codes over updates; KLs of Gaussians and of codes differ too much for one picture."""
    gaussian = [result for result in results if result.row not in _CODES]
    coded = [result for result in results if result.row in _CODES]
    wanted: list[tuple[str, str, Sequence[RowResult]]] = [
        ("reconstruction", "Rec, validation", results),
        ("kl", "KL of Gaussians, validation", gaussian),
        ("kl", "KL of codes, validation", coded),
        ("train_reconstruction", "Rec, training text", results),
        ("train_kl", "KL of Gaussians, training text", gaussian),
        ("train_kl", "KL of codes, training text", coded),
        ("code_perplexity", "code perplexity", coded),
        ("codes_used", "codes in use, validation", coded),
    ]
    panels = []
    for metric, title, rows in wanted:
        curves = {result.row: result.curves[metric] for result in rows if result.curves.get(metric)}
        panels += [Panel("update", title, curves, has_markers=not metric.startswith("train_"))] if curves else []
    return panels


def augmentation_page(records: Sequence[Record]) -> Page:
    """Perplexity of a language model of a small corpus with and without generated text (Fig. 3)."""
    if not records:
        return "No results of the augmentation study yet.\n", {}
    study, seeds = records[0]["study"], sorted({record["seed"] for record in records})
    note = (
        "Test perplexity of an LSTM language model, trained until validation no longer improves, or for "
        f"{study['updates']:,} updates ({count_cut(records)} of {len(records)} cells), with the weights of the best "
        "validation. Updates: alone, then the fewest and the most with added text. "
        f"{study['vocabulary_size']:,} words, the same everywhere; seeds {seeds}, mean and deviation. "
        "`davam-all` and `lstm-all` saw all captions, so they leak; `real` are further captions. Made by `python -m "
        f"probattn.recipes.text_augmentation --scale {records[0]['scale']} --seeds '{seeds}'`."
    )
    parts = [
        "![Perplexity over times](assets/text_augmentation.svg)\n",
        as_markdown(*augmentation_table(records)),
        note,
        "\n**Verdict**: times chosen on validation, against no augmentation; t-test paired by seed, at 5% after Holm's "
        "adjustment for the lines of a table\n",
        as_markdown(*verdicts(records)),
    ]
    against = duels(records)
    if against[1]:
        parts += ["\n**Against augmentation by a language model** that saw the same text, each at its own times\n"]
        parts += [as_markdown(*against)]
    return "\n".join(parts).rstrip("\n") + "\n", {"text_augmentation": augmentation_plot(records)}


def _sensitivity_plot(records: Sequence[Record]) -> str:
    """Rec above, KL below, a column for each setting; the first seed."""
    panels = []
    for metric, title in (("reconstruction", "Rec"), ("kl", "KL")):
        for axis, about in AXES.items():
            own = [record for record in of_axis(records, axis) if record["seed"] == 0]
            points = sorted((float(record["value"]), record["metrics"][metric]) for record in own)
            if points:
                panels.append(Panel(about.title, title, {ROW: points}, is_log=True))
    return panel_plot(panels, columns=max(1, len(panels) // 2))
