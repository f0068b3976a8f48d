"""Which commits a run was trained with."""

from pathlib import Path

import pytest

from probattn.recipes import provenance
from probattn.recipes.provenance import commit, note_commit, trained_with


def test_a_run_lists_every_commit_that_trained_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    assert trained_with(run) == []
    for name in ("aaa", "aaa", "bbb-dirty", "aaa"):
        monkeypatch.setattr(provenance, "commit", lambda name=name: name)
        note_commit(run)
    assert trained_with(run) == ["aaa", "bbb-dirty", "aaa"]


def test_checkpoints_older_than_the_list_are_said_to_be_unrecorded(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "update-000010").mkdir(parents=True)
    note_commit(tmp_path)
    assert trained_with(tmp_path) == ["unrecorded", commit()]
