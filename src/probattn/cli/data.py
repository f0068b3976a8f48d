"""`probattn data`: corpora, where they are, and how to get them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from probattn.cli.command import Command, did_you_mean, refuse_options
from probattn.data import alignment_gold, iwslt14, multi30k, wmt10k
from probattn.data.alignment_gold import AlignedText, format_pharaoh
from probattn.data.generated_deen import GeneratedDeEn, write_files
from probattn.data.generated_deen.partition import Split
from probattn.data.parallel import ParallelText
from probattn.data.sources import cache_folder, data_folder
from probattn.recipes.storage import write_atomically

__all__ = ["COMMAND"]

_DESCRIPTION = """Lists corpora and says which are on this machine; with a name, writes one as plain text.

probattn data                                         what there is
probattn data multi30k --show 3                       the first pairs of every split
probattn data multi30k --output text/                 multi30k.<split>.source and .target
probattn data gold-links --output text/               the same, and .align with the links (Pharaoh format)
probattn data multi30k --download                     fetch what is missing from the official source
probattn data generated --size 5000 --output text/    the generated corpus, with gold links (Pharaoh format)

Files are looked for in the folder that PROBATTN_DATA names, then in the cache (PROBATTN_CACHE)."""

_SPLITS: tuple[Split, ...] = ("train", "valid", "test")
_LOADERS: Mapping[str, tuple[str, tuple[str, ...], Callable[..., Any]]] = {
    "multi30k": ("descriptions of images, de-en", _SPLITS, multi30k.load),
    "iwslt14": ("talks, de-en", _SPLITS, iwslt14.load),
    "wmt10k": ("ten thousand pairs of news text, de-en", ("train", "valid"), wmt10k.load),
    "gold-links": ("gold word alignments, five language pairs", tuple(alignment_gold.NUM_PAIRS), alignment_gold.load),
}


_DEFAULTS = {"show": 0, "output": None, "size": None, "seed": None, "download": False}


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default=None, help="generated, " + ", ".join(_LOADERS))
    parser.add_argument("--show", type=int, default=_DEFAULTS["show"], help="print this many pairs of every split")
    parser.add_argument("--output", type=Path, default=None, help="folder for plain text files")
    parser.add_argument("--size", type=int, default=None, help="generated: training pairs (4000); a tenth each to test")
    parser.add_argument("--seed", type=int, default=None, help="generated: which sentences (0)")
    parser.add_argument("--download", action="store_true", help="fetch missing files from the official source")


def _run(arguments: Namespace) -> None:
    if arguments.show < 0:
        raise ValueError(f"--show must be at least 0, got {arguments.show}")
    if arguments.size is not None and arguments.size < 1:
        raise ValueError(f"--size must be at least 1, got {arguments.size}")
    if arguments.name is None:
        refuse_options(arguments, _DEFAULTS, "needs the name of a corpus")
        _list()
    elif arguments.name == "generated":
        refuse_options(arguments, {"download": False}, "is for stored corpora; this one is made on the spot")
        _generated(arguments)
    elif arguments.name in _LOADERS:
        refuse_options(arguments, {"size": None, "seed": None}, "is for the generated corpus")
        _stored(arguments)
    else:
        known = ["generated", *_LOADERS]
        raise ValueError(f"there is no corpus '{arguments.name}'. {did_you_mean(arguments.name, known)}")


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
    size = 4000 if arguments.size is None else arguments.size
    held_out = max(1, size // 10)
    sizes, seed = dict(zip(_SPLITS, (size, held_out, held_out), strict=True)), arguments.seed or 0
    if arguments.output is None and not arguments.show:
        raise ValueError("say where to write the generated corpus, --output FOLDER, or how much to --show of it")
    if arguments.show:
        corpus = GeneratedDeEn(seed)
        for split in _SPLITS:
            print(f"generated {split}")
            for pair in corpus.pairs(split, min(arguments.show, sizes[split])):
                _show(" ".join(pair.source), " ".join(pair.target))
    if arguments.output is not None:
        print("\n".join(str(path) for path in write_files(arguments.output, **sizes, seed=seed)))


def _stored(arguments: Namespace) -> None:
    _, splits, load = _LOADERS[arguments.name]
    for split in splits:
        loaded = load(split, may_download=arguments.download)
        text: ParallelText = getattr(loaded, "text", loaded)
        print(text)
        for source, target in list(zip(text.source, text.target, strict=True))[: arguments.show]:
            _show(source, target)
        if arguments.output is not None:
            files = {"source": text.source, "target": text.target}
            if isinstance(loaded, AlignedText):
                links = zip(loaded.sure, loaded.possible, strict=True)
                files["align"] = tuple(format_pharaoh(sure, possible=possible) for sure, possible in links)
            for ending, lines in files.items():
                path = arguments.output / f"{arguments.name}.{split}.{ending}"
                write_atomically(path, "".join(f"{line}\n" for line in lines))
                print(f"  {path}")


def _show(source: str, target: str) -> None:
    print(f"  {source}\n  {target}\n")


COMMAND = Command("list corpora, write one as plain text", _DESCRIPTION, _add_arguments, _run)
