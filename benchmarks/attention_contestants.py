"""What the benchmark of dense attention compares: forward passes and train steps on the same inputs.

A forward pass runs without gradients. A train step is forward and backward, to query, key, value and the prior. The
prior is contextual: its weights Psi are a softmax over keys of numbers that are given, as a `KeyPrior` makes them.

Size letters: B batch, H heads, T queries, S keys, D features, K draws.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from attention_materialised import materialised_attention
from torch import Tensor

from probattn.core import Dense
from probattn.distributions import GammaPrior, Lognormal, LognormalPrior, Weibull
from probattn.kernels import native
from probattn.kernels.attention import sampled_attention

__all__ = [
    "DRAWS",
    "KL",
    "SDPA",
    "Call",
    "Inputs",
    "Pass",
    "Sizes",
    "contestants",
    "deterministic",
    "draw_contestants",
    "sdpa",
    "weibull",
    "weibull_kl",
]

Pass = Literal["forward", "train step"]
Compute = Callable[["Inputs"], tuple[Tensor, Tensor | None]]
"""Context (B, H, T, D), and the KL (B, H, T) where there is one."""

SDPA = "torch SDPA"
KL = "Weibull, KL"
DRAWS = 20
_K, _SIGMA, _RATE = 10.0, 0.1, 1.0
# More scores are too many for what is quadratic in memory or very slow: 2 x 8 heads of 2,048 queries and keys.
_MOST_SCORES = 2**26


@dataclass(frozen=True)
class Sizes:
    """Of one problem.

    Attributes:
        length: T and S.
        batch: B.
        heads: H.
        dim: D.
        mask: Causal, or full with all keys, or padded: lengths grow from a quarter to all in the batch.
        dtype: Of query, key and value.
    """

    length: int
    batch: int = 2
    heads: int = 8
    dim: int = 64
    mask: Literal["full", "causal", "padded"] = "full"
    dtype: torch.dtype = torch.float32

    @property
    def scores(self) -> int:
        """B H T S."""
        return self.batch * self.heads * self.length**2


class Inputs:
    """Tensors of a problem."""

    def __init__(self, sizes: Sizes):
        torch.manual_seed(0)
        shape = (sizes.batch, sizes.heads, sizes.length, sizes.dim)
        self.sizes, self.seed = sizes, torch.tensor(1)
        self.query, self.key, self.value = (torch.randn(shape, dtype=sizes.dtype, requires_grad=True) for _ in range(3))
        self.logits = torch.randn(sizes.batch, sizes.heads, 1, sizes.length, requires_grad=True)
        self.grad_context, self.grad_kl = torch.randn(shape, dtype=sizes.dtype), torch.full(shape[:3], 1e-3)
        self.is_causal = sizes.mask == "causal"
        self.mask = _visible(sizes) if sizes.mask == "padded" else None  # (B, 1, 1, S)

    def hidden(self) -> Tensor | None:
        """True where a query must not look; (T, S) or (B, 1, 1, S)."""
        if self.is_causal:
            return torch.ones(self.sizes.length, self.sizes.length, dtype=torch.bool).triu(1)
        return None if self.mask is None else ~self.mask

    def forget_gradients(self) -> None:
        """Set them to None."""
        for leaf in (self.query, self.key, self.value, self.logits):
            leaf.grad = None


class Call:
    """One forward pass or train step.

    Args:
        compute: The attention.
        inputs: Shared between contestants.
        kind: What is run.
        has_kernel: Whether C++ may be used.
    """

    def __init__(self, compute: Compute, inputs: Inputs, *, kind: Pass, has_kernel: bool = True):
        self.compute, self.inputs, self.kind, self.has_kernel = compute, inputs, kind, has_kernel

    def __call__(self) -> None:
        """Once."""
        inputs = self.inputs
        with native.switched(self.has_kernel):
            if self.kind == "forward":
                with torch.no_grad():
                    self.compute(inputs)
                return
            context, kl = self.compute(inputs)
            if kl is None:
                torch.autograd.backward([context], [inputs.grad_context])
            else:
                torch.autograd.backward([context, kl], [inputs.grad_context, inputs.grad_kl])
        inputs.forget_gradients()


def contestants(inputs: Inputs, kind: Pass) -> dict[str, Call]:
    """By name; the first is the reference. Large sizes and bfloat16 leave out what is slow."""
    found = {SDPA: Call(sdpa, inputs, kind=kind)}
    if native.is_active():
        for name, compute in _OURS.items():
            found[f"{name}, C++"] = Call(compute, inputs, kind=kind)
    is_full_precision = inputs.sizes.dtype == torch.float32
    if inputs.sizes.scores <= _MOST_SCORES and (is_full_precision or not native.is_active()):
        found[f"{KL}, torch"] = Call(weibull_kl, inputs, kind=kind, has_kernel=False)
    if inputs.sizes.scores <= _MOST_SCORES and is_full_precision:
        hidden = inputs.hidden()
        found[f"{KL}, materialised"] = Call(partial(_materialised, hidden=hidden), inputs, kind=kind)
    return found


def draw_contestants(inputs: Inputs) -> dict[str, Callable[[], None]]:
    """K draws of a forward pass, over as many passes of SDPA."""

    def repeated(compute: Compute) -> Callable[[], None]:
        call = Call(compute, inputs, kind="forward")

        def repeat() -> None:
            for _ in range(DRAWS):
                call()

        return repeat

    found: dict[str, Callable[[], None]] = {f"{DRAWS} passes of {SDPA}": repeated(sdpa)}
    if native.is_active():
        for name, family in (("Weibull", _WEIBULL), ("lognormal", _LOGNORMAL)):
            draws = partial(_ours, family=family, num_draws=DRAWS)
            found[f"{DRAWS} draws, {name}, C++"] = Call(draws, inputs, kind="forward")
        found[f"{DRAWS} calls, Weibull, C++"] = repeated(weibull)
    else:
        draws = partial(_ours, family=_WEIBULL, num_draws=DRAWS)
        found[f"{DRAWS} draws, Weibull, torch"] = Call(draws, inputs, kind="forward", has_kernel=False)
    return found


def sdpa(inputs: Inputs) -> tuple[Tensor, None]:
    """Deterministic, by torch; flash attention for all masks here."""
    query, key, value = inputs.query, inputs.key, inputs.value
    mask, is_causal = inputs.mask, inputs.is_causal
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=is_causal), None


def deterministic(inputs: Inputs) -> tuple[Tensor, None]:
    """Soft attention by our kernel."""
    return _ours(inputs, None)[0], None


def weibull(inputs: Inputs) -> tuple[Tensor, None]:
    """Noise, no prior."""
    return _ours(inputs, _WEIBULL)[0], None


def weibull_kl(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Weibull weights, Gamma prior."""
    return _ours(inputs, _WEIBULL, prior=GammaPrior(rate=_RATE))


