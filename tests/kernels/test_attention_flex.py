"""Attention by `flex_attention`: values, gradients and noise against float64, and what is left to the other way.

On the CPU the functions of a score run in torch's uncompiled form of `flex_attention`, which has a backward pass that
torch keeps from users; the kernels that torch makes of them are tested where there is a CUDA device.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.attention.flex_attention as flex
from torch import Tensor

from probattn import Dense, Weibull
from probattn.core.noise import uniform
from probattn.distributions import NormalisedGamma
from probattn.kernels import attention, attention_flex, flex_summary, sampled_attention
from probattn.kernels.attention_chunked import AttentionCall
from tests.kernels.attention_cases import SEED, Case, far_apart, mask_of, outcome, reference

ANCHORS = ["exp", "softmax"]
SHARED_MASKS = ["none", "causal", "padding", "causal-padding", "left-padding", "heads", "nothing", "float-padding"]
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


@pytest.fixture
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients included, and nothing compiled."""
    monkeypatch.setattr(attention_flex, "_mode", "on")
    monkeypatch.setattr(attention_flex, "_WITHOUT_GRADIENTS", ())
    monkeypatch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    monkeypatch.setattr(flex, "_validate_device", lambda *tensors: None)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[AttentionCall]]:
    """What goes to `flex_attention`."""
    seen: list[AttentionCall] = []

    def record(call: AttentionCall) -> Any:
        seen.append(call)
        return attention_flex.attend_flex(call)

    monkeypatch.setattr(attention, "attend_flex", record)
    yield seen


def compare(case: Case, *, device: str = "cpu", tolerance: float = 1e-5, kl_tolerance: float = 2e-6) -> None:
    """In float32 against the reference in float64: outputs and all gradients but that of k or sigma."""
    leaves = {name: leaf.detach().to(device).requires_grad_(name != "law") for name, leaf in case.leaves().items()}
    mask = mask_of(case)
    with torch.device(device):
        made = case.attend_masked(leaves, None if mask is None else mask.to(device))
    exact = {name: leaf.detach().cpu().double().requires_grad_() for name, leaf in leaves.items()}
    expected_outputs = reference(case, exact)
    for one in (leaves, exact):
        del one["law"]
    outputs = {"context": made.context.cpu(), "kl": made.kl.cpu()}
    found, expected = outcome(outputs, leaves), outcome(expected_outputs, exact)
    apart = {name: far_apart(found[name].cpu(), value) for name, value in expected.items()}
    limits = {name: kl_tolerance if name == "kl" else tolerance for name in apart}
    assert all(apart[name] <= limits[name] for name in apart), {name: f"{one:.1e}" for name, one in apart.items()}


@pytest.mark.parametrize("mask", SHARED_MASKS)
@pytest.mark.parametrize("anchor", ANCHORS)
def test_weibull_with_a_gamma_prior(on_the_cpu: None, calls: list[AttentionCall], anchor: str, mask: str) -> None:
    compare(Case("weibull", "contextual", anchor, mask))
    assert len(calls) == 1


@pytest.mark.parametrize("mask", ["none", "heads", "float-padding"])
@pytest.mark.parametrize("anchor", ANCHORS)
def test_lognormal(on_the_cpu: None, calls: list[AttentionCall], anchor: str, mask: str) -> None:
    compare(Case("lognormal", "contextual", anchor, mask))
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("family", "mask"),
    [
        *(("weibull", mask) for mask in ("none", "bool", "empty", "float-empty", "bias", "causal-bias")),
        *(("lognormal", mask) for mask in ("none", "float")),
        *(("gumbel", mask) for mask in ("none", "causal", "empty")),
        *((None, mask) for mask in ("none", "causal", "nothing", "float-empty")),
    ],
)
def test_without_a_kl(on_the_cpu: None, calls: list[AttentionCall], family: str | None, mask: str) -> None:
    compare(Case(family, "none", mask=mask, draws=2, law=0.6))
    assert len(calls) == 1


