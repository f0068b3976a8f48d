"""Checkpoints: whole or absent, damage found and named, foreign ones refused, a full disk survived."""

import errno
import json
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import probattn.training.files as files
from probattn.core import Linear
from probattn.training import (
    CheckpointError,
    OutputError,
    Stage,
    Trainer,
    TrainerSettings,
    load_checkpoint,
    load_weights,
    save_model_folder,
)
from probattn.training.checkpoint import CheckpointStore, Snapshot
from tests.training.problems import ExactTask, weights_of

SETTINGS: dict[str, Any] = {"tensorboard": False, "save_every": 2, "log_every": 1, "validate_every": None}


def train(
    folder: Path, task: Any = None, *, updates: int = 6, stage: dict[str, Any] | None = None, **changes: Any
) -> Any:
    task = task or ExactTask()
    stages = [Stage("fit", updates=updates, **(stage or {}))]
    Trainer(task, TrainerSettings(**{**SETTINGS, **changes}), stages=stages, output=folder).run()
    return task


def names(folder: Path) -> set[str]:
    return {path.name for path in (folder / "checkpoints").iterdir()}


def test_one_process_at_a_time_trains_into_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(files, "_PATIENCE", 0.0)
    train(tmp_path, updates=2)
    log = (tmp_path / "log.jsonl").read_bytes()
    with files.exclusive(tmp_path), pytest.raises(OutputError, match="another process trains into .*; let it end, or"):
        train(tmp_path, updates=2)
    assert (tmp_path / "log.jsonl").read_bytes() == log
    train(tmp_path, updates=2)  # the lock is gone with its holder
    monkeypatch.setattr(files, "_PATIENCE", 60.0)
    holder = files.exclusive(tmp_path)
    holder.__enter__()
    threading.Timer(0.3, holder.__exit__, (None, None, None)).start()
    train(tmp_path, updates=2)  # one that is just saving is waited for
    assert "waiting for it to end" in capsys.readouterr().err


