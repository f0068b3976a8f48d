"""Fine-tuning of a tiny network on a generated task, in a second or two."""

import tempfile
from pathlib import Path

from probattn.recipes.glue import RECIPE, _prepared
from probattn.recipes.glue_model import build_model
from probattn.recipes.glue_settings import GlueSettings
from probattn.recipes.glue_training import GlueTraining
from probattn.recipes.recipe import Run
from probattn.recipes.results import RowResult

SMALL = {
    "task.max_train": 48,
    "optimiser.epochs": 1,
    "evaluation.draws": 2,
    "evaluation.max_drawn": 16,
    "evaluation.gradient_every": 2,
}


def settings_of(row: str, **overrides: object) -> GlueSettings:
    settings, _ = RECIPE.load(RECIPE.configs(row, None), {**SMALL, **overrides})
    assert isinstance(settings, GlueSettings)
    return settings


def training_of(row: str, **overrides: object) -> GlueTraining:
    settings = settings_of(row, **overrides)
    task, splits = _prepared(settings.task, settings.encoder, settings.evaluation.corruption)
    return GlueTraining(settings, build_model(settings, task.head), train=splits.train)


def result_of(row: str, **overrides: object) -> RowResult:
    with tempfile.TemporaryDirectory() as folder:
        return RECIPE.train(Run(settings_of(row, **overrides), {}, Path(folder), show_progress=False))
