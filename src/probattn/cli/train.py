"""`probattn train`: one row."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from probattn.cli.command import RECIPES, Command, did_you_mean, settings_first, settings_of
from probattn.kernels import settle
from probattn.recipes.comparison import recipe_by_name
from probattn.recipes.provenance import note_commit
from probattn.recipes.recipe import Recipe, Run
from probattn.recipes.storage import unused_name, without_paths, write_atomically
from probattn.training import is_main_process

__all__ = ["COMMAND"]

_DESCRIPTION = """Trains and evaluates one row. A run that was stopped (Ctrl-C saves) goes on with the same command.

probattn train translation/marginal                              the generated corpus, in minutes
probattn train translation/soft --scale files corpus.src=my.de corpus.tgt=my.en
probattn train translation/soft --scale multi30k epochs=20 trainer.learning_rate=1e-3
probattn train translation/soft --config mine.yaml               settings from a file; name=value wins
probattn ls translation/soft                                     all settings of a row, with their values

The folder of the run then holds result.json, log.jsonl, checkpoints/ and, where models are kept, model/."""


_GENERATION = dict.fromkeys(("question_generation", "dialogue", "pilot_vae"), "generate {} < text")
_USES = {
    "translation": "translate {} < text",
    "text_vae": "generate {} --from prior",
    "captioning": "gallery {} --features F",
    "gat": "classify {} --mode both",
    **_GENERATION,
}
"""How a recipe's trained model is used."""
_SETTINGS = "settings.json"
"""Of a run that is not resumed inside."""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("row", help="RECIPE/ROW, e.g. recall/marginal; `probattn ls` lists them")
    parser.add_argument("overrides", nargs="*", default=[], help="settings as name=value, e.g. updates=100 seed=3")
    parser.add_argument("--scale", default=None, help="size of network and data, where a recipe has several")
    parser.add_argument("--config", type=Path, nargs="*", default=[], help="further YAML files; later ones win")
    where = "runs/RECIPE/ROW-seed0 by default, runs/RECIPE/SCALE/ROW-seed0 with another scale than the default"
    parser.add_argument("--output", type=Path, default=None, help=f"folder of the run; {where}")
    parser.add_argument(
        "--replay", action="store_true", help="repeat the update whose loss or gradient stopped this run, and stop"
    )


def _run(arguments: Namespace) -> None:
    name, _, row = arguments.row.partition("/")
    if name not in RECIPES:
        raise SystemExit(f"expected RECIPE/ROW, got '{arguments.row}'. {did_you_mean(name, RECIPES)}")
    recipe = recipe_by_name(name)
    if not row:
        raise SystemExit(f"expected RECIPE/ROW, got '{arguments.row}'. Its rows are: {', '.join(recipe.rows)}")
    configs = [*recipe.configs(row, arguments.scale), *arguments.config]
    missing = [str(path) for path in arguments.config if not path.is_file()]
    if missing:
        raise SystemExit(f"no such config file: {', '.join(missing)}")
    settings, plain = recipe.load(configs, settings_of(arguments.overrides))
    output = arguments.output or _folder(recipe, arguments.scale) / f"{row}-seed{settings.seed}"
    if arguments.replay and not (output / "failure").is_dir():
        raise SystemExit(f"--replay: there is no {output / 'failure'}, so no update of that run failed; see --output")
    if is_main_process() and not arguments.replay:
        if output.exists() and not output.is_dir():
            raise SystemExit(f"--output {output} is a file; name a folder")
        if recipe.keeps_runs:  # their training engine refuses a folder of other settings
            _refuse_others(output)
        else:
            _set_aside_others(output, recipe.name, plain)
        note_commit(output)
    settle()
    result = recipe.train(Run(settings, plain, output, is_replay=arguments.replay))
    write_atomically(output / "result.json", json.dumps(asdict(result), indent=1) + "\n")
    for metric, value in result.metrics.items():
        print(f"{metric:<24} {value:.6g}")
    print(f"Result: {output / 'result.json'}")
    if (output / "model").exists():
        use = f" (probattn {_USES[name].format(output)})" if name in _USES else ""
        print(f"Model:  {output / 'model'}{use}")


def _refuse_others(folder: Path) -> None:
    """Raise where a run of a recipe without the engine ended, which has no checkpoints that the engine could refuse."""
    if (folder / _SETTINGS).exists():
        raise SystemExit(f"{folder} holds a run of another recipe; name another folder with --output")


def _set_aside_others(folder: Path, recipe: str, plain: Mapping[str, Any]) -> None:
    """Rename what another run has left, so that this one does not replace it; note the settings of ours."""
    noted = folder / _SETTINGS
    settings = json.dumps({"recipe": recipe, **without_paths(plain)}, indent=1, sort_keys=True, default=str)
    is_other = not noted.exists() or noted.read_text(encoding="utf-8") != settings
    if is_other and any((folder / name).exists() for name in ("result.json", "model", "checkpoints")):
        aside = unused_name(folder.with_name(f"{folder.name}-old"))
        folder.rename(aside)
        print(f"{folder} held a run with other settings; it is now {aside}", file=sys.stderr)
    write_atomically(noted, settings)


def _folder(recipe: Recipe, scale: str | None) -> Path:
    """Of the runs of a recipe; those of another scale than the default are not mixed with them."""
    folder = Path("runs") / recipe.name
    return folder if scale in (None, recipe.default_scale) else folder / str(scale)


COMMAND = Command(
    "train and evaluate one row; goes on where a run stopped", _DESCRIPTION, _add_arguments, _run, settings_first
)
