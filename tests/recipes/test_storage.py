"""Result files: one per seed or one per row, found again only with the same settings."""

import json
from pathlib import Path

import pytest

from probattn.recipes.results import RowResult
from probattn.recipes.storage import ResultStore, read_results


def result(seed: int, value: float = 1.0) -> RowResult:
    return RowResult(row="soft", source="", seed=seed, facts={}, metrics={"nll": value})


@pytest.mark.parametrize("packs_seeds", [False, True])
def test_results_are_found_by_row_seed_and_settings(tmp_path: Path, packs_seeds: bool) -> None:
    store = ResultStore(tmp_path, packs_seeds)
    for seed in (3, 0):
        store.add(result(seed, value=float(seed)), {"fingerprint": "a"})
    assert store.find("soft", 3, "a") == result(3, value=3.0)
    assert store.find("soft", 3, "b") is None
    assert store.find("soft", 1, "a") is None
    assert store.find("other", 3, "a") is None
    assert len(list(tmp_path.glob("*.json"))) == (1 if packs_seeds else 2)


def test_a_packed_file_has_a_line_for_every_seed_in_order(tmp_path: Path) -> None:
    store = ResultStore(tmp_path, packs_seeds=True)
    for seed, value in ((2, 1.0), (0, 2.0), (2, 5.0)):
        store.add(result(seed, value), {"fingerprint": "a"})
    lines = (tmp_path / "soft.json").read_text().splitlines()
    assert len(lines) == 4
    assert [one.metrics["nll"] for one in read_results([tmp_path / "soft.json"])] == [2.0, 5.0]


def test_a_damaged_file_counts_as_absent_and_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ResultStore(tmp_path)
    store.path("soft", 0).write_text('{"fingerprint": "a", "resu')
    assert store.find("soft", 0, "a") is None
    assert "soft-seed0.json is not a result file" in capsys.readouterr().err
    store.add(result(0), {"fingerprint": "a"})
    assert json.loads(store.path("soft", 0).read_text())["result"]["seed"] == 0


def test_a_result_with_other_settings_is_set_aside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ResultStore(tmp_path)
    store.add(result(0, 1.0), {"fingerprint": "a"})
    store.add(result(0, 2.0), {"fingerprint": "a"})
    assert not list(tmp_path.glob("*.old"))
    store.add(result(0, 3.0), {"fingerprint": "b"})
    assert store.find("soft", 0, "b") == result(0, 3.0)
    assert json.loads((tmp_path / "soft-seed0-a.json.old").read_text())["result"]["metrics"] == {"nll": 2.0}
    assert "other settings" in capsys.readouterr().err


def test_seeds_with_other_settings_are_set_aside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ResultStore(tmp_path, packs_seeds=True)
    store.add(result(0), {"fingerprint": "a"})
    store.add(result(1), {"fingerprint": "b"})
    assert [one.seed for one in read_results([tmp_path / "soft.json"])] == [1]
    assert '"seed": 0' in (tmp_path / "soft-a.json.old").read_text()
    assert "other settings" in capsys.readouterr().err


def test_what_was_set_aside_is_never_replaced(tmp_path: Path) -> None:
    store = ResultStore(tmp_path, packs_seeds=True)
    for settings, seeds in (("a", (0, 1, 2)), ("b", (0,)), ("a", (0,)), ("b", (0,))):
        for seed in seeds:
            store.add(result(seed), {"fingerprint": settings})
    kept = {path.name: len(json.loads(path.read_text())) for path in tmp_path.glob("*.old*")}
    assert kept == {"soft-a.json.old": 3, "soft-b.json.old": 1, "soft-a.json.old-2": 1}


def test_mixed_settings_are_not_averaged(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    for seed, settings in ((0, "a"), (1, "b")):
        store.add(result(seed), {"fingerprint": settings})
    with pytest.raises(ValueError, match="row 'soft' were run with different settings"):
        read_results(sorted(tmp_path.glob("*.json")))
