"""A trained model as a folder: weights, configuration and whatever else belongs to it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
from safetensors.torch import load_model
from torch import nn

from probattn.training.errors import CheckpointError
from probattn.training.files import atomic_folder, write_bytes, write_json, write_weights

__all__ = ["load_weights", "save_model_folder"]


def save_model_folder(
    model: nn.Module, folder: Path, *, config: Mapping[str, Any], files: Mapping[str, bytes] | None = None
) -> Path:
    """Write model.safetensors, config.json and further files; the folder appears as a whole or not at all.

    Args:
        model: Its state_dict is saved; tied weights are stored once.
        folder: One of that name is replaced.
        config: What it takes to build the model again; must fit into JSON.
        files: Name to content of what else belongs to the model, such as a tokenizer.

    Raises:
        OutputError: The disk is full or not writable; a folder that was there before is intact.
    """
    with atomic_folder(folder, purpose="the model") as hidden:
        write_weights(hidden / "model.safetensors", model)
        write_json(hidden / "config.json", config)
        for name, content in (files or {}).items():
            write_bytes(hidden / name, content)
    return folder


def load_weights(model: nn.Module, folder: Path) -> None:
    """Load model.safetensors of a checkpoint or a model folder.

    Raises:
        CheckpointError: The file is missing or damaged, or its tensors do not fit the model.
    """
    path = folder / "model.safetensors"
    try:
        load_model(model, str(path))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} does not exist; is {folder} a checkpoint or a model folder?") from error
    except (OSError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read, it may be truncated: {error}") from error
    except RuntimeError as error:
        raise CheckpointError(f"{path} does not fit the model; build it with the saved settings. {error}") from error
