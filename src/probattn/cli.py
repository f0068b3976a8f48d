"""The command line: `probattn ls`, `probattn train`, `probattn compare`.

probattn ls                                        recipes, their rows and scales
probattn train recall/variational-sample seed=1    one row, with settings as name=value
probattn compare recall --rows soft marginal       several rows and seeds, a table and a report
probattn COMMAND --help                            all options of a command
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from probattn import __version__
from probattn.recipes.comparison import Comparison, compare, recipe_by_name, write_atomically
from probattn.recipes.recipe import CONFIGS, Run

__all__ = ["main"]

_RECIPES = ("recall", "translation")


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `probattn`.

    Args:
        arguments: Words after the program's name; those of the process by default.
    """
    parser = _parser()
    words = sys.argv[1:] if arguments is None else arguments
    if not words:
        parser.print_help()
        return
    parsed = parser.parse_args(words)
    command = {"ls": _list, "train": _train, "compare": _compare}[parsed.subcommand]
    try:
        command(parsed[parsed.subcommand])
    except BrokenPipeError:  # the reader of a pipe, e.g. head, has enough
        sys.stderr.close()


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="probattn", description=__doc__, version=__version__)
    commands = parser.add_subcommands()
    commands.add_subcommand("ls", ArgumentParser(), help="list recipes, rows and scales")
    train = ArgumentParser()
    train.add_argument("row", help="RECIPE/ROW, e.g. recall/marginal; `probattn ls` lists them")
    train.add_argument("overrides", nargs="*", help="settings as name=value, e.g. updates=100 seed=3")
    train.add_argument("--scale", default=None, help="size of network and data, where a recipe has several")
    train.add_argument("--config", type=Path, nargs="*", default=[], help="further YAML files; later ones win")
    train.add_argument("--output", type=Path, default=None, help="folder of the run; runs/RECIPE/ROW by default")
    commands.add_subcommand("train", train, help="train and evaluate one row; goes on where a run stopped")
    several = ArgumentParser()
    several.add_argument("recipe", choices=_RECIPES, help="which task")
    several.add_argument("--rows", nargs="+", type=str, default=None, help="rows to compare; all by default")
    several.add_argument("--num_seeds", type=int, default=1, help="seeds 0, 1, ... of every row")
    several.add_argument("--scale", default=None, help="size of network and data, where a recipe has several")
    several.add_argument("--output", type=Path, default=None, help="folder of results and report")
    several.add_argument("--workers", type=int, default=2, help="processes, one thread each")
    several.add_argument("--set", nargs="*", type=str, default=[], help="settings of all rows, e.g. updates=50")
    commands.add_subcommand("compare", several, help="several rows and seeds, a table and a report")
    return parser


def _list(arguments: Namespace) -> None:
    del arguments
    for name in _RECIPES:
        recipe = recipe_by_name(name)
        scales = f"  (scales: {', '.join(recipe.scales)})" if recipe.scales else ""
        print(f"{name}{scales}")
        for row in recipe.rows:
            with (CONFIGS / name / f"{row}.yaml").open(encoding="utf-8") as file:
                print(f"  {row:<24} {file.readline().lstrip('# ').rstrip()}")


def _train(arguments: Namespace) -> None:
    name, _, row = arguments.row.partition("/")
    if name not in _RECIPES or not row:
        raise SystemExit(f"expected RECIPE/ROW with one of the recipes {', '.join(_RECIPES)}, got '{arguments.row}'")
    recipe = recipe_by_name(name)
    configs = [*recipe.configs(row, arguments.scale), *arguments.config]
    missing = [str(path) for path in arguments.config if not path.is_file()]
    if missing:
        raise SystemExit(f"no such config file: {', '.join(missing)}")
    settings, plain = recipe.load(configs, _settings(arguments.overrides))
    output = arguments.output or Path("runs") / name / f"{row}-seed{settings.seed}"
    text = json.dumps(asdict(recipe.train(Run(settings, plain, output))), indent=1)
    write_atomically(output / "result.json", text + "\n")
    print(text)


def _compare(arguments: Namespace) -> None:
    recipe = recipe_by_name(arguments.recipe)
    default = Path("runs") / recipe.name / (arguments.scale or recipe.default_scale or "")
    comparison = Comparison(
        recipe=recipe,
        rows=arguments.rows or recipe.rows,
        num_seeds=arguments.num_seeds,
        scale=arguments.scale,
        overrides=_settings(arguments.set),
        output=arguments.output or default,
    )
    print(compare(comparison, workers=arguments.workers))


def _settings(words: list[str]) -> dict[str, str]:
    wrong = [word for word in words if "=" not in word]
    if wrong:
        raise SystemExit(f"settings are given as name=value, got {wrong}")
    return dict(word.split("=", 1) for word in words)
