"""A gallery: pictures with captions, and the attention behind every word (BAM, Figure 1), as one self-contained page.

A picture is in the page once, as a small JPEG; the maps of its words refer to it. Nothing is loaded from elsewhere.
"""

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass

from probattn.viz.page import Section, render_page

__all__ = ["GalleryPicture", "GalleryWord", "render_gallery", "word_strip"]

_SIDE = 100.0
_WORDS = 7
"""Of a line; more words go on in the next."""
_DARKEST = 0.8
_SPREAD_COLOUR = "#e06a1f"
_WEIGHT_COLOUR = "#2f5d9b"
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class GalleryWord:
    """A word and where it looks; every list has one number for each region.

    Attributes:
        word: The word.
        posterior: Weights that the caption was made with.
        posterior_spread: Their standard deviation over draws; empty where there is none.
        prior: Plug-in weights of the prior; empty where there is none.
        prior_spread: Their standard deviation over draws.
    """

    word: str
    posterior: Sequence[float]
    posterior_spread: Sequence[float] = ()
    prior: Sequence[float] = ()
    prior_spread: Sequence[float] = ()


@dataclass(frozen=True)
class GalleryPicture:
    """A picture with its caption.

    Attributes:
        name: Of the picture.
        words: Of the caption.
        boxes: x0, y0, x1, y1 of every region, in shares of the picture; see `of_grid`.
        references: Captions that people wrote.
        jpeg: The picture; None: weights are drawn alone.
        aspect: Height over width.
        remark: Shown behind the name.
    """

    name: str
    words: Sequence[GalleryWord]
    boxes: Sequence[Box]
    references: Sequence[str] = ()
    jpeg: bytes | None = None
    aspect: float = 1.0
    remark: str = ""

    def __post_init__(self) -> None:
        for word in self.words:
            if len(word.posterior) != len(self.boxes):
                raise ValueError(
                    f"{self.name}: '{word.word}' has {len(word.posterior)} weights for {len(self.boxes)} regions"
                )

    @staticmethod
    def of_grid(rows: int, columns: int) -> list[Box]:
        """The boxes of a grid, row by row.

        Example:
            >>> GalleryPicture.of_grid(1, 2)
            [(0.0, 0.0, 0.5, 1.0), (0.5, 0.0, 1.0, 1.0)]
        """
        return [
            (column / columns, row / rows, (column + 1) / columns, (row + 1) / rows)
            for row in range(rows)
            for column in range(columns)
        ]


def render_gallery(title: str, lead: str, pictures: Sequence[GalleryPicture]) -> str:
    """The whole page.

    Args:
        title: Of the page.
        lead: Plain sentences above the pictures.
        pictures: In order.
    """
    sections = []
    for number, one in enumerate(pictures):
        caption = " ".join(word.word for word in one.words)
        references = " / ".join(one.references)
        text = f"{one.name}, {one.remark}" if one.remark else one.name
        note = f"People: {references}" if references else ""
        sections.append(Section(caption, text, word_strip(one, key=f"p{number}"), note))
    return render_page(title, lead, sections)


def word_strip(picture: GalleryPicture, *, key: str) -> str:
    """A line of maps for each kind of weights that a picture has, one map a word, as HTML.

    Below a map is its largest weight, or spread: colours are relative to that, or to the largest of the caption.

    Args:
        picture: With its words.
        key: Differs from picture to picture of a page.
    """
    height = _SIDE * picture.aspect
    define = whole = ""
    if picture.jpeg is not None:
        source = f"data:image/jpeg;base64,{base64.b64encode(picture.jpeg).decode()}"
        image = f'<image id="{key}" href="{source}" width="{_SIDE:g}" height="{height:g}" preserveAspectRatio="none"/>'
        define = f'<svg width="0" height="0" style="position:absolute"><defs>{image}</defs></svg>'
        whole = _svg(height, f'<use href="#{key}"/>')
    has_prior = any(len(word.prior) for word in picture.words)
    kinds = {
        "posterior" if has_prior else "weights": [word.posterior for word in picture.words],
        "its spread" if has_prior else "their spread": [word.posterior_spread for word in picture.words],
        "prior": [word.prior for word in picture.words],
        "spread of the prior": [word.prior_spread for word in picture.words],
    }
    blank = f'<div style="width:{_SIDE:g}px"></div>'  # columns of all tables are below each other
    words = [html.escape(word.word) for word in picture.words]
    maps = {kind: _maps(picture, weights, key, kind) for kind, weights in kinds.items() if any(map(len, weights))}
    label = '<td style="min-width:9em">'
    tables = []
    for start in range(0, len(words), _WORDS):
        chosen = slice(start, start + _WORDS)
        rows = ["".join(f'<th style="text-align:center">{word}</th>' for word in ["", *words[chosen]])]
        for number, (kind, made) in enumerate(maps.items()):
            cells = [whole if start == number == 0 else blank, *made[chosen]]
            rows.append(f"{label}{html.escape(kind)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}")
        rows[0] = f"<th></th>{rows[0]}"
        tables.append(f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>")
    return f'{define}<div class="wide">{"".join(tables)}</div>'


def _maps(picture: GalleryPicture, weights: Sequence[Sequence[float]], key: str, kind: str) -> list[str]:
    highest = max((max(of_word) for of_word in weights if len(of_word)), default=0.0)
    return [_map(picture, of_word, key, kind, highest) if len(of_word) else "" for of_word in weights]


def _map(picture: GalleryPicture, weights: Sequence[float], key: str, kind: str, highest: float) -> str:
    """Weights are relative to the largest of their word, spreads to the largest of the caption."""
    height = _SIDE * picture.aspect
    is_spread = "spread" in kind
    top = highest if is_spread else max(weights, default=0.0)
    shares = [max(0.0, weight / top) if top > 0.0 else 0.0 for weight in weights]
    if is_spread or picture.jpeg is None:
        colour = _SPREAD_COLOUR if is_spread else _WEIGHT_COLOUR
        cover = [(share * (0.75 if picture.jpeg is not None else 1.0), colour) for share in shares]
    else:
        cover = [(_DARKEST * (1.0 - share), "#000") for share in shares]
    rectangles = "".join(
        f'<rect x="{x0 * _SIDE:.4g}" y="{y0 * height:.4g}" width="{(x1 - x0) * _SIDE:.4g}" '
        f'height="{(y1 - y0) * height:.4g}" fill="{colour}" opacity="{opacity:.2f}" shape-rendering="crispEdges"/>'
        for (x0, y0, x1, y1), (opacity, colour) in zip(picture.boxes, cover, strict=True)
        if opacity >= 0.01
    )
    below = f'<use href="#{key}"/>' if picture.jpeg is not None else ""
    largest = f"{max(weights, default=0.0):.2g}"
    made = _svg(height, below + rectangles, title=f"{kind}: largest {largest}")
    return f'{made}<div style="text-align:center;color:#5a6478;font-size:.8em">{largest}</div>'


def _svg(height: float, content: str, *, title: str = "") -> str:
    label = f"<title>{html.escape(title)}</title>" if title else ""
    size = f'width="{_SIDE:g}" height="{height:g}" style="max-width:none"'  # a page may make other drawings smaller
    return f'<svg {size} viewBox="0 0 {_SIDE:g} {height:g}">{label}{content}</svg>'
