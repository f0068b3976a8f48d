"""Byte-pair encoding: round trips, word maps, determinism, files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from probattn.data import BOS, EOS, PAD, UNK, Tokenizer, multi30k, split_words, train_bpe

LINES = [
    "zwei junge weiße männer sind im freien in der nähe vieler büsche .",
    "mehrere männer mit schutzhelmen bedienen ein antriebsradsystem .",
    "two young , white males are outside near many bushes .",
    "several men in hard hats are operating a giant pulley system .",
    "a <pad> b </s> <unk>▁ 12\u00a0km \u3000 .",
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_bpe(LINES, vocabulary_size=120)


ALPHABET = sorted(set("".join(LINES)) - set(" ▁"))


def test_special_ids() -> None:
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)


def test_text_comes_back(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocabulary_size == 120
    for line in LINES[:4]:
        assert tokenizer.decode(tokenizer.encode(line)) == line
        assert len(tokenizer.encode(line)) < len(line)
    # the mark itself is the one character that changes; no-break and ideographic spaces are parts of words
    assert tokenizer.decode(tokenizer.encode(LINES[4])) == LINES[4].replace("▁", "_")


@given(st.lists(st.text(ALPHABET, min_size=1, max_size=12), max_size=8))
def test_words_come_back_with_their_numbers(words: list[str]) -> None:
    tokenizer = train_bpe(LINES, vocabulary_size=90)
    ids, index = tokenizer.encode_words(words)
    assert tokenizer.decode(ids).split(" ") == (words or [""])
    assert index == tokenizer.word_index(ids)
    assert UNK not in ids
    for number, word in enumerate(words):
        pieces = [piece for piece, owner in zip(ids, index, strict=True) if owner == number]
        assert tokenizer.decode(pieces) == word  # a word is encoded without regard to its neighbours


def test_text_cannot_spell_special_types(tokenizer: Tokenizer) -> None:
    # many neighbours, one middle: the middle is merged first and becomes a piece of its own
    inside = [f"{before}<pad>{after}" for before in "fghijk" for after in "lmnqrt"]
    lines = ["<pad>▁ <bos>▁ <eos>▁ <unk>▁", "<pad> <bos> <eos> <unk>", "▁<eos>▁", " ".join(inside)]
    rich = train_bpe(lines * 50, vocabulary_size=200)  # enough merges to build whole words
    for line in [*lines, "ff<pad>"]:
        for ids in (tokenizer.encode(line), rich.encode(line)):
            assert not {PAD, BOS, EOS} & set(ids)
        assert rich.decode(rich.encode(line)) == line.replace("▁", "_")


def test_unknown_characters(tokenizer: Tokenizer) -> None:
    ids, index = tokenizer.encode_words(["a日", "本", "b"])
    assert tokenizer.decode(ids) == "a<unk> <unk> b"
    assert ids.count(UNK) == 2
    assert index == tokenizer.word_index(ids)


def test_decoding_reads_from_begin_to_end(tokenizer: Tokenizer) -> None:
    first, second = tokenizer.encode("two men"), tokenizer.encode("are")
    ids = torch.tensor([PAD, BOS, *first, EOS, *second, PAD])
    assert tokenizer.decode(ids) == "two men"
    index = tokenizer.encode_words(["two", "men"]).word_index
    assert tokenizer.word_index(ids) == (-1, -1, *index, *[-1] * (len(second) + 2))
    assert tokenizer.decode([]) == "" and tokenizer.word_index([EOS]) == (-1,)


def test_stray_marks_make_no_words(tokenizer: Tokenizer) -> None:
    mark, letter = tokenizer.encode("日")[0], tokenizer.encode("日")[1]
    assert letter == UNK  # so the first piece is the mark alone
    assert tokenizer.decode([mark, mark, UNK, mark]) == "<unk>"
    assert tokenizer.word_index([mark, mark, UNK, mark]) == (0, 0, 0, 0)
    assert tokenizer.word_index([mark]) == (-1,)
    assert tokenizer.word_index([UNK, UNK, mark, UNK]) == (0, 0, 1, 1)


@pytest.mark.parametrize("word", ["", "a b", "a\tb", " "])
def test_only_words_are_encoded(tokenizer: Tokenizer, word: str) -> None:
    with pytest.raises(ValueError, match="is not one word: it is empty or has spaces or tabs"):
        tokenizer.encode_words(["ein", word])


@pytest.mark.parametrize("number", [120, -1])
def test_foreign_ids_are_refused(tokenizer: Tokenizer, number: int) -> None:
    with pytest.raises(ValueError, match=rf"id {number} is not among the 120 types .* different vocabularies"):
        tokenizer.decode([5, number])


def test_training_is_a_function_of_the_text(tokenizer: Tokenizer) -> None:
    assert train_bpe(reversed(LINES), vocabulary_size=120).digest == tokenizer.digest
    assert train_bpe(LINES, vocabulary_size=119).digest != tokenizer.digest


def test_another_process_learns_the_same_and_imports_the_library_only_then(tokenizer: Tokenizer) -> None:
    program = f"""
