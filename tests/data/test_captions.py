"""Captions: how two corpora are made alike, that splits share no image, and the statistics on the real files."""

from pathlib import Path

import pytest

from probattn.data import captions
from probattn.data.captions import _flickr8k_images, _multi30k_images, _number, _split_of_images, tidy
from tests.data.corpora import num_words


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("A dog runs", "a dog runs ."),
        ("a dog runs .", "a dog runs ."),
        ("A dog runs ,", "a dog runs ."),
        ("bob &apos;s dog isn &apos;t here !", "bob 's dog is n't here !"),
        ("a sign reads &quot; stop . &quot;", 'a sign reads " stop . "'),
        ("salt &amp; pepper  ?", "salt & pepper ?"),
    ],
)
def test_captions_are_made_alike(caption: str, expected: str) -> None:
    assert tidy(caption) == expected == tidy(expected)


def test_an_image_stays_where_it_is_held_out() -> None:
    first = {"train": ("1", "2", "3"), "valid": ("4",), "test": ("5",)}
    second = {"train": ("4", "6"), "valid": ("2", "5"), "test": ("3",)}
    expected = {"1": "train", "2": "valid", "3": "test", "4": "valid", "5": "test", "6": "train"}
    assert _split_of_images(first, second) == expected == _split_of_images(second, first)


def test_numbers_of_images() -> None:
    assert _number("1000268201.jpg") == _number("1000268201_693b08cb0e.jpg#0") == "1000268201"
    with pytest.raises(ValueError, match=r"expected the name of an image such as 1000268201.jpg, got 'x.jpg'"):
        _number("x.jpg")


def test_unknown_split_and_missing_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"split 'dev' is unknown; Choose from train, valid, test"):
        captions.load("dev")
    monkeypatch.delenv("PROBATTN_DATA", raising=False)
    monkeypatch.setenv("PROBATTN_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"multi30k/dataset/master/data/task1/image_splits/train\.txt into"):
        captions.load("valid")


@pytest.mark.data
@pytest.mark.parametrize(("split", "words"), [("train", 635_265), ("valid", 70_469), ("test", 72_318)])
def test_statistics(data_dir: Path, split: str, words: int) -> None:
    sentences = captions.load(split)
    assert (len(sentences), num_words(sentences)) == (captions.NUM_SENTENCES[split], words)
    assert all(sentence == sentence.lower() and "&apos;" not in sentence for sentence in sentences)


@pytest.mark.data
def test_overlap_of_the_corpora(data_dir: Path) -> None:
    ours = {name: _multi30k_images(name, may_download=False) for name in captions.SPLITS}
    more = {name: _flickr8k_images(name, may_download=False) for name in captions.SPLITS}
    split_of = _split_of_images(ours, more)
    moved = {
        (corpus, name): sum(split_of[image] != name for image in images[name])
        for corpus, images in (("multi30k", ours), ("flickr8k", more))
        for name in captions.SPLITS
    }
    assert list(moved.values()) == [1_738, 28, 0, 352, 36, 0]
