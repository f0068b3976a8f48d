"""WMT 10k: choices, the empty line, and the statistics of its table on the real files."""

from pathlib import Path

import pytest

from probattn.data import wmt10k
from tests.data.corpora import sizes


def test_unknown_choices_are_refused() -> None:
    with pytest.raises(ValueError, match=r"split 'test' is unknown; Choose from train, valid"):
        wmt10k.load("test")
    with pytest.raises(ValueError, match=r"language 'fr' is unknown; Choose from en, de"):
        wmt10k.load("train", source="fr")
    with pytest.raises(ValueError, match="source and target are both 'en'"):
        wmt10k.load("train", source="en")


def test_address_is_the_official_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROBATTN_DATA", raising=False)
    monkeypatch.setenv("PROBATTN_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"OpenNMT/OpenNMT-py/master/data/tgt-val\.txt into"):
        wmt10k.load("valid")


@pytest.mark.data
def test_statistics(data_dir: Path) -> None:
    train = wmt10k.load("train")
    assert sizes(train) == (9_999, 213_986, 225_063)
    assert train.num_empty == 1
    assert sizes(wmt10k.load("valid")) == (3_000, 71_666, 72_088)


@pytest.mark.data
def test_neighbours_of_the_empty_line_stay_aligned(data_dir: Path) -> None:
    train = wmt10k.load("train", source="en", target="de")
    assert train.source[4].startswith("They would be abiding by the principle of the UN")
    assert train.target[4].startswith("Sie würden an dem Prinzip der UNO festhalten")
