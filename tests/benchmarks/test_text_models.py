"""The benchmark of text models runs, at tiny sizes."""

import importlib
import json
from pathlib import Path

import pytest
import torch


def test_quick(tmp_path: Path) -> None:
    output = tmp_path / "text_models.json"
    importlib.import_module("text_models").main(output=output, quick=True)
    own, paper, steps = json.loads(output.read_text())["tables"]
    assert [row["name"] for row in paper["rows"]] == ["cached, T = 50", "prefix, T = 50"]
    assert {row["name"]: row["target_over_cached"] for row in own["rows"] if "target_over_cached" in row} == {
        "prefix, T = 50": 10.0
    }
    assert "over_cached" not in own["rows"][0] and own["rows"][1]["over_cached"] > 0.0
    both = ["davam, warm-up", "davam, warm-up, float32", "davam, posterior", "davam, posterior, float32"]
    names = ["lstm-lm", "lstm-lm, float32", "vae", "gavam, warm-up", "gavam, main", *both, "davam, prior"]
    assert [row["name"] for row in steps["rows"]] == names and steps["rows"][0]["ratio"] == 1.0


def test_all_ways_of_sampling_draw_the_same_codes() -> None:
    benchmark = importlib.import_module("text_models")
    prior = benchmark.convolution_prior(16, channels=8, layers=2)
    seed = torch.tensor(3)
    expected = benchmark.cached(prior, 3, 7, seed=seed)
    assert expected.shape == (3, 7, benchmark.CODE_DIM) and len(expected.reshape(21, -1).unique(dim=0)) > 3
    for is_whole in (False, True):
        assert torch.equal(benchmark.recomputed(prior, 3, 7, seed=seed, is_whole=is_whole), expected)


def test_ways_that_differ_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = importlib.import_module("text_models")
    prior = benchmark.convolution_prior(16, channels=8, layers=2)
    monkeypatch.setattr(benchmark, "cached", lambda prior, batch, length, seed: torch.zeros(batch, length, 32))
    with pytest.raises(ValueError, match="different codes"):
        benchmark.samplers(prior, 2, [("cached", 4)])
