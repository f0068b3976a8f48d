"""Cases of sampled attention, the kernel on them, and the float64 reference that is made of the families themselves.

Size letters: K draws, B batch, H heads, G heads of keys, T queries, S keys, D features, Dv features of a value.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from probattn import Dense, GumbelSoftmax, Lognormal, Weibull
from probattn.core import noise
from probattn.core.noise import uniform
from probattn.distributions import NormalisedGamma, NormalisedLognormal, kl
from probattn.kernels import Dropout, SampledContext, sampled_attention

__all__ = ["Case", "compare", "far_apart", "mask_of", "outcome", "reference"]

SEED, DROPOUT_SEED = torch.tensor(2**62 - 5), torch.tensor(17)
Outcome = dict[str, Tensor]


@dataclass(frozen=True)
class Case:
    """Which attention is computed, on which sizes."""

    family: str | None = "weibull"
    prior: str = "contextual"
    anchor: str = "softmax"
    mask: str = "none"
    dropout: float = 0.0
    is_noisy: bool = True
    draws: int = 1
    batch: int = 2
    heads: int = 2
    key_heads: int = 2
    queries: int = 5
    keys: int = 7
    dim: int = 4
    value_dim: int = 3
    law: float | None = None
    """K or sigma; None: one for each head."""
    size: float = 1.0
    """Standard deviation of the scores."""
    is_whole: bool = False
    """Query and key hold whole numbers."""
    parameter: float = 0.8
    """Beta or sigma of the prior."""

    def leaves(self, dtype: torch.dtype = torch.float32) -> Outcome:
        """What is differentiated, in float32 numbers."""
        random = torch.Generator().manual_seed(1)
        shapes = {
            "query": (self.batch, self.heads, self.queries, self.dim),
            "key": (self.batch, self.key_heads, self.keys, self.dim),
            "value": (self.batch, self.key_heads, self.keys, self.value_dim),
            "log_psi": (self.batch, self.heads, 1, self.keys),
        }
        made = {name: torch.randn(shape, generator=random) for name, shape in shapes.items()}
        made["query"] = made["query"] * self.size
        if self.is_whole:
            made |= {name: (4.0 * made[name]).round() for name in ("query", "key")}
        per_head = 0.7 + torch.rand(self.heads, 1, 1, generator=random)
        made["law"] = per_head if self.law is None else torch.tensor(self.law)
        made["parameter"] = torch.tensor(self.parameter)
        made["log_psi"] = made["log_psi"] if self.prior == "contextual" else torch.full((1,), 0.3)
        return {name: leaf.to(dtype).requires_grad_() for name, leaf in made.items()}

    def laws(self, leaves: Outcome, support: Dense) -> tuple[Any, Any]:
        """Family and prior."""
        if self.family is None:
            return None, None
        if self.family == "gumbel":
            return GumbelSoftmax(0.5 if self.law is None else self.law), None
        kind = Weibull if self.family == "weibull" else Lognormal
        family = kind(leaves["law"], anchor=self.anchor)  # type: ignore[arg-type]
        if self.prior == "none":
            return family, None
        log_psi = leaves["log_psi"].expand(*leaves["log_psi"].shape[:-1], self.keys)
        if self.family == "weibull":
            return family, NormalisedGamma(log_psi.exp(), leaves["parameter"], support=support)
        return family, NormalisedLognormal(log_psi, leaves["parameter"], support=support)

    def attend(self, leaves: Outcome) -> SampledContext:
        """The kernel."""
        return self.attend_masked(leaves, mask_of(self))

    def attend_masked(self, leaves: Outcome, mask: Tensor | None) -> SampledContext:
        """The same with a mask made before, for compilers."""
        family, prior = self.laws(leaves, Dense())
        return sampled_attention(
            leaves["query"],
            leaves["key"],
            leaves["value"],
            family=family,
            prior=prior,
            seed=SEED if self.is_noisy and family is not None else None,
            num_draws=self.draws,
            mask=mask,
            is_causal=self.mask.startswith("causal"),
            dropout=Dropout(self.dropout, DROPOUT_SEED) if self.dropout else None,
        )


def mask_of(case: Case) -> Tensor | None:
    """What is passed as a mask; "empty" ones hide all keys from some queries."""
    sizes = (case.batch, case.heads, case.queries, case.keys)
    random = torch.Generator().manual_seed(3)
    if case.mask in ("none", "causal"):
        return None
    if case.mask in ("padding", "causal-padding", "float-padding"):
        lengths = torch.randint(1, case.keys + 1, (case.batch, 1, 1, 1), generator=random)
        seen = torch.arange(case.keys) < lengths
        return (
            torch.randn(seen.shape, generator=random).masked_fill(~seen, -torch.inf)
            if case.mask == "float-padding"
            else seen
        )
    if case.mask == "left-padding":
        return torch.arange(case.keys).expand(case.batch, 1, 1, -1) >= case.keys // 2
    if case.mask == "heads":
        return torch.rand(case.heads, 1, case.keys, generator=random) < 0.6
    if case.mask == "bool":
        return torch.rand(sizes, generator=random) < 0.5
    if case.mask == "empty":
        seen = torch.rand(sizes, generator=random) < 0.5
        return seen & (torch.arange(case.queries) % 3 > 0).unsqueeze(-1)
    if case.mask == "nothing":
        return torch.zeros(case.keys, dtype=torch.bool)
    bias = torch.randn(sizes if case.mask.startswith("float") else sizes[2:], generator=random)
    if case.mask == "float-empty":
        seen = torch.rand(sizes, generator=random) < 0.5
        bias = bias.masked_fill(~(seen & (torch.arange(case.queries) % 3 > 0).unsqueeze(-1)), -torch.inf)
    return bias


def reference(case: Case, leaves: Outcome) -> Outcome:
    """Context and KL from all scores, in the leaves' dtype, with the noise of float32."""
    group = case.heads // case.key_heads
    key, value = (leaves[name].repeat_interleave(group, dim=1) for name in ("key", "value"))
    scores = leaves["query"] @ key.transpose(-2, -1) / max(1, case.dim) ** 0.5
    mask = mask_of(case)
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool)
    if case.mask.startswith("causal"):
        seen = seen.tril()
    if mask is not None:
        seen = seen & (mask if mask.dtype == torch.bool else mask > -torch.inf)
        scores = scores if mask.dtype == torch.bool else scores + mask.masked_fill(~seen, 0.0).to(scores.dtype)
    support = Dense(seen)
    family, prior = case.laws(leaves, support)
    if family is None:
        weights = support.log_softmax(scores).exp().unsqueeze(0)
    else:
        posterior = family(scores, support)
        weights = posterior.plug_in.unsqueeze(0)
        if case.is_noisy:
            with _numbers_of_float32():
                weights = posterior.realise(posterior.draw_raw(case.draws, SEED))
    if case.dropout:
        kept = uniform(DROPOUT_SEED, (case.draws, *scores.shape), stream=1) >= case.dropout
        weights = weights * kept / (1.0 - case.dropout)
    context = (weights @ value).expand(case.draws, -1, -1, -1, -1)
    return {"context": context, "kl": scores.new_zeros(scores.shape[:-1]) if prior is None else kl(posterior, prior)}


