"""Priors and posteriors before their sizes are known: a YAML row names the kind, the sizes are filled in later."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from probattn.core import Unit
from probattn.distributions import Family, PriorFamily
from probattn.nn import (
    Bilinear,
    BiLSTM,
    Conditional,
    Fixed,
    FromContext,
    FromScores,
    GaussianHead,
    InferenceNetwork,
    KeyPrior,
    MeanMemory,
    Site,
    StandardNormal,
    Uniform,
)


@dataclass(frozen=True)
class Sizes:
    """Widths that a conditional may need."""

    keys: int
    """Features of one key of one head."""
    heads: int | None = None
    """Heads that have parameters of their own; null where there is one, or where they share."""
    embedding: int = 0
    """Of source and target words, for inference networks."""
    dropout: float = 0.0
    """Of inference networks with several layers."""
    latent: int = 0
    """Of a vector-valued draw: a code, or a context as wide as the values."""


class ConditionalBlueprint(ABC):
    """Builds a prior or a posterior for given sizes."""

    @abstractmethod
    def build(self, sizes: Sizes) -> Conditional:
        """The module."""


@dataclass(frozen=True)
class Scores(ConditionalBlueprint):
    """The attention scores as a distribution (`FromScores`)."""

    family: Family

    def build(self, sizes: Sizes) -> FromScores:
        """The module."""
        return FromScores(self.family)


@dataclass(frozen=True)
class Constant(ConditionalBlueprint):
    """The same prior everywhere (`Fixed`)."""

    family: PriorFamily
    psi: float

    def build(self, sizes: Sizes) -> Fixed:
        """The module."""
        return Fixed(self.family, self.psi)


@dataclass(frozen=True)
class Keys(ConditionalBlueprint):
    """A contextual prior from the keys (`KeyPrior`)."""

    family: PriorFamily
    hidden_dim: int = 5
    normalises: Literal["memory", "set"] = "memory"
    scale: float = 1.0
    detaches_keys: bool = False

    def build(self, sizes: Sizes) -> KeyPrior:
        """The module."""
        return KeyPrior(
            sizes.keys,
            self.family,
            hidden_dim=self.hidden_dim,
            num_heads=sizes.heads,
            normalises=self.normalises,
            scale=self.scale,
            detaches_keys=self.detaches_keys,
        )


@dataclass(frozen=True)
class Alike(ConditionalBlueprint):
    """All positions of a set alike (`Uniform`)."""

    family: PriorFamily

    def build(self, sizes: Sizes) -> Uniform:
        """The module."""
        return Uniform(self.family)


@dataclass(frozen=True)
class SourceAndTarget(ConditionalBlueprint):
    """An inference network: biLSTMs of its own over source and target, a bilinear score (Deng et al., Sec. 4)."""

    family: Family
    num_layers: int = 1

    def build(self, sizes: Sizes) -> InferenceNetwork:
        """The module."""

        def encoder() -> BiLSTM:
            return BiLSTM(sizes.embedding, sizes.keys // 2, num_layers=self.num_layers, dropout=sizes.dropout)

        score = Bilinear(sizes.keys, sizes.keys)
        return InferenceNetwork(score, self.family, target_encoder=encoder(), memory_encoder=encoder())


@dataclass(frozen=True)
class Normal(ConditionalBlueprint):
    """N(0, 1) (`StandardNormal`)."""

    def build(self, sizes: Sizes) -> StandardNormal:
        """The module."""
        return StandardNormal(sizes.latent)


@dataclass(frozen=True)
class AverageMemory(ConditionalBlueprint):
    """N(mean of the memory, 1) (`MeanMemory`; Bahuleyan et al., Sec. 3.2)."""

    def build(self, sizes: Sizes) -> MeanMemory:
        """The module."""
        return MeanMemory()


@dataclass(frozen=True)
class SoftContext(ConditionalBlueprint):
    """N(expected context, sigma²) (`FromContext`; Bahuleyan et al., Sec. 3.3)."""

    def build(self, sizes: Sizes) -> FromContext:
        """The module."""
        return FromContext(sizes.latent)


@dataclass(frozen=True)
class Gaussian(ConditionalBlueprint):
    """N(linear, exp(linear)) of an encoding (`GaussianHead`)."""

    def build(self, sizes: Sizes) -> GaussianHead:
        """The module."""
        return GaussianHead(sizes.keys, sizes.latent)


@dataclass(frozen=True)
class SiteBlueprint:
    """A site before its sizes are known."""

    prior: ConditionalBlueprint | None
    """p; null for no KL."""
    posterior: ConditionalBlueprint | None = None
    """q; null for q = p."""
    predictive: Literal["prior", "posterior"] | None = None
    """Which one predicts; null for the site's own rule."""
    unit: Unit = "step"
    """What a draw belongs to."""
    feeds_state: bool = False
    """Whether the draw enters the recurrence."""

    def build(self, name: str, sizes: Sizes) -> Site:
        """The site."""
        return Site(
            name,
            prior=None if self.prior is None else self.prior.build(sizes),
            posterior=None if self.posterior is None else self.posterior.build(sizes),
            predictive=self.predictive,
            unit=self.unit,
            feeds_state=self.feeds_state,
        )
