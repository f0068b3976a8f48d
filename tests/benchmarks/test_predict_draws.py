"""The benchmark of predictions runs, at tiny sizes."""

import importlib
import json
from pathlib import Path


def test_quick(tmp_path: Path) -> None:
    output = tmp_path / "predict_draws.json"
    importlib.import_module("predict_draws").main(output=output, quick=True)
    (table,) = json.loads(output.read_text())["tables"]
    assert table["rows"][0]["ratio"] == 1.0
    assert len(table["rows"]) == 5  # a pass; all layers and one layer random, each shared and not