@pytest.mark.parametrize(
    "case",
    [
        Case(is_noisy=False, mask="causal"),
        Case(heads=4, key_heads=2, mask="causal", draws=2),
        Case(heads=4, key_heads=1, mask="padding", family="lognormal"),
        Case(queries=70, keys=3, mask="causal"),
        Case(queries=3, keys=70, mask="causal"),
        Case(dim=20, value_dim=33),
        Case(law=0.1, keys=80),
        Case(law=1e6, keys=80),
        Case(size=10.0, keys=80, anchor="softmax"),
        Case(queries=130, keys=257, mask="causal-padding"),
    ],
    ids=[
        "expected",
        "grouped",
        "one head of keys",
        "tall",
        "wide",
        "features",
        "k small",
        "k large",
        "scores",
        "tiles",
    ],
)
def test_other_sizes(on_the_cpu: None, calls: list[AttentionCall], case: Case) -> None:
    compare(case, tolerance=4e-5 if case.size > 1.0 else 1e-5)
    assert len(calls) == 1


def test_noise_has_the_same_bits() -> None:
    particle, lead, query, key = torch.meshgrid(*(torch.arange(size) for size in (2, 6, 5, 9)), indexing="ij")
    made = attention_flex._uniform(SEED, (particle, lead, query.int(), key.int()))
    assert torch.equal(made, uniform(SEED, (2, 6, 5, 9)))


