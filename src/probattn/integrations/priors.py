"""Priors for the places of a model from one short description.

For pretrained models the numbers follow BAM's fine-tuning runs (Sec. 4.5): rate 1e-2 and five hidden units.
"""

import warnings
from collections.abc import Callable
from typing import Literal

import torch

from probattn.core.support import Dense
from probattn.distributions import (
    Categorical,
    Family,
    PriorFamily,
    Weibull,
    has_kl,
)
from probattn.integrations.places import Place
from probattn.nn.conditionals import Conditional, KeyPrior, Uniform

__all__ = ["PriorRecipe", "check_family", "default_family", "make_prior"]

PriorRecipe = Literal["contextual", "fixed"] | PriorFamily | Callable[[Place], Conditional]
"""A prior for every place: "contextual" computes it from the keys (`KeyPrior`), "fixed" takes every key alike
(`Uniform`), a prior family such as `GammaPrior(rate=0.1)` is contextual with that family, and a function makes a prior
from a `Place`."""

_HIDDEN_DIM = 5


def default_family() -> Family:
    """Weibull weights with the softmax anchor, which scores of pretrained models need."""
    return Weibull(concentration=10.0, anchor="softmax")


def check_family(family: object, prior: object) -> None:
    """Refuse what is no family, and warn where exp(scores) of a pretrained model would enter a KL.

    Raises:
        TypeError: If it is no family.
        ValueError: If its draws have no gradient, for which a model that is not ours gives no credit.
    """
    if not isinstance(family, Family):
        raise TypeError(f"family must be e.g. probattn.Weibull(10.0, anchor='softmax'), got {family!r}")
    if isinstance(family, Categorical):
        raise ValueError(
            "Categorical makes hard choices, which no gradient passes; use StraightThroughGumbel or GumbelSoftmax"
        )
    if prior is not None and getattr(family, "anchor", "softmax") == "exp":
        warnings.warn(
            "anchor='exp' puts exp(scores) into the KL, which pretrained scores make astronomically large; "
            "use anchor='softmax' unless that is what you want to see",
            stacklevel=4,
        )


def make_prior(recipe: PriorRecipe | None, family: Family, place: Place) -> Conditional | None:
    """The prior of one place, tried out on scores of zero, so that what does not fit is told before training.

    Args:
        recipe: See `PriorRecipe`. None: no prior, no KL.
        family: Of the posterior; "contextual" and "fixed" choose the prior's family by it.
        place: Where the prior is for.

    Raises:
        ValueError: If the recipe has no meaning, or none for this family, or there is no KL between the two.
        TypeError: If a function made something else than a prior, or a prior stands in the place of a function.
    """
    scores, support = torch.zeros(1, place.num_heads, 1, 2, device="cpu"), Dense()  # (B, H, T, S)
    try:
        posterior = family(scores, support)
    except RuntimeError as error:  # of torch, which knows shapes and no heads
        raise ValueError(
            f"{type(family).__name__} does not take scores of shape {tuple(scores.shape)}, those of the "
            f"{place.num_heads} heads that become stochastic in {place.path}: {error}. Numbers per head, if it has "
            f"such, are a tensor of shape ({place.num_heads}, 1, 1), one for each head that `heads` chooses"
        ) from error
    made = None if recipe is None else _made(recipe, family, place)
    prior_family = getattr(made, "family", None)
    if isinstance(prior_family, PriorFamily):
        prior = prior_family(scores, support)
        if not has_kl(type(posterior), type(prior)):
            raise ValueError(
                f"there is no KL of {type(family).__name__} weights to a {type(prior_family).__name__}; pass "
                "prior='contextual', which takes the one that fits, or register_kl for the two distributions"
            )
    return made


def _made(recipe: PriorRecipe, family: Family, place: Place) -> Conditional:
    if isinstance(recipe, PriorFamily):
        return _key_prior(recipe, place)
    if recipe == "contextual":
        return _key_prior(_matching(family), place)
    if recipe == "fixed":
        return Uniform(_matching(family))
    if isinstance(recipe, Conditional):
        raise TypeError(
            f"prior got a {type(recipe).__name__}; every place needs one of its own width, so pass a function that "
            "makes it, e.g. prior=lambda place: KeyPrior(place.head_dim, GammaPrior(rate=0.01))"
        )
    if not callable(recipe):
        raise ValueError(
            "prior must be 'contextual', 'fixed', a prior family such as GammaPrior(rate=0.01), a function from a "
            f"place to a prior, or None; got {recipe!r}"
        )
    made = recipe(place)
    if not isinstance(made, Conditional):
        raise TypeError(f"the function given as prior must return e.g. a KeyPrior, it returned {made!r}")
    return made


def _key_prior(family: PriorFamily, place: Place) -> KeyPrior:
    # What a causal query may not see must not enter its prior, not even through the sum of a softmax.
    normalises: Literal["memory", "set"] = "set" if place.is_causal else "memory"
    return KeyPrior(place.head_dim, family, hidden_dim=_HIDDEN_DIM, normalises=normalises)


def _matching(family: Family) -> PriorFamily:
    found = family.usual_prior()
    if found is None:
        raise ValueError(
            f"{type(family).__name__} weights have no usual prior, which 'contextual' and 'fixed' ask for; pass a "
            "prior family with a registered KL, e.g. prior=GammaPrior(rate=0.01), a function, e.g. "
            "prior=lambda place: KeyPrior(place.head_dim, ...), or None for no KL; a family of yours can define "
            "usual_prior()"
        )
    return found
