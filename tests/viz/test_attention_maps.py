"""Attention over pictures."""

import numpy as np
import pytest

from probattn.viz.attention_maps import AttentionMap, _corners, _cover, attention_map, attention_maps


def test_a_pixel_has_the_share_of_its_cell() -> None:
    shares = np.arange(6.0).reshape(2, 3)
    cover = _cover(shares, None, 4, 9)
    assert cover.shape == (4, 9)
    assert cover[0, 0] == 0.0 and cover[1, 8] == 2.0 and cover[2, 3] == 4.0 and cover[3, 8] == 5.0


def test_overlapping_boxes_show_the_larger_share() -> None:
    cover = _cover(np.array([0.5, 1.0]), [[0.0, 0.0, 1.0, 1.0], [0.5, 0.0, 1.0, 0.5]], 4, 4)
    assert cover[0, 0] == 0.5 and cover[0, 3] == 1.0 and cover[3, 3] == 0.5


def test_gold_cells_are_ringed_in_row_major_order() -> None:
    one = AttentionMap(np.ones((2, 4)), gold=(5,))
    assert _corners(one, (2, 4)) == [(0.25, 0.5, 0.5, 1.0)]


def test_maps_are_svg_with_and_without_pictures() -> None:
    picture = np.full((10, 10, 3), 200, dtype=np.uint8)
    text = attention_map(picture, np.eye(5), title="what is\nthere?", gold=(3,))
    assert text.startswith("<svg") and "<image" in text
    several = attention_maps([AttentionMap(np.eye(3)), AttentionMap([0.1, 0.9], boxes=[[0, 0, 1, 1], [0, 0, 0.5, 1]])])
    assert several.count("<image") == 2
    assert attention_map(None, np.zeros((2, 2))).startswith("<svg")


def test_grey_pictures_are_drawn_like_coloured_ones() -> None:
    grey = np.linspace(0.0, 1.0, 16).reshape(4, 4)
    coloured = np.repeat(grey[..., None], 3, axis=-1)
    assert attention_map(grey, np.eye(2)) == attention_map(coloured, np.eye(2))


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (AttentionMap(np.ones(4)), r"expected weights \(rows, columns\) of a grid, got shape \(4,\)"),
        (AttentionMap(np.ones(4), boxes=np.ones((3, 4))), r"expected \(4, 4\) boxes"),
        (AttentionMap(np.array([[-1.0]])), "not negative"),
        (AttentionMap(np.array([[np.nan]])), "finite"),
        (AttentionMap(np.ones((2, 2)), gold=(4,)), r"gold names \[4\]"),
    ],
)
def test_maps_that_cannot_be_drawn_say_why(one: AttentionMap, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attention_maps([one])


def test_no_maps_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected one map or more"):
        attention_maps([])
