"""Priors that are normalised over what a query sees: the kernel's KL under causal masks against float64."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from probattn import Dense, GammaPrior, KeyPrior, Lognormal, LognormalPrior, Weibull, scaled_dot_product_attention
from probattn.distributions import Family
from probattn.kernels import SetPrior, is_active, sampled_attention
from probattn.kernels.set_prior import Sight, log_gamma_sums, running_sums
from probattn.nn import Conditional, Uniform, fused_attention
from probattn.nn.functional import AttentionResult
from tests.kernels.attention_cases import SEED, Case, compare, far_apart, mask_of, outcome, reference

HEADS, DIM, SIZE = 4, 8, 12


@pytest.fixture(params=["torch", "C++"])
def back_end(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Used whatever the size."""
    if request.param == "C++":
        request.getfixturevalue("native_kernels")
    assert is_active() == (request.param == "C++")
    monkeypatch.setattr(fused_attention, "_MANY_SCORES", 0)
    return str(request.param)


@dataclass(frozen=True)
class SetCase(Case):
    """The reference gets a row of the prior for each query, the kernel one logit for each key."""

    mask: str = "causal"
    scale: float = 1.0
    """Of Psi."""
    spread: float = 1.0
    """Of the logits."""

    def laws(self, leaves: dict[str, Tensor], support: Dense) -> tuple[Any, Any]:
        family, _ = replace(Case(self.family, "none", self.anchor)).laws(leaves, support)
        prior: GammaPrior | LognormalPrior = (
            GammaPrior(rate=0.8) if self.family == "weibull" else LognormalPrior(0.8, location="log_psi")
        )
        logits = self.spread * leaves["log_psi"].squeeze(-2)
        if support.mask is None:
            return family, SetPrior(logits, prior, self.scale)
        log_psi = support.set_log_softmax(logits) + torch.tensor(self.scale).log()
        return family, prior(log_psi, support)


@pytest.mark.parametrize("mask", ["causal", "causal-padding"])
@pytest.mark.parametrize("anchor", ["exp", "softmax"])
@pytest.mark.parametrize("family", ["weibull", "lognormal"])
def test_equals_the_families(back_end: str, family: str, anchor: str, mask: str) -> None:
    compare(SetCase(family, anchor=anchor, mask=mask, queries=9, keys=9))


@pytest.mark.parametrize(
    "case",
    [
        SetCase(queries=3, keys=70),
        SetCase(queries=70, keys=3),
        SetCase(queries=1, keys=1),
        SetCase(queries=130, keys=530, batch=1, key_heads=1),
        SetCase(queries=40, keys=40, spread=12.0),
        SetCase(queries=40, keys=40, scale=0.05),
        SetCase(queries=40, keys=40, draws=3, dropout=0.3, mask="causal-padding"),
        SetCase(queries=40, keys=40, is_noisy=False),
        SetCase("lognormal", queries=130, keys=257, batch=1),
        SetCase("lognormal", queries=70, keys=3, scale=3.0),
        SetCase("lognormal", queries=40, keys=40, draws=2, dropout=0.3, mask="causal-padding"),
    ],
    ids=["wide", "tall", "one", "tiles", "far", "small", "draws", "mean", "LN tiles", "LN tall", "LN draws"],
)
def test_other_sizes(back_end: str, case: SetCase) -> None:
    """The KL of a single key is nearly zero, and so the difference of numbers around one."""
    compare(case, kl_tolerance=1e-5 if case.keys == 1 else 1e-6)


