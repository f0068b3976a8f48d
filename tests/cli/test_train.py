"""`probattn train`: a run that was stopped by its loss can be looked at."""

import json
from pathlib import Path

import pytest

from probattn import cli
from probattn.core import content_checks
from tests.toy_language import SMALL, write_toy_language


def words_of(tmp_path: Path, *more: str) -> list[str]:
    source, target = write_toy_language(tmp_path, size=80)
    text = {"corpus.name": "files", "corpus.src": source, "corpus.tgt": target}
    settings = [f"{name}={value}" for name, value in {**text, **SMALL}.items()]
    return ["train", "translation/soft", *settings, *more, "--output", str(tmp_path / "run")]


FAILING = ("trainer.learning_rate=1e30", "trainer.warmup_updates=0")
"""Settings whose second update has weights that overflow."""


def replayed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main([*words, "--replay"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_a_failed_update_is_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = words_of(tmp_path, *FAILING)
    with pytest.raises(SystemExit, match=r"attention scores .*not finite.* with --output .*run --replay"):
        cli.main(words)
    report = json.loads((tmp_path / "run" / "failure" / "rank-0.json").read_text())
    assert report["batches"][0]["source"]  # the sentences that it happened with
    said = replayed(words, capsys)
    assert f"update {report['update']} of stage 'main', repeated:" in said
    assert "attention scores" in said and "not finite" in said


def test_a_loss_that_is_not_finite_is_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = words_of(tmp_path, *FAILING)
    with content_checks(False):  # nothing stops the numbers on their way to the loss
        with pytest.raises(SystemExit, match="the loss is nan"):
            cli.main(words)
        said = replayed(words, capsys)
    assert "repeated:\nloss nan; norm of the gradient nan" in said
    assert "gradients that are not finite: source_embedding.weight" in said and "rank-0.json" in said


def test_nothing_is_repeated_where_nothing_failed(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no update of that run failed"):
        cli.main([*words_of(tmp_path), "--replay"])
    assert not (tmp_path / "run").exists()


def test_a_run_of_another_recipe_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "run"
    words = words_of(tmp_path, "epochs=1")
    cli.main(words)
    graph = ["train", "gat/gat", "graph.num_nodes=120", "optimiser.max_epochs=1", "evaluation.draws=2"]
    cli.main([*graph, "--output", str(output)])
    assert "held a run with other settings" in capsys.readouterr().err
    recipes = {
        name: json.loads((tmp_path / name / "model" / "config.json").read_text())["recipe"]
        for name in ("run", "run-old")
    }
    assert recipes == {"run": "gat", "run-old": "translation"}
    with pytest.raises(SystemExit, match="holds a run of another recipe; name another folder"):
        cli.main(words)
    assert json.loads((output / "model" / "config.json").read_text())["recipe"] == "gat"


def test_a_run_does_not_go_on_with_another_objective(tmp_path: Path) -> None:
    words = words_of(tmp_path, "epochs=1")
    words[words.index("translation/soft")] = "translation/variational-enum"
    with pytest.raises(SystemExit, match="the time was up"):
        cli.main([*words, "trainer.max_seconds=0.001"])
    other = tmp_path / "other.yaml"
    stage = "{name: main, bound: {class_path: probattn.Elbo}, use_posterior: false"
    other.write_text(f"stages: [{stage}, estimators: {{weights: {{class_path: probattn.Enumerate}}}}}}]\n")
    with pytest.raises(SystemExit, match="use_posterior"):
        cli.main([*words, "--config", str(other)])
    cli.main(words)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("trainer.seed=5", r"trainer\.seed=5 has no effect: the seed of weights and noise is seed=0"),
        ("network.skip_below=2", r"network\.skip_below must be at least 0 and below 1, got 2\.0"),
        ("network.dropout=1", r"network\.dropout must be at least 0 and below 1, got 1\.0"),
        ("trainer.warmup_updates=-5", r"warmup_updates must not be negative, got -5"),
    ],
)
def test_settings_that_would_ruin_a_run_or_do_nothing_are_refused(tmp_path: Path, setting: str, message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        cli.main(words_of(tmp_path, setting))


def test_a_file_as_output_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    with pytest.raises(SystemExit, match="run is a file; name a folder"):
        cli.main(words_of(tmp_path))
    assert (tmp_path / "run").read_text() == "mine"


def test_scales_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the same row at another scale neither fails on the first one's checkpoints nor replaces its model."""
    monkeypatch.chdir(tmp_path)
    small = ["graph.name=generated", "graph.num_nodes=120", "optimiser.max_epochs=1", "evaluation.draws=2"]
    cli.main(["train", "gat/gat", *small])
    cli.main(["train", "gat/gat", "--scale", "cora", *small])
    for folder in ("runs/gat/gat-seed0", "runs/gat/cora/gat-seed0"):
        assert (tmp_path / folder / "result.json").exists()


def test_a_short_run_with_other_settings_replaces_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "run"
    words = ["train", "gat/gat", "graph.num_nodes=120", "optimiser.max_epochs=1", "evaluation.draws=2"]
    for extra in ([], [], ["network.dropout=0.1"]):
        cli.main([*words, *extra, "--output", str(output)])
    assert f"{output} held a run with other settings; it is now {output}-old" in capsys.readouterr().err
    dropouts = [
        json.loads((path / "settings.json").read_text())["network"]["dropout"]
        for path in (output, tmp_path / "run-old")
    ]
    assert dropouts[0] == 0.1 != dropouts[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run-old"]
    assert all((tmp_path / name / "model").is_dir() for name in ("run", "run-old"))