import sys
from probattn.data import train_bpe
print("tokenizers" in sys.modules)
print(train_bpe({LINES!r}, vocabulary_size=120).digest)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", tokenizer.digest]


def test_min_frequency() -> None:
    assert train_bpe(LINES, vocabulary_size=400, min_frequency=3).vocabulary_size < 120


def test_bad_training_text() -> None:
    with pytest.raises(ValueError, match="train_bpe got no words"):
        train_bpe([" ", "\t"], vocabulary_size=50)
    with pytest.raises(ValueError, match=r"vocabulary_size 20 is too small: the characters alone need \d\d types"):
        train_bpe(LINES, vocabulary_size=20)


def test_file_round_trip(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    again = Tokenizer.load(path, digest=tokenizer.digest)
    assert again.digest == tokenizer.digest
    for line in LINES:
        assert again.encode(line) == tokenizer.encode(line)
    assert [entry.name for entry in tmp_path.iterdir()] == ["tokenizer.json"]


def test_other_vocabulary_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    train_bpe(LINES, vocabulary_size=100).save(path)
    message = (
        rf"tokenizer.json has another vocabulary \(100 types, .*expected \(digest {tokenizer.digest[:12]}\). Use the"
    )
    with pytest.raises(ValueError, match=message):
        Tokenizer.load(path, digest=tokenizer.digest)


def test_damaged_and_foreign_files_are_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(FileNotFoundError, match="tokenizer.json does not exist"):
        Tokenizer.load(path)
    tokenizer.save(path)
    content = path.read_bytes()
    for bad in (content[:500], b"", b"\xff\xfe", b"{}"):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match="tokenizer.json is no tokenizer file, or was cut off"):
            Tokenizer.load(path)
    path.write_bytes(content.replace(b"<pad>", b"[PAD]"))
    with pytest.raises(ValueError, match=r"tokenizer.json: the first types are .*not made by probattn"):
        Tokenizer.load(path)
    gaps = json.loads(content)
    gaps["model"]["vocab"]["zzz"] = 500
    path.write_text(json.dumps(gaps))
    with pytest.raises(ValueError, match=r"tokenizer.json: the ids of the types have gaps"):
        Tokenizer.load(path)


def test_words_are_cached_within_bounds(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = train_bpe(LINES, vocabulary_size=120)
    monkeypatch.setattr("probattn.data.bpe.MAX_CACHED_WORDS", 5)
    for line in LINES:
        assert fresh.encode(line) == tokenizer.encode(line)
        assert len(fresh._ids_of_word) <= 5


def test_library_is_optional(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    for call in (lambda: train_bpe(LINES, vocabulary_size=120), lambda: Tokenizer.load(tmp_path / "t.json")):
        with pytest.raises(ImportError, match=r"needs the package `tokenizers`: pip install 'probattn\[text\]'"):
            call()


@pytest.mark.data
def test_multi30k_comes_back(data_dir: Path) -> None:
    text = multi30k.load("valid", version="raw")  # cased, with no-break spaces in it
    lines = [*text.source, *text.target]
    tokenizer = train_bpe(lines, vocabulary_size=1000)
    assert tokenizer.vocabulary_size == 1000
    for line in lines:
        assert tokenizer.decode(tokenizer.encode(line)) == " ".join(split_words(line))
