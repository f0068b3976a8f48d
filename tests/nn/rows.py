"""The rows of the papers' tables that concern attention, as configurations of one toy model.

A row is a choice of sites, estimators and a bound; the model knows none of them.

Sizes: B examples, T steps, S positions, D features, V classes, K particles.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from probattn.core import (
    Bound,
    Dense,
    Elbo,
    Enumerate,
    Estimator,
    Evaluation,
    ImportanceWeighted,
    Marginal,
    Mean,
    Memory,
    NoBaseline,
    Pathwise,
    ScoreFunction,
    TopKAndSample,
    WakeSleep,
)
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
from probattn.nn import (
    Attention,
    AttentionOutput,
    Bilinear,
    Fixed,
    FromContext,
    FromScores,
    InferenceNetwork,
    KeyPrior,
    MeanMemory,
    Site,
    StandardNormal,
)

__all__ = ["ROWS", "Batch", "Row", "Toy", "make_batch"]

B, T, S, D, V = 4, 2, 5, 8, 4


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        estimators: By site.
        bound: What is maximised.
        weights: Makes the site of the weights, or None.
        context: Makes the site of the context, or None.
        kl_weights: Of the sites in the loss.
    """

    estimators: Mapping[str, Estimator]
    bound: Bound = field(default_factory=Elbo)
    weights: Callable[[], Site | None] = lambda: None
    context: Callable[[], Site | None] = lambda: None
    kl_weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Batch:
    """Examples whose targets can be told from one of the values.

    Attributes:
        query: (B, T, D).
        memory: Of S positions, padded differently in each example.
        target: (B, T) classes.
        mask: (B, T) real steps.
    """

    query: Tensor
    memory: Memory
    target: Tensor
    mask: Tensor


class Toy(nn.Module):
    """Scores, context, linear readout."""

    def __init__(self, row: Row):
        super().__init__()
        self.embed = nn.Embedding(V, D)
        self.attention = Attention(Bilinear(D, D), weights=row.weights(), context=row.context())
        self.readout = nn.Linear(D, V)

    def attend(self, batch: Batch, estimators: Mapping[str, Estimator], *, use_target: bool = True) -> AttentionOutput:
        target = self.embed(batch.target) if use_target else None
        return self.attention(batch.query, batch.memory, estimators=estimators, target=target)

    def forward(self, batch: Batch, estimators: Mapping[str, Estimator], *, use_target: bool = True) -> Evaluation:
        output = self.attend(batch, estimators, use_target=use_target)
        log_probs = self.readout(output.context).log_softmax(dim=-1)  # (K, B, T, V)
        index = batch.target.expand(log_probs.shape[:-1]).unsqueeze(-1)
        log_lik = log_probs.gather(-1, index).squeeze(-1).masked_fill(~batch.mask, 0.0)
        return Evaluation(log_lik, output.latents, mask=batch.mask)


def make_batch() -> Batch:
    generator = torch.Generator().manual_seed(0)
    query, keys, values = (torch.randn(B, n, D, generator=generator) for n in (T, S, S))
    lengths = torch.tensor([5, 4, 5, 3])
    support = Dense((torch.arange(S) < lengths.unsqueeze(-1)).unsqueeze(1))
    target = torch.randint(V, (B, T), generator=generator)
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[3, 1] = False
    return Batch(query, Memory(keys=keys, values=values, support=support), target, mask)


def _latent(prior: Family, posterior: Family | None = None) -> Callable[[], Site]:
    """Deng et al.: the scores are the prior, an inference network is the posterior; without one, q = p."""

    def build() -> Site:
        network = None if posterior is None else InferenceNetwork(Bilinear(D, D), posterior)
        return Site("weights", prior=FromScores(prior), posterior=network)

    return build


def _bayesian(posterior: Family, prior: Callable[[], nn.Module] | None) -> Callable[[], Site]:
    """BAM: the scores are the posterior, the prior is fixed, contextual, or absent."""
    return lambda: Site("weights", prior=None if prior is None else prior(), posterior=FromScores(posterior))


