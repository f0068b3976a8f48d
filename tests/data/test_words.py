"""Vocabularies of whole words: round trips, unknown words, files, and all that takes a tokenizer."""

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from probattn.data import (
    BOS,
    EOS,
    PAD,
    UNK,
    EncodedText,
    ParallelText,
    Tokenizer,
    target_types,
    train_bpe,
    train_words,
    vocabulary_words,
)
from probattn.data.subwords import Subwords

LINES = ["what is the name of the dog ?", "the dog is called b'day .", "-lrb- 12\u00a0km -rrb- ▁x <pad>"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_words(LINES, vocabulary_size=100)


def test_known_text_comes_back_word_by_word(tokenizer: Tokenizer) -> None:
    assert isinstance(tokenizer, Tokenizer)
    for line in LINES:
        ids, index = tokenizer.encode_words(line.split(" "))
        assert tokenizer.decode(ids) == line.replace("▁", "_")
        assert index == tokenizer.word_index(ids) == tuple(range(len(ids)))
        assert UNK not in ids


def test_ids_follow_frequency_then_the_alphabet() -> None:
    words = vocabulary_words(train_words(["b a c", "b c", "b"], vocabulary_size=7))
    assert words == ("", "", "", "<unk>", "b", "c", "a")
    assert vocabulary_words(train_words(["b c a"], vocabulary_size=6))[4:] == ("a", "b")


def test_unknown_words_are_words_of_their_own(tokenizer: Tokenizer) -> None:
    ids, index = tokenizer.encode_words(["the", "cat", "dogs", "?"])
    assert ids[1] == ids[2] == UNK
    assert tokenizer.decode(ids) == "the <unk> <unk> ?"
    assert index == tokenizer.word_index(ids) == (0, 1, 2, 3)


@given(st.lists(st.text(st.characters(exclude_characters=" \t", exclude_categories=["Cs"]), min_size=1), max_size=6))
def test_every_word_has_one_id(words: list[str]) -> None:
    tokenizer = train_words([" ".join(LINES), *words[:3]], vocabulary_size=100)
    ids = tokenizer.encode_words(words).ids
    assert len(ids) == len(words) and not {PAD, BOS, EOS} & set(ids)
    known = [word.replace("▁", "_") for word in words[:3]]
    assert [tokenizer.decode([number]) for number in ids[:3]] == known


def test_text_cannot_spell_special_types(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("<pad> <eos> <pad>▁ <eos>▁ ▁<bos>▁")[1:] == (UNK,) * 4
    assert tokenizer.encode("<pad>")[0] > UNK  # a word of the text, not padding


def test_decoding_reads_from_begin_to_end(tokenizer: Tokenizer) -> None:
    ids = torch.tensor([PAD, BOS, *tokenizer.encode("the dog"), EOS, *tokenizer.encode("is"), PAD])
    assert tokenizer.decode(ids) == "the dog"
    assert tokenizer.word_index(ids) == (-1, -1, 0, 1, -1, -1, -1)


def test_size_and_frequency_limit_the_vocabulary() -> None:
    assert train_words(LINES, vocabulary_size=8).vocabulary_size == 8
    assert vocabulary_words(train_words(LINES, vocabulary_size=90, min_frequency=2))[4:] == ("the", "dog", "is")


def test_training_is_a_function_of_the_text(tokenizer: Tokenizer) -> None:
    assert train_words(reversed(LINES), vocabulary_size=100).digest == tokenizer.digest
    assert train_words(LINES, vocabulary_size=9).digest != tokenizer.digest


def test_bad_training_text() -> None:
    with pytest.raises(
        ValueError, match="vocabulary_size 4 is too small: 4 special types and at least one word need 5"
    ):
        train_words(LINES, vocabulary_size=4)
    with pytest.raises(ValueError, match=r"got 0 word types, none .* pass the lines of the training text"):
        train_words([" ", "\t"], vocabulary_size=50)
    with pytest.raises(ValueError, match=r"none of which occurs 9 times; .* lower min_frequency"):
        train_words(LINES, vocabulary_size=50, min_frequency=9)


def test_library_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"needs the package `tokenizers`: pip install 'probattn\[text\]'"):
        train_words(LINES, vocabulary_size=50)


def test_file_round_trip(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json", digest=tokenizer.digest)
    for line in [*LINES, "the cat"]:
        assert again.encode(line) == tokenizer.encode(line)
    assert again.decode([UNK, UNK]) == "<unk> <unk>"
    with pytest.raises(ValueError, match="has another vocabulary"):
        Tokenizer.load(tmp_path / "tokenizer.json", digest=train_bpe(LINES, vocabulary_size=60).digest)


def test_works_where_pieces_work(tokenizer: Tokenizer, tmp_path: Path) -> None:
    text = ParallelText(("the dog is called b'day .",), ("what is the name of the dog ?",), "toy")
    encoded = EncodedText.from_text(text, tokenizer)
    assert (encoded.source_lengths, encoded.target_lengths) == ([6], [9])
    subwords = Subwords(tokenizer, target_types(tokenizer, text.target))
    for name, content in subwords.files().items():
        (tmp_path / name).write_bytes(content)
    again = Subwords.from_folder(tmp_path)
    batch = again.to_output(encoded.batch([0]))
    assert again.decode(batch.target_out[0].tolist()) == text.target[0]
    assert again.word_index(batch.target_out[0].tolist()) == (*range(8), -1)


def test_saved_pieces_keep_their_digest() -> None:
    # kept in the folders of trained models; a vocabulary of whole words must not have changed it
    tokenizer = train_bpe(["ein hund .", "ein haus ."], vocabulary_size=24)
    assert tokenizer.digest == "7e74a2260fe4a07a68fed75f34c57dc42a24d5b4df7f3a62a68b8d8ad6c887b3"
