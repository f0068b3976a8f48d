"""The translation recipe on a toy language: every row trains, resumes, evaluates; wrong input is named."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import probattn
from probattn import cli
from probattn.recipes import translation_data
from probattn.recipes.comparison import Comparison, compare
from probattn.recipes.failure_notes import FAILURES_FILE
from probattn.recipes.recipe import Run
from probattn.recipes.translation import RECIPE, TranslationTask, engine_stages, train
from probattn.recipes.translation_alignment import word_links
from probattn.recipes.translation_data import CorpusSettings, load_corpus
from probattn.training import CheckpointError
from probattn.training.stage import matches
from tests.toy_language import SMALL, write_toy_language


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_toy_language(tmp_path_factory.mktemp("text"))


def small(row: str, files: tuple[Path, Path], **overrides: Any) -> tuple[Any, dict[str, Any]]:
    text = {"corpus.name": "files", "corpus.src": files[0], "corpus.tgt": files[1]}
    return RECIPE.load(RECIPE.configs(row, None), {**text, **SMALL, **overrides})


def job(row: str, files: tuple[Path, Path], output: Path, **overrides: Any) -> Run:
    return Run(*small(row, files, **overrides), output, show_progress=False)


@pytest.mark.parametrize("row", RECIPE.rows)
def test_every_row_trains(row: str, files: tuple[Path, Path], tmp_path: Path) -> None:
    stages = len(small(row, files)[0].stages)
    result = train(job(row, files, tmp_path, epochs=max(stages, 2)))
    assert result.metrics["ppl"] < 60.0, result.metrics  # the vocabulary's size or so at the start
    assert len(result.curve) >= 2
    assert result.facts["updates"] > 0 and "tok:none" in result.facts["signature"]
    has_network = "SourceAndTarget" in (RECIPE.configs(row, None)[0]).read_text()
    assert ("posterior_entropy" in result.metrics) == has_network
    assert set(result.curves) == {"ppl", "entropy", *(["posterior_entropy"] if has_network else [])}
    assert [update for update, _ in result.curves["entropy"]] == [update for update, _ in result.curve]


def test_a_finished_run_is_not_trained_again(files: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = (train(job("soft", files, tmp_path)) for _ in range(2))
    changing = {"decoding_seconds", "likelihood_seconds"}
    same = {name: value for name, value in first.metrics.items() if name not in changing}
    assert same == {name: value for name, value in second.metrics.items() if name not in changing}
    assert first.curve == second.curve


def test_latent_alignment_learns_the_toy_language(files: tuple[Path, Path], tmp_path: Path) -> None:
    result = train(job("marginal", files, tmp_path, epochs=20))
    assert result.metrics["ppl"] < 3.0
    assert result.metrics["bleu"] > 30.0


def test_stages_share_the_epochs(files: tuple[Path, Path]) -> None:
    def lengths(epochs: int) -> list[int | None]:
        return [stage.epochs for stage in engine_stages(small("relaxed-lognormal", files, epochs=epochs)[0])]

    assert lengths(3) == [1, 1, 1] and lengths(5) == [1, 1, 3] and lengths(15) == [5, 2, 8]
    with pytest.raises(ValueError, match="3 stages need at least 3 epochs"):
        lengths(1)
    settings = small("relaxed-lognormal", files, epochs=5)[0]
    wrong = replace(settings, stages=[replace(settings.stages[0], share=0.0), *settings.stages[1:]])
    with pytest.raises(ValueError, match=r"stages need shares above zero, got \[0.0, 2"):
        engine_stages(wrong)


def test_the_inference_network_is_fitted_alone_before_it_moves_the_prior(files: tuple[Path, Path]) -> None:
    settings = small("relaxed-lognormal", files, epochs=3)[0]
    model = TranslationTask(settings, load_corpus(settings.corpus)).model
    stages = {stage.name: stage for stage in engine_stages(settings)}
    names = {name for name, _ in model.named_parameters()}
    trained = {name for name in names if matches(name, stages["inference"].trainable)}
    assert trained == {name for name in names if name.startswith("weights.posterior.")} and trained
    assert all(matches(name, stages[stage].trainable) for name in names for stage in ("prior", "main"))
    assert stages["main"].weights_at(0) == {"weights": 0.0}


def test_settings_without_effect_on_a_text_are_said(files: tuple[Path, Path]) -> None:
    own = CorpusSettings(name="files", src=files[0], tgt=files[1], max_words=2)
    assert str(load_corpus(own)).endswith("Of no effect on this text: corpus.max_words.")
    assert "no effect" not in str(load_corpus(replace(own, max_words=None, test_size=4)))
    assert "no effect" not in str(load_corpus(CorpusSettings(train_size=20, test_size=5, max_words=8)))
    published = CorpusSettings(name="multi30k", max_words=4, test_size=5)
    assert translation_data._unused(published) == ["max_words", "test_size"]


def test_a_threshold_is_one_of_words() -> None:
    """A word in two pieces has the weight of both."""

    class Pieces:
        def word_index(self, ids: list[int]) -> list[int]:
            return {3: [0, 1, 1], 2: [0, 1]}[len(ids)]

    subwords = SimpleNamespace(tokenizer=Pieces())
    weights = torch.tensor([[0.4, 0.3, 0.3], [0.8, 0.1, 0.1], [0.0, 0.0, 1.0]])  # the last is of the sentence's end
    links = [word_links(weights, subwords, [5, 6, 7], [5, 6], threshold=at) for at in (0.5, 0.35, None)]
    assert links == [{(1, 0), (0, 1)}, {(1, 0), (0, 0), (0, 1)}, {(0, 0), (0, 1)}]


@pytest.mark.parametrize("settings", [{"row": "mine"}, {"source": "mine"}, {"trainer.seed": 4}])
def test_a_comparison_refuses_what_all_rows_cannot_share(settings: dict[str, object], tmp_path: Path) -> None:
    comparison = Comparison(RECIPE, ["soft", "marginal"], 1, None, settings, tmp_path)
    with pytest.raises(ValueError, match=r"leave it out|say how many with --num_seeds"):
        compare(comparison, workers=1)
    assert not list(tmp_path.iterdir())


def test_wrong_corpora_are_named(files: tuple[Path, Path]) -> None:
    with pytest.raises(ValueError, match=r"corpus.src=FILE and corpus.tgt=FILE belong together"):
        load_corpus(CorpusSettings(name="files", src=files[0]))
    with pytest.raises(ValueError, match="needs both corpus.src=FILE and corpus.tgt=FILE"):
        load_corpus(CorpusSettings(name="files"))
    with pytest.raises(ValueError, match="add --scale files"):
        CorpusSettings(src=files[0])
    with pytest.raises(ValueError, match="test_size must be at least 1"):
        CorpusSettings(test_size=0)
    with pytest.raises(
        ValueError, match=r"80 for valid and test each leave none to train on\. Lower corpus\.test_size"
    ):
        load_corpus(CorpusSettings(name="files", src=files[0], tgt=files[1], test_size=80))
    own = {
        name: files[name.endswith("tgt")] for name in ("src", "tgt", "valid_src", "valid_tgt", "test_src", "test_tgt")
    }
    with pytest.raises(ValueError, match=r"corpus\.test_size has no effect where valid and test have files"):
        load_corpus(CorpusSettings(name="files", **own, test_size=10))
    with pytest.raises(ValueError, match="give train_size a number"):
        load_corpus(CorpusSettings(name="generated", train_size=None))


def test_the_effective_kl_gradient_is_logged(files: tuple[Path, Path], tmp_path: Path) -> None:
    with_kl = train(job("variational-enum", files, tmp_path / "q", **{"trainer.log_every": 2}))
    assert with_kl.metrics["effective_kl_gradient"] > 0.0
    for row in ("marginal", "wake-sleep"):  # no KL, and one inside the bound
        assert "effective_kl_gradient" not in train(job(row, files, tmp_path / row)).metrics


def test_lower_case_is_the_models_business(files: tuple[Path, Path], tmp_path: Path) -> None:
    run = job("marginal", files, tmp_path, **{"corpus.lowercase": "true"})
    train(run)
    translator = probattn.load(tmp_path)
    assert translator.translate(["DER Hund"])[0][0].text == translator.translate(["der hund"])[0][0].text
    assert translator.score(["DER Hund"], ["THE dog"]) == translator.score(["der hund"], ["the dog"])


def test_own_files_for_validation_and_test(files: tuple[Path, Path]) -> None:
    given = CorpusSettings(name="files", src=files[0], tgt=files[1], train_size=None, vocabulary_size=60)
    held_out = load_corpus(given)
    assert [len(held_out.texts[split]) for split in ("train", "valid", "test")] == [144, 8, 8]
    assert "train 144, valid 8, test 8" in str(held_out)
    own = load_corpus(replace(given, test_src=files[0], test_tgt=files[1]))
    assert [len(own.texts[split]) for split in ("train", "valid", "test")] == [152, 8, 160]
    assert own.digest != held_out.digest


CHANGES = (
    {"network.dropout": 0.3},
    {"max_tokens": 100},
    {"corpus.train_size": 50},
    {"corpus.seed": 1},
    {"test_estimator": "probattn.Enumerate"},
)


@pytest.mark.parametrize("change", CHANGES)
def test_a_run_is_not_continued_with_something_else(
    change: dict[str, Any], files: tuple[Path, Path], tmp_path: Path
) -> None:
    train(job("soft", files, tmp_path))
    with pytest.raises(CheckpointError, match=r"belongs to another run:\n  task\."):
        train(job("soft", files, tmp_path, **change))


def test_a_failing_row_does_not_cost_the_others(files: tuple[Path, Path], tmp_path: Path) -> None:
    settings = {"corpus.name": "files", "corpus.src": files[0], "corpus.tgt": files[1], **SMALL, "epochs": 1}
    words = [
        "compare",
        "translation",
        "--rows",
        "relaxed-dirichlet",
        "soft",
        "--workers",
        "1",
        "--output",
        str(tmp_path),
    ]
    with pytest.raises(
        SystemExit, match=r"1 of 2 rows failed: relaxed-dirichlet \(seed 0\).* 2 stages need at least 2"
    ):
        cli.main([*words, "--set", *(f"{name}={value}" for name, value in settings.items())])
    assert (tmp_path / "soft-seed0.json").exists()
    table = (tmp_path / "table.md").read_text()
    assert "| soft |" in table and "- relaxed-dirichlet, seed 0: 2 stages need at least 2" in table
    assert (tmp_path / "report.html").exists()
    assert list(json.loads((tmp_path / FAILURES_FILE).read_text())) == ["relaxed-dirichlet, seed 0"]
    words.remove("relaxed-dirichlet")
    cli.main([*words, "--set", *(f"{name}={value}" for name, value in settings.items())])
    assert not (tmp_path / FAILURES_FILE).exists() and "Failed" not in (tmp_path / "table.md").read_text()


def test_a_comparison_with_other_settings_starts_anew(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"corpus.name": "files", "corpus.src": files[0], "corpus.tgt": files[1], **SMALL, "epochs": 1}
    words = ["compare", "translation", "--rows", "soft", "--workers", "1", "--output", str(tmp_path), "--set"]
    for dropout in (0.0, 0.2):
        changed = {**settings, "network.dropout": dropout}
        cli.main([*words, *(f"{name}={value}" for name, value in changed.items())])
    assert "held a run with other settings" in capsys.readouterr().err
    runs = sorted(folder.name for folder in (tmp_path / "runs").iterdir())
    assert len(runs) == 2 and runs[0] == "soft-seed0" and runs[1].startswith("soft-seed0-")
    stored = json.loads((tmp_path / "soft-seed0.json").read_text())
    assert stored["overrides"]["network.dropout"] == "0.2"
    assert stored["command"].count("network.dropout=0.2") == 1


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the children of a process are listed in /proc")
def test_workers_end_with_the_command(files: tuple[Path, Path], tmp_path: Path) -> None:
    settings = {"corpus.name": "files", "corpus.src": files[0], "corpus.tgt": files[1], **SMALL, "epochs": 10_000}
    words = [f"{name}={value}" for name, value in settings.items()]
    command = ["-m", "probattn", "compare", "translation", "--rows", "soft", "--output", str(tmp_path)]
    process = subprocess.Popen([sys.executable, *command, "--set", *words], stderr=subprocess.DEVNULL)
    log = tmp_path / "runs" / "soft-seed0" / "log.jsonl"
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        wait_for(lambda: log.exists() and log.stat().st_size > 0)
        worker = max(int(number) for number in children.read_text().split())  # the other is the resource tracker
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not is_alive(worker))


def wait_for(is_done: Callable[[], bool], *, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)


def is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def test_two_processes_train_one_model(files: tuple[Path, Path], tmp_path: Path) -> None:
    settings = {"corpus.name": "files", "corpus.src": files[0], "corpus.tgt": files[1], **SMALL}
    words = ["train", "translation/marginal", *(f"{name}={value}" for name, value in settings.items())]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *launcher, "-m", "probattn", *words, "--output", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("Result: ") == 1  # one process evaluates and writes
    assert probattn.load(tmp_path / "run").translate(["der hund"])[0][0].text
