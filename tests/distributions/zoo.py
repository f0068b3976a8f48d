"""The zoo: one row per family over attention weights. A new family is one row; all tests of `test_zoo.py` run on it.

Size letters: H heads, T queries, S positions, E edges.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from probattn.core import Dense, Segments, Support
from probattn.distributions import (
    Categorical,
    Dirichlet,
    DirichletPrior,
    Family,
    GammaPrior,
    GumbelSoftmax,
    Lognormal,
    LognormalPrior,
    PriorFamily,
    StraightThroughGumbel,
    Weibull,
)
from tests.core.problems import Problem, problem, random_scores

HEADS = 2

Differentiation = Literal["exact", "implicit", "straight-through", "none"]
"""How samples depend on scores: as gradcheck sees it, by an implicit derivative, by a false one, or not at all."""


@dataclass(frozen=True)
class Row:
    """A family and what is known about it.

    Attributes:
        name: Its name in test reports.
        family: Scores (or a prior's log psi) and a support in, distribution out.
        differentiation: See `Differentiation`.
        prior: A prior with a registered KL, called with other scores; None for families that are priors only.
        plug_in_is_softmax: Whether deterministic passes use softmax(scores).
        limit: A member that is almost at the limit `limit_is`, where there is one.
    """

    name: str
    family: Family | PriorFamily
    differentiation: Differentiation
    prior: Family | PriorFamily | None = None
    plug_in_is_softmax: bool = True
    limit: Family | None = None
    limit_is: Literal["softmax", "one-hot"] | None = None


ROWS = [
    Row("categorical", Categorical(), "none", prior=Categorical()),
    Row("dirichlet", Dirichlet(), "implicit", prior=Dirichlet()),
    Row("dirichlet, bounded", Dirichlet(log_bound=1.5), "implicit", Dirichlet(log_bound=1.5), plug_in_is_softmax=False),
    Row("weibull", Weibull(1.5), "exact", prior=GammaPrior(2.0), limit=Weibull(1e6), limit_is="softmax"),
    Row(
        "weibull, softmax anchor",
        Weibull(1.5, anchor="softmax"),
        "exact",
        prior=GammaPrior(2.0, concentration="psi_rate"),
        limit=Weibull(1e6, anchor="softmax"),
        limit_is="softmax",
    ),
    Row("lognormal", Lognormal(0.7), "exact", LognormalPrior(2.0), limit=Lognormal(1e-6), limit_is="softmax"),
    Row(
        "lognormal, softmax anchor",
        Lognormal(0.7, anchor="softmax"),
        "exact",
        prior=LognormalPrior(2.0, location="log_psi"),
        limit=Lognormal(1e-6, anchor="softmax"),
        limit_is="softmax",
    ),
    Row("gumbel", GumbelSoftmax(0.7), "exact", Categorical(), limit=GumbelSoftmax(1e-6), limit_is="one-hot"),
    Row(
        "straight-through gumbel",
        StraightThroughGumbel(0.7),
        "straight-through",
        prior=Categorical(),
        limit=StraightThroughGumbel(5.0),
        limit_is="one-hot",
    ),
    Row("dirichlet, prior of keys", Dirichlet(), "implicit", prior=DirichletPrior(0.5)),
    Row("dirichlet prior", DirichletPrior(2.0), "implicit"),
    Row("gamma prior", GammaPrior(2.0), "implicit"),
    Row("gamma prior, psi * rate", GammaPrior(0.5, concentration="psi_rate"), "implicit"),
    Row("lognormal prior, psi", LognormalPrior(0.7), "exact", plug_in_is_softmax=False),
    Row("lognormal prior, log psi", LognormalPrior(0.7, location="log_psi"), "exact"),
]


@dataclass(frozen=True)
class Setting:
    """Scores on a support, some of whose sets are empty."""

    name: str
    support: Support
    scores: Tensor
    other_scores: Tensor

    def make(self, family: Family | PriorFamily, scores: Tensor | None = None):
        return family(self.scores if scores is None else scores, self.support)

    @property
    def is_inside(self) -> Tensor:
        """(*scores) bool."""
        return self.support.fill_outside(torch.ones_like(self.scores), 0.0) > 0

    @property
    def is_empty(self) -> Tensor:
        """(*unit) bool."""
        return self.support.sum(torch.ones_like(self.scores)) == 0


def _settings() -> dict[str, Setting]:
    case: Problem = problem()
    scores = random_scores(HEADS, *case.mask.shape, seed=1, scale=1.0)
    other = random_scores(HEADS, *case.mask.shape, seed=2, scale=1.0)
    # What stands at padded positions must not matter, so it is absurd.
    dense = Setting("dense", case.dense, _spoilt(scores, case.mask), _spoilt(other, case.mask))
    segments = Setting("segments", case.segments, case.to_edges(scores), case.to_edges(other))
    return {"dense": dense, "segments": segments}


def _spoilt(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, 50.0)


SETTINGS = _settings()


def padded(setting: Setting, scores: Tensor) -> tuple[Tensor, Support]:
    """The same sets with more padding: columns and rows behind a mask, or edges of further nodes."""
    if isinstance(setting.support, Segments):
        old = setting.support
        extra = torch.tensor([old.num_segments, old.num_segments + 1, old.num_segments])
        support = Segments(torch.cat([old.index, extra]), old.num_segments + 3)
        return torch.cat([scores, scores.new_full((3, scores.shape[1]), 0.5)]), support
    mask = setting.support.mask
    wide = torch.zeros(mask.shape[0] + 2, mask.shape[1] + 3, dtype=torch.bool)
    wide[: mask.shape[0], : mask.shape[1]] = mask
    return torch.nn.functional.pad(scores, (0, 3, 0, 2), value=-30.0), Dense(wide)


def without_padding(setting: Setting, x: Tensor) -> Tensor:
    """(..., *scores) of `padded` back to the shape of the setting."""
    if isinstance(setting.support, Segments):
        return x[..., : setting.scores.shape[0], :]
    return x[..., : setting.scores.shape[-2], : setting.scores.shape[-1]]


def units_without_padding(setting: Setting, x: Tensor) -> Tensor:
    """(..., *unit) of `padded` back to the units of the setting."""
    if isinstance(setting.support, Segments):
        return x[..., : setting.support.num_segments, :]
    return x[..., : setting.scores.shape[-2]]


Maker = Callable[[Tensor], Tensor]