def test_layout_and_what_is_kept(tmp_path: Path) -> None:
    task = train(tmp_path)
    assert names(tmp_path) == {"latest", "update-000004", "update-000006"}
    checkpoint = load_checkpoint(tmp_path / "checkpoints" / "update-000006")
    assert {path.name for path in checkpoint.path.iterdir()} == {
        "model.safetensors",
        "training.pt",
        "loop.json",
        "manifest.json",
    }
    assert checkpoint.loop["update"] == 6
    other = ExactTask()
    load_weights(other.model, checkpoint.path)
    assert all(torch.equal(tensor, weights_of(other)[name]) for name, tensor in weights_of(task).items())


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def interrupt(folder: Path) -> None:
    """Six updates of ten, with a checkpoint after each of the last two."""

    class Stopping(ExactTask):
        def step(self, batch: torch.Tensor, stage: Stage, update: int) -> Any:
            if update == 6:
                raise RuntimeError("power cut")
            return super().step(batch, stage, update)

    with pytest.raises(RuntimeError, match="power cut"):
        train(folder, Stopping(), updates=10)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("model.safetensors", truncate, "model.safetensors has .* bytes instead of"),
        ("training.pt", truncate, "training.pt has .* bytes instead of"),
        ("loop.json", flip, "loop.json was changed after it was written"),
        ("manifest.json", truncate, "update-000006 has no readable manifest.json"),
        ("training.pt", os.unlink, "training.pt cannot be read: No such file"),
    ],
)
def test_damaged_newest_is_named_and_the_previous_one_used(
    name: str, damage: Callable[[Path], Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt(tmp_path / "part")
    damage(tmp_path / "part" / "checkpoints" / "update-000006" / name)
    task, whole = train(tmp_path / "part", updates=10), train(tmp_path / "whole", updates=10)
    printed = capsys.readouterr().err
    assert re.search(message, printed)
    assert "Going back to update-000004" in printed
    assert all(torch.equal(tensor, weights_of(whole)[key]) for key, tensor in weights_of(task).items())
    assert (tmp_path / "part" / "log.jsonl").read_text() == (tmp_path / "whole" / "log.jsonl").read_text()
    assert names(tmp_path / "part") == names(tmp_path / "whole")


def test_all_damaged(tmp_path: Path) -> None:
    interrupt(tmp_path)
    for update in (4, 6):
        truncate(tmp_path / "checkpoints" / f"update-{update:06d}" / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"(?s)no checkpoint in .* is intact:.*000006.*000004.*Restore one"):
        train(tmp_path, updates=10)


def test_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    interrupt(tmp_path)
    path = tmp_path / "checkpoints" / "update-000006" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 9}))
    with pytest.raises(CheckpointError, match="has format 9; this version of probattn reads format 1"):
        train(tmp_path, updates=10)
    assert "update-000006" in names(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": 0.5}, "settings.learning_rate: 0.001 in the checkpoint, 0.5 now"),
        ({"updates": 11}, "fit.updates: 10 in the checkpoint, 11 now"),
        ({"stage": {"trainable": ["bias"]}}, r"fit.trainable: .* in the checkpoint, .*bias.* now"),
        ({"stage": {"weights": {"z": Linear(0, 1, steps=3)}}}, "fit.weights.z: absent in the checkpoint, .*steps=3"),
        ({"task": ExactTask(model=nn.Linear(3, 1, bias=False))}, r"model.bias: '\(1,\) float32' in .* absent now"),
        ({"task": ExactTask(model=nn.Linear(2, 1))}, r"model.weight: '\(1, 3\) float32' in .*, '\(1, 2\) float32' now"),
    ],
)
def test_checkpoint_of_another_run(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    interrupt(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(CheckpointError, match=message) as caught:
        train(tmp_path, **{"updates": 10, **changes})
    assert "choose another output folder" in str(caught.value)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_free_settings_may_change(tmp_path: Path) -> None:
    interrupt(tmp_path / "part")
    task = train(tmp_path / "part", updates=10, save_every=3, keep_last=5, explosion_factor=9.0)
    whole = train(tmp_path / "whole", updates=10)
    assert all(torch.equal(tensor, weights_of(whole)[key]) for key, tensor in weights_of(task).items())


def test_many_differences_are_cut_short(tmp_path: Path) -> None:
    interrupt(tmp_path)
    with pytest.raises(CheckpointError, match=r"\.\.\. and \d+ more"):
        train(tmp_path, ExactTask(model=nn.Sequential(*(nn.Linear(3, 3) for _ in range(9)))), updates=10)


class FullDisk:
    """Stands for os.fsync; the n-th call finds the disk full."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, handle: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("after", range(18, 27))  # one save: the log, four files, two folders, a pointer, a folder
def test_full_disk_in_the_middle_of_a_save(after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever file it hits: a clear message, no half checkpoint, and the run resumes to the same end."""
    monkeypatch.setattr(files.os, "fsync", FullDisk(after))
    with pytest.raises(OutputError, match=r"No space left on device.*run the same command again to resume") as caught:
        train(tmp_path / "full", updates=10)
    monkeypatch.undo()
    assert not list((tmp_path / "full" / "checkpoints").glob(".unfinished-new*"))
    found = sorted((tmp_path / "full" / "checkpoints").glob("update-*"))
    assert re.search(rf"{found[-1].name} is intact|log.jsonl.*The checkpoints are intact", str(caught.value))
    assert load_checkpoint(found[-1]).loop["update"] >= 2
    task, whole = train(tmp_path / "full", updates=10), train(tmp_path / "whole", updates=10)
    assert all(torch.equal(tensor, weights_of(whole)[key]) for key, tensor in weights_of(task).items())
    assert (tmp_path / "full" / "log.jsonl").read_text() == (tmp_path / "whole" / "log.jsonl").read_text()


def test_file_limit_of_the_system(tmp_path: Path) -> None:
    """A real partial write: the kernel refuses to let a file grow beyond a limit."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    model = nn.Linear(300, 300)
    save_model_folder(nn.Linear(2, 2), tmp_path / "model", config={"size": 2})
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
        with pytest.raises(OutputError, match="cannot save the model in .*File too large"):
            save_model_folder(model, tmp_path / "model", config={"size": 300})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    load_weights(nn.Linear(2, 2), tmp_path / "model")


def test_full_disk_while_logging(tmp_path: Path) -> None:
    """Half a line gets onto the disk; the resumed run cuts it off."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    class Full(ExactTask):
        def step(self, batch: torch.Tensor, stage: Stage, update: int) -> Any:
            if update == 3:
                size = (tmp_path / "full" / "log.jsonl").stat().st_size
                resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, before[1]))
            return super().step(batch, stage, update)

    try:
        with pytest.raises(OutputError, match=r"cannot write .*log.jsonl: File too large.*run the same command again"):
            train(tmp_path / "full", Full())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "full" / "log.jsonl").read_text().endswith("\n")
    train(tmp_path / "full")
    train(tmp_path / "whole")
    assert (tmp_path / "full" / "log.jsonl").read_text() == (tmp_path / "whole" / "log.jsonl").read_text()


