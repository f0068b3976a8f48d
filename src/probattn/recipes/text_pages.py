"""Pages of the documentation on text models, from stored results: one per corpus, sensitivity, augmentation.

A page comes with its plots, SVG by name; the page refers to them as `assets/<name>.svg`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from probattn.recipes.report import as_markdown
from probattn.recipes.results import RowResult, summarise
from probattn.recipes.text_augmentation_tables import augmentation_plot, augmentation_table, verdicts
from probattn.recipes.text_fluency import fluency_table
from probattn.recipes.text_published import SUMMED
from probattn.recipes.text_report import model_table, scratch_table, with_position_kl
from probattn.recipes.text_sensitivity import AXES, of_axis, sensitivity_table
from probattn.viz.panel_plots import Panel, panel_plot

__all__ = ["augmentation_page", "claims", "comparison_page", "sensitivity_page"]

Record = Mapping[str, Any]
Page = tuple[str, dict[str, str]]
_SINGLE = ("vae", "vae-anneal", "vae-cyclic", "vae-aggressive", "vae-fbp", "vae-pretraining-fbp")
_COLLAPSED = 0.1
"""Nats a position below which a KL is called near zero."""
_DYNAMIC = ("vae-anneal", "gavam", "davam-128", "davam-512")
_CURVES = {"reconstruction": "Rec", "kl": "KL", "code_perplexity": "code perplexity"}
_OF_YAHOO = "whose corpus it does not name (the sentences that it shows are Yahoo's)"
_INSTEAD = {"captions": "SNLI, which captions stand in for", "yahoo": "Yahoo, of whose 100,000 we have 10,000"}


def comparison_page(scale: str, results: Sequence[RowResult], fluency: Sequence[Record]) -> str:
    """All rows on one corpus beside the paper's tables, with verdicts on what the paper leads to expect."""
    if not results:
        return f"No results of text_{scale} yet.\n"
    facts = results[0].facts
    seeds = max(result.seed for result in results) + 1
    note = (
        f"Corpus {facts['corpus']}, {facts['updates']} updates for every row; nats per sentence, in brackets the "
        f"paper's Table II ({_INSTEAD.get(scale, 'PTB')}). Made by `probattn compare text_vae --scale {scale} "
        f"--num_seeds {seeds} --output results/text_{scale}`."
    )
    perplexities = (
        "`elbo_ppl` has the KL summed over positions; `counted_ppl` pays for the length of a memory too, and bounds "
        "the perplexity; `davam_ppl`, the paper's, averages the KL and bounds nothing. With the sum, the paper's DAVAM "
        f"(K = 512) would have about {SUMMED[scale]:g}."
    )
    parts = [as_markdown(*model_table(results)), note, "", perplexities]
    parts += ["\n**What the paper leads to expect**\n", as_markdown(*claims(results))]
    parts += [f"\n**Text from scratch**; in brackets the paper's Table V, {_OF_YAHOO}\n"]
    parts += [as_markdown(*scratch_table(results))]
    for scorer in sorted({str(record["scorer"]) for record in fluency}):
        own = [record for record in fluency if record["scorer"] == scorer]
        heading = f"\n**Fluency by {scorer}**; in brackets the paper's Tables IV (by GPT-2) and V, {_OF_YAHOO}\n"
        parts += [heading, as_markdown(*fluency_table(own))]
    return "\n".join(parts).rstrip("\n") + "\n"


def claims(results: Sequence[RowResult]) -> tuple[list[str], list[list[str]]]:
    """What the paper leads to expect, and whether it holds here; only where the rows were run."""
    results = [with_position_kl(result) for result in results]
    names = ("reconstruction", "kl_position", "elbo_ppl", "counted_ppl", "davam_ppl", "codes_used")
    means = {name: {row: one.mean for row, one in summarise(results, name).items()} for name in names}
    rec, rows = means["reconstruction"], []

    def below(claim: str, left: float | None, right: float | None) -> None:
        if left is not None and right is not None:
            rows.append([claim, f"{left:.3g}", f"{right:.3g}", "holds" if left < right else "does not hold"])

    below("KL a position of gavam near zero", means["kl_position"].get("gavam"), _COLLAPSED)
    single = min((rec[name] for name in _SINGLE if name in rec), default=None)
    below("Rec of davam-512 below all rows with one Gaussian", rec.get("davam-512"), single)
    below("Rec of davam-512 below gavam's", rec.get("davam-512"), rec.get("gavam"))
    below("Rec of davam-512 below davam-128's", rec.get("davam-512"), rec.get("davam-128"))
    below("Rec of davam-128 below davam-q's", rec.get("davam-128"), rec.get("davam-q"))
    below("more than half of 512 codes used by davam-512", 256.0, means["codes_used"].get("davam-512"))
    model = means["elbo_ppl"].get("lstm-lm")
    below("davam_ppl of davam-512 below the language model's", means["davam_ppl"].get("davam-512"), model)
    below("elbo_ppl of davam-512 below the language model's", means["elbo_ppl"].get("davam-512"), model)
    below("counted_ppl of davam-512, a bound, below the language model's", means["counted_ppl"].get("davam-512"), model)
    return ["claim", "smaller", "larger", "verdict"], rows


