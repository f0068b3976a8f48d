"""Verdicts on pictures: what papers claim of captions and answers, and which attention points at the right object.

Differences are paired by seed and need two seeds or more. A verdict is at the 5% level, adjusted (Holm) for the rows
that are compared in one metric.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from probattn.recipes.paired import LEVEL, PairedDifference, holm, paired_differences
from probattn.recipes.results import RowResult, summarise

__all__ = ["CLAIMS_NOTE", "POINTING_NOTE", "Claim", "claims_table", "pointing_table"]

Table = tuple[list[str], list[list[str]]]

_NOTHING = "no difference seen"

CLAIMS_NOTE = (
    "Paired by seed: mean difference, its standard error and the p-value of a t-test. A verdict is at the 5% level "
    "after Holm's adjustment for the rows of one metric, so a p-value just below 0.05 may not suffice; a paper's "
    "claims and questions of our own (rows that are ours, or '-' for the paper) are adjusted apart. Few seeds show "
    "large differences only."
)
POINTING_NOTE = (
    "Percent. Gold regions are known in generated scenes. Differences are paired by seed, verdicts at the 5% level "
    "after Holm's adjustment for the rows of one baseline and metric."
)


@dataclass(frozen=True)
class Claim:
    """A difference that a paper reports, or that we ask for.

    Attributes:
        text: What is claimed, or asked.
        row: Which row,
        baseline: against which.
        metric: Of the results.
        paper: The paper's difference, in the table's units; None where no paper has one.
        scale: From our units to the table's.
        digits: Behind the point.
    """

    text: str
    row: str
    baseline: str
    metric: str
    paper: float | None
    scale: float = 100.0
    digits: int = 2


def claims_table(results: Sequence[RowResult], *families: Sequence[Claim]) -> Table:
    """Each claim with the paper's difference, ours paired by seed, and a verdict.

    Args:
        results: Of any rows and seeds; claims whose rows do not share two seeds are left out.
        families: Claims that are adjusted together, metric by metric.
    """
    lines = []
    for claims in families:
        found = {claim: paired_differences(results, claim.metric, baseline=claim.baseline) for claim in claims}
        tested = {claim: rows[claim.row] for claim, rows in found.items() if claim.row in rows}
        for claim, difference in tested.items():
            p_values = {other.row: one.p_value for other, one in tested.items() if other.metric == claim.metric}
            is_seen = holm(p_values)[claim.row] < LEVEL
            name = f"{claim.row} minus {claim.baseline}, {claim.metric}"
            paper = "-" if claim.paper is None else f"{claim.paper:+.2f}"
            ours = difference.text(claim.digits, claim.scale)
            verdict = _verdict(claim, difference) if is_seen else _NOTHING
            lines.append([claim.text, name, paper, ours, str(difference.count), verdict])
    return ["claim", "difference", "paper", "ours", "seeds", "verdict"], lines


def pointing_table(
    results: Sequence[RowResult], metrics: Mapping[str, str], *, rows: Mapping[str, Sequence[str]]
) -> Table:
    """Which attention points at the right object: weight on gold regions, against plain attention of the same network.

    Args:
        results: Of any rows and seeds.
        metrics: From the name of a share between 0 and 1 to its title.
        rows: From the row of plain attention to those that are compared with it, where they share two seeds.
    """
    header = ["row", "against"]
    cells: dict[tuple[str, str], list[str]] = {}
    for metric, title in metrics.items():
        header += [title, "difference", "verdict"]
        means = summarise(results, metric)
        for baseline, others in rows.items():
            found = paired_differences(results, metric, baseline=baseline)
            family = {row: found[row] for row in others if row in found}
            adjusted = holm({row: one.p_value for row, one in family.items()})
            for row, one in family.items():
                verdict = ("more" if one.mean > 0.0 else "less") if adjusted[row] < LEVEL else _NOTHING
                mean = f"{100.0 * means[row].mean:.1f} (against {100.0 * means[baseline].mean:.1f})"
                cells.setdefault((row, baseline), []).extend([mean, one.text(1, 100.0), verdict])
    return header, [[*names, *shown] for names, shown in cells.items() if len(shown) == 3 * len(metrics)]


def _verdict(claim: Claim, found: PairedDifference) -> str:
    """Of a difference that is told from none."""
    if claim.paper is None:
        return "higher" if found.mean > 0.0 else "lower"
    return "as in the paper" if (found.mean > 0.0) == (claim.paper > 0.0) else "the other way round"
