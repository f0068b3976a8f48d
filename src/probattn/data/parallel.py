"""Parallel text from plain, gzip and xz files: line i of one file translates line i of the other.

Everything that is wrong with a file is reported with its name and the number of the line, before training starts.
Lines end with a line feed (one carriage return before it is dropped); no other character ends a line. Words are
separated by spaces and tabs alone: a no-break or an ideographic space belongs to a word, which is how the gold word
alignments count. A byte order mark at the start of a file is dropped.
"""

import difflib
import gzip
import lzma
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

__all__ = [
    "BadLine",
    "ParallelText",
    "decompress",
    "read_content",
    "read_lines",
    "read_parallel",
    "read_separated",
    "split_lines",
    "split_words",
]

GZIP_MAGIC = b"\x1f\x8b"
XZ_MAGIC = b"\xfd7zXZ\x00"


class BadLine(StrEnum):
    """What to do with a pair of lines that cannot be used."""

    ERROR = "error"
    """Stop with a message that names file and line."""
    SKIP = "skip"
    """Leave the pair out and count it."""


@dataclass(frozen=True)
class ParallelText:
    """Sentences and their translations.

    Attributes:
        source: One line for each pair.
        target: Their translations.
        name: For messages and tables.
        num_empty: Pairs that were left out because a side was empty.
        num_long: Pairs that were left out because a side had too many words.

    Example:
        >>> text = ParallelText(("ein hund", "zwei"), ("a dog", "two"), name="toy")
        >>> text.rows(1, 2).target
        ('two',)
        >>> print(text)
        toy: 2 pairs
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    name: str
    num_empty: int = 0
    num_long: int = 0

    def __post_init__(self) -> None:
        if len(self.source) != len(self.target):
            raise ValueError(
                f"{self.name}: {len(self.source)} source lines and {len(self.target)} target lines; every line needs "
                "its translation"
            )

    def __len__(self) -> int:
        return len(self.source)

    def __str__(self) -> str:
        left_out = [f"{self.num_empty:,} with an empty line"] * bool(self.num_empty)
        left_out += [f"{self.num_long:,} too long"] * bool(self.num_long)
        return f"{self.name}: {len(self):,} pairs" + (f" (left out: {', '.join(left_out)})" if left_out else "")

    def rows(self, start: int, stop: int, *, name: str | None = None) -> "ParallelText":
        """Pairs `start` to `stop - 1` as a text of their own; counts of left-out pairs stay with the whole."""
        return ParallelText(self.source[start:stop], self.target[start:stop], name or self.name)


def split_words(line: str) -> list[str]:
    r"""The words of a line: what stands between spaces and tabs.

    Example:
        >>> split_words("  ein  Hund\t! ")
        ['ein', 'Hund', '!']
    """
    return [word for word in line.replace("\t", " ").split(" ") if word]


def decompress(raw: bytes, path: str | Path) -> bytes:
    """The content of a file of which `raw` are the bytes; the end of its name says how it is packed.

    Args:
        raw: All bytes of the file.
        path: Its name; `.gz` and `.xz` are unpacked, everything else is returned as it is.

    Raises:
        ValueError: The bytes are damaged, or not packed as the name says.
    """
    suffix = Path(path).suffix
    try:
        if suffix == ".gz":
            return gzip.decompress(raw)
        if suffix == ".xz":
            return lzma.decompress(raw)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        message = f"{path} cannot be unpacked ({error}): it is damaged or cut off, or not a {suffix} file. Get it again"
        raise ValueError(message) from error
    for magic, kind in ((GZIP_MAGIC, ".gz"), (XZ_MAGIC, ".xz")):
        if raw.startswith(magic):
            raise ValueError(f"{path} is packed as {kind}, but its name does not say so. Rename it to end with {kind}")
    return raw


def read_content(path: str | Path) -> bytes:
    """The unpacked bytes of a plain, `.gz` or `.xz` file.

    Raises:
        FileNotFoundError: There is no such file; the message suggests similar names.
        IsADirectoryError: The path names a folder.
        ValueError: The file cannot be unpacked.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file in it")
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist. {_suggestion(path)}") from None
    return decompress(raw, path)


def split_lines(content: bytes, path: str | Path) -> tuple[str, ...]:
    """The lines of a UTF-8 text; `path` is its name in messages.

    Raises:
        ValueError: The content is empty, has NUL bytes or is not UTF-8; the message says in which line.
    """
    if not content:
        raise ValueError(f"{path} is empty; expected UTF-8 text with one sentence a line")
    nul = content.find(b"\0")
    if nul >= 0:
        advice = "a binary file, or UTF-16? Convert it to UTF-8"
        raise ValueError(f"{path}, {_place(content, nul)}: NUL byte, so this is no UTF-8 text ({advice})")
    try:
        text = content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        byte = content[error.start]
        advice = f"convert the file, for example with `iconv -f latin1 -t utf-8 {Path(path).name}`"
        message = f"{path}, {_place(content, error.start)}: invalid UTF-8 (0x{byte:02x}, {error.reason}); {advice}"
        raise ValueError(message) from None
    lines = text.removesuffix("\n").split("\n")
    return tuple(line.removesuffix("\r") for line in lines)