def sensitivity_page(records: Sequence[Record], results: Sequence[RowResult]) -> Page:
    """What the number of codes, the commitment's weight and the width of codes do; training dynamics (Fig. 4)."""
    plots, parts = {}, []
    if records:
        facts = records[0]["facts"]
        plots["text_sensitivity"] = _sensitivity_plot(records)
        parts += [
            "![Rec and KL over the settings](assets/text_sensitivity.svg)\n",
            as_markdown(*sensitivity_table(records)),
            f"Row davam-512 with one setting changed, {facts['train_size']:,} sentences of {facts['corpus']}, "
            f"{facts['updates']} updates; nats per sentence, KL summed over positions. Made by `python -m "
            f"probattn.recipes.text_sensitivity --scale {records[0]['scale']}`.",
        ]
    else:
        parts.append("No results of the sensitivity study yet.")
    first = [result for result in results if result.seed == 0 and result.row in _DYNAMIC]
    panels = []
    for metric, title in _CURVES.items():
        curves = {result.row: result.curves[metric] for result in first if result.curves.get(metric)}
        panels += [Panel("update", title, curves)] if curves else []
    if panels:
        plots["text_dynamics"] = panel_plot(panels)
        corpus = first[0].facts["corpus"]
        parts += [
            "\n**Training dynamics** (Fig. 4d)\n",
            "![Rec, KL and code perplexity over updates](assets/text_dynamics.svg)\n",
            f"Validation split of {corpus}, seed 0; nats per sentence, KL summed over positions. Rows with codes train "
            "the prior in their last updates only, so that their KL means little before.",
        ]
    else:
        parts.append("\nNo curves of training dynamics yet.")
    return "\n".join(parts) + "\n", plots


def augmentation_page(records: Sequence[Record]) -> Page:
    """Perplexity of a language model of a small corpus with and without generated text (Fig. 3)."""
    if not records:
        return "No results of the augmentation study yet.\n", {}
    study, seeds = records[0]["study"], sorted({record["seed"] for record in records})
    note = (
        f"Test perplexity of an LSTM language model, {study['updates']} updates whatever it is trained on, weights of "
        f"the best validation; {study['vocabulary_size']:,} words, the same everywhere; seeds {seeds}, mean and "
        "deviation. `davam-all` saw all captions, so it leaks; `real` are further captions. Made by `python -m "
        f"probattn.recipes.text_augmentation --scale {records[0]['scale']} --seeds '{seeds}'`."
    )
    parts = [
        "![Perplexity over times](assets/text_augmentation.svg)\n",
        as_markdown(*augmentation_table(records)),
        note,
        "\n**Verdict**: times chosen on validation, against no augmentation, paired by seed\n",
        as_markdown(*verdicts(records)),
    ]
    return "\n".join(parts).rstrip("\n") + "\n", {"text_augmentation": augmentation_plot(records)}


def _sensitivity_plot(records: Sequence[Record]) -> str:
    """Rec above, KL below, a column for each setting; the first seed."""
    panels = []
    for metric, title in (("reconstruction", "Rec"), ("kl", "KL")):
        for axis, about in AXES.items():
            own = [record for record in of_axis(records, axis) if record["seed"] == 0]
            points = sorted((float(record["value"]), record["metrics"][metric]) for record in own)
            if points:
                panels.append(Panel(about.title, title, {"davam-512": points}, is_log=True))
    return panel_plot(panels, columns=max(1, len(panels) // 2))