@contextlib.contextmanager
def _numbers_of_float32() -> Iterator[None]:
    """Uniform numbers of float32 where float64 is asked for; what becomes of them is computed in float64."""

    def numbers(seed: Tensor, shape: Any, *, dtype: torch.dtype = torch.float32, **rest: int) -> Tensor:
        return uniform(seed, shape, **rest).to(dtype)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "uniform", numbers)
        yield


def outcome(outputs: Outcome, leaves: Outcome) -> Outcome:
    """Outputs and gradients; the loss weighs every number of every output differently.

    Weights of a KL are positive, so that the gradient of one number for all queries is no sum that cancels.
    """
    random = torch.Generator().manual_seed(2)
    factors = {"context": torch.randn(outputs["context"].shape, generator=random)}
    factors["kl"] = 0.5 + torch.rand(outputs["kl"].shape, generator=random)
    loss = sum((one * factors[name].to(one.dtype)).sum() for name, one in outputs.items())
    gradients = torch.autograd.grad(
        cast(Tensor, loss), list(leaves.values()), allow_unused=True, materialize_grads=True
    )
    named = {f"d {name}": gradient for name, gradient in zip(leaves, gradients, strict=True)}
    return {name: one.detach() for name, one in (outputs | named).items()}


def far_apart(made: Tensor, expected: Tensor) -> float:
    """Largest difference, relative to the largest number; infinite where shapes differ or a number is not finite.

    Where all numbers are zero up to rounding of float64, it is the largest difference itself.
    """
    if made.shape != expected.shape or not bool(torch.isfinite(made).all()):
        return float("inf")
    if made.numel() == 0:
        return 0.0
    largest = float(expected.abs().max())
    return float((made.double() - expected.double()).abs().max()) / (largest if largest > 1e-12 else 1.0)


def compare(case: Case, tolerance: float = 1e-5, kl_tolerance: float = 1e-6) -> None:
    """The kernel in float32 against the reference in float64: outputs and all gradients."""
    leaves = case.leaves()
    made = case.attend(leaves)
    found = outcome({"context": made.context, "kl": made.kl}, leaves)
    exact = {name: leaf.detach().double().requires_grad_() for name, leaf in leaves.items()}
    expected = outcome(reference(case, exact), exact)
    apart = {name: far_apart(found[name], value) for name, value in expected.items()}
    limits = {name: kl_tolerance if name == "kl" else tolerance for name in apart}
    assert all(apart[name] <= limits[name] for name in apart), {name: f"{one:.1e}" for name, one in apart.items()}
