"""Features of pictures, a vector per region: cells of a grid or boxes of a detector; read from the usual files.

| file | what is expected |
|---|---|
| `.npz` | `feat` or `features` (N, R, D), `names` (N, or a text, a name a line); `scale`, `boxes`, `counts`, `grid` |
| `.tsv` | bottom-up attention: image_id, image_w, image_h, num_boxes, boxes, features; the last two base64 of float32 |
| `.h5`, `.hdf5` | the same names as in `.npz`; needs h5py |

`left_out`, a text with a name a line, may name pictures that could not be read.

Size letters: N pictures, R regions, D features.
"""

import base64
import binascii
import csv
import io
import math
import os
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from probattn.data.sources import write_atomically

__all__ = ["ImageFeatures", "MissingPicturesError", "read_features", "write_features"]

VALUE_KEYS = ("feat", "features")
TSV_FIELDS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
_SHOWN = 5
_CHUNK = 512


class MissingPicturesError(KeyError, ValueError):
    """Pictures that have no features."""

    def __str__(self) -> str:
        """The message, without the quotes of a `KeyError`."""
        return str(self.args[0])


@dataclass(frozen=True)
class ImageFeatures:
    """Region features of pictures.

    Attributes:
        names: Of pictures: file names without their folder.
        values: (N, R, D), as stored: int8, float16 or float32.
        scale: What stored values are multiplied by, (D) or (); None: nothing.
        grid: Rows and columns, row by row, where regions are cells.
        boxes: (N, R, 4) x0, y0, x1, y1 in shares of the picture, where regions are boxes.
        counts: (N) regions that are there, where pictures have different numbers; what is behind is padding.
        name: For messages.
        left_out: Names of pictures that the extractor could not read, e.g. damaged ones.

    Example:
        >>> found = ImageFeatures(("a.jpg", "b.jpg"), torch.ones(2, 4, 3), grid=(2, 2))
        >>> found.rows(["b.jpg"]), found.batch([1])[0].shape
        ([1], torch.Size([1, 4, 3]))
    """

    names: tuple[str, ...]
    values: Tensor
    scale: Tensor | None = None
    grid: tuple[int, int] | None = None
    boxes: Tensor | None = None
    counts: Tensor | None = None
    name: str = "features"
    left_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        shape = tuple(self.values.shape)
        if len(shape) != 3 or 0 in shape:
            raise ValueError(f"{self.name}: features have the shape (pictures, regions, features), got {shape}")
        if len(self.names) != shape[0]:
            raise ValueError(f"{self.name}: {len(self.names)} names for {shape[0]} pictures; there must be as many")
        if len(self.positions) != len(self.names):
            seen: set[str] = set()
            twice = [name for name in self.names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
            raise ValueError(f"{self.name}: pictures that occur twice: {_some(twice)}")
        if self.grid is not None and self.grid[0] * self.grid[1] != shape[1]:
            raise ValueError(f"{self.name}: a grid of {self.grid[0]} x {self.grid[1]} has not {shape[1]} cells")
        if self.scale is not None and self.scale.numel() not in (1, shape[2]):
            raise ValueError(f"{self.name}: scale has {self.scale.numel()} entries, expected 1 or {shape[2]}")
        if self.scale is not None and not bool(torch.isfinite(self.scale).all()):
            raise ValueError(f"{self.name}: scale holds a NaN or an infinity; write the features again")
        if self.boxes is not None and tuple(self.boxes.shape) != (*shape[:2], 4):
            raise ValueError(
                f"{self.name}: boxes have the shape {tuple(self.boxes.shape)}, expected {(*shape[:2], 4)}: a box "
                "for each region"
            )
        if self.counts is not None and (
            tuple(self.counts.shape) != shape[:1] or not bool(((self.counts > 0) & (self.counts <= shape[1])).all())
        ):
            raise ValueError(
                f"{self.name}: every one of the {shape[0]} pictures needs a count of regions above zero and of at most "
                f"{shape[1]}"
            )
        if self.values.is_floating_point():
            self._require_finite()

    def __len__(self) -> int:
        return len(self.names)

    @property
    def num_regions(self) -> int:
        """R, padding counted."""
        return self.values.shape[1]

    @property
    def dim(self) -> int:
        """D."""
        return self.values.shape[2]

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """The row of every name."""
        return {name: row for row, name in enumerate(self.names)}

    def rows(self, names: Sequence[str]) -> list[int]:
        """Rows of pictures.

        Raises:
            MissingPicturesError: Pictures that have no features, a `KeyError`; the message counts and names them.
        """
        missing = [name for name in dict.fromkeys(names) if name not in self.positions]
        if missing:
            unread = [name for name in missing if name in self.left_out]
            damaged = f" The extractor could not read {_some(unread)}." if unread else ""
            raise MissingPicturesError(
                f"{self.name} has no features of {len(missing)} picture(s): {_some(missing)}; it has {len(self)} "
                f"pictures, such as {_some(self.names)}.{damaged} Extract theirs with: probattn features FOLDER out.npz"
            )
        return [self.positions[name] for name in names]

    def batch(self, rows: Sequence[int] | Tensor) -> tuple[Tensor, Tensor]:
        """Features (B, R, D) in float32, zeros where nothing is, and which regions are there, (B, R)."""
        index = torch.as_tensor(rows, dtype=torch.long)
        values = self.values[index].float()
        if self.scale is not None:
            values = values * self.scale.float()
        if self.counts is None:
            return values, torch.ones(values.shape[:2], dtype=torch.bool)
        mask = torch.arange(self.num_regions) < self.counts[index].unsqueeze(-1)
        return values.masked_fill(~mask.unsqueeze(-1), 0.0), mask

    def spread(self, rows: Sequence[int] | None = None) -> float:
        """Standard deviation of all entries of some pictures, or of all: the unit in which noise is added."""
        total = squares = 0.0
        entries = 0
        rows = range(len(self)) if rows is None else rows
        for start in range(0, len(rows), _CHUNK):
            values, mask = self.batch(rows[start : start + _CHUNK])
            seen = values[mask].double()
            total, squares, entries = (
                total + float(seen.sum()),
                squares + float(seen.square().sum()),
                entries + seen.numel(),
            )
        return math.sqrt(max(0.0, squares / entries - (total / entries) ** 2))

    def require_dim(self, dim: int) -> None:
        """Refuse features of another width than a network was built for.

        Raises:
            ValueError: They have one.
        """
        if self.dim != dim:
            raise ValueError(
                f"{self.name} has {self.dim} features a region, but the network reads {dim}; use features of the same "
                "extractor (and the same PCA) as in training"
            )

    def _require_finite(self) -> None:
        for start in range(0, len(self), _CHUNK):
            bad = ~torch.isfinite(self.values[start : start + _CHUNK]).flatten(1).all(dim=-1)
            if bool(bad.any()):
                row = start + int(bad.nonzero()[0])
                raise ValueError(
                    f"{self.name}: NaN or infinite features of '{self.names[row]}' (picture {row + 1}); extract them "
                    "again or leave the picture out"
                )


def read_features(path: str | os.PathLike[str]) -> ImageFeatures:
    """Features from a file; its ending says of which kind.

    Raises:
        FileNotFoundError: No such file.
        ValueError: Not such a file, or features that cannot be used; the message says what.
        ImportError: HDF5 without h5py.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"no file {file}; make one with: probattn features FOLDER {file.with_suffix('.npz')}")
    readers: dict[str, Callable[[Path], ImageFeatures]] = {
        ".npz": _read_npz,
        ".tsv": _read_tsv,
        ".h5": _read_hdf5,
        ".hdf5": _read_hdf5,
    }
    if file.suffix not in readers:
        raise ValueError(f"{file}: features are read from {', '.join(readers)}, got '{file.suffix}'")
    return readers[file.suffix](file)


def write_features(path: str | os.PathLike[str], features: ImageFeatures) -> None:
    """Write an `.npz` that `read_features` reads; all of it or nothing."""
    file = Path(path)
    if file.suffix != ".npz":
        raise ValueError(f"{file}: features are written to .npz, got '{file.suffix}'")
    arrays: dict[str, Any] = {"feat": features.values.numpy(), "names": np.array("\n".join(features.names))}
    for key in ("scale", "boxes", "counts"):
        if (found := getattr(features, key)) is not None:
            arrays[key] = found.numpy()
    if features.left_out:
        arrays["left_out"] = np.array("\n".join(features.left_out))
    if features.grid is not None:
        arrays["grid"] = np.array(features.grid)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_atomically(file, buffer.getvalue())


def _read_npz(file: Path) -> ImageFeatures:
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            return _from_arrays({key: stored[key] for key in stored.files if key in _KNOWN}, file)
    except (OSError, EOFError, TypeError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{file}: not an .npz file ({error}); it may be cut short, so write it again") from error
    except ValueError as error:
        if "pickle" in str(error):
            raise ValueError(f"{file}: holds Python objects; store names as text and features as numbers") from error
        raise


def _read_hdf5(file: Path) -> ImageFeatures:
    try:
        import h5py  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise ImportError(f"{file} needs h5py; install it with: pip install h5py") from error
    try:
        with h5py.File(file, "r") as stored:
            return _from_arrays({key: stored[key][()] for key in stored if key in _KNOWN}, file)
    except OSError as error:
        raise ValueError(f"{file}: not an HDF5 file ({error})") from error


_KNOWN = (*VALUE_KEYS, "names", "scale", "boxes", "counts", "grid", "left_out")


def _from_arrays(arrays: Mapping[str, Any], file: Path) -> ImageFeatures:
    key = next((key for key in VALUE_KEYS if key in arrays), None)
    if key is None or "names" not in arrays:
        raise ValueError(f"{file}: expected 'feat' (or 'features') and 'names', found {sorted(arrays) or 'nothing'}")
    values = np.asarray(arrays[key])
    if values.dtype not in (np.int8, np.float16, np.float32, np.float64):
        raise ValueError(f"{file}: features are int8, float16 or float32, got {values.dtype}")
    kept = {name: torch.as_tensor(np.asarray(arrays[name])) for name in ("scale", "boxes", "counts") if name in arrays}
    grid = tuple(int(side) for side in arrays["grid"]) if "grid" in arrays else None
    return ImageFeatures(
        names=_names(np.asarray(arrays["names"])),
        values=torch.from_numpy(values.astype(np.float32) if values.dtype == np.float64 else values),
        grid=(grid[0], grid[1]) if grid is not None else _square(values.shape, kept),
        name=file.name,
        left_out=_names(np.asarray(arrays["left_out"])) if "left_out" in arrays else (),
        **kept,
    )


def _names(stored: Any) -> tuple[str, ...]:
    texts = [one.decode() if isinstance(one, bytes) else str(one) for one in np.atleast_1d(stored).tolist()]
    return tuple(texts[0].split("\n")) if len(texts) == 1 else tuple(texts)


def _square(shape: Sequence[int], kept: Mapping[str, Tensor]) -> tuple[int, int] | None:
    """Regions without boxes or counts whose number is a square are taken as a grid."""
    side = math.isqrt(shape[1]) if len(shape) == 3 else 0
    is_grid = side * side == (shape[1] if len(shape) == 3 else -1) and not {"boxes", "counts"} & set(kept)
    return (side, side) if is_grid else None


def _read_tsv(file: Path) -> ImageFeatures:
    names, features, boxes = [], [], []
    for name, values, corners in _tsv_pictures(file):
        names.append(name)
        features.append(values)
        boxes.append(corners)
    if not names:
        raise ValueError(f"{file}: no pictures in it")
    counts = torch.tensor([len(one) for one in features])
    widths = {one.shape[-1] for one in features}
    if len(widths) > 1:
        raise ValueError(f"{file}: pictures have features of different widths: {sorted(widths)}")
    pad = torch.nn.utils.rnn.pad_sequence
    return ImageFeatures(
        tuple(names),
        pad(features, batch_first=True),
        boxes=pad(boxes, batch_first=True),
        counts=None if bool((counts == counts.max()).all()) else counts,
        name=file.name,
    )


def _tsv_pictures(file: Path) -> Iterator[tuple[str, Tensor, Tensor]]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    with file.open(newline="", encoding="utf-8") as lines:
        for number, cells in enumerate(csv.reader(lines, delimiter="\t"), start=1):
            if len(cells) != len(TSV_FIELDS):
                raise ValueError(f"{file}, line {number}: expected {len(TSV_FIELDS)} columns, got {len(cells)}")
            row = dict(zip(TSV_FIELDS, cells, strict=True))
            try:
                count, size = int(row["num_boxes"]), (float(row["image_w"]), float(row["image_h"]))
                values = _decoded(row["features"]).reshape(count, -1)
                corners = _decoded(row["boxes"]).reshape(count, 4)
            except (ValueError, binascii.Error, RuntimeError) as error:
                raise ValueError(f"{file}, line {number} ('{row['image_id']}'): {error}") from error
            yield row["image_id"], values, corners / torch.tensor([*size, *size])


def _decoded(text: str) -> Tensor:
    return torch.from_numpy(np.frombuffer(base64.b64decode(text, validate=True), dtype=np.float32).copy())


def _some(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in list(names)[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