def _random_context(prior: Callable[[], nn.Module]) -> Callable[[], Site]:
    """Bahuleyan et al.: the context is Gaussian around the soft context."""
    return lambda: Site("context", prior=prior(), posterior=FromContext(D))


def _weights(estimator: Estimator) -> dict[str, Estimator]:
    return {"weights": estimator}


_HARD, _NO_BASELINE, _WEAK = Categorical(), NoBaseline(), {"weights": 1e-2}
_WEIBULL, _LOGNORMAL = Weibull(10.0), Lognormal(0.1)

ROWS = {
    "soft": Row(_weights(Mean()), weights=_latent(_HARD)),
    "marginal": Row(_weights(Enumerate()), Marginal(), _latent(_HARD)),
    "marginal-k-max": Row(_weights(Enumerate(top_k=2)), Marginal(), _latent(_HARD)),
    "hard-enum": Row(_weights(Enumerate()), weights=_latent(_HARD)),
    "hard-sample": Row(_weights(ScoreFunction()), weights=_latent(_HARD)),
    "variational-enum": Row(_weights(Enumerate()), weights=_latent(_HARD, _HARD)),
    "variational-sample": Row(_weights(ScoreFunction()), weights=_latent(_HARD, _HARD)),
    "top-k-and-sample": Row(_weights(TopKAndSample(2)), weights=_latent(_HARD, _HARD)),
    "gumbel": Row(_weights(Pathwise()), weights=_latent(_HARD, GumbelSoftmax(0.5))),
    "straight-through": Row(_weights(Pathwise()), weights=_latent(_HARD, StraightThroughGumbel(1.0))),
    "importance-weighted": Row(_weights(ScoreFunction(5, _NO_BASELINE)), ImportanceWeighted(), _latent(_HARD, _HARD)),
    "wake-sleep": Row(_weights(ScoreFunction(5, _NO_BASELINE)), WakeSleep(), _latent(_HARD, _HARD)),
    "relaxed-dirichlet-stage-1": Row(_weights(Pathwise()), weights=_latent(Dirichlet())),
    "relaxed-dirichlet": Row(_weights(Pathwise()), weights=_latent(Dirichlet(), Dirichlet())),
    "relaxed-logistic-normal": Row(_weights(Pathwise()), weights=_latent(Lognormal(1.0), Lognormal(1.0))),
    "relaxed-importance-weighted": Row(_weights(Pathwise(5)), ImportanceWeighted(), _latent(Dirichlet(), Dirichlet())),
    "WF": Row(
        _weights(Pathwise()), weights=_bayesian(_WEIBULL, lambda: Fixed(GammaPrior(rate=1.0), 1.0)), kl_weights=_WEAK
    ),
    "LF": Row(
        _weights(Pathwise()), weights=_bayesian(_LOGNORMAL, lambda: Fixed(LognormalPrior(), 1.0)), kl_weights=_WEAK
    ),
    "WC": Row(_weights(Pathwise()), weights=_bayesian(_WEIBULL, lambda: KeyPrior(D, GammaPrior())), kl_weights=_WEAK),
    "LC": Row(
        _weights(Pathwise()), weights=_bayesian(_LOGNORMAL, lambda: KeyPrior(D, LognormalPrior())), kl_weights=_WEAK
    ),
    "WC-softmax": Row(
        _weights(Pathwise()),
        weights=_bayesian(Weibull(10.0, anchor="softmax"), lambda: KeyPrior(D, GammaPrior(concentration="psi_rate"))),
        kl_weights=_WEAK,
    ),
    "no-KL": Row(_weights(Pathwise()), weights=_bayesian(_WEIBULL, None)),
    "VAttn-0": Row(
        {"context": Pathwise()}, context=_random_context(lambda: StandardNormal(D)), kl_weights={"context": 0.1}
    ),
    "VAttn-mean": Row({"context": Pathwise()}, context=_random_context(MeanMemory), kl_weights={"context": 0.1}),
    "two-sites": Row(
        {"weights": Pathwise(), "context": Pathwise()},
        weights=_bayesian(_WEIBULL, lambda: KeyPrior(D, GammaPrior())),
        context=_random_context(MeanMemory),
        kl_weights={"weights": 1e-2, "context": 0.1},
    ),
}
