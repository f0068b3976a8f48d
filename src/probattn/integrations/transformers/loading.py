"""Load a converted model that `save_pretrained` has written."""

from os import PathLike
from pathlib import Path
from typing import Any, cast

import transformers
from transformers import AutoConfig, PreTrainedModel

from probattn.integrations.priors import PriorRecipe
from probattn.integrations.settings import Settings, from_plain
from probattn.integrations.transformers.attention import CHILD
from probattn.integrations.transformers.convert import CONFIG_KEY, convert
from probattn.integrations.transformers.forward import set_kl_step

__all__ = ["load_stochastic"]


def load_stochastic(
    path: str | PathLike[str],
    model_class: type[PreTrainedModel] | None = None,
    *,
    prior: PriorRecipe | None = None,
    **kwargs: Any,
) -> PreTrainedModel:
    """The model that `save_pretrained` wrote to a folder, converted as it was, with the weights of its priors.

    Args:
        path: The folder, or a name on a hub.
        model_class: The class of the model; by default the one that its configuration names.
        prior: The function that made the priors, where one did; it cannot be saved.
        **kwargs: For `from_pretrained`.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If the folder has no converted model, or not all weights of it, or `prior` was not asked for.
        TypeError: If `model_class` is no class of models.
    """
    _require_folder(path)
    if model_class is not None and not (isinstance(model_class, type) and issubclass(model_class, PreTrainedModel)):
        raise TypeError(f"model_class must be a class of transformers' models, got {model_class!r}")
    config = AutoConfig.from_pretrained(path)
    plain = getattr(config, CONFIG_KEY, None)
    if plain is None:
        raise ValueError(
            f"{path} holds no converted model; load it with from_pretrained and call make_stochastic(model, ...)"
        )
    model_class = _saved_class(config.architectures) if model_class is None else model_class
    loader = _converting(model_class, from_plain(plain, prior=prior))
    loaded: Any = loader.from_pretrained(path, **kwargs, output_loading_info=True)
    model, report = loaded
    missing = sorted(key for key in report["missing_keys"] if f".{CHILD}." in key)
    if missing:
        raise ValueError(f"{path} lacks weights of the priors: {', '.join(missing)}")
    model.__class__ = model_class
    set_kl_step(model, 0)  # models are built without storage first, and so was this number
    return cast(PreTrainedModel, model)


def _require_folder(path: str | PathLike[str]) -> None:
    """Tell a folder that is not there from a name on a hub, for which transformers would take it."""
    folder = Path(path)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise FileNotFoundError(f"{folder} has no config.json; name the folder that save_pretrained wrote")
        return
    can_be_a_name = isinstance(path, str) and not folder.is_absolute() and path[:1] not in "~." and path.count("/") < 2
    if folder.exists() or not can_be_a_name:
        raise FileNotFoundError(f"there is no folder {folder}; name the one that save_pretrained wrote")


def _saved_class(names: list[str] | None) -> type[PreTrainedModel]:
    found = getattr(transformers, names[0], None) if names else None
    if found is None:
        raise ValueError(f"transformers has no class {names}; pass the model's class as model_class=...")
    return cast(type[PreTrainedModel], found)


def _converting(model_class: type[PreTrainedModel], settings: Settings) -> type[PreTrainedModel]:
    """The class with a conversion at the end of its constructor, so that all weights find their places at once."""

    def __init__(self: PreTrainedModel, config: Any, *args: Any, **kwargs: Any) -> None:
        model_class.__init__(self, config, *args, **kwargs)
        convert(self, settings)

    members = {"__init__": __init__, "__module__": model_class.__module__}
    return cast(type[PreTrainedModel], type(model_class.__name__, (model_class,), members))
