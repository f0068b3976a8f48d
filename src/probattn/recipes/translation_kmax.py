"""The K-max curve of trained translation models: quality and time of a mixture over the K most probable alignments.

Numbers of Deng et al. 2018 are those of Table 2 (IWSLT14 de-en, K = 5).
"""

from collections.abc import Mapping
from typing import Any

from probattn.recipes.report import as_markdown

__all__ = ["PUBLISHED", "curve_table", "verdict_table"]

K = 5
"""Of the paper's Table 2."""
PUBLISHED = {
    "marginal": ((6.33, 6.89), (33.08, 32.97)),
    "hard-enum": ((7.37, 7.37), (31.40, 31.37)),
    "hard-sample": ((7.38, 7.38), (31.00, 31.04)),
    "variational-enum": ((6.03, 6.37), (33.10, 33.00)),
    "variational-sample": ((6.13, 6.45), (33.09, 33.01)),
}
"""By row: (exact, K-max) perplexity and (exact, K-max) BLEU."""

Record = Mapping[str, Any]


def curve_table(records: Mapping[str, Record]) -> str:
    """Every model under every way of predicting, as Markdown.

    Args:
        records: What `probattn eval --test_with ... --output` wrote, by name of the model. Times are of one sitting
            each, so they are given over that of the exact mixture.
    """
    header = ["trained as", "tested with", "ppl", "/ exact", "BLEU", "time to score / exact", "time to search / exact"]
    rows = []
    for name, record in records.items():
        exact = record["results"]["exact"]
        rows += [
            [
                name,
                tested,
                f"{way['ppl']:.2f}",
                f"{way['ppl'] / exact['ppl']:.3f}",
                f"{way['bleu']:.1f}",
                f"{way['likelihood_seconds'] / exact['likelihood_seconds']:.2f}",
                f"{way['decoding_seconds'] / exact['decoding_seconds']:.2f}",
            ]
            for tested, way in record["results"].items()
        ]
    return as_markdown(header, rows)


def verdict_table(records: Mapping[str, Record], *, time_over_exact: float | None) -> str:
    """K = 5 against exact mixing: the loss of quality beside the paper's, and the time, as Markdown.

    Args:
        records: As for `curve_table`; models whose row the paper has and that were tested both ways are judged.
        time_over_exact: Of a beam search with K = 5 over one with the exact mixture, from the benchmark; None where it
            was not measured.
    """
    lines = []
    for name, record in records.items():
        row, ways = name.rpartition("-seed")[0] or name, record["results"]
        if row in PUBLISHED and "exact" in ways and f"kmax:{K}" in ways:
            lines += _quality(name, PUBLISHED[row], ways["exact"], ways[f"kmax:{K}"])
    if time_over_exact is not None:
        is_faster = "holds" if time_over_exact < 1.0 else "fails"
        lines.append([f"a beam search with K = {K} is faster than exact", "-", f"x {time_over_exact:.2f}", is_faster])
    return as_markdown(["claim", "paper", "here", "verdict"], lines) if lines else ""


def _quality(
    name: str, published: tuple[tuple[float, float], tuple[float, float]], exact: Record, k_max: Record
) -> list[list[str]]:
    """Perplexity and BLEU of one model; a rounding error beyond the paper's loss is none."""
    (their_ppl, their_k_max), (their_bleu, their_k_max_bleu) = published
    theirs, ours = their_k_max / their_ppl, k_max["ppl"] / exact["ppl"]
    their_change, our_change = their_k_max_bleu - their_bleu, k_max["bleu"] - exact["bleu"]
    return [
        [
            f"{name}: perplexity with K = {K} over exact, at most the paper's",
            f"x {theirs:.2f}",
            f"x {ours:.2f}",
            "holds" if round(ours, 2) <= round(theirs, 2) else "fails",
        ],
        [
            f"{name}: BLEU with K = {K} minus exact, at least the paper's",
            f"{their_change:+.2f}",
            f"{our_change:+.2f}",
            "holds" if round(our_change, 2) >= round(their_change, 2) else "fails",
        ],
    ]