def test_the_draw_of_one_tile_is_that_of_chunks(on_the_cpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    leaves = {name: leaf.detach() for name, leaf in Case(keys=70, mask="causal").leaves().items()}
    case = Case("weibull", "none", keys=70, mask="causal", draws=3)
    made = case.attend(leaves).context
    monkeypatch.setattr(attention_flex, "_mode", "off")
    torch.testing.assert_close(made, case.attend(leaves).context, rtol=1e-5, atol=1e-6)


MISFITS = {
    "dropout": (Case(dropout=0.3), "dropout"),
    "rows differ": (Case(mask="bool"), "same for all queries"),
    "causal lognormal": (Case("lognormal", mask="causal"), "causal lognormal"),
    "no keys": (Case(keys=0), "nothing to attend"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit_runs_in_chunks(on_the_cpu: None, calls: list[AttentionCall], name: str) -> None:
    case, reason = MISFITS[name]
    leaves = {key: leaf.detach() for key, leaf in case.leaves().items()}
    reasons = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "misfit", lambda call: reasons.append(attention_flex.misfit(call)) or reasons[-1])
        case.attend(leaves)
    assert not calls and reason in str(reasons[0])


def test_a_learned_concentration_and_float64_run_in_chunks(on_the_cpu: None, calls: list[AttentionCall]) -> None:
    case = Case()
    case.attend(case.leaves())
    leaves = {name: leaf.detach().double() for name, leaf in case.leaves().items()}
    case.attend(leaves)
    assert not calls


def test_gradients_on_the_cpu_run_in_chunks(
    on_the_cpu: None, calls: list[AttentionCall], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_flex, "_WITHOUT_GRADIENTS", ("cpu",))
    case = Case(law=2.0)
    leaves = case.leaves() | {"law": torch.tensor(2.0)}
    case.attend(leaves)
    assert not calls
    with torch.no_grad():
        case.attend(leaves)
    assert len(calls) == 1


def test_the_cpu_must_be_asked_for(calls: list[AttentionCall]) -> None:
    case = Case()
    case.attend({name: leaf.detach() for name, leaf in case.leaves().items()})
    assert not calls


def test_low_precision(on_the_cpu: None, calls: list[AttentionCall]) -> None:
    """Sums are float32: only inputs and outputs are rounded."""
    case = Case(dim=16, value_dim=16, keys=40, mask="causal", law=2.0)
    leaves = {name: leaf.detach() for name, leaf in case.leaves().items()}
    low = leaves | {name: leaves[name].bfloat16() for name in ("query", "key", "value")}
    made = case.attend(low)
    expected = reference(case, {name: leaf.double() for name, leaf in low.items()})
    assert made.context.dtype == torch.bfloat16 and made.kl.dtype == torch.float32 and len(calls) == 1
    assert far_apart(made.context, expected["context"]) < 1e-2
    assert far_apart(made.kl, expected["kl"]) < 1e-5


def test_a_nan_is_told(on_the_cpu: None) -> None:
    x = torch.randn(1, 1, 3, 4)
    x[0, 0, 1, 2] = torch.nan
    with pytest.raises(ValueError, match="attention scores .* NaN"):
        sampled_attention(x, x, x, family=Weibull(1.0), seed=SEED)


@pytest.mark.parametrize(("mode", "words"), [("off", "never"), ("on", "on the CPU"), ("auto", "CUDA")])
def test_it_says_where_it_is_used(monkeypatch: pytest.MonkeyPatch, mode: str, words: str) -> None:
    monkeypatch.setattr(attention_flex, "_mode", mode)
    assert words in flex_summary()


def test_an_unknown_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_flex, "_mode", "perhaps")
    with pytest.raises(ValueError, match="PROBATTN_FLEX must be one of auto, on, off; got 'perhaps'"):
        flex_summary()


@pytest.mark.slow
def test_inductor_makes_the_same_draw() -> None:
    """The CPU's compiler on the function that CUDA's compiler gets; it took two minutes on a busy machine."""
    case = Case("weibull", "none", dim=16, value_dim=16, queries=20, keys=37, heads=3, key_heads=3)
    leaves = {name: leaf.detach() for name, leaf in case.leaves().items()}
    lead = torch.arange(6).view(2, 3)
    scale = 1.0 / leaves["law"].reshape(3)

    def score_mod(score: Tensor, b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        u = attention_flex._uniform(SEED, (SEED & 0, lead[b, h], query, key))
        return score + scale[h] * (-u.log()).log()

    made = torch.compile(flex.flex_attention)(
        leaves["query"], leaves["key"], leaves["value"], score_mod=score_mod, scale=0.25
    )
    torch.testing.assert_close(made, case.attend(leaves).context[0], rtol=1e-5, atol=2e-6)


@needs_cuda
@pytest.mark.parametrize("mask", SHARED_MASKS)
@pytest.mark.parametrize("anchor", ANCHORS)
def test_weibull_on_cuda(calls: list[AttentionCall], anchor: str, mask: str) -> None:
    case = Case("weibull", "contextual", anchor, mask, queries=130, keys=257, dim=32, value_dim=32)
    compare(case, device="cuda", tolerance=1e-4, kl_tolerance=1e-5)
    assert len(calls) == 1


@needs_cuda
@pytest.mark.parametrize("family", ["lognormal", "gumbel", None])
def test_other_families_on_cuda(calls: list[AttentionCall], family: str | None) -> None:
    prior = "contextual" if family == "lognormal" else "none"
    compare(
        replace(Case(family, prior), queries=130, keys=257, law=0.6), device="cuda", tolerance=1e-4, kl_tolerance=1e-5
    )
    assert len(calls) == 1


@needs_cuda
def test_noise_on_cuda_has_the_same_bits() -> None:
    place = torch.meshgrid(*(torch.arange(size, device="cuda") for size in (2, 6, 5, 9)), indexing="ij")
    made = torch.compile(attention_flex._uniform)(SEED.cuda(), place)
    assert torch.equal(made.cpu(), uniform(SEED, (2, 6, 5, 9)))


@needs_cuda
def test_memory_on_cuda_grows_with_the_keys() -> None:
    peaks = []
    for keys in (4096, 8192):
        rows = [torch.randn(1, 4, keys, 64, device="cuda", requires_grad=True) for _ in range(3)]
        prior = NormalisedGamma(torch.rand(1, 4, 1, keys, device="cuda") + 0.5, 1.0, support=Dense())
        for _ in range(2):
            torch.cuda.reset_peak_memory_stats()
            law = Weibull(2.0, anchor="softmax")
            made = sampled_attention(*rows, family=law, prior=prior, seed=SEED.cuda(), is_causal=True)
            (made.context.sum() + made.kl.sum()).backward()
        peaks.append(torch.cuda.max_memory_allocated())
    assert peaks[1] < 2.5 * peaks[0]
