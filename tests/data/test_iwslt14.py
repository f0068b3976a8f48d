"""IWSLT14: choices, the split of the validation file, and the statistics of its table on the real files."""

from pathlib import Path

import pytest

from probattn.data import iwslt14
from tests.data.corpora import sizes


def test_unknown_choices_are_refused() -> None:
    with pytest.raises(ValueError, match=r"split 'dev' is unknown; Choose from train, valid, paper_valid, test"):
        iwslt14.load("dev")
    with pytest.raises(ValueError, match=r"language 'fr' is unknown; Choose from de, en"):
        iwslt14.load("train", target="fr")
    with pytest.raises(ValueError, match=r"version 'raw' is unknown; Choose from tok, bpe"):
        iwslt14.load("train", version="raw")
    with pytest.raises(ValueError, match="source and target are both 'de'"):
        iwslt14.load("train", target="de")


def test_address_is_the_official_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROBATTN_DATA", raising=False)
    monkeypatch.setenv("PROBATTN_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"harvardnlp/var-attn/\w{40}/data/iwslt14-de-en/valid\.de into"):
        iwslt14.load("train")


@pytest.mark.data
@pytest.mark.parametrize(
    ("split", "german", "english"),
    [
        ("train", 126_676, 133_756),
        ("valid", 15_292, 16_234),
        ("paper_valid", 141_968, 149_990),
        ("test", 125_738, 131_141),
    ],
)
def test_statistics(data_dir: Path, split: str, german: int, english: int) -> None:
    text = iwslt14.load(split)
    assert sizes(text) == (iwslt14.NUM_PAIRS[split], german, english)
    assert text.name == f"IWSLT14 tok de-en {split}"


@pytest.mark.data
def test_train_and_valid_make_the_papers_validation_file(data_dir: Path) -> None:
    train, valid, whole = (iwslt14.load(split) for split in ("train", "valid", "paper_valid"))
    assert (train.source + valid.source, train.target + valid.target) == (whole.source, whole.target)


@pytest.mark.data
def test_pieces_of_the_paper_spell_the_text(data_dir: Path) -> None:
    pieces, text = iwslt14.load("test", version="bpe"), iwslt14.load("test")
    assert tuple(line.replace("@@ ", "") for line in pieces.source) == text.source
    assert tuple(line.replace("@@ ", "") for line in pieces.target) == text.target
