"""Text files of one's own: what is accepted, what a bad file is told, splits, and padded batches."""

import gzip
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from probattn.data import (
    BOS,
    EOS,
    PAD,
    BadLine,
    EncodedSentences,
    TextBatch,
    TextSplits,
    TokenBuckets,
    read_text,
    split_text,
    train_words,
)

TEXT = EncodedSentences(sentences=((5, 6, 7), (8,), (9, 9)), name="toy")


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_sentences_have_one_space_between_words(tmp_path: Path) -> None:
    lines = " no  it\twas n't \r\nzwei Bäume\u00a0x\n"
    expected = ("no it was n't", "zwei Bäume\u00a0x")
    assert read_text(write(tmp_path / "a.txt", lines)) == expected
    assert read_text(str(write(tmp_path / "a.txt.gz", gzip.compress(lines.encode())))) == expected


@pytest.mark.parametrize("blank", ["", "  \t", "\u00a0"])
def test_empty_lines(tmp_path: Path, blank: str) -> None:
    path = write(tmp_path / "a.txt", f"a\n{blank}\nb\n")
    with pytest.raises(ValueError, match=r"a\.txt, line 2: empty line; remove it, or .*on_empty=.skip"):
        read_text(path, on_long="skip")
    assert read_text(path, on_empty="skip") == read_text(path, on_empty=BadLine.SKIP) == ("a", "b")


def test_a_line_of_10000_words(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "a\n" + "word " * 10_000 + "\nb\n")
    message = r"a\.txt, line 2: 10,000 words, at most 1,000; .*raise max_words.*on_long=.skip"
    with pytest.raises(ValueError, match=message):
        read_text(path, on_empty="skip")
    assert read_text(path, on_long="skip") == ("a", "b")
    assert len(read_text(path, max_words=10_000)) == 3
    with pytest.raises(ValueError, match="line 2: 10,000 words, at most 9,999"):
        read_text(path, max_words=9_999)


def test_nothing_left_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "\na a a\n\n")
    with pytest.raises(ValueError, match=r"a\.txt: all 3 lines were left out \(2 empty, 1 too long\)"):
        read_text(path, max_words=2, on_empty="skip", on_long="skip")


def test_bad_files_and_policies(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"eins\nsch\xf6n\n")
    with pytest.raises(ValueError, match=r"a\.txt, line 2, byte 4 .*invalid UTF-8"):
        read_text(path)
    with pytest.raises(FileNotFoundError, match=r"a\.tx does not exist. Did you mean a\.txt\?"):
        read_text(tmp_path / "a.tx")
    with pytest.raises(ValueError, match=r"b\.txt is empty; expected UTF-8 text"):
        read_text(write(tmp_path / "b.txt", ""), on_empty="skip")
    with pytest.raises(ValueError, match="'ignore' is not a valid BadLine"):
        read_text(path, on_empty="ignore")
    with pytest.raises(ValueError, match="max_words must be at least 1, got 0"):
        read_text(path, max_words=0)


def test_the_end_is_held_out() -> None:
    lines = [str(number) for number in range(10)]
    expected = TextSplits(tuple("0123"), tuple("456"), tuple("789"))
    assert split_text(lines, num_held_out=3) == expected


@pytest.mark.parametrize(("size", "held_out"), [(3, 1), (39, 1), (40, 2), (200, 10), (50_000, 1_000)])
def test_a_twentieth_is_held_out_unless_told(size: int, held_out: int) -> None:
    splits = split_text(["a"] * size)
    assert (len(splits.train), len(splits.valid), len(splits.test)) == (size - 2 * held_out, held_out, held_out)


def test_too_short_a_text() -> None:
    for lines, count in ((["a", "b"], 1), (["a"] * 6, 3)):
        with pytest.raises(ValueError, match=rf"has {len(lines)} lines, too few for {count} each for validation and"):
            split_text(lines, num_held_out=count)
    with pytest.raises(ValueError, match="the text has 0 lines, too few for 1 each"):
        split_text([])
    with pytest.raises(ValueError, match="num_held_out must be at least 1, got 0; leave it out"):
        split_text(["a"] * 9, num_held_out=0)


def test_batch() -> None:
    batch = TEXT.batch(torch.tensor([2, 0]))
    assert batch.words.tolist() == [[BOS, 9, 9, EOS, PAD], [BOS, 5, 6, 7, EOS]]
    assert batch.words_mask.tolist() == [[True] * 4 + [False], [True] * 5]
    assert batch.target_in.tolist() == [[BOS, 9, 9, PAD], [BOS, 5, 6, 7]]
    assert batch.target_out.tolist() == [[9, 9, EOS, PAD], [5, 6, 7, EOS]]
    assert batch.target_mask.tolist() == [[True] * 3 + [False], [True] * 4]
    assert batch.index.tolist() == [2, 0]
    assert {value.dtype for value in vars(batch).values()} == {torch.int64, torch.bool}


@given(st.lists(st.lists(st.integers(4, 9), min_size=1, max_size=9), min_size=1, max_size=9))
def test_both_sides_of_a_batch_say_the_same(sentences: list[list[int]]) -> None:
    text = EncodedSentences(tuple(map(tuple, sentences)), "toy")
    batch = text.batch(range(len(text)))
    assert batch.words_mask.sum(1).tolist() == text.words_lengths
    assert batch.target_mask.sum(1).tolist() == text.target_lengths
    assert bool((batch.words.ne(PAD) == batch.words_mask).all())
    for row, ids in enumerate(sentences):
        whole = batch.words[row][batch.words_mask[row]].tolist()
        assert whole == [BOS, *ids, EOS]
        assert batch.target_in[row][batch.target_mask[row]].tolist() == whole[:-1]
        assert batch.target_out[row][batch.target_mask[row]].tolist() == whole[1:]


def test_batch_moves_to_a_device() -> None:
    batch = TEXT.batch([0, 1])
    moved = batch.to("meta")
    assert isinstance(moved, TextBatch)
    assert {value.device.type for value in vars(moved).values()} == {"meta"}
    assert moved.words.shape == batch.words.shape


def test_lines_are_encoded_and_bucketed() -> None:
    lines = ("a dog sleeps", "a cat", "a dog")
    tokenizer = train_words(lines, vocabulary_size=50)
    text = EncodedSentences.from_lines(lines, tokenizer, name="toy")
    assert (len(text), text.name) == (3, "toy")
    assert (text.words_lengths, text.target_lengths) == ([5, 4, 4], [4, 3, 3])
    assert [tokenizer.decode(row) for row in text.batch([0, 1, 2]).words] == list(lines)
    buckets = TokenBuckets(text.words_lengths, text.target_lengths, max_tokens=20)
    assert sorted(sorted(rows.tolist()) for rows in buckets.epoch(0)) == [[0], [1, 2]]


def test_empty_sentences_are_refused() -> None:
    with pytest.raises(ValueError, match="toy: sentence 1 is empty; leave it out, there is nothing to encode"):
        EncodedSentences(((5,), ()), name="toy")
