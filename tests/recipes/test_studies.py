"""The list of comparisons behind the documentation: it names what exists, counts what is there, and runs the rest."""

import json
from pathlib import Path

import pytest

from probattn.recipes import comparison as comparisons
from probattn.recipes import studies
from probattn.recipes.comparison import compare_all, recipe_by_name
from probattn.recipes.studies import STUDIES, Study, main, study_table


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.folder)
def test_every_row_and_scale_exists(study: Study) -> None:
    recipe = recipe_by_name(study.recipe)
    for comparison in study.comparisons(Path("results")):
        assert comparison.rows and set(comparison.rows) <= set(recipe.rows)
        for row in comparison.rows:
            assert comparison.fingerprint(row)


def test_rows_are_not_counted_twice() -> None:
    for study in STUDIES:
        rows = [row for comparison in study.comparisons(Path()) for row in comparison.rows]
        assert len(rows) == len(set(rows)), study.folder


SMALL = Study(
    "toy/gat",
    "gat",
    [("gat", 2), ("*", 1)],
    overrides={"graph.num_nodes": 120, "optimiser.max_epochs": 1, "evaluation.draws": 2},
)


def test_what_is_missing_is_run_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(studies, "STUDIES", (Study(SMALL.folder, "gat", [("gat", 2)], overrides=SMALL.overrides),))
    assert study_table(tmp_path)[1] == [["toy/gat", "gat", "gat", "2", "0 of 2"]]
    main(["--results", str(tmp_path), "run", "toy/gat"])
    assert capsys.readouterr().out.rstrip().endswith(" 2 of 2 |")
    stored = tmp_path / "toy" / "gat" / "gat.json"
    records = json.loads(stored.read_text())
    records[0]["fingerprint"] = "other settings"
    stored.write_text(json.dumps(records))
    main(["--results", str(tmp_path), "status"])
    assert "1 of 2" in capsys.readouterr().out


def test_a_row_that_fails_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the report at the end is of all comparisons of a study, not of its last one."""
    broken = Study("toy/broken", "glue", [("soft", 1)], scale="mrpc", overrides={"task.max_train": 8})
    whole = Study("toy/gat", "gat", [("gat", 1), ("no-kl", 1)], overrides=SMALL.overrides)
    monkeypatch.delenv("PROBATTN_DATA", raising=False)
    monkeypatch.setattr(studies, "STUDIES", (broken, whole))
    with pytest.raises(SystemExit, match=r"1 comparisons have rows that failed:\ntoy/broken: 1 of 1 rows failed"):
        main(["--results", str(tmp_path), "run"])
    table = (tmp_path / "toy" / "gat" / "table.md").read_text()
    assert "| gat" in table and "| no-kl" in table


def test_comparisons_share_one_pool_and_come_as_they_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Study("toy/gat", "gat", [("gat", 1), ("no-kl", 1)], overrides=SMALL.overrides).comparisons(tmp_path)
    assert [one.comparison.rows for one in compare_all([second], workers=1)] == [["no-kl"]]
    pools = []
    executor = comparisons.ProcessPoolExecutor
    monkeypatch.setattr(comparisons, "ProcessPoolExecutor", lambda **how: pools.append(how) or executor(**how))
    third = next(iter(Study("toy/other", "gat", [("gat", 1)], overrides=SMALL.overrides).comparisons(tmp_path)))
    found = [(one.comparison.output.name, list(one.results)) for one in compare_all([first, second, third], workers=2)]
    assert found[0] == ("gat", [("no-kl", 0)])  # was there already
    assert sorted(found[1:]) == [("gat", [("gat", 0)]), ("other", [("gat", 0)])]
    assert [how["max_workers"] for how in pools] == [2]


def test_a_wrong_name_is_answered_with_the_right_one(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"there is no study 'gat/pubmet'; did you mean 'gat/pubmed'\?"):
        main(["--results", str(tmp_path), "run", "gat/pubmet"])


def test_all_others_are_those_that_no_entry_names() -> None:
    first, second = SMALL.comparisons(Path())
    assert first.rows == ["gat"] and "gat" not in second.rows
    assert {*first.rows, *second.rows} == set(recipe_by_name("gat").rows)
