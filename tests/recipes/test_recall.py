"""The recall recipe as a user runs it: every row trains a little, results resume, wrong input is named."""

import json
from pathlib import Path

import pytest

from probattn import cli
from probattn.recipes import recall
from probattn.recipes.comparison import CONFIGS, load_settings, rows_of
from probattn.recipes.results import RowResult, summarise

ROWS = rows_of("recall")


def settings(row: str, **overrides: object) -> recall.RecallSettings:
    return load_settings(recall.RecallSettings, CONFIGS / "recall" / f"{row}.yaml", overrides)


@pytest.mark.parametrize("row", ROWS)
def test_every_row_trains(row: str) -> None:
    overrides: dict[str, object] = {"updates": 12, "batch_size": 16}
    if row.startswith("relaxed"):
        overrides["pretrain_updates"] = 4
    result = recall.train(settings(row, **overrides), show_progress=False)
    assert result.row == row
    assert all(value == value for value in result.metrics.values()), result.metrics
    assert result.metrics["nll"] < 5.0
    has_posterior = "posterior_alignment" in result.metrics
    assert has_posterior == ("InferenceNetwork" in (CONFIGS / "recall" / f"{row}.yaml").read_text())
    assert set(result.pictures) == ({"p", "q"} if has_posterior else {"p"})


def test_the_same_seed_gives_the_same_result_and_another_one_does_not() -> None:
    def metrics(seed: int) -> dict[str, float]:
        result = recall.train(settings("variational-sample", updates=5, seed=seed), show_progress=False)
        return {key: value for key, value in result.metrics.items() if key != "seconds"}

    assert metrics(1) == metrics(1)
    assert metrics(1) != metrics(2)


def test_order_lists_every_row_once() -> None:
    order = (CONFIGS / "recall" / "ORDER").read_text().split()
    assert sorted(order) == sorted(path.stem for path in (CONFIGS / "recall").glob("*.yaml"))


@pytest.mark.recipe
def test_compare_writes_table_and_report_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compare", "--rows", "soft", "variational-enum", "--updates", "10", "--output", str(tmp_path)]
    recall.main([*command, "--workers", "2"])
    table = capsys.readouterr().out
    assert "| soft" in table and "| variational-enum" in table and "report.html" in table
    page = (tmp_path / "report.html").read_text()
    assert "variational-enum (q)" not in table and page.count("<svg") == 4
    stamp = (tmp_path / "soft-seed0.json").stat().st_mtime_ns
    (tmp_path / "variational-enum-seed0.json").write_text('{"fingerprint": "cut')  # as after a crash of another program
    recall.main([*command, "--workers", "1"])
    captured = capsys.readouterr()
    assert "1 of 2 results were there already" in captured.out
    assert "is not a result file" in captured.err
    assert (tmp_path / "soft-seed0.json").stat().st_mtime_ns == stamp
    stored = json.loads((tmp_path / "variational-enum-seed0.json").read_text())
    assert stored["overrides"] == {"updates": 10} and stored["result"]["facts"]["bound"] == "Elbo"


def test_unknown_rows_keys_and_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="unknown rows \\['sft'\\]"):
        recall.main(["compare", "--rows", "sft", "--output", str(tmp_path)])
    with pytest.raises(SystemExit, match="no config file 'recall/nothing'"):
        recall.main(["train", "--config", "recall/nothing"])
    with pytest.raises(SystemExit, match="updatez"):
        recall.main(["train", "--config", "recall/soft", "updatez=3"])
    with pytest.raises(SystemExit, match="name=value"):
        recall.main(["train", "--config", "recall/soft", "updates"])


def test_summary_over_seeds() -> None:
    def result(row: str, seed: int, nll: float) -> RowResult:
        return RowResult(row=row, source="", seed=seed, facts={}, metrics={"nll": nll})

    summary = summarise([result("a", 0, 1.0), result("b", 0, 5.0), result("a", 1, 3.0)], "nll")
    assert list(summary) == ["a", "b"]
    assert (summary["a"].mean, summary["a"].count) == (2.0, 2)
    assert str(summary["a"]) == "2 ± 1" and str(summary["b"]) == "5"


def test_command_line_lists_rows(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["ls"])
    listed = capsys.readouterr().out
    assert all(row in listed for row in ROWS)
    with pytest.raises(SystemExit, match="unknown command 'trian'"):
        cli.main(["trian"])
