"""Claims: ratios, verdicts over seeds, and what is left out."""

import pytest

from probattn.recipes.results import RowResult
from probattn.recipes.translation_claims import ENTROPY_ORDER, claim_lines, claims_table, published_table


def result(
    row: str, seed: int, *, ppl: float = 6.0, bleu: float = 30.0, entropy: float = 1.0, parameters: float = 2.5e6
) -> RowResult:
    metrics = {"ppl": ppl, "bleu": bleu, "entropy": entropy, "parameters": parameters}
    return RowResult(row=row, source="", seed=seed, facts={}, metrics=metrics)


def test_tables_hold_ours_and_theirs() -> None:
    results = [
        result("soft", 0, ppl=6.0, entropy=1.3),
        result("soft", 1, ppl=6.101, entropy=1.311),
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
    assert [cell.strip() for cell in marginal.split("|")[11:15]] == ["2.50M", "-", "2.5", "-"]
    claims = {line.split("|")[1].strip(): line for line in claims_table(results).splitlines()[2:]}
    assert claims["perplexity of marginal below soft's"].rstrip(" |").endswith("holds")
    assert "opposite sign (one seed)" in claims["perplexity of hard-enum above soft's"]
    assert "holds" in claims["entropy: marginal < soft"]
    assert "+0.77" in claims["BLEU of marginal above soft's"] and "+1.05" in claims["BLEU of marginal above soft's"]
    assert not any("relaxed" in claim for claim in claims)  # there is no result of it


def found(results: list[RowResult], steps: dict[str, float] | None = None, **options: float) -> dict[str, list[str]]:
    return {line[0]: line[1:] for line in claim_lines(results, steps, **options)}


@pytest.mark.parametrize(("ppl", "place"), [(5.2, "inside"), (5.4, "inside"), (5.7, "outside"), (5.0, "outside")])
def test_ratios_are_compared_with_the_papers_range(ppl: float, place: str) -> None:
    """The paper's rows have 0.86 to 0.90 of soft attention's perplexity."""
    lines = found([result("soft", 0, ppl=6.0), result("variational-enum", 0, ppl=ppl)])
    assert lines["perplexity of variational-enum below soft's"][1] == f"x {ppl / 6.0:.2f}, {place} 0.86 to 0.90"


@pytest.mark.parametrize(
    ("entropies", "seeds", "expected"),
    [
        ((0.1, 0.5, 0.8, 1.3, 2.0), 2, "holds"),
        ((0.1, 0.5, 0.8, 1.3, 2.0), 1, "order as claimed (some rows: one or two seeds)"),
        ((0.1, 0.9, 0.8, 1.3, 1.0), 2, "not shown for variational-enum < marginal; soft < relaxed-dirichlet"),
        ((0.1, 0.5, 0.5, 1.3, 2.0), 2, "not shown for variational-enum < marginal"),
    ],
)
def test_the_whole_order_of_entropies(entropies: tuple[float, ...], seeds: int, expected: str) -> None:
    results = [
        result(row, seed, entropy=entropy + 0.001 * seed * (1 + place))
        for place, (row, entropy) in enumerate(zip(ENTROPY_ORDER, entropies, strict=True))
        for seed in range(seeds)
    ]
    whole = "entropy: hard-enum < variational-enum < marginal < soft < relaxed-dirichlet"
    assert found(results)[whole][-1] == expected
    assert whole not in found(results[seeds:])  # one row of it is missing


def test_costs_are_compared_with_those_of_table_8() -> None:
    results = [result("variational-enum", 0, parameters=3.2e6), result("bayesian-wc", 0, parameters=2.5e6)]
    lines = found(results, {"variational-enum": 3.6, "bayesian-wc": 1.2})
    assert lines["parameters of variational-enum above bayesian-wc's"] == ["x 1.52", "x 1.28", "holds"]
    assert lines["time of a step of variational-enum above bayesian-wc's"] == ["x 1.20", "x 3.00", "holds"]
    assert found(results, {"variational-enum": 1.0, "bayesian-wc": 1.2})[
        "time of a step of variational-enum above bayesian-wc's"
    ] == ["x 1.20", "x 0.83", "fails"]
    assert not any("time" in claim for claim in found(results))  # nobody measured it
    row = next(line for line in published_table(results, {}).splitlines() if line.startswith("| bayesian-wc"))
    assert [cell.strip() for cell in row.split("|")[11:15]] == ["2.50M", "42M", "-", "0.10 s"]


@pytest.mark.parametrize(("bleu", "expected"), [(37.0, "holds"), (36.9, "fails")])
def test_soft_attention_has_something_to_reach(bleu: float, expected: str) -> None:
    assert found([result("soft", 0, bleu=bleu)], least_bleu=37.0)["BLEU of soft at least 37"][-1] == expected
    assert not found([result("soft", 0, bleu=bleu)])


def test_numbers_stand_on_the_seeds_in_common() -> None:
    """A copy of soft attention's first seed is neither better nor worse, whatever its other seeds are."""
    entropies = {"hard-enum": 0.4, "variational-enum": 0.7, "marginal": 0.8, "relaxed-dirichlet": 2.4}
    results = [result("soft", seed, ppl=6.0 - seed, entropy=entropy) for seed, entropy in enumerate((1.3, 0.5, 0.1))]
    results += [result(row, 0, ppl=6.0, entropy=entropy) for row, entropy in entropies.items()]
    cells = next(line for line in published_table(results, {}).splitlines() if line.startswith("| hard-enum"))
    assert cells.split("|")[4].strip() == "1.00"
    assert found(results)[f"entropy: {' < '.join(ENTROPY_ORDER)}"][1] == "0.40, 0.70, 0.80, 1.30, 2.40"


def test_a_row_without_a_finite_perplexity_is_left_out() -> None:
    results = [result("soft", 0), result("hard-enum", 0, ppl=float("inf"))]
    assert not any("perplexity" in claim for claim in found(results))
    assert " inf |" in published_table(results, {})
