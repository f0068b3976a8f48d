"""Flickr8k with its pictures: five captions an image, the official split, packed region features (Hodosh et al. 2013).

| split | images | captions |
|---|---|---|
| train | 6,000 | 30,000 |
| valid | 1,000 | 5,000 |
| test | 1,000 | 5,000 |

The features are those of `probattn features` in a smaller form: the whole image at 224 x 224 through
EfficientNet-Lite0, its last map of 7 x 7 cells, PCA from 320 to 96 fitted on all images without captions, as int8.
Captions are lower-cased, and punctuation is left out, as the usual scoring of captions does.
Terms: non-commercial research and education; ask before you redistribute anything.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from probattn.data.captions import FLICKR8K, FLICKR8K_STEMS, SHA256
from probattn.data.image_features import ImageFeatures, read_features
from probattn.data.parallel import read_lines, split_words
from probattn.data.sources import CorpusFile, locate, require_choice

__all__ = ["FEATURES", "NUM_IMAGES", "CaptionedImages", "caption_words", "load", "load_features", "read_captions"]

NUM_IMAGES = {"train": 6_000, "valid": 1_000, "test": 1_000}
"""Images of each split."""

FEATURES = CorpusFile(
    FLICKR8K,
    "flickr8k/effnet_lite0_7x7_pca96_int8.npz",
    sha256="b7e2628fd395d41bcae1443fdecb1255172e9816b605ad31eaeac5cdb31e5fc0",
)
"""The packed features; `probattn features` makes others of the same network from the JPEGs."""

_NUMBERED = re.compile(r"^(?P<name>.+)#\d+$")


@dataclass(frozen=True)
class CaptionedImages:
    """Pictures by name, with their captions.

    Attributes:
        names: Of pictures, each once.
        captions: For each picture its captions: words with one space between them.
        skipped: Captions that were left out because they had no word.
    """

    names: tuple[str, ...]
    captions: tuple[tuple[str, ...], ...]
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.names)

    @property
    def num_captions(self) -> int:
        """Of all pictures."""
        return sum(len(of_image) for of_image in self.captions)

    def without(self, names: Collection[str]) -> "CaptionedImages":
        """All pictures but those."""
        kept = self.part([row for row, name in enumerate(self.names) if name not in names])
        return replace(kept, skipped=self.skipped)

    def part(self, rows: Sequence[int]) -> "CaptionedImages":
        """Some pictures, by number."""
        return CaptionedImages(tuple(self.names[row] for row in rows), tuple(self.captions[row] for row in rows))


def load(split: str) -> CaptionedImages:
    """Images and captions of one split, as its file orders the images.

    Args:
        split: "train", "valid" or "test".

    Raises:
        FileNotFoundError: The files are not on this machine; the message lists the ways to get them.
        ValueError: An unknown split, or a file that is not the published one.
    """
    require_choice("split", split, NUM_IMAGES)
    of_image = _grouped(_numbered_lines(_locate("flickr8k/Flickr8k.token.txt")))
    names = tuple(read_lines(_locate(f"flickr8k/Flickr_8k.{FLICKR8K_STEMS[split]}Images.txt")))
    return CaptionedImages(names, tuple(tuple(of_image[name]) for name in names))


def load_features() -> ImageFeatures:
    """The packed features of all images.

    Raises:
        FileNotFoundError: The file is not on this machine; the message lists the ways to get it.
    """
    return read_features(locate(FEATURES))


def caption_words(caption: str) -> str:
    """A caption in lower case without punctuation.

    Example:
        >>> caption_words("A tri-colored dog 's ball , mid-air .")
        "a tri-colored dog 's ball mid-air"
    """
    words = (word.strip('.,;:!?"()[]`') for word in split_words(caption.lower()))
    return " ".join(word for word in words if any(letter.isalnum() for letter in word))


def read_captions(path: str | Path) -> CaptionedImages:
    """Captions of one's own pictures.

    | file | a line |
    |---|---|
    | any other ending | `name#0<TAB>caption`, as Flickr8k has it, or `name<TAB>caption` |
    | `.jsonl` | `{"image": "name", "caption": "..."}`, or `"captions": [...]` |

    A picture may occur in several lines. Captions without a word are left out and counted.

    Raises:
        FileNotFoundError: No such file; the message suggests similar names.
        ValueError: A line is not as above, with its number; or no picture has a caption.
    """
    file = Path(path)
    lines = [(number, line) for number, line in enumerate(read_lines(file), start=1) if line.strip()]
    pairs = [pair for number, line in lines for pair in _pairs(line, place=f"{file}, line {number}")]
    cleaned = [(name, caption_words(caption)) for name, caption in pairs]
    of_image = _grouped([pair for pair in cleaned if pair[1]])
    if not of_image:
        raise ValueError(f"{file}: no captions in it; expected lines such as: picture.jpg<TAB>a dog runs")
    skipped = sum(not caption for _, caption in cleaned)
    return CaptionedImages(tuple(of_image), tuple(tuple(found) for found in of_image.values()), skipped)


def _pairs(line: str, *, place: str) -> list[tuple[str, str]]:
    if line.lstrip().startswith("{"):
        return _json_pairs(line, place)
    cells = line.split("\t")
    if len(cells) != 2 or not cells[0].strip():
        raise ValueError(f"{place}: expected a picture's name, a tab and a caption, got {line[:80]!r}")
    name = cells[0].strip()
    numbered = _NUMBERED.match(name)
    return [(Path(numbered["name"] if numbered else name).name, cells[1])]


def _json_pairs(line: str, place: str) -> list[tuple[str, str]]:
    try:
        record = json.loads(line)
        captions = record["captions"] if "captions" in record else [record["caption"]]
        if not isinstance(captions, list):
            raise TypeError(f"captions are a list, got {type(captions).__name__}")
        if not all(isinstance(caption, str) for caption in captions):
            raise TypeError(f"a caption is text, got {captions}")
        return [(Path(str(record["image"])).name, caption) for caption in captions]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(
            f'{place}: expected {{"image": "name", "caption": "..."}}, got {line[:80]!r} ({error!r})'
        ) from error


def _numbered_lines(path: Path) -> list[tuple[str, str]]:
    found = []
    for line in read_lines(path):
        name, caption = line.split("\t")
        found.append((name.rpartition("#")[0], caption_words(caption)))
    return found


def _grouped(pairs: Sequence[tuple[str, str]]) -> Mapping[str, list[str]]:
    of_image: dict[str, list[str]] = {}
    for name, caption in pairs:
        of_image.setdefault(name, []).append(caption)
    return of_image


def _locate(path: str) -> Path:
    return locate(CorpusFile(FLICKR8K, path, sha256=SHA256[path]))
