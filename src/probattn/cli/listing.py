"""`probattn ls`: what can be trained."""

from jsonargparse import ArgumentParser, Namespace

from probattn.cli.command import RECIPES, Command
from probattn.recipes.comparison import recipe_by_name


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("row", nargs="?", default=None, help="RECIPE/ROW: show all its settings as YAML")
    parser.add_argument("--scale", default=None, help="size of network and data, where a recipe has several")


def _run(arguments: Namespace) -> None:
    if arguments.row is not None:
        name, _, row = arguments.row.partition("/")
        if name not in RECIPES or not row:
            raise ValueError(f"expected RECIPE/ROW with one of the recipes {', '.join(RECIPES)}, got '{arguments.row}'")
        recipe = recipe_by_name(name)
        print(recipe.describe(recipe.configs(row, arguments.scale)), end="")
        return
    for name in RECIPES:
        recipe = recipe_by_name(name)
        scales = f"  (scales: {', '.join(recipe.scales)})" if recipe.scales else ""
        print(f"{name}{scales}")
        for row in recipe.rows:
            with recipe.configs(row, None)[0].open(encoding="utf-8") as file:
                print(f"  {row:<24} {file.readline().lstrip('# ').rstrip()}")


COMMAND = Command(
    "list recipes, rows and scales",
    """Lists every recipe with its rows (methods) and scales (sizes of network and data); of one row, its settings.

probattn ls
probattn ls translation/variational-enum --scale multi30k""",
    _add_arguments,
    _run,
)

__all__ = ["COMMAND"]
