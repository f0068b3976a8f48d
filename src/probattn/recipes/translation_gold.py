"""Word alignments of trained translation models against published gold links.

Records are what `probattn eval MODEL --gold_set de-en --output FILE` writes, one file a model.
"""

from collections.abc import Mapping
from typing import Any

from probattn.recipes.report import as_markdown

__all__ = ["gold_table"]

_COLUMNS = {"aer": "AER p", "posterior_aer": "AER q", "exact_aer": "AER exact", "entropy": "entropy p", "ppl": "ppl"}


def gold_table(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Alignment error rates of every model, as Markdown; empty without records.

    Args:
        records: By name of the model.

    Example:
        >>> record = {"text": "gold", "results": {"own": {"aer": 0.5, "exact_aer": 0.4, "entropy": 1.0, "ppl": 90.0}}}
        >>> print(gold_table({"soft-seed0": record}))
        | model      | AER p | AER q | AER exact | entropy p |  ppl |
        |------------|-------|-------|-----------|-----------|------|
        | soft-seed0 | 0.500 |     - |     0.400 |     1.000 | 90.0 |
        <BLANKLINE>
    """
    if not records:
        return ""
    rows = []
    for name, record in sorted(records.items()):
        own = record["results"]["own"]
        digits = {"ppl": 1}
        cells = [f"{own[metric]:.{digits.get(metric, 3)}f}" if metric in own else "-" for metric in _COLUMNS]
        rows.append([name, *cells])
    return as_markdown(["model", *_COLUMNS.values()], rows)
