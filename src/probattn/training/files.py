"""Files and folders that are there as a whole or not at all: write elsewhere, fsync, rename."""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import nn

from probattn.training.errors import OutputError, say

__all__ = [
    "atomic_folder",
    "clean_folder",
    "exclusive",
    "file_digest",
    "remove_folder",
    "write_bytes",
    "write_json",
    "write_pointer",
    "write_weights",
]

_HIDDEN = ".unfinished-"
_PATIENCE, _PAUSE = 10.0, 0.2
"""Seconds that a process which is just saving and ending is waited for, and between two looks."""


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file and wait until it is on the disk."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file and wait until it is on the disk."""
    write_bytes(path, json.dumps(content, indent=1).encode())


def write_weights(path: Path, model: nn.Module) -> None:
    """Write a model's state_dict as safetensors and wait until it is on the disk; tied weights are stored once."""
    safetensors.torch.save_model(model, str(path))
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def write_pointer(path: Path, content: str) -> None:
    """Replace a one-line file in one step."""
    hidden = path.with_name(f"{_HIDDEN}{path.name}")
    write_bytes(hidden, content.encode() + b"\n")
    os.replace(hidden, path)
    _sync_folder(path.parent)


def file_digest(path: Path) -> dict[str, Any]:
    """Size and SHA-256 of a file."""
    with open(path, "rb") as file:
        return {"bytes": os.fstat(file.fileno()).st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


@contextmanager
def atomic_folder(path: Path, *, purpose: str) -> Iterator[Path]:
    """Yields a hidden folder that takes the place of `path` when the block ends well and vanishes when it does not.

    Args:
        path: The folder to make; one of that name is replaced.
        purpose: What is being saved, for the message when the disk is full.

    Raises:
        OutputError: A file could not be written.
    """
    hidden, old = (path.with_name(f"{_HIDDEN}{kind}-{path.name}") for kind in ("new", "old"))
    try:
        shutil.rmtree(hidden, ignore_errors=True)
        hidden.mkdir(parents=True)
        yield hidden
        _sync_folder(hidden)
        if path.exists():
            shutil.rmtree(old, ignore_errors=True)
            os.replace(path, old)
        os.replace(hidden, path)
        _sync_folder(path.parent)
        shutil.rmtree(old, ignore_errors=True)
    except (OSError, safetensors.SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputError(f"cannot save {purpose} in {path}: {reason}") from error
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
        if old.exists() and not path.exists():  # the second rename failed
            os.replace(old, path)


def remove_folder(path: Path) -> None:
    """Delete a folder so that no half of it is ever seen under its name."""
    old = path.with_name(f"{_HIDDEN}old-{path.name}")
    shutil.rmtree(old, ignore_errors=True)
    os.replace(path, old)
    shutil.rmtree(old, ignore_errors=True)


def clean_folder(folder: Path) -> None:
    """Delete what a killed process left unfinished."""
    for path in folder.glob(f"{_HIDDEN}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Inside the block no other process of this machine is in one for the same folder.

    The kernel frees the lock when its process ends, however it ends. Where there are no locks (on Windows, on some
    network file systems) nothing is locked.

    Raises:
        OutputError: Another process is in such a block and stays there, or the folder cannot be made.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise OutputError(f"cannot write to {folder}: {error.strerror}") from error
    has_waited, until = False, time.monotonic() + _PATIENCE
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > until:
                    raise OutputError(
                        f"another process trains into {folder}; let it end, or choose another output folder"
                    ) from error
            except OSError:  # a file system without locks
                break
            if not has_waited:
                say(f"Another process trains into {folder}; waiting for it to end.")
                has_waited = True
            time.sleep(_PAUSE)
        yield
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
