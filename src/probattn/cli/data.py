"""`probattn data`: corpora, where they are, and how to get them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from probattn.cli.command import Command
from probattn.data import alignment_gold, iwslt14, multi30k, wmt10k
from probattn.data.generated_deen import write_files
from probattn.data.parallel import ParallelText
from probattn.data.sources import cache_folder, data_folder
from probattn.recipes.storage import write_atomically

__all__ = ["COMMAND"]

_DESCRIPTION = """Lists corpora and says which are on this machine; with a name, writes one as plain text.

probattn data                                         what there is
probattn data multi30k --show 3                       the first pairs of every split
probattn data multi30k --output text/                 multi30k.<split>.source and .target
probattn data multi30k --download                     fetch what is missing from the official source
probattn data generated --size 5000 --output text/    the generated corpus, with gold links (Pharaoh format)

Files are looked for in the folder that PROBATTN_DATA names, then in the cache (PROBATTN_CACHE)."""

_SPLITS = ("train", "valid", "test")
_LOADERS: Mapping[str, tuple[str, tuple[str, ...], Callable[..., Any]]] = {
    "multi30k": ("descriptions of images, de-en", _SPLITS, multi30k.load),
    "iwslt14": ("talks, de-en", _SPLITS, iwslt14.load),
    "wmt10k": ("ten thousand pairs of news text, de-en", ("train", "valid"), wmt10k.load),
    "gold-links": ("gold word alignments, five language pairs", tuple(alignment_gold.NUM_PAIRS), alignment_gold.load),
}


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default=None, help="generated, " + ", ".join(_LOADERS))
    parser.add_argument("--show", type=int, default=0, help="print this many pairs of every split")
    parser.add_argument("--output", type=Path, default=None, help="folder for plain text files")
    parser.add_argument("--size", type=int, default=4000, help="generated: training pairs; a tenth each to test")
    parser.add_argument("--seed", type=int, default=0, help="generated: which sentences")
    parser.add_argument("--download", action="store_true", help="fetch missing files from the official source")


def _run(arguments: Namespace) -> None:
    if arguments.name is None:
        _list()
    elif arguments.name == "generated":
        _generated(arguments)
    elif arguments.name in _LOADERS:
        _stored(arguments)
    else:
        raise ValueError(f"there is no corpus '{arguments.name}'; there are generated, {', '.join(_LOADERS)}")


def _list() -> None:
    folder = data_folder()
    print(f"PROBATTN_DATA: {folder if folder is not None else 'not set'}; cache: {cache_folder()}")
    print(f"{'generated':<12} {'German-English by a grammar, with gold links':<46} always there")
    for name, (what, splits, load) in _LOADERS.items():
        found = []
        for split in splits:
            try:
                found.append(f"{split} {len(load(split)):,}")
            except (FileNotFoundError, ValueError):
                continue
        print(f"{name:<12} {what:<46} {', '.join(found) + ' pairs' if found else 'not on this machine'}")


def _generated(arguments: Namespace) -> None:
    held_out = max(1, arguments.size // 10)
    if arguments.output is None:
        raise ValueError("say where to write the generated corpus: --output FOLDER")
    written = write_files(arguments.output, train=arguments.size, valid=held_out, test=held_out, seed=arguments.seed)
    print("\n".join(str(path) for path in written))


def _stored(arguments: Namespace) -> None:
    _, splits, load = _LOADERS[arguments.name]
    for split in splits:
        loaded = load(split, may_download=arguments.download)
        text: ParallelText = getattr(loaded, "text", loaded)
        print(text)
        for source, target in list(zip(text.source, text.target, strict=True))[: arguments.show]:
            print(f"  {source}\n  {target}\n")
        if arguments.output is not None:
            for side, lines in (("source", text.source), ("target", text.target)):
                path = arguments.output / f"{arguments.name}.{split}.{side}"
                write_atomically(path, "".join(f"{line}\n" for line in lines))
                print(f"  {path}")


COMMAND = Command("list corpora, write one as plain text", _DESCRIPTION, _add_arguments, _run)
