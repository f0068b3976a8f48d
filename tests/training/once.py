"""Expensive preparations that the workers of pytest-xdist share."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def run_once(factory: pytest.TempPathFactory, name: str, action: Callable[[Path], None]) -> Path:
    """The folder that `action` has filled; the first worker that gets here calls it, the others wait."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with FileLock(f"{folder}.lock"):
        if not (folder / "done").exists():
            folder.mkdir(exist_ok=True)
            action(folder)
            (folder / "done").touch()
    return folder
