"""The verdict on codes that should pay for themselves: what is a success, a tie, a loss, and what has to wait."""

import pytest

from probattn.recipes.results import RowResult
from probattn.recipes.text_bounds import BARS, ROW, bounds_page, verdict


def result(row: str, counted: float, weighted: float, *, kl: float = 0.0, seed: int = 0) -> RowResult:
    own = {"iw_ppl": weighted} if row != "lstm-lm" else {}
    metrics = {"counted_ppl": counted, "probed_ppl": weighted if row != ROW else 1e3, "kl": kl, **own}
    facts = {"updates": 800, **({"importance": "9 draws"} if own else {})}
    return RowResult(row=row, source="", seed=seed, facts=facts, metrics=metrics)


def test_each_number_has_its_word() -> None:
    told = verdict([result(ROW, 10.3, 9.1, kl=1.0), *others(12.0, 10.0, 11.0)])
    assert "(counted_ppl +3.0%, a loss; iw_ppl +1.1%, a tie; against" in told


def others(*counted: float, seed: int = 0) -> list[RowResult]:
    """Those of the language model and the two controls; on fewer sentences all are easier by one."""
    return [result(row, value, value - 1.0, seed=seed) for row, value in zip(BARS, counted, strict=True)]


@pytest.mark.parametrize(
    ("counted", "weighted", "kl", "expected"),
    [
        (9.9, 9.5, 1.0, "success"),  # by one of the two is enough
        (10.5, 8.9, 1.0, "success"),
        (9.9, 8.9, 0.4, "a tie, because the KL is not above 0.5 nats"),
        (10.1, 9.5, 1.0, "a tie"),
        (9.97, 8.97, 1.0, "a tie"),  # below, but by less than half a percent
        (10.3, 9.3, 1.0, "a loss"),
        (11.5, 10.5, 1.0, "a loss"),  # below the language model, but not below a control
    ],
)
def test_the_row_has_to_be_below_all_others(counted: float, weighted: float, kl: float, expected: str) -> None:
    assert verdict([result(ROW, counted, weighted, kl=kl), *others(12.0, 10.0, 11.0)]).startswith(
        f"{expected} by the better"
    )


def test_every_seed_counts() -> None:
    first = [result(ROW, 9.0, 8.0, kl=1.0), *others(10.0, 10.0, 10.0)]
    second = [result(ROW, 9.0, 8.0, kl=0.1, seed=1), *others(10.0, 10.0, 10.0, seed=1)]
    assert verdict(first).startswith("success by the better of two numbers (counted_ppl -10.0%, success; iw_ppl -11.1%")
    assert "one seed, which decides nothing by itself" in verdict(first)
    assert "2 seeds" in verdict([*first, *second])
    assert verdict([*first, *second]).startswith("a tie, because the KL")
    above = [result(ROW, 11.0, 10.0, kl=1.0, seed=1), *others(10.0, 10.0, 10.0, seed=1)]
    assert verdict([*first, *above]).startswith(
        "a loss by the better of two numbers (counted_ppl -10.0% and +10.0%, a loss"
    )
    assert verdict([*first, result(ROW, 11.0, 10.0, kl=1.0, seed=1)]).startswith("success")  # others lack that seed


def test_what_is_missing_is_waited_for() -> None:
    row = result(ROW, 9.0, 8.0, kl=1.0)
    assert verdict([row, *others(10.0, 10.0, 10.0)[:2]]) == "none yet, as it waits for davam-short-constant."
    older = RowResult(row="lstm-lm", source="", seed=0, facts={"updates": 800}, metrics={"counted_ppl": 10.0})
    assert "numbers of all rows on the same sentences" in verdict([row, older, *others(10.0, 10.0, 10.0)[1:]])
    assert bounds_page("Penn Treebank", others(10.0, 10.0, 10.0)) == f"No results of {ROW} on Penn Treebank yet.\n"
    page = bounds_page("generated sentences", [row, *others(10.0, 10.0, 10.0)])
    assert (
        "Generated sentences, 800 updates. `iw_ppl`: 9 draws; `probed_ppl`" in page
        and "| seeds |" in page
        and "**Verdict**: success" in page
    )
