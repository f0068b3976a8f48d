"""Convert a pretrained model of `transformers` in place, and back."""

from collections.abc import Iterable, Iterator, Mapping
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

__all__ = ["CONFIG_KEY", "convert", "make_stochastic", "undo"]

CONFIG_KEY = "stochastic_attention"
"""Where the settings stand in the configuration, and so in config.json of a saved model."""


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
    settings = Settings(
        family=family,
        prior=prior,
        layers=None if layers is None else tuple(whole_numbers("layers", layers)),
        heads=None if heads is None else tuple(whole_numbers("heads", heads)),
        only=only,
        kl_weight=Constant(float(kl_weight)) if isinstance(kl_weight, int | float) else kl_weight,
        kl_per=kl_per,
    )
    convert(model, settings)


def convert(model: PreTrainedModel, settings: Settings) -> None:
    """Put sites into a model, and its KL into its loss.

    Raises:
        ValueError: If the model is converted already or cannot be reached, or the settings do not fit it.
    """
    if any(isinstance(module, StochasticAttention) for module in model.modules()):
        raise ValueError(f"{type(model).__name__} has stochastic attention already; undo(model) first")
    places = find_places(model)
    chosen = choose(list(places), settings.layers, settings.only)
    heads = check_heads(settings.heads, chosen)
    sites = [(places[place], _site(model, places[place], place, settings, heads)) for place in chosen]
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
    setattr(model.config, CONFIG_KEY, to_plain(settings))


def undo(model: nn.Module) -> None:
    """Give the original back: attention, `forward`, parameters and configuration; trained weights stay.

    Args:
        model: A converted model.

    Raises:
        ValueError: If it was not converted.
    """
    for forward in conversions_of(model):
        _undo(forward)


def _undo(forward: StochasticForward) -> None:
    converted = forward.model
    for module in list(converted.modules()):
        if isinstance(getattr(module, CHILD, None), StochasticAttention):
            delattr(module, CHILD)
    _restore(forward.implementations)
    for name in ("forward", "stochastic_forward", "accepts_loss_kwargs"):
        converted.__dict__.pop(name, None)
    if forward.inner is not None:
        converted.__dict__["forward"] = forward.inner
    converted.config.__dict__.pop(CONFIG_KEY, None)


def _site(
    model: PreTrainedModel, module: nn.Module, place: Place, settings: Settings, heads: tuple[int, ...] | None
) -> StochasticAttention:
    prior = make_prior(settings.prior, settings.family, place)
    is_decoder = place.is_decoder and bool(getattr(model.config, "is_encoder_decoder", False))
    site = StochasticAttention(place, settings.family, prior=prior, heads=heads, is_decoder=is_decoder)
    weight = next(module.parameters())
    return site.to(device=weight.device, dtype=weight.dtype).train(module.training)


def _configs(model: PreTrainedModel) -> Iterator[Any]:
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
    before = [(config, config._attn_implementation) for config in _configs(model)]
    if any(implementation == IMPLEMENTATION for _, implementation in before):
        raise ValueError(
            f"the configuration of this {type(model).__name__} is shared with a converted model, and undoing or saving "
            "one would break the other. Build each model from a configuration of its own, copy.deepcopy(config); of "
            "one model's parts convert the whole, and choose with layers= and only="
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