def test_unwritable_output(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write to .*: (Not a directory|File exists)"):
        train(tmp_path / "file")


def test_leftovers_of_a_killed_save_are_deleted(tmp_path: Path) -> None:
    interrupt(tmp_path)
    half = tmp_path / "checkpoints" / ".unfinished-new-update-000008"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    (tmp_path / "checkpoints" / ".unfinished-latest").write_bytes(b"upd")
    train(tmp_path, updates=10)
    assert names(tmp_path) == {"latest", "update-000008", "update-000010"}


def test_best_of_every_kept_checkpoint_is_kept(tmp_path: Path) -> None:
    """The previous checkpoint may be needed, and then the one it calls the best."""
    store = CheckpointStore(tmp_path, keep_last=2)
    assert store.open() is None
    for update, best in [(1, 1), (2, 1), (3, 1), (4, 4), (5, 5), (6, 5)]:
        store.save(Snapshot(update, best, nn.Linear(1, 1), training={}, loop={}, fingerprint={}))
        expected = {2: {1, 2}, 4: {1, 3, 4}, 5: {4, 5}, 6: {5, 6}}.get(update)
        assert expected is None or set(store.updates()) == expected
    assert (tmp_path / "best").read_text() == "update-000005\n"


class TestModelFolder:
    def test_round_trip_with_tied_weights_and_files(self, tmp_path: Path) -> None:
        class Tied(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.embedding = nn.Embedding(5, 3)
                self.readout = nn.Linear(3, 5, bias=False)
                self.readout.weight = self.embedding.weight

        model, other = Tied(), Tied()
        folder = save_model_folder(model, tmp_path / "model", config={"dim": 3}, files={"tokenizer.json": b"{}"})
        load_weights(other, folder)
        assert torch.equal(model.embedding.weight, other.readout.weight)
        assert json.loads((folder / "config.json").read_text()) == {"dim": 3}
        assert (folder / "tokenizer.json").read_bytes() == b"{}"

    def test_replaces_a_folder(self, tmp_path: Path) -> None:
        save_model_folder(nn.Linear(2, 2), tmp_path / "model", config={}, files={"old": b""})
        save_model_folder(nn.Linear(2, 2), tmp_path / "model", config={})
        assert {path.name for path in (tmp_path / "model").iterdir()} == {"config.json", "model.safetensors"}
        assert [path.name for path in tmp_path.iterdir()] == ["model"]

    def test_errors(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match="does not exist; is .* a checkpoint or a model folder"):
            load_weights(nn.Linear(2, 2), tmp_path)
        folder = save_model_folder(nn.Linear(2, 2), tmp_path / "model", config={})
        with pytest.raises(CheckpointError, match="does not fit the model; build it with the saved settings"):
            load_weights(nn.Linear(3, 2), folder)
        with pytest.raises(CheckpointError, match="(?s)does not fit the model.*bias"):
            load_weights(nn.Linear(2, 2, bias=False), folder)
        truncate(folder / "model.safetensors")
        with pytest.raises(CheckpointError, match="cannot be read, it may be truncated"):
            load_weights(nn.Linear(2, 2), folder)
        with pytest.raises(CheckpointError, match="has no readable manifest.json, so it is no checkpoint"):
            load_checkpoint(folder)
