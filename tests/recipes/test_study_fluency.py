"""Fluency as the last step of a study: who is judged, when again, and what is said where the judge is gone."""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from probattn.recipes import comparison, studies, study_fluency, text_fluency
from probattn.recipes.recipe import Run
from probattn.recipes.results import RowResult
from probattn.recipes.studies import main
from probattn.recipes.study_fluency import judge_fluency
from probattn.recipes.study_list import STUDIES, Study
from probattn.recipes.text_fluency import Sampling
from probattn.recipes.text_vae import RECIPE
from tests.recipes.tiny_text import TINY

SMALL = Study("toy/text", "text_vae", [("lstm-lm", 2), ("vae", 1)], overrides=TINY, scorer="lstm-lm-seed1")


@pytest.mark.filterwarnings("ignore::probattn.training.CollapseWarning", "ignore:.*words of the texts are unknown")
def test_models_are_judged_when_they_are_trained_and_not_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(studies, "STUDIES", (SMALL,))
    for module in (study_fluency, text_fluency):
        monkeypatch.setattr(module, "Sampling", lambda: Sampling(lengths=(3,), num_samples=2))
    main(["--results", str(tmp_path), "run"])
    records = sorted((tmp_path / "toy" / "text" / "fluency").glob("*.json"))
    assert [path.name for path in records] == [
        "lstm-lm-seed0-lstm-lm-generated-seed1.json",
        "vae-seed0-lstm-lm-generated-seed1.json",
    ]
    judge, later = tmp_path / "toy" / "text" / "runs" / "lstm-lm-seed1" / "model", records[0].stat().st_mtime + 5.0
    assert json.loads(records[1].read_text())["lengths"]["3"]["fluency_ppl"] > 1.0
    assert judge_fluency(SMALL, tmp_path) == []
    os.utime(judge / "model.safetensors", (later, later))  # another judge judges anew
    assert sorted(judge_fluency(SMALL, tmp_path)) == records
    os.utime(judge / "model.safetensors", (later - 100.0, later - 100.0))
    records[1].rename(records[1].with_name("vae-seed0-SmolLM2-135M.json"))  # another scorer's does not count
    assert judge_fluency(SMALL, tmp_path) == [records[1]]
    records[1].unlink()
    shutil.rmtree(tmp_path / "toy" / "text" / "runs" / "lstm-lm-seed1")
    capsys.readouterr()
    with pytest.raises(SystemExit, match="the fluency of 1 runs .* is judged by lstm-lm-seed1, whose model is not"):
        main(["--results", str(tmp_path), "run"])


@pytest.mark.filterwarnings("ignore::probattn.training.CollapseWarning", "ignore:.*words of the texts are unknown")
def test_a_study_that_ends_early_has_the_fluency_of_what_was_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(studies, "STUDIES", (SMALL,))
    for module in (study_fluency, text_fluency):
        monkeypatch.setattr(module, "Sampling", lambda: Sampling(lengths=(3,), num_samples=2))
    train = RECIPE.train

    def broken(run: Run) -> RowResult:
        if run.settings.row == "vae":
            raise KeyboardInterrupt
        return train(run)

    # here instead of in other processes, which would not see what is broken
    monkeypatch.setattr(comparison, "recipe_by_name", lambda _: replace(RECIPE, train=broken))
    monkeypatch.setattr(comparison, "run_jobs", one_after_another)
    with pytest.raises(KeyboardInterrupt):
        main(["--results", str(tmp_path), "run"])
    names = [path.name for path in (tmp_path / "toy" / "text" / "fluency").glob("*.json")]
    assert names == ["lstm-lm-seed0-lstm-lm-generated-seed1.json"]


def one_after_another(
    function: Callable[..., Any], jobs: Sequence[Sequence[Any]], keep: Callable[[int, Any], None], **_: object
) -> None:
    for place, job in enumerate(jobs):
        keep(place, function(*job))


def test_results_without_models_are_left_alone(tmp_path: Path) -> None:
    assert judge_fluency(SMALL, tmp_path) == []
    assert judge_fluency(Study("toy/text", "text_vae", [("vae", 1)]), tmp_path) == []


def test_a_scorer_is_a_run_of_its_study_and_no_first_seed() -> None:
    judged = [study for study in STUDIES if study.scorer is not None]
    assert {study.folder for study in judged} == {"text_ptb", "text_yahoo"}
    for study in judged:
        runs = [f"{row}-seed{seed}" for one in study.comparisons(Path()) for row, seed in one.jobs]
        assert study.scorer in runs and not study.scorer.endswith("-seed0")
