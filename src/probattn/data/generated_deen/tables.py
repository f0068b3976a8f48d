"""Reads the tables in `words/`: columns between blanks, "#" for comments, "_" for a blank within a column."""

from collections.abc import Iterator
from importlib.resources import files

__all__ = ["read_rows"]


def read_rows(name: str) -> Iterator[list[str]]:
    """Yields the columns of every row of `words/<name>`."""
    text = files(__package__).joinpath("words", name).read_text(encoding="utf-8")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            yield line.split()
