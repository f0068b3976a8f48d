"""Verdicts on captioning, and the page of the docs with all tables of a comparison.

Verdicts are on the paper's claims (BAM, Table 3), and on which attention points at what a word speaks of.
"""

from collections.abc import Sequence

from probattn.recipes import picture_claims
from probattn.recipes.captioning_tables import PUBLISHED, attention_table, failures, score_table
from probattn.recipes.picture_claims import CLAIMS_NOTE, POINTING_NOTE, Claim, Table
from probattn.recipes.report import as_markdown
from probattn.recipes.results import RowResult

__all__ = ["CLAIMS", "QUESTIONS", "captioning_page", "claims_table", "pointing_table"]

_SCORES = (("greedy_bleu4", "BLEU-4"), ("greedy_cider", "CIDEr"))
_BRACKETS = ", in brackets the paper's Table 3, on MS-COCO with boxes of a detector"

CLAIMS = tuple(
    Claim(title, row, "soft", metric, PUBLISHED[row][metric] - PUBLISHED["soft"][metric], 1.0)
    for row in ("wc", "lc", "hard")
    for metric, title in _SCORES
)
"""BAM 2020, Table 3."""

QUESTIONS = tuple(
    Claim(title, row, "soft", metric, None, 1.0)
    for row in ("wc-acting", "wc-code", "wc", "lc", "hard")
    for metric, title in (*_SCORES, ("ppl", "perplexity"))
    if metric == "ppl" or row.startswith("wc-")
)
"""Ours: rows that the paper has not, and a metric that it does not report."""


def claims_table(results: Sequence[RowResult]) -> Table:
    """The paper's claims, then questions of our own; needs two seeds or more."""
    return picture_claims.claims_table(results, CLAIMS, QUESTIONS)


def pointing_table(results: Sequence[RowResult]) -> Table:
    """Weight on the regions that words of reference captions speak of, against soft attention."""
    titles = {"attention_mass": "mass on gold", "attention_hits": "largest on gold"}
    rows = {"soft": list(dict.fromkeys(result.row for result in results))}
    return picture_claims.pointing_table(results, titles, rows=rows)


def captioning_page(scale: str, results: Sequence[RowResult]) -> str:
    """Markdown of a comparison, for the docs."""
    if not results:
        return f"No results of captioning on {scale} yet.\n"
    finished = [result for result in results if "failed" not in result.facts]
    facts, most = (finished or results)[0].facts, max(result.seed for result in results) + 1
    meteor = " --set decoding.has_meteor=true" if any("greedy_meteor" in one.metrics for one in results) else ""
    note = (
        f"Corpus {facts['corpus']}, {facts.get('epochs', '?')} epochs ({facts.get('updates', '?')} updates) for every "
        "row; greedy captions unless a column says beam; means and standard deviations over seeds, in brackets the "
        "paper's Table 3, on MS-COCO with boxes of a detector. Made by "
        f"`probattn compare captioning --scale {scale} --num_seeds {most}{meteor} --output results/captioning_{scale}`."
    )
    shows = scale == "flickr8k"
    parts = [as_markdown(*score_table(results, shows_published=shows)), note if shows else note.replace(_BRACKETS, "")]
    parts += ["\n**Likelihood, attention, diversity**\n", as_markdown(*attention_table(results))]
    claims = claims_table(results) if shows else ([], [])
    parts += ["\n**The paper's claims, and ours**\n", as_markdown(*claims), CLAIMS_NOTE] if claims[1] else []
    pointing = pointing_table(results)
    if pointing[1]:
        parts += ["\n**Which attention points at what a word speaks of?**\n", as_markdown(*pointing), POINTING_NOTE]
    broken = failures(results)
    parts += ["\n**Rows that broke**\n", *(f"- {line}" for line in broken)] if broken else []
    return "\n".join(parts).rstrip("\n") + "\n"
