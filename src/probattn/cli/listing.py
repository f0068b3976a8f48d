"""`probattn ls`: what can be trained."""

from jsonargparse import ArgumentParser, Namespace

from probattn.cli.command import RECIPES, Command, did_you_mean
from probattn.recipes.comparison import recipe_by_name


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("row", nargs="?", default=None, help="RECIPE: its rows alone; RECIPE/ROW: all settings as YAML")
    parser.add_argument("--scale", default=None, help="size of network and data, where a recipe has several")


def _run(arguments: Namespace) -> None:
    name, _, row = (arguments.row or "").partition("/")
    if name and name not in RECIPES:
        raise ValueError(f"there is no recipe '{name}'. {did_you_mean(name, RECIPES)}")
    if row:
        recipe = recipe_by_name(name)
        print(recipe.describe(recipe.configs(row, arguments.scale)), end="")
        return
    if arguments.scale is not None:
        raise ValueError("--scale goes with RECIPE/ROW, whose settings it changes")
    for one in [name] if name else RECIPES:
        recipe = recipe_by_name(one)
        scales = f"  (scales: {', '.join(recipe.scales)})" if recipe.scales else ""
        print(f"{one}{scales}")
        for row in recipe.rows:
            with recipe.configs(row, None)[0].open(encoding="utf-8") as file:
                print(f"  {row:<24} {file.readline().lstrip('# ').rstrip()}")


COMMAND = Command(
    "list recipes, rows and scales",
    """Lists every recipe with its rows (methods) and scales (sizes of network and data); of one row, its settings.

probattn ls
probattn ls translation
probattn ls translation/variational-enum --scale multi30k""",
    _add_arguments,
    _run,
)

__all__ = ["COMMAND"]
