"""What a run looks like, so that a checkpoint of another run is refused with the reason."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from probattn.training.errors import CheckpointError
from probattn.training.settings import FREE_SETTINGS, TrainerSettings
from probattn.training.stage import Stage
from probattn.training.task import HasIdentity, Task

__all__ = ["check_fingerprint", "make_fingerprint"]

_IDENTITY = "task."
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def make_fingerprint(
    task: Task, settings: TrainerSettings, *, stages: Sequence[Stage], num_ranks: int
) -> dict[str, Any]:
    """Settings, stages, shapes and the task's identity as a flat mapping; what may differ on resume is left out."""
    content: dict[str, Any] = {"ranks": num_ranks, "stages": [stage.name for stage in stages]}
    for name, value in asdict(settings).items():
        if name not in FREE_SETTINGS:
            content[f"settings.{name}"] = value
    for stage in stages:
        for name, value in vars(stage).items():
            if isinstance(value, Mapping):
                content |= {f"{stage.name}.{name}.{key}": _text(item) for key, item in value.items()}
            else:
                content[f"{stage.name}.{name}"] = _text(value)
    if isinstance(task, HasIdentity):
        content |= {f"{_IDENTITY}{name}": _text(value) for name, value in task.identity().items()}
    for name, tensor in task.model.state_dict().items():
        content[f"model.{name}"] = f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
    return dict(json.loads(json.dumps(content)))


def _text(value: Any) -> Any:
    """Numbers and names as they are, objects by their repr without addresses."""
    return value if isinstance(value, int | float | str) or value is None else _ADDRESS.sub("", repr(value))


def check_fingerprint(saved: Mapping[str, Any], current: Mapping[str, Any], folder: Path) -> None:
    """Raise a CheckpointError that names the keys in which a checkpoint and this run differ."""
    ignored = {
        f"settings.{name}" for name in FREE_SETTINGS
    }  # an older version may have written one that is free by now
    ignored |= {
        key for key, value in current.items() if value is None and key not in saved
    }  # a setting it did not know
    # written by a version that did not know this part of an identity
    ignored |= {key for key in current if key.startswith(_IDENTITY) and key not in saved}
    lines = []
    for key in sorted({*saved, *current} - ignored):
        if key not in current:
            lines.append(f"{key}: {saved[key]!r} in the checkpoint, absent now")
        elif key not in saved:
            lines.append(f"{key}: absent in the checkpoint, {current[key]!r} now")
        elif saved[key] != current[key]:
            lines.append(f"{key}: {saved[key]!r} in the checkpoint, {current[key]!r} now")
    if not lines:
        return
    more = [f"... and {len(lines) - 10} more"] if len(lines) > 10 else []
    raise CheckpointError(
        f"{folder} belongs to another run:\n  " + "\n  ".join([*lines[:10], *more]) + "\n"
        "Resume with the settings of that run, or choose another output folder. To go on from its weights with other "
        "settings, call load_weights(model, checkpoint_folder) and train into a new folder."
    )
