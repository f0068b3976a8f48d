"""Checkpoints: a folder each, written atomically, with a manifest that tells damage from health.

| file | content |
|---|---|
| model.safetensors | weights and buffers of the model |
| training.pt | optimiser, update rule, random generators and log sums of each rank; tensors and plain containers only |
| loop.json | counters, selection, early stop |
| manifest.json | size and SHA-256 of the others, and what the run looked like |

`latest` and `best` beside the folders name the newest and the best one.
"""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from probattn.training.errors import CheckpointError, OutputError, say
from probattn.training.files import (
    atomic_folder,
    clean_folder,
    file_digest,
    remove_folder,
    write_bytes,
    write_json,
    write_pointer,
    write_weights,
)

__all__ = ["Checkpoint", "CheckpointStore", "Snapshot", "load_checkpoint"]

FORMAT = 1


class _Damage(CheckpointError):
    """A reason to look for an older checkpoint; all other errors are not."""


@dataclass(frozen=True)
class Snapshot:
    """What is saved.

    Attributes:
        update: Number of the update, which names the folder.
        best: Update of the best checkpoint as far as this one knows; None for none.
        model: Its state_dict is saved.
        training: Tensors and plain containers.
        loop: Fits into JSON.
        fingerprint: Settings, stages and shapes that a resumed run must share.
    """

    update: int
    best: int | None
    model: nn.Module
    training: Mapping[str, Any]
    loop: Mapping[str, Any]
    fingerprint: Mapping[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """What was saved, without the weights; `load_weights` loads those from `path`."""

    path: Path
    training: dict[str, Any]
    loop: dict[str, Any]
    fingerprint: dict[str, Any]


def load_checkpoint(folder: Path) -> Checkpoint:
    """Verify and read one checkpoint.

    Raises:
        CheckpointError: A file is missing, truncated or changed, or the folder is no checkpoint.
    """
    manifest = _verify(folder)
    training = torch.load(folder / "training.pt", map_location="cpu", weights_only=True)
    loop = json.loads((folder / "loop.json").read_bytes())
    return Checkpoint(folder, training, loop, manifest["fingerprint"])


def _verify(folder: Path) -> dict[str, Any]:
    """The manifest, if every file is as it says; raises _Damage if not."""
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        files, version = manifest["files"], manifest["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _Damage(f"{folder} has no readable manifest.json, so it is no checkpoint of a run") from error
    if version != FORMAT:
        raise CheckpointError(f"{folder} has format {version}; this version of probattn reads format {FORMAT}")
    for name, expected in files.items():
        try:
            found = file_digest(folder / name)
        except OSError as error:
            raise _Damage(f"{folder / name} cannot be read: {error.strerror}") from error
        if found["bytes"] != expected["bytes"]:
            raise _Damage(f"{folder / name} has {found['bytes']} bytes instead of {expected['bytes']}")
        if found["sha256"] != expected["sha256"]:
            raise _Damage(f"{folder / name} was changed after it was written: its SHA-256 is another one")
    return dict(manifest)


class CheckpointStore:
    """The checkpoints of one run; only the main rank writes.

    Args:
        folder: Where they are.
        keep_last: How many of the newest are kept; the best of each of them is kept too.
    """

    def __init__(self, folder: Path, keep_last: int) -> None:
        self.folder = folder
        self._keep_last = keep_last

    def path(self, update: int) -> Path:
        """Folder of the checkpoint of an update."""
        return self.folder / f"update-{update:06d}"

    def updates(self) -> list[int]:
        """Updates that have a checkpoint, damaged or not, oldest first."""
        names = (path.name.removeprefix("update-") for path in self.folder.glob("update-*"))
        return sorted(int(name) for name in names if name.isdigit())

    def open(self) -> int | None:
        """Update of the newest intact checkpoint, None if there is none; finishes what a killed run had begun.

        Raises:
            CheckpointError: There are checkpoints, and all of them are damaged.
            OutputError: The folder cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            clean_folder(self.folder)
            update = self._newest()
            if update is not None:
                self._settle(update)
        except OSError as error:
            raise OutputError(f"cannot write to {self.folder}: {error.strerror}") from error
        return update

    def _newest(self) -> int | None:
        """Says which newer ones are damaged."""
        damage = []
        for update in reversed(self.updates()):
            try:
                _verify(self.path(update))
            except _Damage as error:
                damage.append(str(error))
                continue
            for text in damage:
                say(f"Damaged checkpoint: {text}. Going back to {self.path(update).name}.")
            return update
        if damage:
            raise CheckpointError(
                f"no checkpoint in {self.folder} is intact:\n  " + "\n  ".join(damage) + "\n"
                "Restore one from a backup, or delete the folder to start again from the first update."
            )
        return None

    def save(self, snapshot: Snapshot) -> Path:
        """Write a checkpoint, then the pointers, then delete what is not kept.

        Raises:
            OutputError: The disk is full or not writable; the checkpoints before this one are intact.
        """
        path = self.path(snapshot.update)
        try:
            with atomic_folder(path, purpose=f"update {snapshot.update}") as folder:
                _write(folder, snapshot)
            for update in self.updates():
                if update > snapshot.update:  # damaged, or `open` would have continued from there
                    remove_folder(self.path(update))
            self._settle(snapshot.update)
        except (OutputError, OSError) as error:
            good = [self.path(update).name for update in self.updates()]
            kept = f"{good[-1]} is intact" if good else "there is no earlier checkpoint"
            raise OutputError(
                f"{error}. {kept}: make room (or correct the permissions) and run the same command again to resume."
            ) from error
        return path

    def _settle(self, current: int) -> None:
        """Point to the checkpoint of `current` and its best, and delete what is not kept.

        Kept are the newest up to `current` and the best of each of them. Beyond it there is only damage.
        """
        best = self._best_of(current)
        write_pointer(self.folder / "latest", self.path(current).name)
        if best is None:
            (self.folder / "best").unlink(missing_ok=True)
        else:
            write_pointer(self.folder / "best", self.path(best).name)
        past = [update for update in self.updates() if update <= current]
        kept = past[-self._keep_last :]
        for update in set(past) - {*kept, *(self._best_of(update) for update in kept)}:
            remove_folder(self.path(update))

    def _best_of(self, update: int) -> int | None:
        """Which checkpoint was the best so far when this one was written; None if it is damaged."""
        try:
            best = json.loads((self.path(update) / "manifest.json").read_bytes())["best"]
        except (OSError, ValueError, KeyError):
            return None
        return None if best is None else int(best)


def _write(folder: Path, snapshot: Snapshot) -> None:
    write_weights(folder / "model.safetensors", snapshot.model)
    buffer = io.BytesIO()
    torch.save(dict(snapshot.training), buffer)
    write_bytes(folder / "training.pt", buffer.getvalue())
    write_json(folder / "loop.json", snapshot.loop)
    manifest = {
        "format": FORMAT,
        "update": snapshot.update,
        "best": snapshot.best,
        "files": {path.name: file_digest(path) for path in sorted(folder.iterdir())},
        "fingerprint": snapshot.fingerprint,
    }
    write_json(folder / "manifest.json", manifest)
