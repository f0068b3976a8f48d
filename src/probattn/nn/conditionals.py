"""Priors and posteriors as modules: everything that was given in, a distribution out.

`needs` says which optional parts of `Given` a conditional reads. It is checked when a site is built: a posterior that
reads the target cannot be the predictive distribution, and a prior that reads the value is evaluated after the draw.

Size letters: B examples, T steps, S positions, H heads, D features.
"""

import math
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from probattn.core.arguments import require_choice
from probattn.core.checks import require_finite
from probattn.core.records import Given, Memory
from probattn.core.support import Dense, Segments, Support
from probattn.distributions import Family, PriorFamily
from probattn.distributions.base import at_least_float32
from probattn.kernels import SetPrior
from probattn.nn.encoders import SequenceEncoder
from probattn.nn.learnt import HoldsFamily
from probattn.nn.scores import Score

__all__ = [
    "Conditional",
    "Fixed",
    "FromScores",
    "InferenceNetwork",
    "KeyPrior",
    "Uniform",
]


class Conditional(HoldsFamily):
    """Base of priors and posteriors.

    A subclass with a `forward` of its own is another law: what its base says in `for_queries`, `of_keys` and
    `over_sets` is not about it, and is not inherited.

    Attributes:
        needs: Subset of {"target", "value"} that `forward` reads.
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "forward" in vars(cls):
            for name in ("for_queries", "of_keys", "over_sets"):
                if name not in vars(cls):
                    setattr(cls, name, getattr(Conditional, name))
        if not isinstance(cls.needs, frozenset | set) or not cls.needs <= {"target", "value"}:
            raise TypeError(
                f"{cls.__name__}.needs is a set of 'target' (what is predicted) and 'value' (the draw), e.g. "
                f"frozenset({{'target'}}); got {cls.needs!r}"
            )

    def forward(self, given: Given) -> Distribution:
        """The distribution."""
        raise NotImplementedError(f"{type(self).__name__} has no `forward` that gives a distribution")

    def for_queries(self, given: Given) -> Distribution:
        """The distribution to draw from: as `forward`, but one for each query where that has one for all of them."""
        distribution: Distribution = self(given)
        return distribution

    def of_keys(self, memory: Memory, *, is_shared: bool) -> Distribution | None:
        """The same distribution as one row for all queries, for kernels that make no scores.

        Args:
            memory: Its support has one row: the keys that any query may see.
            is_shared: Whether all queries see the same keys.

        Returns:
            Parameters (*lead, 1, S) or what broadcasts to it; None where queries differ or scores are read.
        """
        return None

    def over_sets(self, memory: Memory) -> SetPrior | None:
        """One logit for each key, (*lead, S), where Psi is their softmax over the keys that a query sees; else None.

        Args:
            memory: As for `of_keys`.
        """
        return None


class FromScores(Conditional):
    """The attention scores, read as a distribution: Deng et al.'s prior, BAM's posterior.

    Args:
        family: How scores become a distribution.
    """

    def __init__(self, family: Family):
        super().__init__()
        self.family = family

    def forward(self, given: Given) -> Distribution:
        """The family's distribution at `given.scores`."""
        return self.distribution(self.family, given)

    @staticmethod
    def distribution(family: Family, given: Given) -> Distribution:
        """The distribution of a family at `given.scores`, without a module."""
        scores = require_given(given.scores, "FromScores", "scores")
        require_finite_scores(scores, given.memory.support, "attention scores")
        return family(scores, given.memory.support)


class Fixed(Conditional):
    """The same prior everywhere, with one constant for all keys (BAM's WF and LF).

    Args:
        family: GammaPrior or LognormalPrior.
        psi: The constant: alpha of a Gamma; exp(mu) with `location="log_psi"`, mu with `location="psi"` of a lognormal.
    """

    def __init__(self, family: PriorFamily, psi: float):
        super().__init__()
        if not psi > 0.0:
            raise ValueError(f"Fixed(psi) must be positive, got {psi}")
        self.family = family
        self.psi = psi

    def forward(self, given: Given) -> Distribution:
        """The constant prior, in the shape of the scores."""
        scores = require_given(given.scores, "Fixed", "scores")
        log_psi = torch.full_like(scores, self.psi, dtype=torch.promote_types(scores.dtype, torch.float32)).log()
        return self.family(log_psi.detach(), given.memory.support)

    def of_keys(self, memory: Memory, *, is_shared: bool) -> Distribution:
        """See `Conditional.of_keys`."""
        keys = memory.keys
        dtype = torch.promote_types(keys.dtype, torch.float32)
        log_psi = torch.full((1, keys.shape[-2]), self.psi, dtype=dtype, device=keys.device).log()
        return self.family(log_psi, memory.support)


