"""The recall recipe as a user runs it: every row trains a little, results resume, wrong input is named."""

import json
import re
from pathlib import Path

import pytest

from probattn import cli
from probattn.recipes import recall
from probattn.recipes.recipe import CONFIGS, Run
from probattn.recipes.results import RowResult, summarise

RECIPE = recall.RECIPE
NOWHERE = Path("unused")


def settings(row: str, **overrides: object) -> recall.RecallSettings:
    built: recall.RecallSettings = RECIPE.load(RECIPE.configs(row, None), overrides)[0]
    return built


def quiet(row: recall.RecallSettings) -> Run:
    return Run(row, {}, NOWHERE, show_progress=False)


@pytest.mark.parametrize("row", RECIPE.rows)
def test_every_row_trains(row: str) -> None:
    overrides: dict[str, object] = {"updates": 12, "batch_size": 16}
    if row.startswith("relaxed"):
        overrides["pretrain_updates"] = 4
    result = recall.train(quiet(settings(row, **overrides)))
    assert result.row == row
    assert all(value == value for value in result.metrics.values()), result.metrics
    assert result.metrics["nll"] < 5.0
    has_posterior = "posterior_alignment" in result.metrics
    assert has_posterior == ("InferenceNetwork" in (CONFIGS / "recall" / f"{row}.yaml").read_text())
    assert set(result.pictures) == ({"p", "q"} if has_posterior else {"p"})


def test_the_same_seed_gives_the_same_result_and_another_one_does_not() -> None:
    def metrics(seed: int) -> dict[str, float]:
        result = recall.train(quiet(settings("variational-sample", updates=5, seed=seed)))
        return {key: value for key, value in result.metrics.items() if key != "seconds"}

    assert metrics(1) == metrics(1)
    assert metrics(1) != metrics(2)


def test_order_lists_every_row_once() -> None:
    order = (CONFIGS / "recall" / "ORDER").read_text().split()
    assert sorted(order) == sorted(path.stem for path in (CONFIGS / "recall").glob("*.yaml"))


@pytest.mark.recipe
def test_compare_writes_table_and_report_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "compare",
        "recall",
        "--rows",
        "soft",
        "variational-enum",
        "--set",
        "updates=10",
        "--output",
        str(tmp_path),
    ]
    cli.main([*words, "--workers", "2"])
    table = capsys.readouterr().out
    assert "| soft" in table and "| variational-enum" in table and "report.html" in table
    page = (tmp_path / "report.html").read_text()
    assert "variational-enum (q)" not in table and page.count("<svg") == 4
    stamp = (tmp_path / "soft-seed0.json").stat().st_mtime_ns
    (tmp_path / "variational-enum-seed0.json").write_text('{"fingerprint": "cut')  # as after a crash of another program
    cli.main([*words, "--workers", "1"])
    captured = capsys.readouterr()
    assert "1 of 2 results were there already" in captured.out
    assert "is not a result file" in captured.err
    assert (tmp_path / "soft-seed0.json").stat().st_mtime_ns == stamp
    stored = json.loads((tmp_path / "variational-enum-seed0.json").read_text())
    assert stored["overrides"] == {"updates": "10"} and stored["result"]["facts"]["bound"] == "Elbo"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compare", "recall", "--rows", "sft"], "'recall' has no row 'sft'. Did you mean 'soft'"),
        (["train", "recall/nothing"], "'recall' has no row 'nothing'"),
        (["train", "recall"], "expected RECIPE/ROW"),
        (["train", "recal/soft"], "expected RECIPE/ROW"),
        (["train", "recall/soft", "updatez=3"], "updatez"),
        (["train", "recall/soft", "updatez=3"], "Did you mean 'updates'"),
        (["train", "recall/soft", "learning_rate=fast"], "learning_rate"),
        (["train", "recall/soft", "updates"], "name=value"),
        (["train", "recall/soft", "--config", "absent.yaml"], "no such config file: absent.yaml"),
        (["train", "recall/soft", "--scale", "huge"], "'recall' has no scales, got 'huge'"),
        (["train", "recall/soft", "updates=0"], "updates must be at least 1, got 0"),
        (["train", "recall/soft", "batch_size=-1"], "batch_size must be at least 1, got -1"),
    ],
)
def test_wrong_words_are_named(words: list[str], message: str) -> None:
    with pytest.raises(SystemExit, match=re.escape(message)):
        cli.main(words)


def test_train_writes_its_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    extra = tmp_path / "own.yaml"
    extra.write_text("# my own setting\nupdates: 3\n")
    cli.main(["train", "recall/marginal", "--config", str(extra), "--output", str(tmp_path / "run"), "seed=2"])
    stored = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (stored["row"], stored["seed"], stored["facts"]["updates"]) == ("marginal", 2, 3)
    assert f"{'nll':<24} {stored['metrics']['nll']:.6g}" in capsys.readouterr().out.splitlines()


def test_summary_over_seeds() -> None:
    def result(row: str, seed: int, nll: float) -> RowResult:
        return RowResult(row=row, source="", seed=seed, facts={}, metrics={"nll": nll})

    summary = summarise([result("a", 0, 1.0), result("b", 0, 5.0), result("a", 1, 3.0)], "nll")
    assert list(summary) == ["a", "b"]
    assert (summary["a"].mean, summary["a"].count) == (2.0, 2)
    assert str(summary["a"]) == "2 ± 1" and str(summary["b"]) == "5"
    assert str(summarise([result("c", 0, 491_288.0)], "nll")["c"]) == "491,288"


def test_command_line_lists_rows(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["ls"])
    listed = capsys.readouterr().out
    assert all(row in listed for row in RECIPE.rows)
    cli.main([])
    assert "probattn compare translation" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--num_seeds", "0"], "num_seeds must be at least 1"),
        (["--set", "seed=7"], "say how many with --num_seeds"),
        (["--set", "updatez=7"], "updatez"),
    ],
)
def test_wrong_comparisons_are_named(words: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=message):
        cli.main(["compare", "recall", "--rows", "soft", "--output", str(tmp_path), *words])
