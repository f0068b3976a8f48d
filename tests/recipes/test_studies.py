"""The list of comparisons behind the documentation: it names what exists, counts what is there, and runs the rest."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from probattn.recipes import comparison, studies
from probattn.recipes.comparison import Comparison, compare_all, recipe_by_name
from probattn.recipes.failure_notes import FAILURES_FILE
from probattn.recipes.job_pool import run_jobs
from probattn.recipes.studies import main, study_table
from probattn.recipes.study_list import STUDIES, Study


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.folder)
def test_every_row_and_scale_exists(study: Study) -> None:
    recipe = recipe_by_name(study.recipe)
    for one in study.comparisons(Path("results")):
        assert one.rows and set(one.rows) <= set(recipe.rows)
        for row in one.rows:
            assert one.fingerprint(row)


def test_rows_are_not_counted_twice() -> None:
    for study in STUDIES:
        rows = [row for one in study.comparisons(Path()) for row in one.rows]
        assert len(rows) == len(set(rows)), study.folder


SMALL = Study(
    "toy/gat",
    "gat",
    [("gat", 2), ("*", 1)],
    overrides={"graph.num_nodes": 120, "optimiser.max_epochs": 1, "evaluation.draws": 2},
)


TINY_GLUE = {"task.max_train": 16, "optimiser.epochs": 1, "evaluation.draws": 2, "evaluation.max_drawn": 8}


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
    with pytest.raises(SystemExit, match=r"1 comparisons have failures:\ntoy/broken: 1 of 1 rows failed"):
        main(["--results", str(tmp_path), "run"])
    table = (tmp_path / "toy" / "gat" / "table.md").read_text()
    assert "| gat" in table and "| no-kl" in table


def test_comparisons_share_one_pool_and_come_as_they_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Study("toy/gat", "gat", [("gat", 1), ("no-kl", 1)], overrides=SMALL.overrides).comparisons(tmp_path)
    (third,) = Study("toy/other", "gat", [("gat", 1)], overrides=SMALL.overrides).comparisons(tmp_path)
    compare_all([second], lambda finished: None, workers=1)
    pools = []

    def counted(*arguments: Any, **how: Any) -> None:
        pools.append([call[4:] for call in arguments[1]])
        run_jobs(*arguments, **how)

    monkeypatch.setattr(comparison, "run_jobs", counted)
    found: list[tuple[str, list[tuple[str, int]]]] = []
    compare_all(
        [first, second, third], lambda one: found.append((one.comparison.output.name, list(one.results))), workers=2
    )
    assert found[0] == ("gat", [("no-kl", 0)])  # was there already
    assert sorted(found[1:]) == [("gat", [("gat", 0)]), ("other", [("gat", 0)])]
    assert pools == [[("gat", 0), ("gat", 0)]]


def test_a_report_that_cannot_be_written_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [Study(f"toy/{name}", "gat", [("gat", 1)], overrides=SMALL.overrides) for name in ("first", "second")]
    monkeypatch.setattr(studies, "STUDIES", tuple(wanted))
    (tmp_path / "toy" / "first" / "report.html").mkdir(parents=True)  # no file can be put there
    with pytest.raises(SystemExit, match=r"1 comparisons have failures:\ntoy/first: .*directory"):
        main(["--results", str(tmp_path), "run"])
    assert (tmp_path / "toy" / "first" / "gat.json").exists() and (tmp_path / "toy" / "second" / "table.md").exists()


def test_what_failed_is_told_beside_the_table_of_all_comparisons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study("toy/glue", "glue", [("soft", 1), ("no-kl", 1)], overrides=TINY_GLUE)
    monkeypatch.setattr(studies, "STUDIES", (study,))
    first, _ = study.comparisons(tmp_path)
    path = first.run_folder("soft", 0)
    path.parent.mkdir(parents=True)
    path.write_text("a file where the run's folder belongs")
    with pytest.raises(SystemExit, match="1 of 1 rows failed: soft"):
        main(["--results", str(tmp_path), "run"])
    table = (tmp_path / "toy" / "glue" / "table.md").read_text()
    assert "| no-kl" in table and "- soft, seed 0: " in table
    path.unlink()
    main(["--results", str(tmp_path), "run"])
    assert "Failed" not in (tmp_path / "toy" / "glue" / "table.md").read_text()
    assert not (tmp_path / "toy" / "glue" / FAILURES_FILE).exists()


def test_rows_named_twice_are_refused(tmp_path: Path) -> None:
    twice = Comparison(recipe_by_name("gat"), ["gat", "gat"], 1, None, {}, tmp_path)
    with pytest.raises(ValueError, match="every row can be named once, got gat, gat"):
        compare_all([twice], lambda finished: None, workers=1)


def test_the_command_of_a_result_can_be_typed(tmp_path: Path) -> None:
    made = Comparison(recipe_by_name("gat"), ["gat"], 1, None, {"weights": "{code: 1.0, attention: 0.1}"}, tmp_path)
    assert shlex.split(made.command("gat"))[-1] == "weights={code: 1.0, attention: 0.1}"


def test_a_wrong_name_is_answered_with_the_right_one(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"there is no study 'gat/pubmet'; did you mean 'gat/pubmed'\?"):
        main(["--results", str(tmp_path), "run", "gat/pubmet"])


def test_all_others_are_those_that_no_entry_names() -> None:
    first, second = SMALL.comparisons(Path())
    assert first.rows == ["gat"] and "gat" not in second.rows
    assert {*first.rows, *second.rows} == set(recipe_by_name("gat").rows)
