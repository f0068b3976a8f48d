"""Tables and verdicts of visual question answering, from numbers that are made up."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from probattn.recipes.findings import findings_table
from probattn.recipes.results import RowResult
from probattn.recipes.vqa_claims import claims_table, pointing_table, vqa_page
from probattn.recipes.vqa_report import write_report
from probattn.recipes.vqa_tables import main_table, uncertainty_table

FACTS = {"nll_kind": "exact", "drawn": "dropout", "draws": 20, "corpus": "scenes", "epochs": 1, "updates": 2}
FACTS |= {"train_questions": 10, "test_questions": 5, "answers": 3, "corpus_seed": 0}


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


def rows_of(metric: str, values: Mapping[str, list[float]]) -> list[RowResult]:
    return [result(row, seed, {metric: one}) for row, numbers in values.items() for seed, one in enumerate(numbers)]


def test_verdicts_are_adjusted_and_those_of_the_findings() -> None:
    soft, slight = [1.50, 1.50, 1.50, 1.50], [1.498, 1.494, 1.49, 1.494]  # p = 0.035 alone
    nothing = [1.50, 1.501, 1.499, 1.50]
    alone = rows_of("clean/mean/nll", {"soft": soft, "marginal": slight})
    beside = rows_of("clean/mean/nll", {"soft": soft, "marginal": slight, "variational-enum": nothing})
    for results, ours, findings in (
        (alone, "as in the paper", "holds"),
        (beside, "no difference seen", "no difference seen"),
    ):
        assert claims_table(results)[1][0][-1] == ours
        lines = {(line[1], line[2]): line[-1] for line in findings_table({"vqa_scenes": results})[1]}
        assert lines["vqa_scenes", "clean: NLL, marginal − soft"] == findings


def test_robustness_and_knowing_ones_errors_have_verdicts() -> None:
    results = []
    for seed in range(3):
        plain = {"clean/mean/accuracy": 0.50, "noise5/mean/accuracy": 0.30 + 0.001 * seed}
        results.append(result("mcan-soft", seed, {**plain, "clean/drawn/entropy_auroc": 0.7}))
        better = {"clean/mean/accuracy": 0.50 + 0.001 * seed, "noise5/mean/accuracy": 0.40}
        results.append(result("mcan-wc-acting", seed, {**better, "clean/drawn/entropy_auroc": 0.6 + 0.001 * seed}))
    found = {line[0]: line[2:] for line in claims_table(results)[1]}
    start = "Weibull noise and KL that act: "
    lost = found[f"{start}accuracy that noise takes away"]
    assert (lost[0], lost[-1]) == ("-1.57", "as in the paper") and lost[1].startswith("-9.80 ± 0.12") and lost[2] == "3"
    assert found[f"{start}how well entropy finds wrong answers (AUROC)"][::3] == ["-", "lower"]
    assert f"{start}PAvPU" not in found


def test_which_attention_points_at_the_right_object(tmp_path: Path) -> None:
    mass = {
        "question-only": [0.04, 0.04, 0.04],
        "soft": [0.20, 0.21, 0.19],
        "marginal": [0.30, 0.32, 0.29],
        "hard-enum": [0.19, 0.22, 0.18],
        "mcan-soft": [0.30, 0.31, 0.32],
        "mcan-wc": [0.10, 0.11, 0.13],
    }
    results = [
        result(row, seed, {"clean/attention/mass": one, "clean/attention/hit": one})
        for row, numbers in mass.items()
        for seed, one in enumerate(numbers)
    ]
    header, lines = pointing_table(results)
    found = {line[0]: dict(zip(header[:5], line, strict=False)) for line in lines}
    assert {row: (one["against"], one["verdict"]) for row, one in found.items()} == {
        "marginal": ("soft", "more"),
        "hard-enum": ("soft", "no difference seen"),
        "mcan-wc": ("mcan-soft", "less"),
    }
    assert found["marginal"]["mass on gold"] == "30.3 (against 20.0)"
    page = vqa_page("scenes", results)
    assert "**Which attention points at the right object?**" in page and "Holm's adjustment" in page
    assert "30.3 (against 20.0) |" in write_report("vqa", results, tmp_path)
    assert "Which attention points at the right object?" in (tmp_path / "report.html").read_text()
    one_seed = [one for one in results if one.seed == 0]
    assert pointing_table(one_seed)[1] == [] and "points at the right object" not in vqa_page("scenes", one_seed)
