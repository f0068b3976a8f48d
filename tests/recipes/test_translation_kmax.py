"""The K-max curve: ratios to the exact mixture, and verdicts beside the paper's Table 2."""

from typing import Any

import pytest

from probattn.recipes.translation_kmax import PUBLISHED, curve_table, verdict_table


def way(ppl: float, bleu: float, seconds: float) -> dict[str, Any]:
    return {"ppl": ppl, "bleu": bleu, "likelihood_seconds": seconds, "decoding_seconds": 10.0 * seconds}


def records(row: str = "marginal-seed0", *, ppl: float = 5.4, bleu: float = 40.0) -> dict[str, Any]:
    ways = {"soft": way(8.0, 38.0, 1.0), "exact": way(5.0, 40.1, 4.0), "kmax:5": way(ppl, bleu, 2.0)}
    return {row: {"results": ways}}


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


def test_curve_is_over_the_exact_mixture() -> None:
    assert cells(curve_table(records()))[-1] == ["marginal-seed0", "kmax:5", "5.40", "1.080", "40.0", "0.50", "0.50"]


@pytest.mark.parametrize(
    ("ppl", "bleu", "expected"),
    [
        (5.4, 40.0, ["holds", "holds"]),  # the paper: 1.09 and -0.11
        (5.5, 40.2, ["fails", "holds"]),
        (5.0, 39.5, ["holds", "fails"]),
    ],
)
def test_losses_are_compared_with_the_papers(ppl: float, bleu: float, expected: list[str]) -> None:
    lines = cells(verdict_table(records(ppl=ppl, bleu=bleu), time_over_exact=None))
    assert [line[-1] for line in lines] == expected
    assert [line[1] for line in lines] == ["x 1.09", "-0.11"]


@pytest.mark.parametrize(("ratio", "expected"), [(0.32, "holds"), (1.0, "fails")])
def test_time_has_a_verdict(ratio: float, expected: str) -> None:
    assert cells(verdict_table(records(), time_over_exact=ratio))[-1][-1] == expected


def test_what_the_paper_does_not_have_is_left_out() -> None:
    assert verdict_table(records("soft-seed0"), time_over_exact=None) == ""
    assert "soft" not in PUBLISHED
    without = records()
    del without["marginal-seed0"]["results"]["kmax:5"]
    assert verdict_table(without, time_over_exact=None) == ""
