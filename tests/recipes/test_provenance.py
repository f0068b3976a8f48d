"""Which commits a run was trained with."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from probattn.recipes import provenance
from probattn.recipes.provenance import commit, note_commit, trained_with


@pytest.fixture(autouse=True)
def as_in_a_new_process() -> Iterator[None]:
    commit.cache_clear()
    yield
    commit.cache_clear()


def test_a_run_lists_every_commit_that_trained_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    assert trained_with(run) == []
    for name in ("aaa", "aaa", "bbb-dirty", "aaa"):
        monkeypatch.setattr(provenance, "commit", lambda name=name: name)
        note_commit(run)
    assert trained_with(run) == ["aaa", "bbb-dirty", "aaa"] == trained_with(run / "model")


def test_checkpoints_older_than_the_list_are_said_to_be_unrecorded(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "update-000010").mkdir(parents=True)
    note_commit(tmp_path)
    assert trained_with(tmp_path) == ["unrecorded", commit()]


def test_without_git_the_commit_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert commit() == "unknown"


def test_a_repository_around_the_environment_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the package was installed into the venv of somebody's project."""
    installed = tmp_path / ".venv" / "lib" / "probattn" / "recipes" / "provenance.py"
    installed.parent.mkdir(parents=True)
    installed.write_text("")
    (tmp_path / "thesis.tex").write_text("")
    ours = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e"]
    for words in (["init", "-q"], ["add", "thesis.tex"], ["commit", "-q", "-m", "my thesis"]):
        subprocess.run([*ours, *words], check=True)
    monkeypatch.setattr(provenance, "__file__", str(installed))
    assert commit() == "unknown"


def test_what_is_committed_later_did_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    before = commit()
    monkeypatch.setattr(subprocess, "run", lambda *words, **how: pytest.fail("asked again"))
    assert commit() == before
