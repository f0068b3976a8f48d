"""Load a converted model that `save_pretrained` has written."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from probattn.distributions import Family
from probattn.integrations.priors import PriorRecipe
from probattn.integrations.settings import Settings, from_plain, is_held
from probattn.integrations.transformers.attention import CHILD, StochasticAttention
from probattn.integrations.transformers.convert import CLASS_KEY, CONFIG_KEY, convert, put_beside

__all__ = ["load_stochastic"]

# What tells where files are, for the configuration and the weights alike.
_WHERE = ("subfolder", "revision", "token", "cache_dir", "local_files_only", "force_download", "proxies")


@dataclass(frozen=True)
class _Conversion:
    """One conversion that a folder holds.

    Attributes:
        steps: Names that lead from the model's configuration to that of the converted part; none for its own.
        part: The name of the converted part's class; None: the whole model.
        settings: Of the conversion.
    """

    steps: tuple[str, ...]
    part: str | None
    settings: Settings


def load_stochastic(
    path: str | PathLike[str],
    model_class: type | None = None,
    *,
    family: Family | None = None,
    prior: PriorRecipe | None = None,
    **kwargs: Any,
) -> Any:
    """The model that `save_pretrained` wrote to a folder, converted as it was, with the weights of its priors.

    Args:
        path: The folder, or a name on a hub.
        model_class: The class of the model, or an AutoModelFor...; by default what the configuration names.
        family: The family of the weights, where it is no dataclass; it cannot be saved.
        prior: The function that made the priors, where one did; it cannot be saved.
        **kwargs: For `from_pretrained`.

    Returns:
        The model; with `output_loading_info=True` the model and the report.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If the folder has no converted model, or not all weights of it, or `family` or `prior` was not
            asked for.
        TypeError: If `model_class` is no class of models.
    """
    where = {name: kwargs[name] for name in _WHERE if name in kwargs}
    _require_folder(path, where.get("subfolder") or "")
    remote = {"trust_remote_code": kwargs["trust_remote_code"]} if "trust_remote_code" in kwargs else {}
    config = AutoConfig.from_pretrained(path, **where, **remote)
    conversions = list(_conversions(config, family, prior))
    if not conversions:
        raise ValueError(
            f"{path} holds no converted model; load it with from_pretrained and call make_stochastic(model, ...). Of a "
            "part whose configuration is a copy (T5's encoder) nothing is written: convert the whole, with only= and "
            "layers="
        )
    wants_report = kwargs.pop("output_loading_info", False)
    resolved = _model_class(config, model_class)
    loader = _converting(resolved, conversions)
    model, report = cast(Any, loader).from_pretrained(path, **kwargs, output_loading_info=True)
    missing = sorted(key for key in report["missing_keys"] if f".{CHILD}." in key)
    if missing:
        raise ValueError(f"{path} lacks weights of the priors: {', '.join(missing)}")
    model.__class__ = resolved
    for place, site in model.__dict__.pop("waiting_sites").items():
        _take_weights(model.get_submodule(place), site)
    return (model, report) if wants_report else model


def _conversions(config: Any, family: Family | None, prior: PriorRecipe | None) -> Iterator[_Conversion]:
    """What a configuration and those of the parts in it say; a converted part may have either."""
    found = [(steps, one) for steps, one in _with_parts(config) if getattr(one, CONFIG_KEY, None) is not None]
    for steps, one in found:
        plain = dict(getattr(one, CONFIG_KEY))
        part = plain.pop(CLASS_KEY, None)
        is_whole = not steps and part in (None, *(config.architectures or ()))
        # Of several conversions each takes what it asks for.
        given = {"family": family, "prior": prior}
        if len(found) > 1:
            given = {name: None if is_held(plain.get(name)) else value for name, value in given.items()}
        yield _Conversion(steps, None if is_whole else part, from_plain(plain, **cast(Any, given)))


def _with_parts(config: Any, steps: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield steps, config
    for name in config.sub_configs:
        if getattr(config, name, None) is not None:
            yield from _with_parts(getattr(config, name), (*steps, name))


def _require_folder(path: str | PathLike[str], subfolder: str) -> None:
    """Tell a folder that is not there from a name on a hub, for which transformers would take it."""
    folder = Path(path)
    if folder.is_dir():
        if not (folder / subfolder / "config.json").is_file():
            raise FileNotFoundError(
                f"{folder / subfolder} has no config.json; name the folder that save_pretrained wrote"
            )
        return
    can_be_a_name = isinstance(path, str) and not folder.is_absolute() and path[:1] not in "~." and path.count("/") < 2
    if folder.exists() or not can_be_a_name:
        raise FileNotFoundError(f"there is no folder {folder}; name the one that save_pretrained wrote")


def _model_class(config: PreTrainedConfig, asked: type | None) -> type[PreTrainedModel]:
    """The class that was asked for, or that is saved under a configuration."""
    if isinstance(asked, type) and issubclass(asked, PreTrainedModel):
        return asked
    mapping = getattr(asked, "_model_mapping", None)  # of the AutoModel classes, which are no models
    if asked is not None and mapping is not None:
        found = mapping.get(type(config), None)
        if found is None:
            raise ValueError(f"{asked.__name__} has no model for {type(config).__name__}; pass the model's own class")
        candidates = list(found) if isinstance(found, list | tuple) else [found]
        named = [one for one in candidates if one.__name__ in (config.architectures or ())]
        return cast(type[PreTrainedModel], (named or candidates)[0])
    if asked is not None:
        raise TypeError(f"model_class must be a class of transformers' models, got {asked!r}")
    names = config.architectures
    saved = getattr(transformers, names[0], None) if names else None
    if saved is None:
        raise ValueError(f"transformers has no class {names}; pass the model's class as model_class=...")
    return cast(type[PreTrainedModel], saved)


def _converting(model_class: type[PreTrainedModel], conversions: list[_Conversion]) -> type[PreTrainedModel]:
    """The class with conversions at the end of its constructor, so that all weights find their places at once.

    transformers builds a model without storage and fills it. A prior may have tensors that no file holds, so it is
    built for real and waits; in its place stand empty parameters that catch its weights.
    """
    ordinary = (torch.get_default_device(), torch.get_default_dtype())

    def __init__(self: PreTrainedModel, config: Any, *args: Any, **kwargs: Any) -> None:
        model_class.__init__(self, config, *args, **kwargs)
        for conversion in conversions:
            with _defaults(*ordinary):
                convert(_part(self, conversion), conversion.settings)
        sites = {path: module for path, module in self.named_modules() if isinstance(module, StochasticAttention)}
        for path, site in sites.items():
            self.set_submodule(path, _catcher(site))
        self.__dict__["waiting_sites"] = {path.removesuffix(f".{CHILD}"): site for path, site in sites.items()}

    members = {"__init__": __init__, "__module__": model_class.__module__}
    return cast(type[PreTrainedModel], type(model_class.__name__, (model_class,), members))


def _part(model: PreTrainedModel, conversion: _Conversion) -> PreTrainedModel:
    """What a conversion was of: the model, or the part of that class with that configuration."""
    if conversion.part is None:
        return model
    config = model.config
    for name in conversion.steps:  # a class for a part alone is built from the configuration of that part
        config = getattr(config, name, config)
    for module in model.modules():
        is_of_class = isinstance(module, PreTrainedModel) and type(module).__name__ == conversion.part
        if is_of_class and cast(Any, module).config is config:
            return cast(PreTrainedModel, module)
    raise ValueError(
        f"the folder holds a model whose {conversion.part} was converted, but {type(model).__name__} has no such part; "
        "pass the class that was saved as model_class=..."
    )


@contextmanager
def _defaults(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Other defaults of torch inside a block."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with device:
            yield
    finally:
        torch.set_default_dtype(before)


def _own_state(site: StochasticAttention) -> Mapping[str, Tensor]:
    """The weights that a file has of a site: not those of an earlier one."""
    tied = site.__dict__["_tied_weights_keys"]
    return {name: tensor for name, tensor in site.state_dict().items() if name not in tied}


def _catcher(site: StochasticAttention) -> nn.Module:
    """A module without storage that takes the weights of a site under their names."""
    top = nn.Module()
    for name, tensor in _own_state(site).items():
        *parents, last = name.split(".")
        module = top
        for parent in parents:
            if parent not in module._modules:
                module.add_module(parent, nn.Module())
            module = module.get_submodule(parent)
        module.register_parameter(last, nn.Parameter(tensor.to("meta"), requires_grad=False))
    return top


def _take_weights(module: nn.Module, site: StochasticAttention) -> None:
    """Put a site that waited into its place, with the weights that were caught there."""
    caught = getattr(module, CHILD).state_dict()
    delattr(module, CHILD)
    put_beside(site, module)
    site.load_state_dict(caught, strict=False)  # what it has of another site is loaded there
    module.add_module(CHILD, site)