@pytest.mark.parametrize("family", ["weibull", "lognormal"])
def test_queries_that_see_nothing(back_end: str, family: str) -> None:
    """Keys that are hidden at the left leave the first queries nothing."""
    case = SetCase(family, queries=9, keys=9)
    leaves = case.leaves()
    hidden = torch.tensor([0, 4]).view(2, 1, 1, 1)
    mask = torch.arange(9) >= hidden
    made = case.attend_masked(leaves, mask)
    found = outcome({"context": made.context, "kl": made.kl}, leaves)
    exact = {name: leaf.detach().double().requires_grad_() for name, leaf in leaves.items()}
    seen = mask & torch.ones(9, 9, dtype=torch.bool).tril()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.kernels.attention_cases.mask_of", lambda _: seen)
        expected = outcome(reference(case, exact), exact)
    assert bool((found["kl"][1, :, :4] == 0.0).all()) and bool((found["kl"][1, :, 4:] != 0.0).all())
    assert all(far_apart(found[name], value) < 1e-5 for name, value in expected.items())


@pytest.mark.parametrize("size", [1.0, 0.3, 1e-4])
def test_sums_of_log_gamma(size: float) -> None:
    logits = 3.0 * torch.randn(2, 3, 200, dtype=torch.float64)
    sums = running_sums(SetPrior(logits, GammaPrior()), Sight(200))
    rows = torch.ones(200, 200, dtype=torch.bool).tril()
    alpha = size * Dense(rows).log_softmax(logits.unsqueeze(-2)).exp()
    expected = torch.lgamma(alpha).masked_fill(~rows, 0.0).sum(dim=-1)
    torch.testing.assert_close(log_gamma_sums(sums, size), expected, rtol=1e-9, atol=2e-9)


def test_a_set_prior_needs_a_causal_call() -> None:
    x = torch.ones(1, 2, 3, 4)
    prior = SetPrior(torch.zeros(3), GammaPrior())
    for options in ({}, {"mask": torch.ones(3, 3, dtype=torch.bool).tril(), "is_causal": True}):
        with pytest.raises(ValueError, match="or be a SetPrior under a causal mask"):
            sampled_attention(x, x, x, family=Weibull(2.0), prior=prior, seed=SEED, **options)
    with pytest.raises(TypeError, match="got Lognormal and GammaPrior"):
        sampled_attention(x, x, x, family=Lognormal(2.0), prior=prior, seed=SEED, is_causal=True)


LAWS: dict[str, tuple[Family, Callable[[], Conditional]]] = {
    "WC": (Weibull(2.0, anchor="softmax"), lambda: KeyPrior(DIM, GammaPrior(rate=0.5), normalises="set")),
    "WC per head": (
        Weibull(2.0),
        lambda: KeyPrior(DIM, GammaPrior(rate=0.01, concentration="psi_rate"), normalises="set", num_heads=HEADS),
    ),
    "W uniform": (Weibull(2.0, anchor="softmax"), lambda: Uniform(GammaPrior(rate=0.5))),
    "LC": (
        Lognormal(0.4, anchor="softmax"),
        lambda: KeyPrior(DIM, LognormalPrior(2.0, location="log_psi"), normalises="set"),
    ),
    "L uniform": (Lognormal(0.4), lambda: Uniform(LognormalPrior(2.0, location="log_psi"))),
}
CAUSAL = torch.ones(SIZE, SIZE, dtype=torch.bool).tril()
KEYS = (torch.arange(SIZE) < torch.tensor([SIZE, 7])[:, None]).view(2, 1, 1, SIZE)
MASKS: dict[str, dict[str, Any]] = {
    "switch": {"is_causal": True},
    "mask": {"attn_mask": CAUSAL},
    "padded": {"attn_mask": CAUSAL & KEYS},
    "padded left": {"attn_mask": CAUSAL & KEYS.flip(-1)},
    "grouped": {"is_causal": True, "enable_gqa": True},
}


def attend(law: str, *, factor: float = 1.0, **options: Any) -> tuple[AttentionResult, list[Tensor]]:
    """The result and all gradients."""
    torch.manual_seed(0)
    family, make_prior = LAWS[law]
    prior = make_prior()
    groups = 2 if options.get("enable_gqa") and law != "WC per head" else HEADS
    rows = [torch.randn(2, heads, SIZE, DIM) for heads in (HEADS, groups, groups)]
    inputs = [(factor * one).requires_grad_() for one in rows]
    result = scaled_dot_product_attention(*inputs, family=family, prior=prior, seed=SEED, **options)
    total = result.context.square().sum() + (result.kl * torch.linspace(0.1, 1.0, SIZE)).sum()
    return result, list(torch.autograd.grad(total, [*inputs, *prior.parameters()]))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("law", LAWS)
