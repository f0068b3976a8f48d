"""Gold alignments: both formats, their errors, and the statistics of the table on the real files."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probattn.data import ParallelText, alignment_gold, format_pharaoh, read_naacl, read_pharaoh, split_words

TEXT = ParallelText(("a b c", "d"), ("A B", "D E F"), name="toy")


def write(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def test_pharaoh(tmp_path: Path) -> None:
    gold = read_pharaoh(write(tmp_path / "a.wa", "0-0 2p1 1-1\n\n"), TEXT)
    assert gold.sure == ({(0, 0), (1, 1)}, set())
    assert gold.possible == ({(0, 0), (1, 1), (2, 1)}, set())
    assert (len(gold), gold.num_dropped) == (2, 0)
    assert read_pharaoh(write(tmp_path / "a.gold", "1-1 3p2 2-2\n\n"), TEXT, first_index=1) == gold


def test_naacl(tmp_path: Path) -> None:
    content = "1 1 1 S \n1 3 2 P\n1 2 2\n2 1 3 P\n2 1 3 S\n"  # a link that is sure and possible is sure
    gold = read_naacl(write(tmp_path / "a.ref", content), TEXT)
    assert gold.sure == ({(0, 0), (1, 1)}, {(0, 2)})
    assert gold.possible == ({(0, 0), (1, 1), (2, 1)}, {(0, 2)})
    shifted = "1 0 0 S\n1 2 1 P\n1 1 1 S\n2 0 2 S\n"
    assert read_naacl(write(tmp_path / "b.ref", shifted), TEXT, first_index=0) == gold


@given(st.sets(st.tuples(st.integers(0, 30), st.integers(0, 30))))
def test_written_links_are_read_back(links: set[tuple[int, int]]) -> None:
    written = format_pharaoh(links)
    assert {tuple(map(int, link.split("-"))) for link in split_words(written)} == links
    assert written == format_pharaoh(sorted(links, reverse=True))


@pytest.mark.parametrize("link", ["1", "1-", "1:1", "-1-0", "1-1-1", "1x1", "a-b"])
def test_malformed_links_are_named(tmp_path: Path, link: str) -> None:
    with pytest.raises(ValueError, match=rf"a\.wa, line 2: '{link}' is no link; expected `3-1` or `3p1`"):
        read_pharaoh(write(tmp_path / "a.wa", f"0-0\n0-0 {link}\n"), TEXT)


@pytest.mark.parametrize("line", ["1 1", "1 1 1 X", "1 1 1 S S", "", "1-1"])
def test_malformed_lines_are_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(ValueError, match=rf"a\.ref, line 2: '{line}' is no link; expected `sentence source target S`"):
        read_naacl(write(tmp_path / "a.ref", f"1 1 1 S\n{line}\n"), TEXT)


@pytest.mark.parametrize(
    ("link", "first_index", "message"),
    [
        ("3-0", 0, r"a\.wa, line 1: source word 3 does not exist; the sentence has 3 words, counted from 0"),
        ("0-2", 0, r"a\.wa, line 1: target word 2 does not exist; the sentence has 2 words, counted from 0"),
        ("1-0", 1, r"a\.wa, line 1: target word 0 does not exist; .* counted from 1. Is first_index right\?"),
    ],
)
def test_words_that_do_not_exist(tmp_path: Path, link: str, first_index: int, message: str) -> None:
    path = write(tmp_path / "a.wa", f"1-1 {link}\n\n")
    with pytest.raises(ValueError, match=message):
        read_pharaoh(path, TEXT, first_index=first_index)
    gold = read_pharaoh(path, TEXT, first_index=first_index, on_bad_link="skip")
    assert gold.possible[0] == {(1 - first_index, 1 - first_index)}
    assert gold.num_dropped == 1


def test_sentences_that_do_not_exist(tmp_path: Path) -> None:
    for sentence in (0, 3):
        path = write(tmp_path / "a.ref", f"1 1 1 S\n{sentence} 1 1 S\n")
        with pytest.raises(ValueError, match=rf"line 2: sentence {sentence} does not exist; toy has sentences 1 to 2"):
            read_naacl(path, TEXT)
    with pytest.raises(ValueError, match=r"a\.wa has 3 lines, but toy has 2 sentence pairs"):
        read_pharaoh(write(tmp_path / "a.wa", "0-0\n0-0\n0-0\n"), TEXT)


def test_unknown_set_and_missing_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROBATTN_DATA", raising=False)
    monkeypatch.setenv("PROBATTN_CACHE", str(tmp_path))
    with pytest.raises(ValueError, match=r"gold set 'deen' is unknown; did you mean 'de-en'\?"):
        alignment_gold.load("deen")
    with pytest.raises(FileNotFoundError, match=r"get it by hand from Ergun Bicici.*no address of the file is known"):
        alignment_gold.load("de-en")
    with pytest.raises(FileNotFoundError, match=r"neulab/awesome-align/master/examples/enfr\.src-tgt into"):
        alignment_gold.load("en-fr")


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "sure", "possible_only", "dropped"),
    [
        ("de-en", 1_232, 0, 1),
        ("en-fr", 4_038, 13_400, 0),
        ("ro-en", 6_198, 0, 0),
        ("ja-en", 13_562, 0, 0),  # has words that are ideographic spaces
        ("zh-en", 11_238, 178, 0),
    ],
)
def test_statistics(data_dir: Path, name: str, sure: int, possible_only: int, dropped: int) -> None:
    gold = alignment_gold.load(name)
    assert len(gold) == alignment_gold.NUM_PAIRS[name]
    assert sum(map(len, gold.sure)) == sure
    assert sum(map(len, gold.possible)) == sure + possible_only
    assert gold.num_dropped == dropped


@pytest.mark.data
def test_europarl_links_join_the_right_words(data_dir: Path) -> None:
    gold = alignment_gold.load("de-en")
    source, target = split_words(gold.text.source[0]), split_words(gold.text.target[0])
    joined = {(source[i], target[j]) for i, j in gold.sure[0]}
    # the file starts with a byte order mark, which is no part of the first word
    assert {("herr", "mr"), ("präsident", "president"), ("zuerst", "firstly")} <= joined
    folder = data_dir / alignment_gold.EUROPARL_FOLDER
    again = read_pharaoh(folder / "de-en.wa", gold.text, on_bad_link="skip")  # the same links in the other format
    assert again == gold