class Uniform(Conditional):
    """Every position of an attended set alike: Psi = 1 / size of the set, for a fixed prior that knows degrees.

    Args:
        family: GammaPrior or LognormalPrior.
    """

    def __init__(self, family: PriorFamily):
        super().__init__()
        self.family = family

    def forward(self, given: Given) -> Distribution:
        """The prior, in the shape of the scores."""
        scores, support = require_given(given.scores, "Uniform", "scores"), given.memory.support
        zeros = torch.zeros_like(scores, dtype=torch.promote_types(scores.dtype, torch.float32))
        return self.family(support.log_softmax(zeros.detach()), support)

    def of_keys(self, memory: Memory, *, is_shared: bool) -> Distribution | None:
        """See `Conditional.of_keys`."""
        if not is_shared:
            return None
        keys = memory.keys
        zeros = torch.zeros(1, keys.shape[-2], dtype=torch.promote_types(keys.dtype, torch.float32), device=keys.device)
        return self.family(memory.support.log_softmax(zeros), memory.support)

    def over_sets(self, memory: Memory) -> SetPrior:
        """See `Conditional.over_sets`."""
        return SetPrior(torch.zeros(memory.keys.shape[-2], device=memory.keys.device), self.family)


class KeyPrior(Conditional):
    """Contextual prior (BAM, Sec. 3.3): Psi = softmax over keys of F2(relu(F1(keys))), shared by all queries.

    Args:
        key_dim: Width of one key.
        family: GammaPrior or LognormalPrior; it says how Psi becomes a prior.
        hidden_dim: The paper's d_mid (1 to 20).
        num_heads: None: all heads share F1 and F2 ("per layer"). A number: each head has its own ("per head"); keys
            are then (B, H, S, D) on a Dense support and (N, H, D) on Segments.
        normalises: Over which keys the softmax runs: "memory" takes all of them (the paper; on a graph Psi then is of
            size 1 / N), "set" those that a query may see, where Psi is of the size of attention weights.
        scale: Psi is multiplied by it. With N / (mean size of a set), a Psi over the memory is, in the mean, of the
            size of attention weights.
        detaches_keys: Keep the prior's gradient from the keys, so that a KL cannot move what they are made from. The
            paper's code lets it through.
    """

    def __init__(
        self,
        key_dim: int,
        family: PriorFamily,
        *,
        hidden_dim: int = 5,
        num_heads: int | None = None,
        normalises: Literal["memory", "set"] = "memory",
        scale: float = 1.0,
        detaches_keys: bool = False,
    ):
        super().__init__()
        if not scale > 0.0:
            raise ValueError(f"KeyPrior(scale) must be positive, got {scale}")
        require_choice("KeyPrior(normalises)", normalises, ("memory", "set"))
        self.normalises = normalises
        self.scale = scale
        self.detaches_keys = detaches_keys
        heads = 1 if num_heads is None else num_heads
        self.family = family
        self.num_heads = num_heads
        self.hidden_weight = nn.Parameter(torch.empty(heads, key_dim, hidden_dim))
        self.hidden_bias = nn.Parameter(torch.empty(heads, hidden_dim))
        self.out_weight = nn.Parameter(torch.empty(heads, hidden_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """New initial weights, as torch's layers have it."""
        nn.init.xavier_uniform_(self.hidden_weight)
        nn.init.zeros_(self.hidden_bias)
        nn.init.xavier_uniform_(self.out_weight)

    def forward(self, given: Given) -> Distribution:
        """The prior at `given.memory.keys`."""
        return self.family(self._log_psi(given.memory), given.memory.support)

    def for_queries(self, given: Given) -> Distribution:
        """See `Conditional.for_queries`."""
        log_psi = self._log_psi(given.memory)
        return self.family(log_psi if given.scores is None else log_psi.expand_as(given.scores), given.memory.support)

    def of_keys(self, memory: Memory, *, is_shared: bool) -> Distribution | None:
        """See `Conditional.of_keys`."""
        if self.normalises == "set" and not is_shared:
            return None
        distribution: Distribution = self(Given(memory=memory))
        return distribution

    def over_sets(self, memory: Memory) -> SetPrior | None:
        """See `Conditional.over_sets`."""
        keys = memory.keys.detach() if self.detaches_keys else memory.keys
        return SetPrior(self.logits(keys), self.family, self.scale) if self.normalises == "set" else None

    def _log_psi(self, memory: Memory) -> Tensor:
        support, keys = memory.support, memory.keys.detach() if self.detaches_keys else memory.keys
        logits = at_least_float32(self.logits(keys, head_axis=-2 if isinstance(support, Segments) else -3))
        log_psi = support.set_log_softmax(logits) if self.normalises == "set" else support.key_log_softmax(logits)
        return log_psi + math.log(self.scale)

    def logits(self, keys: Tensor, *, head_axis: int = -3) -> Tensor:
        """One number per key, before the softmax: (*lead, S, D) gives (*lead, S); (N, H, D) gives (N, H).

        Args:
            keys: (*lead, S, D), or (N, H, D) on Segments.
            head_axis: Where the heads are, if each has its own network: -3 on Dense, -2 on Segments.
        """
        if keys.shape[-1] != self.hidden_weight.shape[1]:
            raise ValueError(
                f"KeyPrior(key_dim={self.hidden_weight.shape[1]}) got keys of shape {tuple(keys.shape)}; key_dim is "
                "the width of one key, with several heads that of a head"
            )
        if self.num_heads is None:
            hidden = torch.relu(keys @ self.hidden_weight[0] + self.hidden_bias[0])
            return (hidden * self.out_weight[0]).sum(dim=-1)
        if keys.dim() < 3 or keys.shape[head_axis] != self.num_heads:
            raise ValueError(
                f"KeyPrior(num_heads={self.num_heads}) expects keys with {self.num_heads} heads on axis {head_axis}, "
                f"got keys of shape {tuple(keys.shape)}"
            )
        keys = keys.movedim(head_axis, -2)  # (*lead, S, H, D) or (N, H, D)
        # products with block-diagonal matrices: on a CPU they are faster than a small one for every head
        first = torch.block_diag(*self.hidden_weight)  # (H * D, H * M)
        second = torch.block_diag(*self.out_weight.unsqueeze(-1))  # (H * M, H)
        hidden = nn.functional.linear(keys.flatten(-2), first.T, self.hidden_bias.flatten()).relu_()  # (..., H * M)
        logits: Tensor = (hidden @ second).movedim(-1, head_axis + 1)
        return logits


class InferenceNetwork(Conditional):
    """q(z | x, y): scores between encoded target and memory, read as a distribution (Deng et al., Sec. 4).

    Args:
        score: Between encoded targets and encoded memory, e.g. Bilinear.
        family: How scores become a distribution.
        target_encoder: Module from `given.target` to (B, T, D); position t must see the target of step t. A
            SequenceEncoder is also given the masks of padded steps and positions.
        memory_encoder: Module from the memory's inputs (its keys where it has none) to the keys of this network;
            identity by default.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"target"})

    def __init__(
        self,
        score: Score,
        family: Family,
        *,
        target_encoder: nn.Module | None = None,
        memory_encoder: nn.Module | None = None,
    ):
        super().__init__()
        self.score = score
        self.family = family
        self.target_encoder = nn.Identity() if target_encoder is None else target_encoder
        self.memory_encoder = nn.Identity() if memory_encoder is None else memory_encoder

    def forward(self, given: Given) -> Distribution:
        """The posterior. Raises if there is no target: at test time use the site's predictive distribution."""
        target = require_given(given.target, "InferenceNetwork", "target")
        memory = given.memory
        source = memory.keys if memory.inputs is None else memory.inputs
        keys = _encode(self.memory_encoder, source, _memory_mask(memory))
        encoded = Memory(keys=keys, values=memory.values, support=memory.support)
        scores = self.score(_encode(self.target_encoder, target, given.mask), encoded)
        require_finite_scores(scores, memory.support, "scores of the inference network")
        return self.family(scores, memory.support)


def require_finite_scores(scores: Tensor, support: Support, name: str) -> None:
    """Raise where a score inside the support is NaN or infinite; what stands outside does not matter.

    Args:
        scores: (*unit, S) or (E, H).
        support: Which positions compete.
        name: How the scores are called in the message.
    """
    advice = (
        "Look for a NaN or an infinity in what they are made from, for a learning rate that is too large, or for "
        "half-precision scores above 65504. To forbid a position, mask it in the support."
    )
    require_finite(support.fill_outside(scores.detach(), 0.0), name, advice)


def _encode(encoder: nn.Module, x: Tensor, mask: Tensor | None) -> Tensor:
    encoded: Tensor = encoder(x, mask) if isinstance(encoder, SequenceEncoder) else encoder(x)
    return encoded


def _memory_mask(memory: Memory) -> Tensor | None:
    """(B, S) positions that any query may see, for memories without heads; None: all of them."""
    mask = memory.support.mask if isinstance(memory.support, Dense) else None
    if mask is None or memory.keys.dim() != 3:
        return None
    is_seen = mask if mask.dim() < 2 else mask.any(dim=-2)
    return is_seen.expand(memory.keys.shape[:-1])


def require_given(tensor: Tensor | None, who: str, what: str) -> Tensor:
    """The tensor, or an error that says who needs what."""
    if tensor is None:
        raise ValueError(f"{who} reads Given.{what}, which is absent; pass it to the site, or use another conditional")
    return tensor
