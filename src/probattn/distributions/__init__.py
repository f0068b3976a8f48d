"""Distributions over weights and vectors, their KL divergences, and the families that make them from scores."""

from probattn.distributions.base import VectorDistribution, WeightsDistribution
from probattn.distributions.code_choice import CodeChoice
from probattn.distributions.code_delta import CodeDelta
from probattn.distributions.concrete import Concrete, StraightThroughConcrete
from probattn.distributions.dirichlet import MaskedDirichlet
from probattn.distributions.families import (
    Anchor,
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
from probattn.distributions.gaussian import DiagonalGaussian
from probattn.distributions.kl import has_kl, kl, kl_entries, register_kl, register_kl_entries
from probattn.distributions.normalised import NormalisedGamma, NormalisedLognormal, NormalisedWeibull
from probattn.distributions.one_hot import MaskedOneHot

__all__ = [
    "Anchor",
    "Categorical",
    "CodeChoice",
    "CodeDelta",
    "Concrete",
    "DiagonalGaussian",
    "Dirichlet",
    "DirichletPrior",
    "Family",
    "GammaPrior",
    "GumbelSoftmax",
    "Lognormal",
    "LognormalPrior",
    "MaskedDirichlet",
    "MaskedOneHot",
    "NormalisedGamma",
    "NormalisedLognormal",
    "NormalisedWeibull",
    "PriorFamily",
    "StraightThroughConcrete",
    "StraightThroughGumbel",
    "VectorDistribution",
    "Weibull",
    "WeightsDistribution",
    "has_kl",
    "kl",
    "kl_entries",
    "register_kl",
    "register_kl_entries",
]
