"""What a run tells about itself: log.jsonl, TensorBoard files and the progress bar.

log.jsonl holds nothing that depends on the clock, so the log of a resumed run equals that of an uninterrupted one.
Speed goes to the progress bar and to TensorBoard.
"""

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from probattn.training.errors import OutputError, say

__all__ = ["Journal", "LogSums", "Progress"]


class LogSums:
    """Sums and counts of what the steps logged since the last line; tensors stay on their device until read."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor | float] = {}
        self._counts: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._sums)

    def add(self, name: str, total: Tensor | float, count: float) -> None:
        """Add a sum over `count` units."""
        value = total.detach().to(torch.float64) if isinstance(total, Tensor) else float(total)
        self._sums[name] = self._sums.get(name, 0.0) + value
        self._counts[name] = self._counts.get(name, 0.0) + float(count)

    def state(self) -> dict[str, tuple[float, float]]:
        """Name to (sum, count) as numbers."""
        return {name: (float(total), self._counts[name]) for name, total in self._sums.items()}

    def load(self, state: Mapping[str, tuple[float, float]]) -> None:
        """Replace everything by what `state` returned."""
        self._sums = {name: total for name, (total, _) in state.items()}
        self._counts = {name: count for name, (_, count) in state.items()}


class Journal:
    """Writes the log of the main rank.

    Args:
        folder: Folder of the run.
        start: Bytes of log.jsonl to keep; what an interrupted run wrote after its checkpoint is cut off.
        update: Update that the run continues from; later points of TensorBoard are hidden.
        use_tensorboard: Whether to write TensorBoard files, if it is installed.
    """

    def __init__(self, folder: Path, start: int, *, update: int, use_tensorboard: bool) -> None:
        self.path = folder / "log.jsonl"
        try:
            self._file = open(self.path, "ab")  # noqa: SIM115  (closed by __exit__)
            size = os.fstat(self._file.fileno()).st_size
            self._file.truncate(min(start, size))
        except OSError as error:
            raise self._trouble(error) from error
        if size < start:
            say(f"{self.path} is {start - size} bytes shorter than the checkpoint says; earlier lines are missing")
        self._board = _open_board(folder, update) if use_tensorboard else None

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # a line that did not fit on the disk is tried again, and was reported before
            self._file.close()
        if self._board is not None:
            self._board.close()

    def write(self, kind: str, update: int, values: Mapping[str, Any], *, speed: Mapping[str, float]) -> None:
        """Append one line, and the same numbers and the speed to TensorBoard."""
        line = json.dumps({"kind": kind, "update": update, **{name: _plain(value) for name, value in values.items()}})
        try:
            self._file.write(line.encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise self._trouble(error) from error
        if self._board is not None:
            for name, value in {**values, **speed}.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(f"{kind}/{name}", value, update)

    def sync(self) -> int:
        """Make sure that the lines so far are on the disk; returns their length in bytes."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._trouble(error) from error
        return os.fstat(self._file.fileno()).st_size

    def _trouble(self, error: OSError) -> OutputError:
        return OutputError(
            f"cannot write {self.path}: {error.strerror}. The checkpoints are intact: make room (or correct the "
            "permissions) and run the same command again to resume."
        )


def _open_board(folder: Path, update: int) -> Any:
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "tensorboard"), purge_step=update + 1)


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    return value if not isinstance(value, float) or math.isfinite(value) else repr(value)


class Progress:
    """The progress bar of one stage: the latest averages, tokens per second, time left.

    Args:
        title: Name of the stage.
        done: Updates that an earlier run did.
        is_shown: False for silence; a terminal is needed in any case.
    """

    def __init__(self, title: str, done: int, *, is_shown: bool) -> None:
        hidden = None if is_shown else True  # None lets tqdm look for a terminal
        self._bar = tqdm(initial=done, desc=title, unit="update", disable=hidden, dynamic_ncols=True)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()

    def advance(self, total: int | None) -> None:
        """One update more, out of `total` if that is known."""
        self._bar.total = total
        self._bar.update()

    def show(self, values: Mapping[str, Any]) -> None:
        """The numbers behind the bar."""
        texts = {name: f"{value:.4g}" for name, value in values.items() if isinstance(value, int | float)}
        self._bar.set_postfix(texts, refresh=False)
