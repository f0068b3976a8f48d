"""Sampled attention on both back ends: values and gradients against float64, masks, sizes, extremes."""

from dataclasses import replace

import pytest
import torch

from probattn import Dense, Weibull, scaled_dot_product_attention
from probattn.distributions import NormalisedGamma
from probattn.kernels import is_active, sampled_attention
from tests.kernels.attention_cases import SEED, Case, compare, far_apart, mask_of, reference

FAMILIES = ["weibull", "lognormal"]
ANCHORS = ["exp", "softmax"]
MASKS = [
    "none", "causal", "padding", "causal-padding", "left-padding", "heads", "bool", "empty", "nothing", "float",
    "float-empty", "float-padding", "bias", "causal-bias",
]  # fmt: skip
DIMS = [1, 3, 16, 63, 64, 80, 130]
# Tiles are 128 x 512 forward and 128 x 256 backward, so some of each are full and some are not.
LARGE = Case(batch=1, heads=2, key_heads=1, queries=130, keys=530, dim=8, value_dim=5)


@pytest.fixture(autouse=True, params=["torch", "C++"])
def _back_end(request: pytest.FixtureRequest) -> None:
    if request.param == "C++":
        request.getfixturevalue("native_kernels")
    assert is_active() == (request.param == "C++")


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("family", FAMILIES)
def test_equals_the_families(family: str, anchor: str, mask: str) -> None:
    compare(Case(family, "contextual", anchor, mask))


@pytest.mark.parametrize("mask", ["none", "empty"])
@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("prior", ["constant", "none"])
@pytest.mark.parametrize("family", FAMILIES)
def test_other_priors(family: str, prior: str, anchor: str, mask: str) -> None:
    compare(Case(family, prior, anchor, mask))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("family", ["gumbel", None])
def test_without_a_kl(family: str | None, mask: str) -> None:
    compare(Case(family, "none", mask=mask, draws=2))


@pytest.mark.parametrize("mask", ["none", "causal", "float-empty"])
@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("family", FAMILIES)
def test_expected_weights(family: str, anchor: str, mask: str) -> None:
    compare(Case(family, "contextual", anchor, mask, is_noisy=False))


def test_expected_weights_of_gumbel() -> None:
    compare(Case("gumbel", "none", is_noisy=False))


