"""Table and HTML report of a translation comparison."""

from collections.abc import Sequence
from pathlib import Path

from probattn.recipes.paired import VERDICT_RULE
from probattn.recipes.report import Column, as_markdown, table_cells
from probattn.recipes.results import RowResult, summarise
from probattn.recipes.storage import write_atomically
from probattn.recipes.translation_claims import CLAIMS_HEADER, claim_lines
from probattn.recipes.translation_sentences import sentence_sections
from probattn.viz import (
    Section,
    bar_plot,
    curve_plot,
    render_page,
    render_table,
    scatter_plot,
)

COLUMNS = (
    Column("ppl", "test ppl", "low"),
    Column("iw_ppl", "iw_ppl"),
    Column("elbo_ppl", "elbo_ppl", ceiling=1e6),
    Column("bleu", "BLEU", "high"),
    Column("chrf", "chrF", "high"),
    Column("entropy", "entropy p"),
    Column("posterior_entropy", "entropy q"),
    Column("exact_entropy", "entropy exact"),
    Column("aer", "AER p", "low"),
    Column("posterior_aer", "AER q", "low"),
    Column("exact_aer", "AER exact", "low"),
    Column("kl_per_token", "KL a token"),
    Column("effective_kl_gradient", "KL gradient"),
    Column("parameters", "parameters"),
    Column("train_seconds", "seconds"),
)

_OF_ALIGNMENT = (
    "entropy",
    "posterior_entropy",
    "exact_entropy",
    "aer",
    "posterior_aer",
    "exact_aer",
    "parameters",
    "train_seconds",
)
"""Metrics of the second table; a single one would be too wide for a page and for a terminal."""
_QUALITY_TEXT = (
    "Perplexities count end-of-sentence tokens. 'ppl is' says how the predictive distribution of 'test ppl' was "
    "formed: exactly over all alignments, with plug-in weights, or as a mixture over draws. 'elbo_ppl' counts the "
    "whole KL; with 'iw_ppl' (20 draws of q) it bounds an exact 'test ppl' from above. For Bayesian rows, which "
    "train with a small KL weight, it bounds another quantity than the plug-in 'test ppl'. 'KL gradient' is the norm "
    "of the weighted KL's gradient over the likelihood's when it was last measured; '-' where there is no KL "
    "beside the likelihood. The best of a column is in bold."
)
_ALIGNMENT_TEXT = (
    "Entropy of the weights in nats, low where attention is peaked. AER is the alignment error rate against gold "
    "links, where a corpus has them. p is the prior, which decoding sees; q the inference network, which has seen the "
    "target; 'exact' the prior weighed by how well each position explains the word. Seconds are of training."
)
_CLAIMS_TEXT = (
    "What Deng et al. 2018 and BAM 2020 report on IWSLT14 with larger networks, and what became of it here. Signs, "
    f"ratios and orders are compared, not scores. {VERDICT_RULE}"
)


def write_report(task: str, results: Sequence[RowResult], output: Path) -> str:
    """Write `report.html` and `table.md`; return the table and where the report is, for the terminal."""
    measured = {name for result in results for name in result.metrics}
    columns = [column for column in COLUMNS if column.metric in measured]
    quality = table_cells(results, [column for column in columns if column.metric not in _OF_ALIGNMENT])
    chosen = [column for column in columns if column.metric in _OF_ALIGNMENT]
    alignment = table_cells(results, chosen, has_kinds=False)
    text = "\n".join(as_markdown(header, rows) for header, rows, _ in (quality, alignment))
    write_atomically(output / "table.md", text)
    facts = results[0].facts
    seeds = sorted({result.seed for result in results})
    numbers = ", ".join(str(seed) for seed in seeds)
    lead = (
        f"Corpus {facts['corpus']}, {facts['epochs']} epochs ({facts['updates']} updates) for every row, "
        f"{'seed' if len(seeds) == 1 else 'seeds'} {numbers}. The same network, text, updates and learning rate for "
        "all rows; rows differ in site, estimator and bound. In rows that are trained in stages (relaxed) the schedule "
        "of the learning rate starts anew with each stage."
    )
    first_seed = [result for result in results if result.seed == seeds[0]]
    note = f"BLEU {facts['signature']}; KL {facts['kl_reduction']}."
    sections = [
        Section("Likelihood and translation", _QUALITY_TEXT, render_table(*quality), note),
        Section("Alignment and cost", _ALIGNMENT_TEXT, render_table(*alignment)),
        *_claims(results),
        *_curves(first_seed),
        *_entropies(first_seed),
        *_summaries(results),
        *sentence_sections({result.row: result for result in first_seed}),
        _rows(first_seed),
    ]
    write_atomically(output / "report.html", render_page(f"probattn: {task}", lead, sections))
    return f"{text}\nReport: {output / 'report.html'}"


