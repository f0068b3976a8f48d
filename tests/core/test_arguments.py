"""Arguments that are names: a misspelt one is refused when the thing is built, with what was probably meant."""

from collections.abc import Callable
from typing import Any

import pytest

from probattn import Enumerate, FreeBits, Site
from probattn.distributions import GammaPrior, GumbelSoftmax, LognormalPrior, StraightThroughGumbel, Weibull
from probattn.nn import KeyPrior
from probattn.nn.conditionals import FromScores
from probattn.training import Stage, TrainerSettings

MISSPELT: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "Enumerate(rest) 'dropp' is unknown; did you mean 'drop'?": (Enumerate, {"rest": "dropp"}),
    "FreeBits(per)": (FreeBits, {"nats": 1.0, "per": "units"}),
    "GammaPrior(concentration)": (GammaPrior, {"concentration": "psi-rate"}),
    "GammaPrior(rate) must be positive": (GammaPrior, {"rate": -1.0}),
    "GumbelSoftmax(temperature) must be positive": (GumbelSoftmax, {"temperature": 0.0}),
    "KeyPrior(normalises)": (KeyPrior, {"key_dim": 2, "family": GammaPrior(), "normalises": "sets"}),
    "LognormalPrior(location)": (LognormalPrior, {"location": "logpsi"}),
    "LognormalPrior(sigma) must be positive": (LognormalPrior, {"sigma": 0.0}),
    "StraightThroughGumbel(temperature) must be positive": (StraightThroughGumbel, {"temperature": -1.0}),
    "TrainerSettings.optimizer": (TrainerSettings, {"optimizer": "adams"}),
    "hand_over of stage 'main'": (Stage, {"name": "main", "updates": 1, "hand_over": "bets"}),
    "predictive of site 'a' 'post' is unknown": (
        Site,
        {"name": "a", "prior": None, "posterior": FromScores(Weibull()), "predictive": "post"},
    ),
    "unit of site 'a' 'examples' is unknown; did you mean 'example'?": (
        Site,
        {"name": "a", "prior": None, "posterior": FromScores(Weibull()), "unit": "examples"},
    ),
}


@pytest.mark.parametrize("message", MISSPELT)
def test_what_cannot_be_is_refused_when_it_is_built(message: str) -> None:
    made, arguments = MISSPELT[message]
    with pytest.raises(ValueError) as caught:  # the message is compared below, without escapes
        made(**arguments)
    assert message in str(caught.value)
