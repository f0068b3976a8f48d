"""The tables of the attention benchmark as markdown, from its JSON record."""

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["render_attention"]

Row = Mapping[str, Any]
Cell = Mapping[str, float]

_MEMORY_OF = ("Forward, full", "Train step, full")
_FEW_MEGABYTES = 10.0


def render_attention(record: Mapping[str, Any]) -> str:
    """All tables, and what they were measured with."""
    parts = [_targets(record["targets"])] if record.get("targets") else []
    for table in record["tables"]:
        parts.append(_matrix(table, f"time over {table['rows'][0]['name']}", _ratio))
        if table["title"] in _MEMORY_OF:
            parts.append(_matrix(table, "peak MB of tensors, in brackets of the process", _megabytes))
    if "profile" in record:
        parts.append(_profile(record["profile"]))
    counts = [cell["rounds"] for table in record["tables"] for row in table["rows"] for cell in row["cells"].values()]
    parts.append(
        f"Medians of {max(counts)} rounds for the shortest to {min(counts)} for the longest, on {record['machine']}, "
        f"torch {record['torch']}, float32 unless said; the clock is `{record['clock']}`, the data random. bfloat16: "
        f"{record.get('bfloat16', 'not asked for')}. K{record['kernels'][1:]}. Made by `{record['command']}`."
    )
    return "\n\n".join(parts) + "\n"


def _targets(verdicts: list[Row]) -> str:
    lines = ["**Targets**\n", "| | target | best | worst | at n | |", "|---|---|---|---|---|---|"]
    for row in verdicts:
        sign = "≥" if row["is_least"] else "≤"
        lines.append(
            f"| {row['name']} | {sign} {row['target']:g} | {row['best']:.2f} | {row['worst']:.2f} | "
            f"{row['worst_length']:,} | {'met' if row['is_met'] else 'missed'} |"
        )
    return "\n".join(lines)


def _matrix(table: Row, what: str, text: Callable[[Cell], str]) -> str:
    """Contestants down, lengths across."""
    lengths = [str(n) for n in table["lengths"]]
    has_targets = text is _ratio and any("target" in row for row in table["rows"])
    heading = [f"n = {int(n):,}" for n in lengths] + (["target"] if has_targets else [])
    sizes = ", ".join(f"{name} {value:,}" for name, value in table["sizes"].items())
    lines = [
        f"**{table['title']}**, {what} ({sizes}):\n",
        f"| | {' | '.join(heading)} |",
        "|---" * (len(heading) + 1) + "|",
    ]
    for row in table["rows"]:
        cells = [text(row["cells"][n]) if n in row["cells"] else "" for n in lengths]
        cells += [f"{row['target']:g}" if "target" in row else ""] if has_targets else []
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _ratio(cell: Cell) -> str:
    if cell["lower"] == cell["upper"] == 1.0:
        return "1"
    spread = 0.5 * (cell["upper"] - cell["lower"])
    return f"{cell['ratio']:.2f} ± {spread:.2f}" if cell["ratio"] < 10.0 else f"{cell['ratio']:.1f} ± {spread:.1f}"


def _megabytes(cell: Cell) -> str:
    tensors = _number(cell["megabytes"])
    return f"{tensors} ({_number(cell['resident_megabytes'])})" if "resident_megabytes" in cell else tensors


def _number(megabytes: float) -> str:
    return f"{megabytes:.1f}" if megabytes < _FEW_MEGABYTES else f"{megabytes:,.0f}"


def _profile(table: Row) -> str:
    sizes = ", ".join(f"{name} {value:,}" for name, value in table["sizes"].items())
    passes = list(table["rows"][0]["nanoseconds"])
    lines = [f"**{table['title']}**, nanoseconds a score ({sizes}):\n", f"| | {' | '.join(passes)} |"]
    lines.append("|---" * (len(passes) + 1) + "|")
    for row in table["rows"]:
        numbers = [f"{row['nanoseconds'][kind]:.2f}" for kind in passes]
        lines.append(f"| {row['name']} | {' | '.join(numbers)} |")
    return "\n".join(lines)
