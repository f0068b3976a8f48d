"""`probattn gallery`: pictures with captions and the attention behind every word, as one HTML page."""

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from probattn.cli.command import Command
from probattn.cli.models import open_model
from probattn.cli.output import require_writable
from probattn.data.extract_features import open_picture
from probattn.data.flickr8k import read_captions
from probattn.data.image_features import ImageFeatures, read_features
from probattn.recipes.captioning_writer import CaptionWriter, WordAttention
from probattn.recipes.storage import write_atomically
from probattn.viz.gallery import GalleryPicture, GalleryWord, render_gallery

__all__ = ["COMMAND"]

_DESCRIPTION = """Captions of pictures, and where every word looks: prior beside posterior, and their spread over draws.

probattn gallery runs/captioning/soft-seed0 --features features.npz --images photos
probattn gallery MODEL --features features.npz --images photos --names cat.jpg dog.jpg --captions captions.txt

Pictures that were held out of training come first, and are marked. One HTML file that needs nothing else; a picture
that cannot be read is drawn as weights alone."""

_SIDE = 200
"""Pixels of the longer side of a picture in the page."""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="folder of a run or of a trained model")
    parser.add_argument("--features", type=Path, required=True, help="what `probattn features` wrote")
    parser.add_argument("--images", type=Path, default=None, help="folder of the pictures")
    parser.add_argument("--captions", type=Path, default=None, help="captions by people, to show beside")
    parser.add_argument("--output", type=Path, default=Path("gallery.html"), help="HTML file")
    parser.add_argument(
        "--names", nargs="+", default=None, help="pictures; by default those held out of training first"
    )
    parser.add_argument("--count", type=int, default=12, help="how many pictures, where none are named")
    parser.add_argument("--beam_size", type=int, default=None, help="1 is greedy; the model's own by default")
    parser.add_argument("--draws", type=int, default=50, help="over which spreads are taken")


def _run(arguments: Namespace) -> None:
    if arguments.count < 1 or arguments.draws < 2:
        raise ValueError(
            f"--count must be at least 1 and --draws at least 2, got {arguments.count} and {arguments.draws}"
        )
    if arguments.beam_size is not None and arguments.beam_size < 1:
        raise ValueError(f"--beam_size must be at least 1, got {arguments.beam_size}")
    require_writable(arguments.output, "--output")
    writer = open_model(arguments.model, CaptionWriter, "no captioner")
    if arguments.images is not None and not arguments.images.is_dir():
        raise NotADirectoryError(f"{arguments.images} is not a folder; name the one that holds the pictures")
    features = read_features(arguments.features)
    names = _chosen(writer, features, arguments.count) if arguments.names is None else list(arguments.names)
    references = _references(arguments.captions)
    pictures, missing = [], []
    captions = writer.caption(features, names, beam_size=arguments.beam_size, show_progress=True)
    for name, best in zip(names, captions, strict=True):
        words = writer.attention(features, name, best[0].text, num_draws=arguments.draws)
        jpeg, aspect = _picture(arguments.images, name)
        if jpeg is None and arguments.images is not None:
            missing.append(name)
        pictures.append(
            GalleryPicture(
                name,
                _words(words),
                _boxes(features, name),
                references.get(name, ()),
                jpeg=jpeg,
                aspect=aspect,
                remark="held out of training" if name in writer.held_out else "",
            )
        )
    write_atomically(arguments.output, render_gallery("Captions", _lead(writer, features.num_regions), pictures))
    without = "no files of them were named" if arguments.images is None else f"{len(missing)} without their file in "
    print(f"{arguments.output}: {len(pictures)} pictures; {without}{arguments.images or ''}")
    for name in missing[:10]:
        print(f"no picture, weights alone: {name}", file=sys.stderr)


def _chosen(writer: CaptionWriter, features: ImageFeatures, count: int) -> list[str]:
    """Pictures that the network was not trained on, as far as it knows, then the others."""
    return sorted(features.names, key=lambda name: name not in writer.held_out)[:count]


def _lead(writer: CaptionWriter, num_regions: int) -> str:
    spread = " Spreads are standard deviations over draws, relative to the largest of the caption."
    return (
        f"Row '{writer.settings.row}': {writer.settings.source}. A picture is brightest where a word's weight is "
        f"largest, and dark where it is small beside that one; the number below is the largest weight. {num_regions} "
        f"equal weights would be {1.0 / num_regions:.2g} each.{spread if writer.is_random else ''}"
    )


def _words(found: Sequence[WordAttention]) -> list[GalleryWord]:
    def plain(weights: Any) -> list[float]:
        return [] if weights is None else [float(weight) for weight in weights]

    return [
        GalleryWord(
            one.word, plain(one.posterior), plain(one.posterior_spread), plain(one.prior), plain(one.prior_spread)
        )
        for one in found
    ]


def _boxes(features: ImageFeatures, name: str) -> list[tuple[float, float, float, float]]:
    if features.grid is not None:
        return GalleryPicture.of_grid(*features.grid)
    if features.boxes is None:
        raise ValueError(f"{features.name} says neither what grid nor what boxes its regions are; it cannot be drawn")
    corners = features.boxes[features.positions[name]].tolist()
    return [(x0, y0, x1, y1) for x0, y0, x1, y1 in corners]


def _references(path: Path | None) -> dict[str, tuple[str, ...]]:
    if path is None:
        return {}
    found = read_captions(path)
    return dict(zip(found.names, found.captions, strict=True))


def _picture(folder: Path | None, name: str) -> tuple[bytes | None, float]:
    """A small JPEG of a picture and its height over its width; None where there is no such file, or it is damaged."""
    # a name may hold what a pattern gives another meaning, such as cat[1].jpg
    named = [] if folder is None else sorted(path for path in folder.rglob("*") if path.name == name and path.is_file())
    if not named:
        return None, 1.0
    try:
        picture = open_picture(named[0])
    except ValueError:
        return None, 1.0
    picture.thumbnail((_SIDE, _SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=75)
    return buffer.getvalue(), picture.height / picture.width


COMMAND = Command("pictures with captions and attention, as one page", _DESCRIPTION, _add_arguments, _run)
