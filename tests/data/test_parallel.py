"""Reading parallel text: what is accepted, and what every kind of bad file is told."""

import gzip
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probattn.data import BadLine, ParallelText, read_lines, read_parallel, read_separated, split_words
from probattn.data.parallel import decompress, split_lines


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(("ending", "pack"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)])
def test_plain_and_packed_files_give_the_same_lines(tmp_path: Path, ending: str, pack) -> None:
    path = write(tmp_path / f"a.de{ending}", pack("schön\n\nzwei Bäume".encode()))
    assert read_lines(path) == ("schön", "", "zwei Bäume")
    assert read_lines(str(path)) == read_lines(path)


def test_line_ends_and_byte_order_mark(tmp_path: Path) -> None:
    # U+2028, U+0085, form feed and a lone carriage return are characters; str.splitlines would end a line there
    content = b"\xef\xbb\xbfeins\r\n" + "a\u2028b\x85c\x0cd\re\n".encode() + b"\n"
    assert read_lines(write(tmp_path / "a", content)) == ("eins", "a\u2028b\x85c\x0cd\re", "")


@given(st.lists(st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"])), min_size=1))
def test_lines_come_back_as_they_were_written(lines: list[str]) -> None:
    lines[0] = "x" + lines[0]  # a file may not be empty, and a byte order mark would be dropped
    assert split_lines("\n".join(lines).encode() + b"\n", "file") == tuple(lines)


def test_words_are_separated_by_spaces_and_tabs_alone() -> None:
    assert split_words("\t a  b\u00a0c \u3000 d\t") == ["a", "b\u00a0c", "\u3000", "d"]
    assert split_words(" \t ") == []


def test_missing_file_suggests_names_and_folders(tmp_path: Path) -> None:
    write(tmp_path / "train.de.gz", gzip.compress(b"a"))
    with pytest.raises(FileNotFoundError, match=r"train\.de does not exist. Did you mean train\.de\.gz\?"):
        read_lines(tmp_path / "train.de")
    with pytest.raises(FileNotFoundError, match="has no file with a similar name"):
        read_lines(tmp_path / "other")
    with pytest.raises(FileNotFoundError, match=r"nowhere.a does not exist. Neither does the folder .*nowhere"):
        read_lines(tmp_path / "nowhere" / "a")
    with pytest.raises(IsADirectoryError, match="is a folder; name a file in it"):
        read_lines(tmp_path)


def test_empty_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.de is empty; expected UTF-8 text"):
        read_lines(write(tmp_path / "a.de", b""))
    with pytest.raises(ValueError, match=r"a\.de\.gz is empty"):
        read_lines(write(tmp_path / "a.de.gz", gzip.compress(b"")))


def test_invalid_utf8_names_line_and_byte(tmp_path: Path) -> None:
    path = write(tmp_path / "a.de", b"eins\nsch\xf6n\n")
    message = r"a\.de, line 2, byte 4 \(byte 8 of the file\): invalid UTF-8 \(0xf6.*iconv -f latin1 -t utf-8 a\.de"
    with pytest.raises(ValueError, match=message):
        read_lines(path)
    with pytest.raises(ValueError, match=r"line 1, byte 4 \(byte 3 of"):  # counted with the byte order mark
        read_lines(write(tmp_path / "b.de", b"\xef\xbb\xbf\xff"))


def test_nul_bytes_name_line_and_byte(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.de, line 3, byte 2 .*NUL byte.*UTF-16"):
        read_lines(write(tmp_path / "a.de", b"eins\nzwei\nd\0rei\n"))


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_damaged_and_misnamed_packed_files(tmp_path: Path, ending: str, pack) -> None:
    packed = pack(b"eine Zeile\n" * 50)
    for bad in (packed[: len(packed) // 2], packed[:20] + b"\xff\xff\xff" + packed[23:], b"<html>not found</html>"):
        with pytest.raises(ValueError, match=rf"a\{ending} cannot be unpacked .*damaged or cut off"):
            read_lines(write(tmp_path / f"a{ending}", bad))
    with pytest.raises(ValueError, match=rf"a\.txt is packed as \{ending}.*Rename it"):
        decompress(packed, "a.txt")


def test_parallel_text(tmp_path: Path) -> None:
    source = write(tmp_path / "a.de", "ein Hund\neine Katze\n")
    target = write(tmp_path / "a.en.gz", gzip.compress(b"a dog\na cat\n"))
    text = read_parallel(source, target)
    assert text == ParallelText(("ein Hund", "eine Katze"), ("a dog", "a cat"), "a.de")
    assert len(text) == 2
    assert text.rows(1, 2, name="tail") == ParallelText(("eine Katze",), ("a cat",), "tail")


def test_uneven_files_tell_both_counts(tmp_path: Path) -> None:
    source, target = write(tmp_path / "a.de", "a\nb\nc\n"), write(tmp_path / "a.en", "a\nb\n")
    with pytest.raises(ValueError, match=r"a\.de has 3 lines and .*a\.en has 2; line i of one"):
        read_parallel(source, target)
    with pytest.raises(ValueError, match="toy: 1 source lines and 0 target lines"):
        ParallelText(("a",), (), "toy")


@pytest.mark.parametrize("blank", ["", "  \t", "\u00a0"])
@pytest.mark.parametrize("side", [0, 1])
def test_empty_lines(tmp_path: Path, blank: str, side: int) -> None:
    texts = ["a\nb\nc\n", "a\nb\nc\n"]
    texts[side] = f"a\nb\n{blank}\n"
    source, target = write(tmp_path / "a.de", texts[0]), write(tmp_path / "a.en", texts[1])
    with pytest.raises(ValueError, match=rf"a\.{('de', 'en')[side]}, line 3: empty line.*on_empty=.skip"):
        read_parallel(source, target)
    text = read_parallel(source, target, on_empty="skip", name="toy")
    assert (text.source, text.target, text.num_empty, text.num_long) == (("a", "b"), ("a", "b"), 1, 0)
    assert str(text) == "toy: 2 pairs (left out: 1 with an empty line)"


def test_a_line_of_10000_tokens(tmp_path: Path) -> None:
    source = write(tmp_path / "a.de", "a\n" + "wort " * 10_000 + "\nb\n")
    target = write(tmp_path / "a.en", "a\nb\nc\n")
    with pytest.raises(ValueError, match=r"a\.de, line 2: 10,000 words, at most 1,000; .*raise max_tokens.*on_long="):
        read_parallel(source, target)
    with pytest.raises(ValueError, match=r"a\.de, line 2: 10,000 words"):  # the target side is checked as well
        read_parallel(target, source)
    text = read_parallel(source, target, on_long=BadLine.SKIP)
    assert (text.target, text.num_long) == (("a", "c"), 1)
    assert str(text) == "a.de: 2 pairs (left out: 1 too long)"
    assert len(read_parallel(source, target, max_tokens=10_000)) == 3


def test_nothing_left_is_an_error(tmp_path: Path) -> None:
    source, target = write(tmp_path / "a.de", "\na a a\n"), write(tmp_path / "a.en", "a\na\n")
    with pytest.raises(ValueError, match=r"a\.de: all 2 pairs were left out \(1 empty, 1 too long\)"):
        read_parallel(source, target, max_tokens=2, on_empty="skip", on_long="skip")


def test_unknown_policy_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "a\n")
    with pytest.raises(ValueError, match="'ignore' is not a valid BadLine"):
        read_parallel(path, path, on_empty="ignore")


def test_separated_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.src-tgt", "2 .   ||| 2 .  \nhear , hear ! ||| bravo !\n")
    text = read_separated(path)
    assert (text.source, text.target) == (("2 .", "hear , hear !"), ("2 .", "bravo !"))
    write(path, "a ||| b\na b\n")
    with pytest.raises(ValueError, match=r"a\.src-tgt, line 2: expected `source \|\|\| target`, got 1 part"):
        read_separated(path)
    write(path, "a ||| b\na |||\n")
    with pytest.raises(ValueError, match=r"a\.src-tgt, line 2: empty line"):
        read_separated(path)
    assert read_separated(path, on_empty="skip").num_empty == 1
