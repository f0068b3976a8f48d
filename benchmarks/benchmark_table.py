"""The tables of a benchmark as markdown, from its JSON record."""

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["render_benchmark"]

Row = Mapping[str, Any]

# Key that a row must have to fill the column, heading, text.
COLUMNS: tuple[tuple[str, str, Callable[[Row], str]], ...] = (
    ("ratio", "time", lambda row: f"{row['ratio']:.2f}"),
    ("ratio", "quartiles", lambda row: f"{row['lower']:.2f} – {row['upper']:.2f}"),
    ("target_ratio", "target", lambda row: f"{row['target_ratio']:g}"),
    ("over_greedy", "over greedy", lambda row: f"{row['over_greedy']:.1f}"),
    ("over_cached", "over cached", lambda row: f"{row['over_cached']:.1f}"),
    ("target_over_cached", "target", lambda row: f"{row['target_over_cached']:g}"),
    ("over_sdpa", "over sdpa", lambda row: f"{row['over_sdpa']:.2f}"),
    ("megabytes", "peak MB", lambda row: f"{row['megabytes']:.0f}"),
    ("target_megabytes", "target MB", lambda row: f"{row['target_megabytes']:g}"),
    ("over_deterministic", "over deterministic", lambda row: f"{row['over_deterministic']:.2f}"),
    ("memory_over_deterministic", "memory over it", lambda row: f"{row['memory_over_deterministic']:.2f}"),
    ("ratio_per_edge", "time an edge", lambda row: f"{row['ratio_per_edge']:.2f}"),
    ("bytes_per_edge", "bytes an edge", lambda row: f"{row['bytes_per_edge']:.0f}"),
    ("kept", "alignments kept", lambda row: f"{row['kept']:.0%}"),
)


def render_benchmark(record: Mapping[str, Any]) -> str:
    """All tables, and what they were measured with."""
    parts = [_table(table) for table in record["tables"]]
    note = (
        f"Medians of {record['rounds']} rounds on {record['machine']}, torch {record['torch']}, float32; the clock is "
        f"`{record['clock']}`, the data {record['corpus']}. Made by `{record['command']}`."
    )
    return "\n\n".join([*parts, note]) + "\n"


def _table(table: Mapping[str, Any]) -> str:
    rows: list[Row] = table["rows"]
    columns = [column for column in COLUMNS if any(column[0] in row for row in rows)]
    sizes = ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in table["sizes"].items())
    if "skip_below" in table:
        sizes += f"; skipping below {table['skip_below']:g}"
    lines = [
        f"**{table['title']}**, over {rows[0]['name']} ({sizes}):\n",
        f"| | {' | '.join(heading for _, heading, _ in columns)} |",
        f"|---|{'---|' * len(columns)}",
    ]
    for row in rows:
        cells = [text(row) if key in row else "" for key, _, text in columns]
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    return "\n".join(lines)