def lognormal_kl(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Lognormal weights, lognormal prior."""
    return _ours(inputs, _LOGNORMAL, prior=LognormalPrior(sigma=1.0))


_WEIBULL, _LOGNORMAL = Weibull(_K, anchor="softmax"), Lognormal(_SIGMA, anchor="softmax")
_OURS: dict[str, Compute] = {
    "deterministic": deterministic,
    "Weibull": weibull,
    KL: weibull_kl,
    "lognormal, KL": lognormal_kl,
}


def _ours(
    inputs: Inputs,
    family: Weibull | Lognormal | None,
    *,
    prior: GammaPrior | LognormalPrior | None = None,
    num_draws: int = 1,
) -> tuple[Tensor, Tensor]:
    made = sampled_attention(
        inputs.query,
        inputs.key,
        inputs.value,
        family=family,
        prior=None if prior is None else prior(inputs.logits.log_softmax(dim=-1), Dense()),
        seed=None if family is None else inputs.seed,
        num_draws=num_draws,
        mask=inputs.mask,
        is_causal=inputs.is_causal,
    )
    return made.context.squeeze(0), made.kl


def _materialised(inputs: Inputs, hidden: Tensor | None) -> tuple[Tensor, Tensor]:
    alpha = inputs.logits.softmax(dim=-1)
    return materialised_attention(inputs.query, inputs.key, inputs.value, alpha=alpha, k=_K, rate=_RATE, hidden=hidden)


def _visible(sizes: Sizes) -> Tensor:
    """(B, 1, 1, S) bool: lengths from a quarter to all."""
    shares = torch.linspace(0.25, 1.0, sizes.batch)
    lengths = (shares * sizes.length).round().clamp(min=1.0)
    return (torch.arange(sizes.length) < lengths.unsqueeze(-1)).view(sizes.batch, 1, 1, sizes.length)
