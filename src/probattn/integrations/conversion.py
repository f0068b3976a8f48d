"""One verb for other people's models: make their attention stochastic, and give the original back.

Nothing here imports an optional library before it is needed.
"""

import sys
from collections.abc import Iterable
from os import PathLike
from typing import Any, TypeVar

from torch import nn

from probattn.core.schedules import Schedule
from probattn.distributions import Family
from probattn.integrations import torch_modules
from probattn.integrations.places import Only
from probattn.integrations.priors import PriorRecipe
from probattn.integrations.settings import KlUnit

__all__ = ["load_stochastic", "make_stochastic", "undo"]

Model = TypeVar("Model", bound=nn.Module)


def make_stochastic(
    model: Model,
    family: Family | None = None,
    prior: PriorRecipe | None = "contextual",
    *,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    only: Only = "all",
    kl_weight: Schedule | float | None = None,
    kl_per: KlUnit | None = None,
) -> Model:
    """Give a model random attention weights, in place.

    Models of Hugging Face `transformers`, and any module that contains `torch.nn.MultiheadAttention` or torch's
    transformer layers. Whether attention draws is then a switch of its own (`probattn.sampling`), independent of
    `train()` and `eval()`; while it is off, the model computes what it computed with eager attention, bit for bit.

    A model of `transformers` gets its KL into its loss. While it trains, its output has three entries more: `kl`, nats
    per example, summed over layers, heads and queries; `kl_cost`, the weighted mean that was added to `loss`; and
    `task_loss`, the loss before that. Without labels there is no loss: add `kl_cost` to yours. In evaluation `loss` is
    the original's, and no KL is computed unless `record_latents` is open. Other models return what they returned;
    `record_latents` collects their KL.

    An optimizer has to be built afterwards: a contextual prior has parameters.

    Args:
        model: The model.
        family: Of the weights. Default: Weibull(10.0, anchor="softmax"). `anchor="exp"` makes the KL explode on the
            scores of pretrained models, and gets a warning.
        prior: "contextual" (from the keys, BAM's WC and LC), "fixed" (all keys alike), a prior family such as
            GammaPrior(rate=0.1), a function from a `Place` to a prior, or None for no KL.
        layers: Numbers of the layers, from 0, in each encoder and decoder; -1 is the last. Default: all.
        heads: Numbers of the heads, in each of these layers. Default: all.
        only: "self", "cross" or "all".
        kl_weight: Weight of the KL in the loss: a number, or a schedule over steps, see `KlSchedule` and
            `set_kl_step`. Default: 1. Models of `transformers` only.
        kl_per: "weight" divides an example's KL by its number of attention weights (pairs of a query and a key that
            it may see, in all layers and heads), which does not depend on the size of the model; "example" takes all
            of it, as the ELBO does, which swamps a likelihood unless `kl_weight` is tiny. Default: "weight". Models
            of `transformers` only.

    Returns:
        The same model.

    Raises:
        ValueError: If there is no attention that can be reached, or an argument does not fit the model.
        TypeError: If this is no model, or an argument is of the wrong kind.

    Example:
        >>> import torch, probattn
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
        >>> model = probattn.make_stochastic(torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
        >>> with probattn.record_latents(model) as record:
        ...     _ = model(torch.ones(3, 5, 8))
        >>> record.kl().shape, record.names
        (torch.Size([3]), ['layers.0.self_attn', 'layers.1.self_attn'])
    """
    _require_module(model)
    if _is_pretrained(model):
        from probattn.integrations import transformers

        weight: Schedule | float = 1.0 if kl_weight is None else kl_weight
        unit: KlUnit = "weight" if kl_per is None else kl_per
        pretrained: Any = model
        transformers.make_stochastic(
            pretrained, family, prior, layers=layers, heads=heads, only=only, kl_weight=weight, kl_per=unit
        )
        return model
    given = {"kl_weight": kl_weight, "kl_per": kl_per}
    unknown = [name for name, value in given.items() if value is not None]
    if unknown:
        raise ValueError(
            f"{', '.join(unknown)} can be chosen for models of transformers only; {type(model).__name__} returns no "
            "loss of its own: collect its KL with probattn.record_latents and weigh it there"
        )
    _refuse_wrapped(model)
    torch_modules.make_stochastic(model, family, prior, layers=layers, heads=heads, only=only)
    return model


