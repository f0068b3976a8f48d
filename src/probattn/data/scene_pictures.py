"""Pictures of generated scenes, and features of their cells.

A cell is 16 x 16 pixels: a grey ground with noise and, where an object is, its shape in its colour, moved by up to a
pixel. Features come from a fixed random network, so they must be learnt from as a real network's are: every feature of
a cell mixes the pixels of that cell with weaker, differently weighted ones of its four neighbours (the receptive fields
of neighbouring cells overlap, so a cell can tell what is left of it), and its place on the grid is added.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["CELL", "COLOURS", "DIM", "GRID", "KINDS", "NEIGHBOURS", "SceneObject", "cell_features", "draw_picture"]

GRID = 5
CELL = 16
DIM = 96
COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 180, 60),
    "blue": (50, 90, 230),
    "yellow": (235, 215, 50),
    "purple": (160, 60, 190),
    "orange": (245, 140, 30),
}
NEIGHBOURS = {"left": (0, -1), "right": (0, 1), "above": (-1, 0), "below": (1, 0)}
_GROUND = 96.0
_PIXEL_NOISE = 12.0
_NOISE_SIDE = 400  # of the field that pictures cut their noise from
_NOISE_STEPS = (71, 113)
_NEIGHBOUR_SHARE = 0.5
_PLACE_SHARE = 0.5
_WEIGHTS_SEED = 577
# Rows of five bits, the highest on the left.
_DIGITS = {
    "zero": "01110 10001 10011 10101 11001 10001 01110",
    "one": "00100 01100 00100 00100 00100 00100 01110",
    "two": "01110 10001 00001 00110 01000 10000 11111",
    "three": "11110 00001 00001 01110 00001 00001 11110",
    "four": "00010 00110 01010 10010 11111 00010 00010",
    "five": "11111 10000 11110 00001 00001 10001 01110",
    "six": "00110 01000 10000 11110 10001 10001 01110",
    "seven": "11111 00001 00010 00100 01000 01000 01000",
    "eight": "01110 10001 10001 01110 10001 10001 01110",
    "nine": "01110 10001 10001 01111 00001 00010 01100",
}
_SHAPES = ("circle", "square", "triangle", "cross", "ring", "diamond")
KINDS = (*_DIGITS, *_SHAPES)
"""Digits by name, and shapes."""


@dataclass(frozen=True)
class SceneObject:
    """One object.

    Attributes:
        colour: Of `COLOURS`.
        kind: Of `KINDS`.
        cell: Row by row, from 0.
        shift: Pixels down and to the right.
    """

    colour: str
    kind: str
    cell: int
    shift: tuple[int, int] = (0, 0)


def draw_picture(objects: Sequence[SceneObject], seed: int) -> np.ndarray:
    """(H, W, 3) uint8 of a scene; the seed is that of the noise on its pixels."""
    side = GRID * CELL
    down, right = (seed * step % (_NOISE_SIDE - side) for step in _NOISE_STEPS)
    picture = _GROUND + _PIXEL_NOISE * _noise()[down : down + side, right : right + side]
    for one in objects:
        row, column = divmod(one.cell, GRID)
        mask = np.roll(_stencils()[one.kind], one.shift, axis=(0, 1))
        patch = picture[row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL]
        patch[mask] = 0.2 * (patch[mask] - _GROUND) + np.array(COLOURS[one.colour], dtype=np.float32)
    return np.clip(picture, 0, 255).astype(np.uint8)


def cell_features(pictures: Tensor) -> Tensor:
    """(N, cells, D) float32 of pictures (N, H, W, 3) in uint8."""
    small = F.avg_pool2d(pictures.permute(0, 3, 1, 2).float() / 255.0 - 0.5, 2)  # half the resolution
    size = CELL // 2
    cells = small.unfold(2, size, size).unfold(3, size, size)  # (N, 3, G, G, 8, 8)
    pixels = cells.permute(0, 2, 3, 1, 4, 5).flatten(3)  # (N, G, G, P)
    own, others, places = _weights(pixels.shape[-1])
    found = pixels @ own
    padded = F.pad(pixels, (0, 0, 1, 1, 1, 1))
    for weight, (down, right) in zip(others, NEIGHBOURS.values(), strict=True):
        shifted = padded[:, 1 + down : 1 + down + GRID, 1 + right : 1 + right + GRID]
        found = found + _NEIGHBOUR_SHARE * (shifted @ weight)
    return (torch.tanh(found) + _PLACE_SHARE * places).flatten(1, 2)


def _normal(stream: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(_WEIGHTS_SEED + stream))


@cache
def _noise() -> np.ndarray:
    """(400, 400, 3) normal numbers."""
    found: np.ndarray = _normal(0, _NOISE_SIDE, _NOISE_SIDE, 3).numpy()
    return found


@cache
def _weights(num_pixels: int) -> tuple[Tensor, Tensor, Tensor]:
    """Fixed random weights: of the own cell, of its neighbours, and of rows and columns."""
    drawn = _normal(1, 1 + len(NEIGHBOURS), num_pixels, DIM) * (3.0 / num_pixels**0.5)
    rows, columns = _normal(2, 2, GRID, DIM).unbind(0)
    return drawn[0], drawn[1:], rows.unsqueeze(1) + columns.unsqueeze(0)


@cache
def _stencils() -> dict[str, np.ndarray]:
    """For every kind the pixels that it covers, (16, 16) bool."""
    found = {}
    for kind, rows in _DIGITS.items():
        bits = np.array([[bit == "1" for bit in row] for row in rows.split()])
        mask = np.zeros((CELL, CELL), dtype=bool)
        mask[1:15, 3:13] = np.kron(bits, np.ones((2, 2), dtype=bool))
        found[kind] = mask
    y, x = np.mgrid[:CELL, :CELL] - (CELL - 1) / 2
    distance = np.hypot(x, y)
    shapes = {
        "circle": distance < 6,
        "square": np.maximum(abs(x), abs(y)) < 5.5,
        "triangle": (y < 5.5) & (y > -6) & (abs(x) < (y + 6.5) / 2),
        "cross": (np.minimum(abs(x), abs(y)) < 2) & (distance < 6.5),
        "ring": (distance < 6.5) & (distance > 3.5),
        "diamond": abs(x) + abs(y) < 6.5,
    }
    return found | shapes
