"""The benchmark of dense attention runs, at tiny sizes, and its contestants compute the same thing."""

import importlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.attention_materialised import materialised_attention
from benchmarks.attention_plots import attention_plots
from benchmarks.attention_table import render_attention
from benchmarks.attention_targets import verdicts


def contestants_module() -> Any:
    return importlib.import_module("attention_contestants")


def table(title: str, **ratios: dict[str, float]) -> dict[str, Any]:
    rows = [
        {"name": name, "cells": {n: {"ratio": ratio} for n, ratio in cells.items()}} for name, cells in ratios.items()
    ]
    return {"title": title, "rows": rows}


@pytest.mark.recipe
def test_quick(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "bench" / "attention.json"
    importlib.import_module("attention").main(output=output, quick=True)
    record = json.loads(output.read_text())
    tables = {one["title"]: one for one in record["tables"]}
    kinds = ("Forward", "Train step")
    assert {f"{kind}, {mask}" for kind in kinds for mask in ("full", "causal", "padded")} <= set(tables)
    names = {row["name"] for row in tables["Train step, causal"]["rows"]}
    assert {"torch SDPA", "Weibull, KL, torch", "Weibull, KL, materialised"} <= names
    for one in record["tables"]:
        assert all(cell["ratio"] > 0.0 for row in one["rows"] for cell in row["cells"].values())
    assert len(record["profile"]["rows"]) == 8
    assert render_attention(record) in capfd.readouterr().out
    assert all(plot.startswith("<svg") for plot in attention_plots(record).values())


@pytest.mark.parametrize("mask", ["full", "causal", "padded"])
def test_contestants_agree(mask: str) -> None:
    """Soft attention is SDPA's, and the baseline's KL, whose noise is not ours, is that of the library."""
    module = contestants_module()
    inputs = module.Inputs(module.Sizes(length=6, heads=2, dim=4, mask=mask))
    torch.testing.assert_close(module.deterministic(inputs)[0], module.sdpa(inputs)[0])
    _, kl = module.weibull_kl(inputs)
    _, baseline = module._materialised(inputs, inputs.hidden())
    torch.testing.assert_close(kl, baseline, rtol=1e-4, atol=1e-4)


def test_materialised_weights_have_little_noise_for_large_k() -> None:
    query, key, value = (torch.randn(1, 2, 5, 4) for _ in range(3))
    alpha = torch.ones(1, 2, 1, 5)
    context, _ = materialised_attention(query, key, value, alpha=alpha, k=1e6, rate=1.0, hidden=None)
    soft = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(context, soft, rtol=1e-4, atol=1e-4)


def test_padded_lengths() -> None:
    module = contestants_module()
    mask = module.Inputs(module.Sizes(length=8, batch=4, mask="padded")).mask
    assert mask.sum(dim=-1).flatten().tolist() == [2, 4, 6, 8]


def test_a_crash_in_bfloat16_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("attention")
    monkeypatch.setattr(module.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, -4))
    assert module.tables_of_another_process([]) == ([], "not available: the process ended with code -4")


def test_rounds_fall_with_the_length() -> None:
    module = importlib.import_module("attention")
    assert [module.rounds_at(n, 16) for n in (128, 1024, 2048, 8192)] == [64, 16, 8, 3]
    assert module.rounds_at(8192, 1) == 1


def test_verdicts() -> None:
    """The worst length counts, those that are too short do not."""
    full = table("Train step, full", **{"Weibull, KL, C++": {"128": 9.0, "512": 1.1, "2048": 1.2}})
    causal = table("Train step, causal", **{"Weibull, KL, C++": {"512": 1.1, "2048": 1.15}})
    missed, met = verdicts([full, causal])
    assert (missed["worst"], missed["worst_length"], missed["best"], missed["is_met"]) == (1.2, 2048, 1.1, False)
    assert met["is_met"]


def test_more_is_better_over_the_baseline() -> None:
    cells = {"2048": {"ratio": 20.0, "over_ours": 11.0}, "4096": {"ratio": 30.0, "over_ours": 14.0}}
    rows = [{"name": "Weibull, KL, materialised", "cells": cells}]
    (found,) = verdicts([{"title": "Train step, full", "rows": rows}])
    assert (found["worst"], found["best"], found["is_met"]) == (11.0, 14.0, False)
