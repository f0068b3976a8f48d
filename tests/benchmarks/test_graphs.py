"""The benchmark of graphs runs, at tiny sizes."""

import importlib
import json
from pathlib import Path

import pytest


@pytest.mark.recipe
def test_quick(tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    output = tmp_path / "graphs.json"
    importlib.import_module("graphs").main(output=output, quick=True)
    steps, growth = json.loads(output.read_text())["tables"]
    rows = {row["name"]: row for row in steps["rows"]}
    assert rows["PyG GATConv"]["ratio"] == 1.0
    plain, random = rows["deterministic, torch"], rows["stochastic, torch"]
    assert random["over_deterministic"] == pytest.approx(random["ratio"] / plain["ratio"])
    assert random["megabytes"] > plain["megabytes"]
    assert growth["rows"][0]["ratio_per_edge"] == 1.0 and growth["rows"][1]["bytes_per_edge"] > 0.0
