"""`probattn features`: region features of a folder of pictures."""

import sys
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from probattn.cli.command import Command
from probattn.cli.output import require_writable
from probattn.data.extract_features import Projection, efficientnet_lite0, extract_features, list_pictures
from probattn.data.image_features import write_features

__all__ = ["COMMAND"]

_DESCRIPTION = """Features of 7 x 7 cells of every picture in a folder, by a pretrained EfficientNet-Lite0.

probattn features photos features.npz
probattn features photos features.npz --like flickr8k/effnet_lite0_7x7_pca96_int8.npz   for a network trained on those

Pictures are known by their file names. Those that cannot be read are left out and listed.
Needs: pip install 'probattn[vision]'"""

_SHOWN = 10


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("images", type=Path, help="folder of pictures; folders in it count too")
    parser.add_argument("output", type=Path, help=".npz file")
    parser.add_argument("--like", type=Path, default=None, help="packed features whose principal components to use")
    parser.add_argument("--batch_size", type=int, default=32, help="pictures that run together")


def _run(arguments: Namespace) -> None:
    if arguments.output.suffix != ".npz":
        raise ValueError(f"features are written to an .npz file, got {arguments.output}")
    if arguments.batch_size < 1:
        raise ValueError(f"--batch_size must be at least 1, got {arguments.batch_size}")
    require_writable(arguments.output, "OUTPUT")
    pictures = list_pictures(arguments.images)
    projection = None if arguments.like is None else Projection.of_file(arguments.like)
    found = extract_features(
        pictures, efficientnet_lite0(), projection=projection, batch_size=arguments.batch_size, show_progress=True
    )
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    write_features(arguments.output, found.features)
    features = found.features
    print(
        f"{arguments.output}: {len(features)} pictures, {features.num_regions} regions of {features.dim} features; "
        f"{len(found.skipped)} left out"
    )
    for name, reason in list(found.skipped.items())[:_SHOWN]:
        print(f"left out {name}: {reason}", file=sys.stderr)
    if len(found.skipped) > _SHOWN:
        print(f"... and {len(found.skipped) - _SHOWN} more", file=sys.stderr)


COMMAND = Command("region features of a folder of pictures", _DESCRIPTION, _add_arguments, _run)
