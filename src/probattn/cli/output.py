"""Where commands write their lines: the standard output, or a file that appears as a whole."""

import gzip
import lzma
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Never, Self

from tqdm import tqdm

__all__ = ["Output", "progress_over", "require_writable"]


class Output:
    """Lines of a command, in a `with` block.

    To the standard output every `put` is seen at once. A file is written beside its place, as FILE.part, and takes it
    when the block ends; if the work is interrupted before, what was done stays in FILE.part, and that is said. Names
    that end in .gz or .xz are packed.

    Args:
        path: The file; None for the standard output.

    Raises:
        ValueError: At once, and not after the work, if no file can be written there.
    """

    def __init__(self, path: Path | None):
        self.path = path
        self.num_lines = 0
        self._stream: IO[str] | None = None
        if path is not None:
            require_writable(path, "--output")
        elif sys.stdout is None:
            raise ValueError("the standard output is closed; name a file with --output")

    def __enter__(self) -> Self:
        return self

    def put(self, lines: Iterable[str]) -> None:
        """Write lines."""
        if self.path is None:
            sys.stdout.write("".join(f"{line}\n" for line in lines))
            sys.stdout.flush()
            return
        stream = self._opened(self.path)
        for line in lines:
            stream.write(f"{line}\n")
            self.num_lines += 1
        stream.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.path is None:
            return
        if kind is None:
            self._opened(self.path).close()
            if _has_place(self.path):
                self._part(self.path).replace(self.path.resolve())
        elif self._stream is not None:
            self._stream.close()
            if _has_place(self.path):
                print(
                    f"probattn: {self.num_lines} lines that were done are in {self._part(self.path)}", file=sys.stderr
                )

    def _opened(self, path: Path) -> IO[str]:
        if self._stream is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._stream = _writer(self._part(path) if _has_place(path) else path, path.suffix)
        return self._stream

    @staticmethod
    def _part(path: Path) -> Path:
        """Beside what a link leads to, not beside the link."""
        path = path.resolve()
        return path.with_name(path.name + ".part")


def require_writable(path: Path, option: str) -> None:
    """Refuse, before any work is done, a name that cannot be written to.

    Args:
        path: Of a file; folders above it that are not there can be made.
        option: What it was given as, for the message.

    Raises:
        ValueError: It is a folder, or nothing can be written there.
    """
    if path.is_dir():
        raise ValueError(f"{option} {path} is a folder; name a file in it")
    place = _existing(path.parent) if _has_place(path) else path
    if (_has_place(path) and not place.is_dir()) or not os.access(place, os.W_OK):
        raise ValueError(f"{option} {path}: nothing can be written into {place}; name a file elsewhere")


def progress_over(total: int | None, what: str, output: Output) -> "tqdm[Never]":
    """A bar on the standard error, where it does not run into lines on the same screen.

    Args:
        total: How many there will be, if that is known.
        what: In words.
        output: Of the command.
    """
    if output.path is not None:
        is_hidden: bool | None = False
    else:
        is_hidden = True if sys.stdout.isatty() else None  # None: shown on a terminal only
    return tqdm(total=total, desc=what, file=sys.stderr, disable=is_hidden)


def _writer(path: Path, suffix: str) -> IO[str]:
    """A new file, packed as the suffix says."""
    if suffix == ".gz":
        return gzip.open(path, "wt", encoding="utf-8")
    if suffix == ".xz":
        return lzma.open(path, "wt", encoding="utf-8")
    return path.open("w", encoding="utf-8")


def _has_place(path: Path) -> bool:
    """Whether it is a file, present or to come; a device or a pipe is written to, never replaced."""
    return path.is_file() or not path.exists()


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder
