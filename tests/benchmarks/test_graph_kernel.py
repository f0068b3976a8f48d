"""The benchmark of graph attention runs, at tiny sizes."""

import importlib
import json
from pathlib import Path

import pytest

from benchmarks.benchmark_table import render_benchmark


@pytest.mark.recipe
def test_quick(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "bench" / "graph_kernel.json"
    importlib.import_module("graph_kernel").main(output=output, quick=True)
    record = json.loads(output.read_text())
    laws, growth = record["tables"]
    assert {"deterministic, torch", "Weibull, contextual prior, torch"} <= {row["name"] for row in laws["rows"]}
    assert [row["ratio_per_edge"] > 0.0 for row in growth["rows"]] == [True, True]
    assert render_benchmark(record) in capsys.readouterr().out
