"""The gallery is one page that needs nothing else."""

import base64
import re

import pytest

from probattn.viz.gallery import GalleryPicture, GalleryWord, render_gallery, word_strip

GRID = GalleryPicture.of_grid(1, 2)
WORDS = [
    GalleryWord("a", [0.5, 0.5], [0.0, 0.1], [0.25, 0.75], [0.3, 0.3]),
    GalleryWord("<dog>", [0.0, 1.0], [0.2, 0.1], [0.25, 0.75], [0.3, 0.3]),
]


def test_a_picture_is_in_the_page_once_and_nothing_is_loaded() -> None:
    picture = GalleryPicture("a.jpg", WORDS, GRID, ["a dog & a cat"], jpeg=b"jpeg", aspect=0.5)
    page = render_gallery("Title", "Lead", [picture])
    assert page.count(base64.b64encode(b"jpeg").decode()) == 1
    assert not re.search(r"(src|href)=\"(?!#|data:)", page)
    assert "<script" not in page
    assert "&lt;dog&gt;" in page and "a dog &amp; a cat" in page
    kinds = ("posterior", "its spread", "prior", "spread of the prior")
    assert all(f">{kind}</td>" in page for kind in kinds)
    assert page.count('<use href="#p0"/>') == 1 + len(WORDS) * len(kinds)


def test_weights_without_a_prior_are_not_called_a_posterior_and_have_their_size() -> None:
    words = [GalleryWord("a", [0.25, 0.75]), GalleryWord("dog", [0.5, 0.5])]
    page = render_gallery("Title", "Lead", [GalleryPicture("a.jpg", words, GRID, jpeg=b"x", remark="held out")])
    assert ">weights</td>" in page and "posterior" not in page and "<p>a.jpg, held out</p>" in page
    assert re.findall(r">([\d.]+)</div>", page) == ["0.75", "0.5"]
    drawn = word_strip(GalleryPicture("a", [GalleryWord("a", [0.5, 0.5], [0.1, 0.2])], GRID), key="k")
    assert ">their spread</td>" in drawn and "prior" not in drawn


def test_long_captions_go_on_in_the_next_line_and_stay_readable() -> None:
    words = [GalleryWord(f"w{number}", [0.5, 0.5]) for number in range(9)]
    strip = word_strip(GalleryPicture("a", words, GRID, jpeg=b"x"), key="k")
    tables = strip.split("<table>")[1:]
    assert [re.findall(r">(w\d)</th>", table) for table in tables] == [[f"w{n}" for n in range(7)], ["w7", "w8"]]
    assert strip.count('<use href="#k"/>') == 1 + 9  # the picture itself is shown once
    drawn = re.findall(r"<svg (?!width=.0)[^>]*>", strip)
    assert len(drawn) == 10 and all("max-width:none" in one for one in drawn)


def test_low_weights_are_dark_and_the_largest_is_clear() -> None:
    strip = word_strip(GalleryPicture("a", WORDS[1:], GRID, jpeg=b"x"), key="k")
    first = strip[strip.index(">posterior</td>") : strip.index(">its spread</td>")]
    covers = re.findall(r'x="(\d+)".*?opacity="([\d.]+)"', first)
    assert covers == [("0", "0.80")]  # the left half; the right one, with the largest weight, is not covered


def test_without_a_picture_weights_are_drawn_alone() -> None:
    words = [GalleryWord("one", [0.2, -0.8])]  # unconstrained weights may be negative
    strip = word_strip(GalleryPicture("a", words, GRID), key="k")
    assert "<use" not in strip and "<image" not in strip
    assert re.findall(r'opacity="([\d.]+)"', strip) == ["1.00"]
    assert "prior" not in strip


def test_weights_must_fit_the_regions() -> None:
    with pytest.raises(ValueError, match="'one' has 1 weights for 2 regions"):
        GalleryPicture("a", [GalleryWord("one", [1.0])], GRID)


def test_a_word_without_a_spread_has_an_empty_cell() -> None:
    words = [GalleryWord("one", [0.2, 0.8], [0.1, 0.1]), GalleryWord("two", [0.5, 0.5])]
    strip = word_strip(GalleryPicture("a", words, GRID), key="k")
    assert "<td></td>" in strip and strip.count("<svg") >= 3
