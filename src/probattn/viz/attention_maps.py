"""Attention over a picture, as SVG text: cells of a grid, or boxes. matplotlib is imported when a map is drawn.

Size letters: R rows and C columns of the grid, B boxes, H and W pixels of the picture.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probattn.viz.figure import new_grid, plain, to_svg

__all__ = ["AttentionMap", "attention_map", "attention_maps"]

_GOLD = "#c2572b"
_GREY_SIDE = 224  # pixels of the empty picture where there is none


@dataclass(frozen=True)
class AttentionMap:
    """One picture with weights over it.

    Attributes:
        weights: (R, C) of the cells of a grid, or (B) of boxes; not negative.
        picture: (H, W, 3) or (H, W), uint8 or between 0 and 1; None: the weights alone are drawn.
        title: Above it; may have several lines.
        gold: Cells (row * C + column) or boxes to ring.
        boxes: (B, 4) x0, y0, x1, y1 between 0 and 1; None where weights are of a grid.
        highest: The weight that is drawn brightest; None: the largest one.
    """

    weights: Any
    picture: np.ndarray[Any, Any] | None = None
    title: str = ""
    gold: Sequence[int] = ()
    boxes: Any = None
    highest: float | None = None


def attention_map(
    picture: np.ndarray[Any, Any] | None,
    weights: Any,
    *,
    title: str = "",
    gold: Sequence[int] = (),
    boxes: Any = None,
    width: float = 2.4,
) -> str:
    """One picture with weights over it, as SVG; arguments as in `AttentionMap`, `width` in inches."""
    one = AttentionMap(weights, picture, title=title, gold=gold, boxes=boxes)
    return attention_maps([one], columns=1, width=width)


def attention_maps(maps: Sequence[AttentionMap], *, columns: int = 4, width: float = 2.4) -> str:
    """Several maps side by side, as one SVG.

    A picture is darkened where weights are low. Without a picture the weights are shades of blue.

    Args:
        maps: In reading order.
        columns: Maps in a line.
        width: Of one map, in inches.

    Raises:
        ValueError: If there is no map, weights are negative or not finite, or their shape does not fit.
    """
    if not maps:
        raise ValueError("expected one map or more, got none")
    columns = min(columns, len(maps))
    lines = (len(maps) + columns - 1) // columns
    titled = max(one.title.count("\n") + 1 if one.title else 0 for one in maps)
    height = width + 0.17 * titled
    figure, grid = new_grid(lines, columns, width=width * columns, height=height * lines)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, one in zip(grid.flat, maps, strict=False):
        _draw(axes, one)
    figure.tight_layout()
    return to_svg(figure)


def _draw(axes: Any, one: AttentionMap) -> None:
    weights = _checked(one)
    highest = float(weights.max()) if one.highest is None else one.highest
    shares = np.clip(weights / highest, 0.0, 1.0) if highest > 0.0 else np.zeros_like(weights)
    height, width = (_GREY_SIDE, _GREY_SIDE) if one.picture is None else one.picture.shape[:2]
    cover = _cover(shares, one.boxes, height, width)
    if one.picture is None:
        axes.imshow(cover, cmap="Blues", vmin=0.0, vmax=1.0)
    else:
        scaled = one.picture / 255.0 if one.picture.dtype == np.uint8 else one.picture
        colours = scaled if scaled.ndim == 3 else np.repeat(scaled[..., None], 3, axis=-1)
        axes.imshow(colours * (0.22 + 0.78 * cover[..., None]))
    for x0, y0, x1, y1 in _corners(one, weights.shape):
        xs, ys = np.array([x0, x1, x1, x0, x0]) * width - 0.5, np.array([y0, y0, y1, y1, y0]) * height - 0.5
        axes.plot(xs, ys, color=_GOLD, lw=1.6)
    axes.set_xlim(-0.5, width - 0.5)
    axes.set_ylim(height - 0.5, -0.5)
    if one.title:
        axes.set_title(plain(one.title), fontsize=8)


def _checked(one: AttentionMap) -> np.ndarray[Any, Any]:
    """The weights as an array, of a shape that fits."""
    weights = np.asarray(one.weights, dtype=float)
    expected = 2 if one.boxes is None else 1
    if weights.ndim != expected or weights.size == 0:
        kind = "(rows, columns) of a grid" if one.boxes is None else "(B) of boxes"
        raise ValueError(f"expected weights {kind}, got shape {weights.shape}")
    if one.boxes is not None and np.shape(one.boxes) != (len(weights), 4):
        raise ValueError(f"expected ({len(weights)}, 4) boxes, one for each weight, got shape {np.shape(one.boxes)}")
    if not np.isfinite(weights).all() or (weights < 0.0).any():
        raise ValueError("expected weights that are finite and not negative; give those of the softmax, not scores")
    outside = [number for number in one.gold if not 0 <= number < weights.size]
    if outside:
        raise ValueError(f"gold names {outside}, but there are only cells or boxes 0 to {weights.size - 1}")
    return weights


def _cover(shares: np.ndarray[Any, Any], boxes: Any, height: int, width: int) -> np.ndarray[Any, Any]:
    """(H, W) share of every pixel: that of its cell, or the largest of its boxes."""
    if boxes is None:
        rows, columns = shares.shape
        of_rows, of_columns = np.arange(height) * rows // height, np.arange(width) * columns // width
        return np.asarray(shares[of_rows][:, of_columns])
    cover = np.zeros((height, width))
    for share, (x0, y0, x1, y1) in zip(shares, np.asarray(boxes, dtype=float), strict=True):
        window = np.s_[round(y0 * height) : round(y1 * height), round(x0 * width) : round(x1 * width)]
        cover[window] = np.maximum(cover[window], share)
    return cover


def _corners(one: AttentionMap, shape: tuple[int, ...]) -> list[tuple[float, float, float, float]]:
    """x0, y0, x1, y1 of what is ringed, between 0 and 1."""
    if one.boxes is not None:
        return [tuple(float(side) for side in one.boxes[number]) for number in one.gold]  # type: ignore[misc]
    rows, columns = shape
    places = [divmod(number, columns) for number in one.gold]
    return [(c / columns, r / rows, (c + 1) / columns, (r + 1) / rows) for r, c in places]
