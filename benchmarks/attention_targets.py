"""What dense attention is to reach, and what the tables of the benchmark say about it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["TARGETS", "Target", "verdicts"]

Cell = Mapping[str, float]


@dataclass(frozen=True)
class Target:
    """A number that all lengths from `shortest` on must keep.

    Attributes:
        title: Of the table.
        contestant: Whose number it is.
        quantity: Key of the cell.
        text: What the quantity is.
        bound: The number.
        shortest: Smallest n that counts.
        is_least: Whether more is better.
    """

    title: str
    contestant: str
    quantity: str
    text: str
    bound: float
    shortest: int = 512
    is_least: bool = False


_KL, _TORCH, _WHOLE = "Weibull, KL, C++", "Weibull, KL, torch", "Weibull, KL, materialised"

TARGETS = (
    Target("Train step, full", _KL, "ratio", "time over SDPA's", 1.15),
    Target("Train step, causal", _KL, "ratio", "time over SDPA's", 1.15),
    Target("Forward, full", _KL, "ratio", "time over SDPA's", 1.40),
    Target("Forward, causal", _KL, "ratio", "time over SDPA's", 1.40),
    Target("Train step, full", _KL, "memory_ratio", "memory over SDPA's", 1.0),
    Target("Forward, full", _KL, "memory_ratio", "memory over SDPA's", 1.0),
    Target("Train step, full", _WHOLE, "over_ours", "materialised over C++", 12.0, 2048, is_least=True),
    Target("Train step, causal", _WHOLE, "over_ours", "materialised over C++", 20.0, 2048, is_least=True),
    Target("Train step, full", _TORCH, "ratio", "plain torch over SDPA", 3.5),
    Target("20 draws, full", "20 draws, Weibull, C++", "ratio", "time over 20 passes of SDPA", 0.85, 128),
)


def verdicts(tables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each target that was measured, the worst number and where it is."""
    found = []
    for target in TARGETS:
        cells = _cells(tables, target)
        if not cells:
            continue
        pick: Callable[..., int] = min if target.is_least else max
        worst = pick(cells, key=lambda length: cells[length][target.quantity])
        number = cells[worst][target.quantity]
        found.append(
            {
                "name": f"{target.title}: {target.text}, n ≥ {target.shortest}",
                "target": target.bound,
                "is_least": target.is_least,
                "best": (max if target.is_least else min)(cell[target.quantity] for cell in cells.values()),
                "worst": number,
                "worst_length": worst,
                "is_met": number >= target.bound if target.is_least else number <= target.bound,
            }
        )
    return found


def _cells(tables: list[dict[str, Any]], target: Target) -> dict[int, Cell]:
    """By length."""
    rows = [row for table in tables if table["title"] == target.title for row in table["rows"]]
    cells = {int(n): cell for row in rows if row["name"] == target.contestant for n, cell in row["cells"].items()}
    return {n: cell for n, cell in cells.items() if n >= target.shortest and target.quantity in cell}
