"""The translation benchmark runs, at tiny sizes."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.benchmark_table import render_benchmark


def named(table: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in table["rows"]}


@pytest.mark.recipe
def test_quick(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "bench" / "translation.json"
    importlib.import_module("translation").main(output=output, quick=True)
    record = json.loads(output.read_text())
    steps, layer, decoding = record["tables"]
    for table in record["tables"]:
        assert table["rows"][0]["ratio"] == 1.0
        assert all(row["ratio"] > 0.0 and row["megabytes"] > 0.0 for row in table["rows"])
    assert {"soft", "marginal", "hard-sample", "bayesian-wc", "relaxed-dirichlet"} <= set(named(steps))
    for row in ("marginal", "variational-enum", "hard-enum"):  # sharpened, or nothing would be skipped
        assert 0.0 < named(steps)[f"{row}, skipping"]["kept"] < 0.9
    assert named(layer)["enumeration"]["target_ratio"] > named(layer)["enumeration, peaked, skipping"]["target_ratio"]
    assert set(named(decoding)) >= {"greedy, Mean()", "beam 2, Enumerate()"}
    assert "over_greedy" in named(decoding)["beam 2, Enumerate()"]
    assert render_benchmark(record) in capsys.readouterr().out


def test_table_has_the_columns_that_rows_fill() -> None:
    soft = {"name": "soft", "ratio": 1.0, "lower": 1.0, "upper": 1.0, "megabytes": 37.1}
    enumeration = {**soft, "name": "enumeration", "ratio": 20.25, "target_ratio": 19, "kept": 0.171}
    table = {"title": "Output layer", "sizes": {"vocabulary": 14000}, "rows": [soft, enumeration]}
    facts = {"rounds": 9, "machine": "x", "torch": "2", "clock": "process_time", "corpus": "y", "command": "z"}
    lines = render_benchmark({"tables": [table], **facts}).splitlines()
    assert lines[0] == "**Output layer**, over soft (vocabulary 14,000):"
    assert lines[2] == "| | time | quartiles | target | peak MB | alignments kept |"
    assert lines[4] == "| soft | 1.00 | 1.00 – 1.00 |  | 37 |  |"
    assert lines[5] == "| enumeration | 20.25 | 1.00 – 1.00 | 19 | 37 | 17% |"
    assert "Medians of 9 rounds" in lines[-1]
