"""The benchmark of a pretrained transformer runs, with a tiny random one."""

import importlib
import json
from pathlib import Path

import pytest

pytest.importorskip("transformers")


def test_quick(tmp_path: Path) -> None:
    output = tmp_path / "minilm.json"
    importlib.import_module("minilm").main(output=output, quick=True)
    steps, draws = json.loads(output.read_text())["tables"]
    assert [row["name"] for row in steps["rows"]] == ["eager", "sdpa", "stochastic, C++", "stochastic, torch"]
    assert steps["rows"][0]["ratio"] == 1.0 and steps["rows"][1]["over_sdpa"] == 1.0
    assert {row["name"]: row["target_ratio"] for row in draws["rows"] if "target_ratio" in row} == {
        "all layers random, C++": 1.15,
        "last third random, C++": 8.4 / 20,
    }
