"""The plain data that sites, estimators and bounds hand to each other.

Every record is a frozen dataclass of tensors, so that it survives `torch.compile`, activation checkpointing and data
parallelism.

Size letters: K particles, B examples, T steps (queries), S positions of the memory, D features. `*unit` is the shape
of the independent random variables of a site, e.g. (B, T) for one alignment per step, (B,) for one code per sentence.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

if TYPE_CHECKING:  # a type only: support.py reads `Draw`
    from probattn.core.support import Support

__all__ = ["Draw", "Evaluation", "Given", "Latent", "Memory", "Terms", "Unit"]

Unit = Literal["step", "example"]
"""What one random variable belongs to: a step of the output, or a whole example."""


@dataclass(frozen=True)
class Memory:
    """What is attended to.

    Attributes:
        keys: (*lead, S, D) on a Dense support, (N, H, D) on Segments.
        values: (*lead, S, Dv), or (N, H, Dv).
        support: Which positions compete.
        inputs: What the keys were encoded from, e.g. word embeddings, for inference networks that encode it anew.
    """

    keys: Tensor
    values: Tensor
    support: "Support"
    inputs: Tensor | None = None


@dataclass(frozen=True)
class Given:
    """Everything a prior or a posterior may look at.

    Attributes:
        memory: What is attended to.
        query: (*unit, D).
        scores: (*unit, S), as the score function gives them; the support masks them.
        context: (*unit, Dv), the expected context.
        target: What is to be predicted, in the form the inference network reads. Only while training.
        value: The draw itself, for autoregressive priors.
        mask: (*unit) bool, False for padded units of a vector-valued site.
    """

    memory: Memory
    query: Tensor | None = None
    scores: Tensor | None = None
    context: Tensor | None = None
    target: Tensor | None = None
    value: Tensor | None = None
    mask: Tensor | None = None


@dataclass(frozen=True)
class Draw:
    """K weighted particles of one random variable; K is always dimension 0.

    One-hot particles are kept as positions (`index`), so that only their branches are computed. A draw may hold both:
    the particles of `index` come first, those of `value` after them (a soft baseline behind hard samples).

    Attributes:
        value: (K, *unit, *event), or None.
        index: (K, *unit) positions of one-hot particles, or None.
        log_weight: (K, *unit). -inf marks a particle that carries no weight, e.g. the baseline.
        log_posterior: (K, *unit) log q(draw). Every sampled or enumerated draw has both; importance weights and
            wake-sleep need nothing else.
        log_prior: (K, *unit) log p(draw).
        score: (K, *unit) the log-probability that a score-function term differentiates; None where gradients flow
            through `value` or `log_weight` alone.
        baseline_mixing: (K, K): row k makes the baseline of particle k from all particles' log-likelihoods.
        baseline_offset: Scalar or (*unit), added to it.
        has_baseline: The last particle is a baseline, not a sample.
        is_enumerated: The particles are positions taken in order of weight, not samples.
        is_renormalised: They are not all positions, and their weights were made to sum to one.
        is_truncated: They are not all positions, and the others are left out.
    """

    value: Tensor | None
    index: Tensor | None
    log_weight: Tensor
    log_posterior: Tensor | None = None
    log_prior: Tensor | None = None
    score: Tensor | None = None
    baseline_mixing: Tensor | None = None
    baseline_offset: Tensor | None = None
    has_baseline: bool = False
    is_enumerated: bool = False
    is_renormalised: bool = False
    is_truncated: bool = False

    @property
    def num_particles(self) -> int:
        """K, the baseline included."""
        return self.log_weight.shape[0]


@dataclass(frozen=True)
class Latent:
    """The receipt of one visit to one site.

    Attributes:
        name: The site's name; KL weights are looked up by it.
        unit: What one random variable belongs to.
        feeds_state: Whether the draw enters the recurrence, so that it can change later steps.
        draw: The particles.
        kl: (*unit) KL(q || p) in nats, never reduced. Zero where q = p or where there is no prior.
        seed: () the seed of all noise of this visit; the site can replay it.
        kl_terms: (*unit, *factor) where a site was asked to keep them, for free bits.
        kl_terms_mask: (*unit, *factor) bool, False for terms of padded positions, which have no floor; None for a
            vector, which has no positions.
        example: (first size of *unit) example of each unit; None: the first axis of *unit is that of the rows of the
            log-likelihood, or, where its size is another, that of the examples.
        penalties: Further losses of the posterior, e.g. a commitment loss, each (*unit).
        mask: (*unit) bool, False for padded units, whose KL has no floor; None where none is padded, or where
            the bound's mask says it.
    """

    name: str
    unit: Unit
    feeds_state: bool
    draw: Draw
    kl: Tensor
    seed: Tensor
    kl_terms: Tensor | None = None
    kl_terms_mask: Tensor | None = None
    example: Tensor | None = None
    penalties: Mapping[str, Tensor] = field(default_factory=dict)
    mask: Tensor | None = None


@dataclass(frozen=True)
class Evaluation:
    """What a model hands to a bound.

    Attributes:
        log_lik: (K, B, *steps) log-likelihood of the target under each particle, zero on padded steps.
        latents: The receipts of all sites that were visited.
        mask: (B, *steps) bool, True where the target is real; KLs and weights of `step` latents elsewhere do not count.
        example: (B) example of each row, where a row is not an example of its own (nodes of a graph).
        num_examples: Number of examples; B by default.
    """

    log_lik: Tensor
    latents: Sequence[Latent] = ()
    mask: Tensor | None = None
    example: Tensor | None = None
    num_examples: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.latents, Latent):
            raise TypeError("Evaluation(latents) is a sequence of receipts, got a single one; put it into a list")


@dataclass(frozen=True)
class Terms:
    """What a bound gives back: nats per example, never averaged.

    Attributes:
        loss: (B) surrogate to differentiate. Its value is not the bound: score-function terms, free bits, KL weights
            and penalties enter it.
        cost: (B) the part of the loss that is KL and penalties, with their weights and free bits; differentiable, so
            that its gradient can be held against the likelihood's.
        bound: (B) the number to report, with every KL at weight one. Detached.
        log_lik: (B) the likelihood part of the bound. Detached.
        kl: (B) per site. Detached.
        penalties: (B) per site and name. Detached.
    """

    loss: Tensor
    cost: Tensor
    bound: Tensor
    log_lik: Tensor
    kl: Mapping[str, Tensor]
    penalties: Mapping[str, Tensor] = field(default_factory=dict)


def _register(record: type) -> None:
    """Let torch look at the tensors inside a record: models return them through compiled regions and DDP."""
    names = [item.name for item in fields(record)]

    def flatten(instance: Any) -> tuple[list[Any], None]:
        return [getattr(instance, name) for name in names], None

    def unflatten(values: Iterable[Any], context: Any) -> Any:
        return record(**dict(zip(names, values, strict=True)))

    torch.utils._pytree.register_pytree_node(record, flatten, unflatten)


for _record in (Draw, Latent, Evaluation, Terms):
    _register(_record)