def read_lines(path: str | Path) -> tuple[str, ...]:
    """The lines of a plain, `.gz` or `.xz` UTF-8 file; empty lines are kept. Raises what its two parts raise."""
    return split_lines(read_content(path), path)


def read_parallel(
    source: str | Path,
    target: str | Path,
    *,
    name: str | None = None,
    max_tokens: int = 1000,
    on_empty: BadLine | str = BadLine.ERROR,
    on_long: BadLine | str = BadLine.ERROR,
) -> ParallelText:
    """Read two files of which line i of one translates line i of the other.

    Args:
        source: File of the source side, plain, `.gz` or `.xz`.
        target: File of the target side.
        name: Of the text; the source file's name by default.
        max_tokens: Most words that a line may have. One line of 10,000 words costs the memory of a whole batch of
            its length.
        on_empty: What to do with a pair of which a side has no word.
        on_long: What to do with a pair of which a side has more than `max_tokens` words.

    Raises:
        FileNotFoundError: A file does not exist.
        ValueError: The files have different numbers of lines, or a line is invalid UTF-8, empty or too long.
    """
    source_lines, target_lines = read_lines(source), read_lines(target)
    if len(source_lines) != len(target_lines):
        raise ValueError(
            f"{source} has {len(source_lines):,} lines and {target} has {len(target_lines):,}; line i of one must "
            "translate line i of the other. Were empty lines removed from one of them?"
        )
    limits = _Limits(max_tokens, BadLine(on_empty), BadLine(on_long))
    return _select(source_lines, target_lines, limits=limits, files=(source, target), name=name or Path(source).name)


def read_separated(
    path: str | Path,
    *,
    separator: str = "|||",
    name: str | None = None,
    max_tokens: int = 1000,
    on_empty: BadLine | str = BadLine.ERROR,
    on_long: BadLine | str = BadLine.ERROR,
) -> ParallelText:
    """Read one file with `source ||| target` in every line. Arguments as for `read_parallel`.

    Raises:
        ValueError: A line does not have exactly one separator, or what `read_parallel` complains of.
    """
    halves = []
    for number, line in enumerate(read_lines(path), 1):
        parts = line.split(separator)
        if len(parts) != 2:
            message = f"{path}, line {number}: expected `source {separator} target`, got {len(parts)} part(s)"
            raise ValueError(f"{message}; pass the separator that the file uses")
        halves.append((parts[0].strip(" \t"), parts[1].strip(" \t")))
    source, target = zip(*halves, strict=True)
    limits = _Limits(max_tokens, BadLine(on_empty), BadLine(on_long))
    return _select(source, target, limits=limits, files=(path, path), name=name or Path(path).name)


@dataclass(frozen=True)
class _Limits:
    max_tokens: int
    on_empty: BadLine
    on_long: BadLine


def _select(
    source: Sequence[str], target: Sequence[str], *, limits: _Limits, files: tuple[str | Path, str | Path], name: str
) -> ParallelText:
    """The pairs that can be used; the first one that cannot and may not be skipped is an error."""
    kept: list[tuple[str, str]] = []
    num_empty = num_long = 0
    for number, pair in enumerate(zip(source, target, strict=True), 1):
        lengths = [len(split_words(side)) if side.strip() else 0 for side in pair]
        if min(lengths) == 0:
            if limits.on_empty is BadLine.ERROR:
                place = f"{files[lengths.index(0)]}, line {number}: empty line"
                raise ValueError(
                    f'{place}; remove the pair from both files, or skip such pairs (on_empty="skip"; of a recipe '
                    "corpus.on_empty=skip, of a command --on_empty skip)"
                )
            num_empty += 1
        elif max(lengths) > limits.max_tokens:
            if limits.on_long is BadLine.ERROR:
                place = f"{files[lengths.index(max(lengths))]}, line {number}"
                message = f"{place}: {max(lengths):,} words, at most {limits.max_tokens:,}"
                raise ValueError(
                    f'{message}; split the line, raise max_tokens of this call, or skip such pairs (on_long="skip"; of '
                    "a recipe corpus.on_long=skip, of a command --on_long skip)"
                )
            num_long += 1
        else:
            kept.append(pair)
    if not kept:
        raise ValueError(
            f"{name}: all {len(source):,} pairs were left out ({num_empty:,} empty, {num_long:,} too long)"
        )
    return ParallelText(
        tuple(pair[0] for pair in kept), tuple(pair[1] for pair in kept), name, num_empty=num_empty, num_long=num_long
    )


def _place(content: bytes, offset: int) -> str:
    line = content.count(b"\n", 0, offset) + 1
    column = offset - (content.rfind(b"\n", 0, offset) + 1)
    return f"line {line}, byte {column + 1} (byte {offset} of the file)"


def _suggestion(path: Path) -> str:
    if not path.parent.is_dir():
        return f"Neither does the folder {path.parent}"
    names = sorted(entry.name for entry in path.parent.iterdir() if entry.is_file())
    similar = difflib.get_close_matches(path.name, names)
    if similar:
        return f"Did you mean {' or '.join(similar)}?"
    return f"The folder {path.parent} has no file with a similar name"
