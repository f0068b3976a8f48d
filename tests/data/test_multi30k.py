"""Multi30k: choices, addresses, and the statistics of its table on the real files."""

from pathlib import Path

import pytest

from probattn.data import multi30k
from tests.data.corpora import sizes


def test_unknown_choices_are_refused() -> None:
    with pytest.raises(ValueError, match=r"split 'vaild' is unknown; did you mean 'valid'\? Choose from train, valid"):
        multi30k.load("vaild")
    with pytest.raises(ValueError, match=r"language 'cs' is unknown; Choose from de, en, fr"):
        multi30k.load("train", source="cs")
    with pytest.raises(ValueError, match=r"version 'bpe' is unknown; Choose from tok, raw"):
        multi30k.load("train", version="bpe")
    with pytest.raises(ValueError, match="source and target are both 'en'"):
        multi30k.load("train", source="en")


@pytest.mark.parametrize(("version", "name"), [("tok", r"tok/val\.lc\.norm\.tok\.de"), ("raw", r"raw/val\.de\.gz")])
def test_address_is_the_official_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, name: str) -> None:
    monkeypatch.delenv("PROBATTN_DATA", raising=False)
    monkeypatch.setenv("PROBATTN_CACHE", str(tmp_path))
    address = rf"downloaded from https://raw\.githubusercontent\.com/multi30k/dataset/master/data/task1/{name} into"
    with pytest.raises(FileNotFoundError, match=address):
        multi30k.load("valid", version=version)


def test_every_file_has_a_checksum() -> None:
    assert len(set(multi30k.SHA256.values())) == 2 * 3 * 3  # versions, splits, languages


@pytest.mark.data
@pytest.mark.parametrize(
    ("split", "german", "english", "french"),
    [("train", 360_706, 377_534, 409_845), ("valid", 12_828, 13_308, 14_381), ("test", 12_103, 12_968, 13_988)],
)
def test_statistics(data_dir: Path, split: str, german: int, english: int, french: int) -> None:
    pairs = multi30k.NUM_PAIRS[split]
    assert sizes(multi30k.load(split)) == (pairs, german, english)
    assert sizes(multi30k.load(split, source="en", target="fr")) == (pairs, english, french)


@pytest.mark.data
def test_versions(data_dir: Path) -> None:
    raw, tokenised = multi30k.load("test", version="raw"), multi30k.load("test")
    assert raw.source[0] == "Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt."
    assert tokenised.source[0] == "ein mann mit einem orangefarbenen hut , der etwas anstarrt ."
    assert tokenised.target[0] == "a man in an orange hat starring at something ."
    assert tokenised.name == "Multi30k tok de-en test"
