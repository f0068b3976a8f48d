"""Convert a pretrained model of `transformers` in place, and back."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from numbers import Real
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from probattn.core.schedules import Constant, Schedule
from probattn.distributions import Family
from probattn.integrations.places import Only, Place, check_heads, choose, whole_numbers
from probattn.integrations.priors import PriorRecipe, check_family, default_family, make_prior
from probattn.integrations.settings import KlUnit, Settings, to_plain
from probattn.integrations.transformers.attention import CHILD, IMPLEMENTATION, StochasticAttention
from probattn.integrations.transformers.forward import StochasticForward, conversions_of
from probattn.integrations.transformers.reach import find_places

__all__ = ["CLASS_KEY", "CONFIG_KEY", "configs_of", "convert", "make_stochastic", "put_beside", "undo"]

CONFIG_KEY = "stochastic_attention"
"""Where the settings stand in the configuration, and so in config.json of a saved model."""

CLASS_KEY = "converted_class"
"""Where the name of the converted model's class stands among the settings: it may be a part of what is saved."""


def make_stochastic(
    model: PreTrainedModel,
    family: Family | None = None,
    prior: PriorRecipe | None = "contextual",
    *,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    only: Only = "all",
    kl_weight: Schedule | float = 1.0,
    kl_per: KlUnit = "weight",
) -> None:
    """`probattn.make_stochastic` for a model of `transformers`; see there."""
    family = default_family() if family is None else family
    check_family(family, prior)
    schedule: Any = Constant(float(kl_weight)) if isinstance(kl_weight, Real) else kl_weight
    settings = Settings(
        family=family,
        prior=prior,
        layers=None if layers is None else tuple(whole_numbers("layers", layers)),
        heads=None if heads is None else tuple(whole_numbers("heads", heads)),
        only=only,
        kl_weight=schedule,
        kl_per=kl_per,
    )
    convert(model, settings)
    if layers is None:
        _warn_of_torchs_attention(model)


def convert(model: PreTrainedModel, settings: Settings) -> None:
    """Put sites into a model, and its KL into its loss.

    Raises:
        ValueError: If the model is converted already or cannot be reached, or the settings do not fit it.
    """
    if any(isinstance(module, StochasticAttention) for module in model.modules()):
        raise ValueError(f"{type(model).__name__} has stochastic attention already; undo(model) first")
    plain = {**to_plain(settings), CLASS_KEY: type(model).__name__}
    places = find_places(model)
    chosen = choose(list(places), settings.layers, settings.only)
    heads = check_heads(settings.heads, chosen)
    sites = [(places[place], _site(model, places[place], place, settings, heads)) for place in chosen]
    _declare_shared([site for _, site in sites])
    implementations = _take_over(model, places)
    for module, site in sites:  # nothing was changed before everything was checked
        module.add_module(CHILD, site)
    forward = StochasticForward(model, settings)
    forward.configs = list({id(config): config for config in (module.config for module, _ in sites)}.values())
    forward.implementations = implementations
    model.__dict__["stochastic_forward"] = forward
    model.__dict__["forward"] = forward
    # A Trainer would divide a loss that knows the number of items differently from the KL.
    model.__dict__["accepts_loss_kwargs"] = False
    setattr(model.config, CONFIG_KEY, plain)


def undo(model: nn.Module) -> None:
    """Give the original back: attention, `forward`, parameters and configuration; trained weights stay.

    A plain model that was loaded from the folder of a converted one is told apart by its configuration alone.

    Args:
        model: A converted model.

    Raises:
        ValueError: If it was not converted.
    """
    if any("stochastic_forward" in vars(module) for module in model.modules()):
        for forward in conversions_of(model):
            _undo(forward)
        return
    if any(isinstance(module, StochasticAttention) for module in model.modules()):
        raise ValueError(f"{type(model).__name__} is a part of a model that was converted as a whole; undo that one")
    converted = [config for config in configs_of(model) if CONFIG_KEY in vars(config)]
    if not converted:
        raise ValueError(f"{type(model).__name__} was not converted: there is nothing to undo")
    for config in converted:
        delattr(config, CONFIG_KEY)