def _claims(results: Sequence[RowResult]) -> list[Section]:
    lines = claim_lines(results)
    return (
        [Section("The papers' claims", _CLAIMS_TEXT, render_table(CLAIMS_HEADER, lines, has_text=True))]
        if lines
        else []
    )


def _rows(results: Sequence[RowResult]) -> Section:
    """What each row is: without it nobody can compare them."""
    lines = [
        [
            result.row,
            str(result.facts["bound"]),
            ", ".join(result.facts["train_estimator"].values()),
            str(result.facts["test_estimator"]),
            result.source,
        ]
        for result in results
    ]
    header = ["row", "bound", "trained with", "tested with", "source"]
    return Section(
        "What the rows are",
        "What is maximised, and how expectations are taken.",
        render_table(header, lines, has_text=True),
    )


def _curves(results: Sequence[RowResult]) -> list[Section]:
    """Nothing where no result was validated on the way."""
    best = min((ppl for result in results for _, ppl in result.curve), default=None)
    if best is None:
        return []
    section = Section(
        "Validation perplexity",
        "Of the predictive distribution after every validation, first seed; the beginning is cut off.",
        curve_plot(
            {result.row: result.curve for result in results},
            x="update",
            y="validation perplexity",
            highest=6.0 * best,
            is_log=True,
        ),
    )
    return [section]


def _entropies(results: Sequence[RowResult]) -> list[Section]:
    """How alignments become more certain while a row is trained; nothing for results that did not log it."""
    names = {"entropy": "p", "posterior_entropy": "q"}
    curves = {
        f"{result.row}, {label}": result.curves[name]
        for result in results
        for name, label in names.items()
        if name in result.curves
    }
    if not curves:
        return []
    text = (
        "Mean entropy of the alignment's weights on validation text, first seed: of the prior p, which decoding sees, "
        "and of the inference network q, where there is one."
    )
    plot = curve_plot(curves, x="update", y="entropy (nats)")
    return [Section("Entropy of the alignment while training", text, plot)]


def _summaries(results: Sequence[RowResult]) -> list[Section]:
    entropy, ppl = summarise(results, "entropy"), summarise(results, "ppl")
    sections = [
        Section(
            "Perplexity against entropy of the alignment",
            "How peaked the expected weights of p are, and how well the next word is predicted.",
            scatter_plot(
                {row: (entropy[row].mean, ppl[row].mean) for row in entropy if row in ppl},
                x="entropy of the expected weights (nats)",
                y="test perplexity",
            ),
        )
    ]
    errors: dict[str, dict[str, float]] = {}
    for metric, label in (("aer", "prior"), ("posterior_aer", "inference network"), ("exact_aer", "exact posterior")):
        for row, summary in summarise(results, metric).items():
            errors.setdefault(row, {})[label] = summary.mean
    if errors:
        text = "Share of wrong links, before the target word is seen (prior) and after (the others). Shorter is better."
        sections.append(Section("Alignment error rate", text, bar_plot(errors, x="alignment error rate")))
    return sections
