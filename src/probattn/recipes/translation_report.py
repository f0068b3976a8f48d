"""Table and HTML report of a translation comparison."""

from collections.abc import Sequence
from pathlib import Path

from probattn.recipes.report import Column, render_markdown, table_cells
from probattn.recipes.results import RowResult
from probattn.viz import Section, curve_plot, render_page, render_table

COLUMNS = (
    Column("ppl", "test ppl", "low"),
    Column("elbo_ppl", "elbo_ppl"),
    Column("bleu", "BLEU", "high"),
    Column("chrf", "chrF", "high"),
    Column("entropy", "entropy p"),
    Column("posterior_entropy", "entropy q"),
    Column("aer", "AER p", "low"),
    Column("posterior_aer", "AER q", "low"),
    Column("kl_per_token", "KL a token"),
    Column("parameters", "parameters"),
    Column("train_seconds", "seconds"),
)


def write_report(task: str, results: Sequence[RowResult], output: Path) -> str:
    """Write `report.html` and `table.md`; return the table and where the report is, for the terminal."""
    measured = {name for result in results for name in result.metrics}
    columns = [column for column in COLUMNS if column.metric in measured]
    header, rows, best = table_cells(results, columns)
    text = render_markdown(results, columns)
    output.mkdir(parents=True, exist_ok=True)
    (output / "table.md").write_text(text)
    facts = results[0].facts
    seeds = sorted({result.seed for result in results})
    lead = (
        f"Corpus {facts['corpus']}, {facts['epochs']} epochs ({facts['updates']} updates) for every row, seeds "
        f"{seeds}. The same network, text, updates and learning rate for all rows; rows differ in site, estimator "
        "and bound."
    )
    first_seed = [result for result in results if result.seed == seeds[0]]
    sections = [
        Section(
            "All rows",
            "Perplexities count end-of-sentence tokens. 'test ppl' is exact for categorical alignments, of the "
            "plug-in weights for soft and Bayesian rows, and of a mixture over draws for relaxed rows. AER is "
            "against gold links; q sees the target sentence.",
            render_table(header, rows, best),
            f"BLEU {facts['signature']}; KL {facts['kl_reduction']}.",
        ),
        Section(
            "Validation perplexity",
            "After every validation, first seed.",
            curve_plot(
                {result.row: [(update, -ppl) for update, ppl in result.curve] for result in first_seed},
                x="update",
                y="- validation perplexity",
                lowest=-3.0 * min(ppl for result in first_seed for _, ppl in result.curve),
            ),
        ),
    ]
    (output / "report.html").write_text(render_page(f"probattn: {task}", lead, sections))
    return f"{text}\nReport: {output / 'report.html'}"
