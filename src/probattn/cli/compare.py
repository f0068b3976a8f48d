"""`probattn compare`: rows times seeds."""

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from probattn.cli.command import RECIPES, Command, settings_behind_set, settings_of
from probattn.recipes.comparison import Comparison, compare, recipe_by_name

__all__ = ["COMMAND"]

_DESCRIPTION = """Trains several rows with several seeds in parallel processes, then writes a table and an HTML report.

probattn compare translation --rows soft marginal variational-enum
probattn compare translation --num_seeds 3 --scale files --set corpus.src=my.de corpus.tgt=my.en
probattn compare recall

Finished rows are kept as JSON and not trained again; stopped ones go on where they were. Trained models are in
OUTPUT/runs/<row>-seed<n>, for eval, translate and align."""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("recipe", choices=RECIPES, help="which task")
    parser.add_argument("--rows", nargs="+", type=str, default=None, help="rows to compare; all by default")
    parser.add_argument("--num_seeds", type=int, default=1, help="seeds 0, 1, ... of every row")
    parser.add_argument("--scale", default=None, help="size of network and data, where a recipe has several")
    parser.add_argument("--output", type=Path, default=None, help="folder of results and report")
    parser.add_argument("--workers", type=int, default=2, help="processes, one thread each")
    parser.add_argument("--set", nargs="*", type=str, default=[], help="settings of all rows, e.g. updates=50")


def _run(arguments: Namespace) -> None:
    if arguments.workers < 1:
        raise ValueError(f"--workers must be at least 1, got {arguments.workers}")
    recipe = recipe_by_name(arguments.recipe)
    default = Path("runs") / recipe.name / (arguments.scale or recipe.default_scale or "")
    comparison = Comparison(
        recipe=recipe,
        rows=list(dict.fromkeys(arguments.rows or recipe.rows)),
        num_seeds=arguments.num_seeds,
        scale=arguments.scale,
        overrides=settings_of(arguments.set),
        output=arguments.output or default,
    )
    print(compare(comparison, workers=arguments.workers))


COMMAND = Command(
    "several rows and seeds, a table and a report", _DESCRIPTION, _add_arguments, _run, settings_behind_set
)
