"""The command line of probattn.

probattn ls                                          recipes, their rows and scales
probattn data                                        corpora, and which of them are on this machine
probattn train translation/variational-enum seed=1   one row, with settings as name=value
probattn compare translation --rows soft marginal    several rows and seeds, a table and a report
probattn eval MODEL --test_with soft exact kmax:5    a trained model under several ways of predicting
probattn translate MODEL < text.de                   translations of a text, line by line
probattn align MODEL --src text.de --tgt text.en     word alignments of a parallel text, in Pharaoh format
probattn generate MODEL < sentences.txt              diverse texts for each source, from draws of its latents
probattn answer MODEL --features F --image NAME ...  answers to questions about pictures
probattn classify MODEL --mode both                  classes of a graph's nodes, and how sure they are
probattn features photos features.npz               region features of a folder of pictures
probattn gallery MODEL --features F --images photos  captions with the attention behind every word, as one page
probattn augment corpus.txt --times 2                a text with generated sentences added to it
probattn fluency MODEL... --scorer LM                perplexity of generated texts by another language model
probattn kernels --build                             compile the C++ kernels, which everything then uses
probattn COMMAND --help                              all options of a command, with examples

MODEL is a run's folder, such as runs/translation/soft-seed0. An error is one line; PROBATTN_TRACEBACK=1 shows where it
came from.
"""

import io
import os
import sys
import warnings
from pathlib import Path

from jsonargparse import ArgumentParser

from probattn import __version__
from probattn.cli import (
    align,
    answer,
    augment,
    classify,
    compare,
    data,
    evaluate,
    features,
    fluency,
    gallery,
    generate,
    kernels,
    listing,
    train,
    translate,
)
from probattn.cli.command import Command, HelpFormatter, did_you_mean, gathered

__all__ = ["main"]

_PACKAGE = Path(__file__).parent.parent
_PYTHON = warnings.formatwarning

_COMMANDS: dict[str, Command] = {
    "ls": listing.COMMAND,
    "data": data.COMMAND,
    "train": train.COMMAND,
    "compare": compare.COMMAND,
    "eval": evaluate.COMMAND,
    "translate": translate.COMMAND,
    "align": align.COMMAND,
    "generate": generate.COMMAND,
    "answer": answer.COMMAND,
    "classify": classify.COMMAND,
    "features": features.COMMAND,
    "gallery": gallery.COMMAND,
    "augment": augment.COMMAND,
    "fluency": fluency.COMMAND,
    "kernels": kernels.COMMAND,
}


def _as_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning of ours as a line for the user of a command, without the source code that Python shows with it."""
    if category.__module__.startswith("probattn") or Path(filename).is_relative_to(_PACKAGE):
        return f"probattn: {message}\n"
    return _PYTHON(message, category, filename, lineno, line)


def _write_utf8() -> None:
    """Have the standard output in UTF-8, as text is read, whatever the locale; a terminal keeps what it can show."""
    if not isinstance(sys.stdout, io.TextIOWrapper):
        return
    if sys.stdout.isatty():
        sys.stdout.reconfigure(errors="replace")
    else:
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # file names may hold any byte


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `probattn`.

    Args:
        arguments: Words after the program's name; those of the process by default.
    """
    _write_utf8()
    parser = ArgumentParser(prog="probattn", description=__doc__, version=__version__, formatter_class=HelpFormatter)
    subcommands = parser.add_subcommands()
    for name, command in _COMMANDS.items():
        subcommands.add_subcommand(name, command.parser(name), help=command.summary)
    words = sys.argv[1:] if arguments is None else arguments
    if not words:
        parser.print_help()
        return
    if words[0] not in _COMMANDS and not words[0].startswith("-"):
        raise SystemExit(f"probattn: there is no command '{words[0]}'. {did_you_mean(words[0], _COMMANDS)}")
    if words[0] in _COMMANDS:
        words = [words[0], *_COMMANDS[words[0]].arrange(gathered(words[1:]))]
    parsed = parser.parse_args(words)
    warnings.formatwarning = _as_line
    try:
        _COMMANDS[parsed.subcommand].run(parsed[parsed.subcommand])
    except BrokenPipeError:  # the reader of a pipe, e.g. head, has enough
        sys.stderr.close()
    except KeyboardInterrupt:
        raise SystemExit("probattn: interrupted") from None
    except Exception as error:
        if os.environ.get("PROBATTN_TRACEBACK"):
            raise
        is_expected = isinstance(error, ValueError | TypeError | RuntimeError | OSError | ImportError)
        text = str(error) if is_expected else f"{type(error).__name__}: {error} (PROBATTN_TRACEBACK=1 shows where)"
        raise SystemExit(f"probattn: {text}") from error
    finally:
        warnings.formatwarning = _PYTHON
