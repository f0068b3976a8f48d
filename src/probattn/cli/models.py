"""What the commands for trained models share: opening a model, reading and writing lines."""

import sys
from collections.abc import Iterable
from pathlib import Path

from probattn.data.parallel import read_lines, split_lines
from probattn.loading import load
from probattn.recipes.generator import Generator
from probattn.recipes.storage import write_atomically
from probattn.recipes.translator import Translator

__all__ = ["input_lines", "open_generator", "open_translator", "put_lines"]


def open_translator(path: Path) -> Translator:
    """The translation model in a folder.

    Raises:
        ValueError: If it is a model of another kind.
    """
    model = load(path)
    if not isinstance(model, Translator):
        raise ValueError(f"{path} holds no translation model, but a {type(model).__name__}")
    return model


def open_generator(path: Path) -> Generator:
    """The generating model in a folder.

    Raises:
        ValueError: If it is a model of another kind.
    """
    model = load(path)
    if not isinstance(model, Generator):
        raise ValueError(f"{path} holds no model that generates text from draws, but a {type(model).__name__}")
    return model


def input_lines(path: Path | None) -> tuple[str, ...]:
    """The lines of a file, or of the standard input."""
    if path is not None:
        return read_lines(path)
    return split_lines(sys.stdin.buffer.read(), "standard input")


def put_lines(lines: Iterable[str], path: Path | None) -> None:
    """Write lines to a file, which appears as a whole, or to the standard output."""
    text = "".join(f"{line}\n" for line in lines)
    if path is None:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        write_atomically(path, text)