@pytest.mark.parametrize("mask", ["none", "causal", "empty"])
@pytest.mark.parametrize("is_noisy", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_several_draws_with_dropout(family: str, is_noisy: bool, mask: str) -> None:
    compare(Case(family, "contextual", mask=mask, draws=3, dropout=0.4, is_noisy=is_noisy))


@pytest.mark.parametrize("dropout", [0.3, 0.9])
def test_dropout_of_one_draw(dropout: float) -> None:
    compare(Case(dropout=dropout, mask="causal"))
    compare(Case(None, "none", dropout=dropout))


@pytest.mark.parametrize("dim", DIMS)
def test_head_sizes(dim: int) -> None:
    compare(Case(dim=dim, value_dim=dim, mask="causal"))
    compare(Case("lognormal", dim=dim, value_dim=DIMS[-1 - DIMS.index(dim)], draws=2))


@pytest.mark.parametrize(("heads", "key_heads"), [(4, 1), (4, 2), (6, 2), (3, 3)])
@pytest.mark.parametrize("mask", ["none", "heads", "causal"])
def test_grouped_heads(heads: int, key_heads: int, mask: str) -> None:
    compare(Case(mask=mask, heads=heads, key_heads=key_heads, draws=2))


@pytest.mark.parametrize(("queries", "keys"), [(1, 9), (9, 1), (1, 1), (3, 70), (70, 3), (63, 65), (130, 257)])
@pytest.mark.parametrize("mask", ["none", "causal", "padding"])
def test_numbers_of_queries_and_keys(queries: int, keys: int, mask: str) -> None:
    compare(Case(mask=mask, queries=queries, keys=keys))


@pytest.mark.parametrize("mask", ["none", "causal", "causal-padding", "empty", "float"])
@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("family", FAMILIES)
def test_many_tiles(family: str, anchor: str, mask: str) -> None:
    compare(replace(LARGE, family=family, anchor=anchor, mask=mask))


def test_many_tiles_and_draws() -> None:
    compare(replace(LARGE, draws=2, dropout=0.2, mask="causal", keys=600))
    compare(replace(LARGE, family="gumbel", prior="none", draws=2, queries=300, keys=300))


@pytest.mark.parametrize("k", [0.1, 0.5, 1.0, 10.0, 1e3, 1e6])
@pytest.mark.parametrize("anchor", ANCHORS)
def test_concentrations(anchor: str, k: float) -> None:
    compare(Case(anchor=anchor, law=k, keys=80, mask="causal"))


@pytest.mark.parametrize("sigma", [1e-3, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("anchor", ANCHORS)
def test_sigmas(anchor: str, sigma: float) -> None:
    compare(Case("lognormal", anchor=anchor, law=sigma, keys=80, mask="causal"))


@pytest.mark.parametrize(("temperature", "tolerance"), [(0.1, 1e-4), (1.0, 1e-5), (10.0, 1e-5)])
def test_temperatures(temperature: float, tolerance: float) -> None:
    """At 0.1 the exponents are ten times the scores, and so is the rounding of float32."""
    compare(Case("gumbel", "none", law=temperature, keys=80), tolerance)


@pytest.mark.parametrize("parameter", [1e-6, 1e-2, 1e2])
@pytest.mark.parametrize("family", FAMILIES)
def test_priors(family: str, parameter: float) -> None:
    compare(Case(family, parameter=parameter, keys=80))


@pytest.mark.parametrize("sigma", [1e15, 1e-15])
@pytest.mark.parametrize("anchor", ANCHORS)
def test_sigmas_of_the_paper(anchor: str, sigma: float) -> None:
    """BAM's prior: its square nearly leaves float32, and so does the gradient with respect to it."""
    case = Case("lognormal", anchor=anchor, parameter=sigma, keys=80)
    leaves = {name: leaf.detach() for name, leaf in case.leaves().items()}
    exact = {name: leaf.double() for name, leaf in leaves.items()}
    assert far_apart(case.attend(leaves).kl, reference(case, exact)["kl"]) < 1e-6


@pytest.mark.parametrize("mask", ["none", "causal", "empty"])
@pytest.mark.parametrize("family", FAMILIES)
def test_large_scores(family: str, mask: str) -> None:
    """Scores of some thousand, whole numbers so that float32 has them exactly; it rounds their sum with the noise."""
    compare(Case(family, mask=mask, size=2e3, is_whole=True, keys=80), tolerance=2e-3)


def test_scores_near_the_end_of_float32() -> None:
    query, key = torch.tensor([1e18, -1e18]).view(1, 1, 2, 1), torch.tensor([-1e18, 0.0, 5e17]).view(1, 1, 3, 1)
    query, key, value = (one.requires_grad_() for one in (query, key, torch.randn(1, 1, 3, 4)))
    prior = NormalisedGamma(torch.tensor([0.5, 1.0, 2.0]), 1.0, support=Dense())
    made = sampled_attention(query, key, value, family=Weibull(1.0, anchor="softmax"), prior=prior, seed=SEED)
    assert torch.equal(made.context[0, 0, 0], value[0, 0, [2, 0]])
    torch.testing.assert_close(made.kl[0, 0], torch.tensor([1.25e36, 4e36]))
    made.context.sum().backward()
    assert all(one.grad is not None and torch.isfinite(one.grad).all() for one in (query, key, value))


def test_an_overflowing_kl_is_infinite_and_no_nan() -> None:
    x = torch.full((1, 1, 2, 1), 12.0)
    prior = NormalisedGamma(torch.ones(2), 1.0, support=Dense())
    made = sampled_attention(x, x, x, family=Weibull(1.0, anchor="exp"), prior=prior, seed=SEED)
    assert torch.isposinf(made.kl).all() and torch.isfinite(made.context).all()


@pytest.mark.parametrize("mask", ["none", "padding", "float-empty", "causal"])
@pytest.mark.parametrize("family", ["weibull", "lognormal", "gumbel"])
def test_equals_the_facade(family: str, mask: str) -> None:
    """The same seed gives the same draw; weights are asked for, so that the facade makes them."""
    case = Case(family, "none", mask=mask, law=0.5, queries=20, keys=70)
    leaves = case.leaves()
    expected = scaled_dot_product_attention(
        *(leaves[name] for name in ("query", "key", "value")),
        mask_of(case),
        is_causal=mask == "causal",
        family=case.laws(leaves, Dense())[0],
        need_weights=True,
        seed=SEED,
    )
    torch.testing.assert_close(case.attend(leaves).context[0], expected.context, rtol=2e-5, atol=2e-6)


def test_cases_differ() -> None:
    """The comparisons above can fail: another anchor, seed or k is another answer."""
    case = Case()
    leaves = case.leaves()
    made = case.attend(leaves)
    assert not torch.allclose(made.kl, replace(case, anchor="exp").attend(leaves).kl)
    assert not torch.allclose(made.context, replace(case, is_noisy=False).attend(leaves).context)
    assert not torch.allclose(made.context, replace(case, mask="causal").attend(leaves).context)
    with pytest.raises(AssertionError, match="context"):
        compare(case, tolerance=1e-9)
