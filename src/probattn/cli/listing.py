"""`probattn ls`: what can be trained."""

from jsonargparse import ArgumentParser, Namespace

from probattn.cli.command import RECIPES, Command
from probattn.recipes.comparison import recipe_by_name
from probattn.recipes.recipe import CONFIGS


def _add_arguments(parser: ArgumentParser) -> None:
    del parser


def _run(arguments: Namespace) -> None:
    del arguments
    for name in RECIPES:
        recipe = recipe_by_name(name)
        scales = f"  (scales: {', '.join(recipe.scales)})" if recipe.scales else ""
        print(f"{name}{scales}")
        for row in recipe.rows:
            with (CONFIGS / name / f"{row}.yaml").open(encoding="utf-8") as file:
                print(f"  {row:<24} {file.readline().lstrip('# ').rstrip()}")


COMMAND = Command(
    "list recipes, rows and scales",
    "Lists every recipe with its rows (methods) and scales (sizes of network and data).",
    _add_arguments,
    _run,
)

__all__ = ["COMMAND"]
