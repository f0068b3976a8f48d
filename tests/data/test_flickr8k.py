"""Captions of Flickr8k and of one's own files; batches of captions with features."""

import json
from pathlib import Path

import pytest
import torch

from probattn.data import flickr8k
from probattn.data.caption_batches import EncodedCaptions, PictureBatch, picture_batches
from probattn.data.flickr8k import caption_words, read_captions
from probattn.data.image_features import ImageFeatures
from probattn.data.words import train_words


def written(folder: Path, text: str, name: str = "captions.txt") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_punctuation_and_case_go_and_words_stay() -> None:
    assert caption_words('A man , with a " red-white " hat ( old ) .') == "a man with a red-white hat old"
    assert caption_words("- ! ?") == ""


def test_numbered_and_plain_lines_of_a_picture_come_together(tmp_path: Path) -> None:
    text = "b.jpg#0\tA dog .\nfolder/a.jpg\tTwo cats\nb.jpg#1\tThe dog runs .\n\na.jpg\t .\n"
    found = read_captions(written(tmp_path, text))
    assert found.names == ("b.jpg", "a.jpg")
    assert found.captions == (("a dog", "the dog runs"), ("two cats",))
    assert (found.skipped, found.num_captions) == (1, 3)
    assert found.part([1]).names == ("a.jpg",)


def test_json_lines_may_hold_one_caption_or_several(tmp_path: Path) -> None:
    lines = [{"image": "a.jpg", "caption": "A dog"}, {"image": "x/b.jpg", "captions": ["One", "Two"]}]
    found = read_captions(written(tmp_path, "\n".join(json.dumps(line) for line in lines) + "\n", "c.jsonl"))
    assert dict(zip(found.names, found.captions, strict=True)) == {"a.jpg": ("a dog",), "b.jpg": ("one", "two")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.jpg a dog\n", r"captions.txt, line 1: expected a picture's name, a tab and a caption"),
        ("a.jpg\tone\ttwo\n", "line 1: expected a picture's name"),
        ('a.jpg\tone\n{"image": "a.jpg"}\n', "line 2: expected .*'caption'"),
        ('{"image": "a.jpg", "captions": "a dog"}\n', "line 1: expected .*captions are a list, got str"),
        ("a.jpg\t.\n", "no captions in it"),
    ],
)
def test_lines_that_cannot_be_read_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_captions(written(tmp_path, text))


def test_batches_pair_captions_with_their_pictures() -> None:
    values = torch.arange(24.0).view(3, 4, 2)
    features = ImageFeatures(("a", "b", "c"), values, counts=torch.tensor([4, 2, 4]))
    tokenizer = train_words(["dog cat runs"], vocabulary_size=20)
    encoded = EncodedCaptions.from_text(features, ["c", "b"], [["dog", "cat runs"], ["runs"]], tokenizer)
    assert encoded.images == (2, 2, 1)
    assert encoded.lengths == [2, 3, 2]
    found = encoded.batch([1, 2])
    assert torch.equal(found.features[0], values[2])
    assert found.region_mask.tolist() == [[True] * 4, [True, True, False, False]]
    assert found.target_in[:, 0].tolist() == [1, 1]
    assert found.target_mask.tolist() == [[True, True, True], [True, True, False]]
    assert sorted(row for rows in encoded.batches(2) for row in rows) == [0, 1, 2]
    with pytest.raises(KeyError, match="no features of 1 picture"):
        EncodedCaptions.from_text(features, ["x"], [["dog"]], tokenizer)


def test_pictures_are_repeated_one_after_another() -> None:
    features = ImageFeatures(("a", "b"), torch.tensor([[[1.0]], [[2.0]]]))
    (found,) = picture_batches(features, [1, 0])
    assert isinstance(found, PictureBatch)
    assert found.repeated(2).features.flatten().tolist() == [2.0, 2.0, 1.0, 1.0]


@pytest.mark.data
def test_the_corpus_is_whole(data_dir: Path) -> None:
    splits = {name: flickr8k.load(name) for name in flickr8k.NUM_IMAGES}
    assert {name: len(split) for name, split in splits.items()} == flickr8k.NUM_IMAGES
    assert {len(captions) for split in splits.values() for captions in split.captions} == {5}
    names = [name for split in splits.values() for name in split.names]
    assert len(set(names)) == 8000
    features = flickr8k.load_features()
    assert len(features.rows(names)) == 8000
    assert (features.num_regions, features.dim, features.grid) == (49, 96, (7, 7))
    with pytest.raises(ValueError, match="split 'dev' is unknown"):
        flickr8k.load("dev")


def test_a_caption_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "captions.jsonl"
    path.write_text('{"image": "a.jpg", "caption": null}\n')
    with pytest.raises(ValueError, match="a caption is text"):
        read_captions(path)
