"""The command line: finds recipes and hands over to them.

    probattn ls                              # recipes and their rows
    probattn recall compare --rows soft marginal
    probattn recall train --config recall/soft

Each recipe is also a module: `python -m probattn.recipes.recall --help`.
"""

import importlib
import sys

__all__ = ["main"]

_RECIPES = ("recall",)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `probattn`.

    Args:
        arguments: Words after the program's name; those of the process by default.
    """
    words = sys.argv[1:] if arguments is None else arguments
    try:
        _run(words)
    except BrokenPipeError:  # the reader of a pipe, e.g. head, has enough
        sys.stderr.close()


def _run(words: list[str]) -> None:
    if not words or words[0] in ("-h", "--help"):
        print(__doc__)
    elif words[0] == "--version":
        print(importlib.import_module("probattn").__version__)
    elif words[0] == "ls":
        _list_recipes()
    elif words[0] in _RECIPES:
        importlib.import_module(f"probattn.recipes.{words[0]}").main(words[1:])
    else:
        raise SystemExit(f"probattn: unknown command '{words[0]}'; commands are: ls, {', '.join(_RECIPES)}")


def _list_recipes() -> None:
    comparison = importlib.import_module("probattn.recipes.comparison")
    for recipe in _RECIPES:
        print(recipe)
        for row in comparison.rows_of(recipe):
            with (comparison.CONFIGS / recipe / f"{row}.yaml").open(encoding="utf-8") as file:
                print(f"  {row:<22} {file.readline().lstrip('# ').rstrip()}")
