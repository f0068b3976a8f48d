"""GloVe: lookup, what is not known, and both kinds of file."""

import hashlib
from pathlib import Path

import pytest
import torch

from probattn.data import glove, glove_rows, train_words, vocabulary_words


@pytest.fixture
def small_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A text file of three words, with the checks set to it."""
    words = ["the", "(", "dog"]
    monkeypatch.setattr(glove, "NUM_WORDS", 3)
    monkeypatch.setattr(glove, "WORDS_SHA256", hashlib.sha256("\n".join(words).encode()).hexdigest())
    monkeypatch.setenv("PROBATTN_DATA", str(tmp_path))
    monkeypatch.setenv("PROBATTN_CACHE", str(tmp_path))
    path = tmp_path / glove.TEXT_PATH
    path.parent.mkdir()
    lines = [" ".join([word, *[str(row + 0.5)] * glove.DIM]) for row, word in enumerate([*words, "cat"])]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_rows_follow_the_words(small_file: Path) -> None:
    words = ["dog", "cat", "The", "-lrb-", "", "dog"]
    matrix, is_known = glove_rows(words)
    assert matrix.dtype == torch.float32 and matrix.shape == (6, glove.DIM)
    assert is_known.tolist() == [True, False, True, True, False, True]
    assert matrix[:, 0].tolist() == [2.5, 0.0, 0.5, 1.5, 0.0, 2.5]
    assert glove_rows([]).matrix.shape == (0, glove.DIM)


def test_rows_of_a_vocabulary(small_file: Path) -> None:
    tokenizer = train_words(["the dog sleeps"], vocabulary_size=20)
    assert glove_rows(vocabulary_words(tokenizer)).is_known.tolist() == [False] * 4 + [True, False, True]


def test_damaged_and_foreign_files(small_file: Path) -> None:
    text = small_file.read_text()
    small_file.write_text(text.replace("dog", "dig"))
    with pytest.raises(ValueError, match=r"has 3 words \(SHA-256 \w{12}\) .* get it again from https://nlp"):
        glove_rows(["the"])
    small_file.write_text(text.replace("( 1.5", "("))
    glove._read_text.cache_clear()
    with pytest.raises(ValueError, match=r"line 2: expected a word and 50 numbers, got 50 columns"):
        glove_rows(["the"])


def test_missing_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROBATTN_DATA", raising=False)
    monkeypatch.setenv("PROBATTN_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"Get glove\.6B\.zip by hand .*glove50/glove\.6B\.50d.*it is not set"):
        glove_rows(["the"])


@pytest.mark.data
def test_published_vectors(data_dir: Path) -> None:
    matrix, is_known = glove_rows(["the", "Paris", "n't", "-lrb-", "<unk>", "xyzzyx"])
    assert is_known.tolist() == [True, True, True, True, False, False]
    assert matrix[0, 0].item() == pytest.approx(0.418, abs=1e-3)  # first number of the published file
    king, queen, carrot = glove_rows(["king", "queen", "carrot"]).matrix
    assert torch.cosine_similarity(king, queen, dim=0) > torch.cosine_similarity(king, carrot, dim=0) + 0.3
