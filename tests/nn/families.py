"""Families, priors and estimators that the façade is tried with: one row each."""

from collections.abc import Callable
from dataclasses import dataclass

from probattn.core import Estimator, NoBaseline, ScoreFunction
from probattn.distributions import (
    Categorical,
    Dirichlet,
    Family,
    GammaPrior,
    GumbelSoftmax,
    Lognormal,
    LognormalPrior,
    StraightThroughGumbel,
    Weibull,
)
from probattn.nn import Conditional, Fixed, FromScores, KeyPrior

__all__ = ["CONFIGURATIONS", "SAMPLED", "Configuration"]


@dataclass(frozen=True)
class Configuration:
    """What is passed to the façade.

    Attributes:
        family: Of the weights; None for soft attention.
        prior: Makes the prior from the width of a head and the number of heads; None for no KL.
        estimator: None for the default.
    """

    family: Family | None
    prior: Callable[[int, int], Conditional] | None = None
    estimator: Estimator | None = None

    def arguments(self, head_dim: int, num_heads: int) -> dict[str, object]:
        """Keyword arguments of `MultiheadAttention` and `scaled_dot_product_attention`."""
        prior = None if self.prior is None else self.prior(head_dim, num_heads)
        return {"family": self.family, "prior": prior, "estimator": self.estimator}


_HARD = ScoreFunction(1, baseline=NoBaseline())

CONFIGURATIONS = {
    "soft": Configuration(None),
    "weibull": Configuration(Weibull(5.0, anchor="softmax")),
    "weibull-fixed": Configuration(Weibull(5.0, anchor="softmax"), lambda d, h: Fixed(GammaPrior(rate=0.5), 0.3)),
    "weibull-keys": Configuration(Weibull(5.0, anchor="softmax"), lambda d, h: KeyPrior(d, GammaPrior())),
    "weibull-keys-per-head": Configuration(
        Weibull(5.0, anchor="softmax"), lambda d, h: KeyPrior(d, GammaPrior(concentration="psi_rate"), num_heads=h)
    ),
    "lognormal-keys": Configuration(
        Lognormal(0.5, anchor="softmax"), lambda d, h: KeyPrior(d, LognormalPrior(location="log_psi"))
    ),
    "dirichlet": Configuration(Dirichlet()),
    "dirichlet-prior": Configuration(Dirichlet(), lambda d, h: KeyPrior(d, Dirichlet())),
    "concrete": Configuration(GumbelSoftmax(0.5), lambda d, h: KeyPrior(d, Categorical())),
    "straight-through": Configuration(StraightThroughGumbel(0.5), lambda d, h: KeyPrior(d, Categorical())),
    "hard": Configuration(Categorical(), None, _HARD),
    "hard-prior": Configuration(Categorical(), lambda d, h: KeyPrior(d, Categorical()), _HARD),
    "hard-same": Configuration(Categorical(), lambda d, h: FromScores(Categorical()), _HARD),
}

SAMPLED = {name: row for name, row in CONFIGURATIONS.items() if row.family is not None}
