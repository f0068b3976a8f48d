"""Lines of the standard input are handed on as they come."""

import io
import os
import sys
import threading
from pathlib import Path

import pytest

from probattn.cli.models import InputBlocks


def give(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_blocks_number_their_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    content = b"a\n\nc\r\nd"
    expected = [(0, ("a", "")), (2, ("c",)), (3, ("d",))]
    give(monkeypatch, content)
    assert list(InputBlocks(None, 2)) == expected
    path = tmp_path / "text"
    path.write_bytes(content)
    assert list(InputBlocks(path, 2)) == [(0, ("a", "")), (2, ("c", "d"))]


def test_a_line_is_seen_before_the_next_one_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "r") as source, os.fdopen(writing, "wb", buffering=0) as sink:
        monkeypatch.setattr(sys, "stdin", source)
        blocks = iter(InputBlocks(None, 10))
        sink.write(b"first\nsec")
        assert next(blocks) == (0, ("first",))
        writer = threading.Thread(target=lambda: (sink.write(b"ond\n"), sink.close()))
        writer.start()
        assert list(blocks) == [(1, ("second",))]
        writer.join()


def test_nothing_and_no_text_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, b"")
    with pytest.raises(ValueError, match="standard input is empty"):
        list(InputBlocks(None, 2))
    give(monkeypatch, b"a\nb\xff\n")
    with pytest.raises(ValueError, match="standard input, line 2"):
        list(InputBlocks(None, 2))


def test_a_pipe_is_read_once() -> None:
    read, write = os.pipe()
    os.write(write, b"a b\nc d\n")
    os.close(write)
    blocks = InputBlocks(Path(f"/dev/fd/{read}"), 10)
    assert blocks.total == 2 and list(blocks) == [(0, ("a b", "c d"))]
    os.close(read)


def test_a_closed_standard_input_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)  # what Python makes of it
    with pytest.raises(ValueError, match="the standard input is closed; name a file with --input"):
        list(InputBlocks(None, 8))
