"""What the commands for trained models share: opening a model, reading lines."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from probattn.data.parallel import read_lines, split_lines
from probattn.loading import load
from probattn.recipes.translator import Translator

__all__ = ["InputBlocks", "open_model", "open_translator", "warn_of_unknown"]

_UNKNOWN = 0.3
"""Share of unknown words above which something is wrong with a text."""

Model = TypeVar("Model")


def open_model(path: Path, kind: type[Model], what: str) -> Model:
    """The model in a folder.

    Args:
        path: The folder.
        kind: What it must be.
        what: The same in words, for the message: "no translation model".

    Raises:
        ValueError: If it is a model of another kind.
    """
    model = load(path)
    if not isinstance(model, kind):
        raise ValueError(f"{path} holds {what}, but a {type(model).__name__}")
    return model


def open_translator(path: Path) -> Translator:
    """The translation model in a folder."""
    return open_model(path, Translator, "no translation model")


def warn_of_unknown(unknown: int, total: int, *, what: str, so: str) -> bool:
    """Say, and return, whether much of a text is unknown to a model, which does its work all the same.

    Args:
        unknown: Words that the model does not know.
        total: All words.
        what: The text.
        so: What follows from it.
    """
    if unknown <= _UNKNOWN * total:
        return False
    print(
        f"probattn: {unknown} of {total} words of {what} are unknown to the model, so {so}; is the text tokenised and "
        "encoded as in training, with spaces around punctuation marks?",
        file=sys.stderr,
    )
    return True


class InputBlocks:
    """The lines of a file, or of the standard input as they come, in blocks: (number of the first line, lines).

    Args:
        path: A file, which is read as a whole and at once, so that a damaged one is refused before any work; None: the
            standard input, of which a block is what is there already.
        size: Most lines of a block.

    Attributes:
        total: Lines of the file; None for the standard input, which has no end yet.
    """

    def __init__(self, path: Path | None, size: int):
        self._lines = None if path is None else read_lines(path)
        self._size = size
        self.total = None if self._lines is None else len(self._lines)

    def __iter__(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        if self._lines is not None:
            yield from _blocks(self._lines, 0, self._size)
            return
        start, rest = 0, b""
        while content := _available():
            whole, separator, rest = (rest + content).rpartition(b"\n")
            if separator:
                lines = split_lines(whole + separator, _name(start))
                yield from _blocks(lines, start, self._size)
                start += len(lines)
        if rest or start == 0:  # a last line without an end, or nothing at all, which is an error
            yield from _blocks(split_lines(rest, _name(start)), start, self._size)


def _available() -> bytes:
    """What the standard input has now, at least a byte; nothing at its end.

    Raises:
        ValueError: There is none, as in some jobs without a terminal.
    """
    if sys.stdin is None:
        raise ValueError("the standard input is closed; name a file with --input")
    content: bytes = sys.stdin.buffer.read1(1 << 20)  # type: ignore[union-attr]
    return content


def _name(start: int) -> str:
    return "standard input" if start == 0 else f"standard input behind line {start}"


def _blocks(lines: tuple[str, ...], first: int, size: int) -> Iterator[tuple[int, tuple[str, ...]]]:
    for start in range(0, len(lines), size):
        yield first + start, lines[start : start + size]
