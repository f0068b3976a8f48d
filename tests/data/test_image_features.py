import base64
from pathlib import Path

import numpy as np
import pytest
import torch

from probattn.data.image_features import ImageFeatures, MissingPicturesError, read_features, write_features


def features(**changes):
    settings = {"names": ("a.jpg", "b.jpg"), "values": torch.arange(24.0).view(2, 4, 3), "grid": (2, 2)} | changes
    return ImageFeatures(**settings)


def tsv_line(name, boxes, values, size=(10, 20)):
    def packed(array):
        return base64.b64encode(np.asarray(array, dtype=np.float32).tobytes()).decode()

    return "\t".join([name, str(size[0]), str(size[1]), str(len(boxes)), packed(boxes), packed(values)])


def test_npz_comes_back_as_it_was(tmp_path):
    stored = features(values=torch.randint(-9, 9, (2, 4, 3)).to(torch.int8), scale=torch.tensor([0.5, 1.0, 2.0]))
    write_features(tmp_path / "f.npz", stored)
    found = read_features(tmp_path / "f.npz")
    assert found.names == stored.names and found.grid == (2, 2) and found.values.dtype == torch.int8
    assert torch.equal(found.batch([1, 0])[0], stored.batch([1, 0])[0])
    assert torch.equal(found.batch([1])[0][0], stored.values[1].float() * stored.scale)


def test_names_can_be_an_array_and_a_square_is_a_grid(tmp_path):
    np.savez(tmp_path / "f.npz", features=np.zeros((2, 9, 5), dtype=np.float16), names=np.array(["x.png", "y.png"]))
    found = read_features(tmp_path / "f.npz")
    assert found.names == ("x.png", "y.png") and found.grid == (3, 3) and found.dim == 5


def test_tsv_has_boxes_in_shares_and_masks_what_is_not_there(tmp_path):
    lines = [
        tsv_line("7", [[0, 0, 5, 20], [5, 10, 10, 20]], [[1, 2, 3], [4, 5, 6]]),
        tsv_line("8", [[0, 0, 10, 20]], [[7, 8, 9]]),
    ]
    (tmp_path / "f.tsv").write_text("\n".join(lines) + "\n")
    found = read_features(tmp_path / "f.tsv")
    values, mask = found.batch([0, 1])
    assert found.names == ("7", "8") and found.grid is None
    assert mask.tolist() == [[True, True], [True, False]]
    assert values[1].tolist() == [[7, 8, 9], [0, 0, 0]]
    assert found.boxes is not None and found.boxes[0, 1].tolist() == [0.5, 0.5, 1.0, 1.0]


def test_spread_leaves_padding_out():
    values = torch.randn(600, 3, 4)
    values[:, 2] = 1000.0
    found = features(
        names=tuple(str(row) for row in range(600)), values=values, grid=None, counts=torch.full((600,), 2)
    )
    assert found.spread() == pytest.approx(float(values[:, :2].std(correction=0)), rel=1e-5)


def test_missing_pictures_are_named():
    with pytest.raises(KeyError, match=r"no features of 1 picture\(s\): 'c.jpg'; it has 2 pictures, such as 'a.jpg'"):
        features().rows(["a.jpg", "c.jpg", "c.jpg"])


def test_pictures_that_could_not_be_read_are_kept_by_name(tmp_path):
    write_features(tmp_path / "f.npz", features(left_out=("cut.jpg", "empty.jpg")))
    found = read_features(tmp_path / "f.npz")
    assert found.left_out == ("cut.jpg", "empty.jpg") and features().left_out == ()
    with pytest.raises(
        MissingPicturesError, match="The extractor could not read 'cut.jpg'. Extract theirs with"
    ) as error:
        found.rows(["a.jpg", "cut.jpg", "other.jpg"])
    assert str(error.value).startswith("f.npz has no features of 2 picture(s)")  # no quotes, as a KeyError would have


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"values": torch.full((2, 4, 3), float("nan"))}, "NaN or infinite features of 'a.jpg'"),
        ({"values": torch.zeros(2, 4)}, r"shape \(pictures, regions, features\), got \(2, 4\)"),
        ({"names": ("a.jpg",)}, "1 names for 2 pictures"),
        ({"names": ("a.jpg", "a.jpg")}, "occur twice: 'a.jpg'"),
        ({"grid": (3, 3)}, "3 x 3 has not 4 cells"),
        ({"scale": torch.ones(2)}, "scale has 2 entries, expected 1 or 3"),
        ({"scale": torch.tensor([1.0, float("nan"), 1.0])}, "scale holds a NaN"),
        ({"boxes": torch.zeros(1, 4, 4)}, r"boxes have the shape \(1, 4, 4\), expected \(2, 4, 4\)"),
        ({"counts": torch.tensor([1, 0])}, "a count of regions above zero"),
        ({"counts": torch.tensor([1, 5])}, "and of at most 4"),
    ],
)
def test_features_that_cannot_be_used(changes, message):
    with pytest.raises(ValueError, match=message):
        features(**changes)


def test_another_width_is_refused():
    with pytest.raises(ValueError, match="has 3 features a region, but the network reads 96"):
        features().require_dim(96)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("f.npz", b"PK\x03\x04cut short", "not an .npz file"),
        ("f.npz", b"hello", "f.npz"),
        ("f.tsv", b"7\t10\t20\t1\tAAAA\n", "line 1: expected 6 columns, got 5"),
        ("f.tsv", b"7\t10\t20\t1\tAAAA\tAAAA\n", "line 1 .'7'."),
        ("f.tsv", b"", "no pictures in it"),
        ("f.txt", b"", "features are read from .npz, .tsv"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_features(tmp_path / name)


def test_files_without_features(tmp_path):
    np.savez(tmp_path / "f.npz", pixels=np.zeros(3))
    with pytest.raises(ValueError, match="expected 'feat' .or 'features'. and 'names'"):
        read_features(tmp_path / "f.npz")
    np.savez(tmp_path / "g.npz", feat=np.array([{"a": 1}], dtype=object), names=np.array(["a"]))
    with pytest.raises(ValueError, match="holds Python objects"):
        read_features(tmp_path / "g.npz")
    with pytest.raises(FileNotFoundError, match="make one with: probattn features FOLDER"):
        read_features(tmp_path / "none.npz")


def test_hdf5(tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["features"] = np.ones((2, 4, 3), dtype=np.float32)
        file["names"] = ["a.jpg", "b.jpg"]
    assert read_features(tmp_path / "f.h5").names == ("a.jpg", "b.jpg")


def test_a_scale_of_float64_gives_float32(tmp_path: Path) -> None:
    values = np.ones((2, 4, 3), dtype=np.int8)
    np.savez(tmp_path / "f.npz", feat=values, names=np.array("a\nb"), scale=np.full(3, 0.5))
    found = read_features(tmp_path / "f.npz").batch([0])[0]
    assert found.dtype == torch.float32 and bool((found == 0.5).all())


def test_an_array_alone_holds_no_features(tmp_path: Path) -> None:
    with (tmp_path / "f.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(ValueError, match=r"f\.npz: not an \.npz file"):
        read_features(tmp_path / "f.npz")