def test_without_weights_as_with_them(back_end: str, law: str, mask: str) -> None:
    fused, other = attend(law, **MASKS[mask]), attend(law, **MASKS[mask], need_weights=True)
    assert fused[0].latent.draw.value is None and other[0].latent.draw.value is not None
    torch.testing.assert_close(fused[0].context, other[0].context, rtol=1e-5, atol=2e-6)
    torch.testing.assert_close(fused[0].kl, other[0].kl, rtol=1e-5, atol=1e-5)
    for mine, theirs in zip(fused[1], other[1], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-4, atol=2e-5)


def test_three_axes_are_one_head(back_end: str) -> None:
    torch.manual_seed(0)
    rows = [torch.randn(3, SIZE, DIM) for _ in range(3)]
    prior = KeyPrior(DIM, GammaPrior(rate=0.5), normalises="set")
    options = {"family": Weibull(2.0), "prior": prior, "is_causal": True, "seed": SEED}
    fused, other = (scaled_dot_product_attention(*rows, need_weights=asked, **options) for asked in (False, True))
    assert fused.latent.draw.value is None
    torch.testing.assert_close(fused.kl, other.kl, rtol=1e-5, atol=1e-5)


def test_logits_too_far_apart_need_all_scores(back_end: str) -> None:
    fused, _ = attend("WC", is_causal=True, factor=1e4)
    assert fused.latent.draw.value is not None
    assert attend("WC", is_causal=True)[0].latent.draw.value is None


@pytest.mark.parametrize(
    ("family", "prior"),
    [
        (Weibull(2.0), GammaPrior(rate=torch.tensor(0.5))),  # type: ignore[arg-type]
        (Weibull(2.0), GammaPrior(rate=2.0, concentration="psi_rate")),
        (Lognormal(0.5), LognormalPrior(0.5, location="psi")),
    ],
    ids=["learned rate", "concentrations above one", "location Psi"],
)
def test_priors_that_need_all_scores(back_end: str, family: Family, prior: GammaPrior | LognormalPrior) -> None:
    x = torch.randn(1, 1, SIZE, DIM)
    options = {"family": family, "prior": Uniform(prior), "is_causal": True}
    assert scaled_dot_product_attention(x, x, x, **options).latent.draw.value is not None


def test_small_lognormal_calls_are_not_for_chunks(native_kernels: None) -> None:
    """C++ does not know the shift, and torch in chunks saves no time."""
    assert attend("LC", is_causal=True)[0].latent.draw.value is not None
    assert attend("WC", is_causal=True)[0].latent.draw.value is None


@pytest.mark.parametrize("hidden", [None, (3, 1), (5, 5)])
def test_only_causal_masks_are_taken_for_one(hidden: tuple[int, int] | None) -> None:
    mask = CAUSAL.clone()
    if hidden is not None:
        mask[hidden] = False
    rows = [torch.randn(1, 1, SIZE, DIM) for _ in range(3)]
    inputs = fused_attention.AttentionInputs(*rows, mask, False, None, 0.0).with_causality()
    assert inputs.is_causal == (hidden is None)
    assert inputs.mask is not None and inputs.mask.shape[-2] == (1 if hidden is None else SIZE)


def test_compiled_code_gives_the_same(back_end: str) -> None:
    case = SetCase(queries=9, keys=9)
    leaves = {name: leaf.detach() for name, leaf in case.leaves().items()}
    made = torch.compile(lambda inner: case.attend_masked(inner, None).kl, backend="aot_eager", fullgraph=True)(leaves)
    torch.testing.assert_close(made, case.attend(leaves).kl, rtol=1e-6, atol=1e-6)
    assert mask_of(case) is None
