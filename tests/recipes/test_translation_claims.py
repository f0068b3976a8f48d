"""Claims: ratios, verdicts over seeds, and what is left out."""

import pytest

from probattn.recipes.results import RowResult, Summary, verdict
from probattn.recipes.translation_claims import claims_table, published_table


def result(row: str, seed: int, *, ppl: float, bleu: float = 30.0, entropy: float = 1.0) -> RowResult:
    metrics = {"ppl": ppl, "bleu": bleu, "entropy": entropy, "parameters": 2.5e6}
    return RowResult(row=row, source="", seed=seed, facts={}, metrics=metrics)


@pytest.mark.parametrize(
    ("difference", "spread", "count", "expected"),
    [
        (-1.0, 0.1, 3, "holds"),
        (1.0, 0.1, 3, "fails"),
        (-0.1, 0.2, 3, "no difference beyond noise"),
        (-1.0, 0.0, 1, "sign as claimed (one seed)"),
        (1.0, 0.0, 1, "opposite sign (one seed)"),
    ],
)
def test_verdicts(difference: float, spread: float, count: int, expected: str) -> None:
    assert verdict(difference, Summary(5.0, spread, count), Summary(6.0, spread, count)) == expected


def test_tables_hold_ours_and_theirs() -> None:
    results = [
        result("soft", 0, ppl=6.0, entropy=1.3),
        result("soft", 1, ppl=6.2, entropy=1.31),
        result("marginal", 0, ppl=5.0, bleu=31.0, entropy=0.8),
        result("marginal", 1, ppl=5.1, bleu=31.1, entropy=0.81),
        result("hard-enum", 0, ppl=5.9, entropy=0.1),
    ]
    table = published_table(results, {"marginal": 2.5})
    marginal = next(line for line in table.splitlines() if line.startswith("| marginal"))
    assert [cell.strip() for cell in marginal.split("|")[1:7]] == [
        "marginal",
        "2",
        "5.05 ± 0.07",
        "0.83",
        "6.33",
        "0.90",
    ]
    assert marginal.rstrip(" |").endswith("2.5")
    claims = {line.split("|")[1].strip(): line for line in claims_table(results).splitlines()[2:]}
    assert claims["perplexity of marginal below soft's"].rstrip(" |").endswith("holds")
    assert "opposite sign (one seed)" in claims["perplexity of hard-enum above soft's"]
    assert "holds" in claims["entropy: marginal < soft"]
    assert "+0.77" in claims["BLEU of marginal above soft's"] and "+1.05" in claims["BLEU of marginal above soft's"]
    assert not any("relaxed" in claim for claim in claims)  # there is no result of it