def undo(model: Model) -> Model:
    """Give the original back: attention, `forward`, parameters and configuration. Trained weights stay.

    Args:
        model: What `make_stochastic` converted.

    Returns:
        The same model.

    Raises:
        ValueError: If there is nothing to undo.
        TypeError: If this is no model.
    """
    _require_module(model)
    has_ours = any(isinstance(module, torch_modules.ConvertedMultiheadAttention) for module in model.modules())
    has_pretrained = any(_is_pretrained(module) for module in model.modules())
    if has_pretrained and (_is_converted(model) or not has_ours):
        from probattn.integrations import transformers

        transformers.undo(model)
    if has_ours or not has_pretrained:
        torch_modules.undo(model)
    return model


def load_stochastic(
    path: str | PathLike[str], *, family: Family | None = None, prior: PriorRecipe | None = None, **kwargs: Any
) -> Any:
    """A converted model of `transformers` from the folder that its `save_pretrained` wrote.

    Args:
        path: The folder, or a name on a hub.
        family: The family of the weights, where it is no dataclass; it cannot be saved.
        prior: The function that made the priors, where one did; it cannot be saved.
        **kwargs: `model_class`, where the configuration does not name it; and what `from_pretrained` takes.

    Returns:
        The model, converted as it was, with the weights of its priors; with `output_loading_info=True` the model and
        the report of `from_pretrained`.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If the folder has no converted model, or not all weights of it, or `family` or `prior` was not
            asked for.
    """
    from probattn.integrations import transformers

    return transformers.load_stochastic(path, family=family, prior=prior, **kwargs)


def _require_module(model: object) -> None:
    if not isinstance(model, nn.Module):
        hint = "; load it first, e.g. AutoModel.from_pretrained(...)" if isinstance(model, str | PathLike) else ""
        raise TypeError(f"expected a model, that is an nn.Module, got {model!r}{hint}")


def _refuse_wrapped(model: nn.Module) -> None:
    """Say what to do where a model of transformers is a part of another one, whose loss is not ours to change."""
    pretrained: dict[str, nn.Module] = {}  # those that are not a part of another one
    for path, module in model.named_modules():
        if _is_pretrained(module) and not any(path.startswith(f"{outer}.") for outer in pretrained):
            pretrained[path] = module
    has_torchs = any(type(module) is nn.MultiheadAttention for module in model.modules())
    if not has_torchs and pretrained:
        path = next(iter(pretrained))
        raise ValueError(
            f"{type(model).__name__} is no model of transformers itself but holds one, {path}; convert that one, "
            f"make_stochastic(model.{path}), and add the kl_cost of its outputs to your loss"
        )
    for path, module in pretrained.items():
        if not _is_converted(module) and _can_be_converted(module):
            raise ValueError(
                f"{type(model).__name__} holds a model of transformers, {path}, beside a torch.nn.MultiheadAttention; "
                f"convert that model first, make_stochastic(model.{path}), and add the kl_cost of its outputs to your "
                "loss; make_stochastic(model) then converts the rest, or name the part that is meant"
            )


def _can_be_converted(model: Any) -> bool:
    from probattn.integrations.transformers.reach import find_places

    try:
        return bool(find_places(model))
    except ValueError:
        return False


def _is_converted(model: nn.Module) -> bool:
    """Whether a model of transformers in it was converted."""
    return any("stochastic_forward" in vars(module) for module in model.modules())


def _is_pretrained(model: nn.Module) -> bool:
    """Whether it is a model of transformers; if so, that library was imported by whoever made it."""
    library = sys.modules.get("transformers.modeling_utils")
    return library is not None and isinstance(model, library.PreTrainedModel)
