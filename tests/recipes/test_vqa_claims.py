"""Tables and verdicts of visual question answering, from numbers that are made up."""

from collections.abc import Mapping

import pytest

from probattn.recipes.results import RowResult
from probattn.recipes.vqa_claims import claims_table, vqa_page
from probattn.recipes.vqa_tables import main_table, uncertainty_table

FACTS = {"nll_kind": "exact", "drawn": "dropout", "draws": 20, "corpus": "scenes", "epochs": 1, "updates": 2}
FACTS |= {"train_questions": 10, "test_questions": 5, "answers": 3}


def result(row: str, seed: int, numbers: Mapping[str, float]) -> RowResult:
    start = {"unknown_answers": 0.1, "majority_accuracy": 0.25, "clean/mean/accuracy": 0.5, "clean/mean/nll": 1.5}
    return RowResult(row=row, source="test", seed=seed, facts=FACTS, metrics={**start, **numbers})


@pytest.mark.parametrize(
    ("nlls", "expected"),
    [
        ([1.40, 1.41, 1.39], "as in the paper"),
        ([1.60, 1.61, 1.59], "the other way round"),
        ([1.40, 1.60, 1.50], "no difference seen"),
    ],
)
def test_verdicts(nlls: list[float], expected: str) -> None:
    results = [result("soft", seed, {"clean/mean/nll": 1.5 + 0.001 * seed}) for seed in range(3)]
    results += [result("marginal", seed, {"clean/mean/nll": nll}) for seed, nll in enumerate(nlls)]
    rows = {row[0]: row for row in claims_table(results)[1]}
    assert rows["the exact marginal has a lower NLL"][-1] == expected
    assert "variational attention has a lower NLL, enumerated" not in rows


def test_tables_have_the_papers_numbers_and_the_majority() -> None:
    results = [result("mcan-wc", seed, {"noise5/drawn/pavpu": 0.6 + 0.02 * seed}) for seed in range(2)]
    header, rows = main_table(results)
    majority, row = (dict(zip(header, cells, strict=True)) for cells in rows)
    assert majority["row"] == "majority" and majority["accuracy"] in ("25.0", "-")
    assert row["seeds"] == "2" and row["noisy"] == "62.89"
    noisy = next(cells for cells in uncertainty_table(results)[1] if cells[2] == "noise5")
    assert "61.0 ± 1.0" in noisy and "66.75" in noisy


def test_a_page_without_results_says_so() -> None:
    assert vqa_page("daquar", []) == "No results on daquar yet.\n"
    page = vqa_page("scenes", [result("soft", 0, {})])
    assert "10.0 % of the test questions" in page and "The papers' claims" not in page