def put_beside(site: StochasticAttention, module: nn.Module) -> None:
    """Give a site the device, dtype and mode of its attention module."""
    weight = next(module.parameters())
    # A module without storage gets its weights later; a site has its own already.
    site.to(device=None if weight.is_meta else weight.device, dtype=weight.dtype).train(module.training)


def _undo(forward: StochasticForward) -> None:
    converted = forward.model
    for module in list(converted.modules()):
        if isinstance(getattr(module, CHILD, None), StochasticAttention):
            delattr(module, CHILD)
    _restore(forward.implementations)
    _, before = forward.implementations[0]
    for config in configs_of(converted):  # a model around it may have replaced the objects of the conversion
        if config._attn_implementation == IMPLEMENTATION:
            config._attn_implementation_internal = before
    for name in ("forward", "stochastic_forward", "accepts_loss_kwargs"):
        converted.__dict__.pop(name, None)
    if forward.inner is not None:
        converted.__dict__["forward"] = forward.inner
    converted.config.__dict__.pop(CONFIG_KEY, None)


def _site(
    model: PreTrainedModel, module: nn.Module, place: Place, settings: Settings, heads: tuple[int, ...] | None
) -> StochasticAttention:
    place = place if heads is None else replace(place, num_heads=len(heads))
    prior = make_prior(settings.prior, settings.family, place)
    is_decoder = place.is_decoder and bool(getattr(model.config, "is_encoder_decoder", False))
    site = StochasticAttention(place, settings.family, prior=prior, heads=heads, is_decoder=is_decoder)
    put_beside(site, module)
    return site


def _declare_shared(sites: Sequence[StochasticAttention]) -> None:
    """Say which tensors of a site an earlier one holds too: `save_pretrained` writes one tensor once.

    That is so where a family has a parameter, and where a function gives one prior to several places.
    """
    seen: set[int] = set()
    for site in sites:
        tied = {}
        tensors = chain(site.named_parameters(remove_duplicate=False), site.named_buffers(remove_duplicate=False))
        for name, tensor in tensors:
            if id(tensor) in seen:
                tied[name] = name
            seen.add(id(tensor))
        site.__dict__["_tied_weights_keys"] = tied  # transformers asks every module for it


def _warn_of_torchs_attention(model: PreTrainedModel) -> None:
    left = [path for path, module in model.named_modules() if type(module) is nn.MultiheadAttention]
    if left:
        around = ".".join(["model", *left[0].split(".")[:-1]])
        warnings.warn(
            f"{', '.join(left)} of {type(model).__name__} is a torch.nn.MultiheadAttention, which transformers' "
            "attention interface does not reach: its weights stay as they are. The module around it can be converted "
            f"by itself, make_stochastic({around}); record_latents collects that KL",
            stacklevel=4,
        )


def configs_of(model: nn.Module) -> Iterator[Any]:
    """Every configuration of a model and its parts, once."""
    seen: set[int] = set()
    waiting = [module.config for module in model.modules() if isinstance(module, PreTrainedModel)]
    while waiting:
        config = waiting.pop()
        if id(config) not in seen:
            seen.add(id(config))
            yield config
            parts = (getattr(config, name, None) for name in config.sub_configs)
            waiting.extend(part for part in parts if part is not None)


def _take_over(model: PreTrainedModel, places: Mapping[Place, Any]) -> list[tuple[Any, str | None]]:
    """Set our attention everywhere; what was set before, for each configuration."""
    before = [(config, config._attn_implementation) for config in configs_of(model)]
    if any(implementation == IMPLEMENTATION for _, implementation in before):
        raise ValueError(
            f"the configuration of this {type(model).__name__} is shared with a converted model, and undoing or saving "
            "one would break the other. Build each model from a configuration of its own, copied before the first "
            "one is converted (or, where this is a copy already, call model.set_attn_implementation('eager')); of one "
            "model's parts convert the whole, and choose with layers= and only="
        )
    model.set_attn_implementation(IMPLEMENTATION)
    missed = [place.path for place, module in places.items() if module.config._attn_implementation != IMPLEMENTATION]
    if missed:
        _restore(before)
        raise ValueError(f"transformers did not take the attention function for {', '.join(missed)}")
    return before


def _restore(implementations: Iterable[tuple[Any, str | None]]) -> None:
    for config, implementation in implementations:
        config._attn_implementation_internal = implementation
