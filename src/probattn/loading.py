"""Trained models from their folders."""

import importlib
import json
from pathlib import Path
from typing import Any

import torch

from probattn.training import CheckpointError

__all__ = ["load", "text_digest"]


def load(path: str | Path) -> Any:
    """Open the folder of a trained model: config.json, model.safetensors and what else the recipe saved.

    Args:
        path: The folder, or a run's folder with a finished model in `model/`.

    Returns:
        What the recipe makes of it; for translation a `Translator` that translates, aligns and scores.

    Raises:
        CheckpointError: If this is no model folder, or it is damaged, or its settings do not fit this version.
    """
    folder = _model_folder(Path(path))
    config_file = folder / "config.json"
    try:
        config = json.loads(config_file.read_text(encoding="utf-8"))
        name, plain = str(config["recipe"]), dict(config["settings"])
    except FileNotFoundError as error:
        hint = " Its run has not ended: go on with it first." if (folder / "checkpoints").exists() else ""
        models = sorted(str(found.parent.parent) for found in folder.glob("runs/*/model/config.json"))
        hint = f" There are models in {', '.join(models)}." if models else hint
        raise CheckpointError(f"{folder} is no model folder: it has no config.json.{hint}") from error
    except (OSError, json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{config_file} is no configuration of probattn, or was cut off: {error!r}") from error
    with torch.random.fork_rng(devices=[]):  # building a network draws its first weights
        return _open(folder, name, plain)


def text_digest(path: str | Path) -> str | None:
    """Digest of the text that a model was trained on; None where its folder, which `load` has opened, has none."""
    found = json.loads((_model_folder(Path(path)) / "config.json").read_text(encoding="utf-8")).get("text")
    return None if found is None else str(found)


def _model_folder(folder: Path) -> Path:
    """The folder itself, or the one of the model in the folder of a run."""
    if not folder.is_dir():
        kind = "is a file" if folder.exists() else "does not exist"
        raise CheckpointError(f"{folder} {kind}; name the folder of a run, or of a trained model")
    is_run = not (folder / "config.json").exists() and (folder / "model" / "config.json").exists()
    return folder / "model" if is_run else folder


def _open(folder: Path, name: str, plain: dict[str, Any]) -> Any:
    config_file = folder / "config.json"
    try:
        recipe = importlib.import_module(f"probattn.recipes.{name}").RECIPE
        settings = recipe.build(plain)
    except (ModuleNotFoundError, AttributeError) as error:
        raise CheckpointError(f"{config_file} names the recipe '{name}', which this version does not have") from error
    except ValueError as error:
        raise CheckpointError(f"{config_file}: {error}") from error
    if recipe.load_model is None:
        raise CheckpointError(f"models of the recipe '{name}' are not kept, so there is nothing to open in {folder}")
    try:
        return recipe.load_model(settings, folder)
    except (FileNotFoundError, ValueError) as error:
        raise CheckpointError(f"{folder} cannot be opened: {error}") from error
