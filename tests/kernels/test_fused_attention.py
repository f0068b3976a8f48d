"""The façade's way without weights gives what its way with weights gives, and is taken where it should be."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from probattn.core.estimators import Enumerate, Estimator, Mean, Pathwise
from probattn.distributions import (
    Categorical,
    Family,
    GammaPrior,
    GumbelSoftmax,
    Lognormal,
    LognormalPrior,
    Weibull,
)
from probattn.kernels import native
from probattn.kernels.native import Status
from probattn.nn import Conditional, Fixed, KeyPrior, MultiheadAttention, Uniform, fused_attention
from probattn.nn.functional import AttentionResult, scaled_dot_product_attention

HEADS, DIM = 4, 8
Law = tuple[Family | None, Callable[[], Conditional | None]]

LAWS: dict[str, Law] = {
    "soft": (None, lambda: None),
    "Weibull": (Weibull(2.0), lambda: None),
    "Gumbel": (GumbelSoftmax(0.5), lambda: None),
    "WC": (Weibull(2.0, anchor="softmax"), lambda: KeyPrior(DIM, GammaPrior(rate=0.5))),
    "WC per head": (Weibull(2.0, anchor="softmax"), lambda: KeyPrior(DIM, GammaPrior(rate=0.5), num_heads=HEADS)),
    "WF, exp": (Weibull(2.0), lambda: Fixed(GammaPrior(rate=0.5), 0.3)),
    "LC": (Lognormal(0.4, anchor="softmax"), lambda: KeyPrior(DIM, LognormalPrior(2.0, location="log_psi"))),
    "LF, exp": (Lognormal(0.4), lambda: Fixed(LognormalPrior(2.0), 0.3)),
}
MASKS: dict[str, Tensor | None] = {
    "none": None,
    "padding": (torch.arange(21) < torch.tensor([21, 13])[:, None]).view(2, 1, 1, 21),
    "padding, no axes": torch.arange(21) < 17,
    "bool": torch.rand(9, 21, generator=torch.Generator().manual_seed(0)) > 0.4,
    "float": torch.randn(2, 1, 9, 21, generator=torch.Generator().manual_seed(0)),
    "empty row": torch.arange(9).unsqueeze(-1) > 2 + torch.zeros(21),
}


def attend(name: str, mask: Tensor | None = None, **options: Any) -> tuple[AttentionResult, list[Tensor]]:
    """The result and all gradients; with `groups`, that many heads of keys."""
    torch.manual_seed(0)
    family, make_prior = LAWS[name]
    prior = make_prior()
    groups = options.pop("groups", HEADS)
    rows = [torch.randn(2, heads, size, DIM) for heads, size in ((HEADS, 9), (groups, 21), (groups, 21))]
    inputs = [one.requires_grad_() for one in rows]
    options = {"seed": torch.tensor(5), "enable_gqa": groups < HEADS, **options}
    result = scaled_dot_product_attention(*inputs, attn_mask=mask, family=family, prior=prior, **options)
    total = result.context.square().sum() + (result.kl * torch.linspace(0.1, 1.0, 9)).sum()
    leaves = [*inputs, *(() if prior is None else prior.parameters())]
    return result, list(torch.autograd.grad(total, leaves, allow_unused=True))


def assert_alike(fused: tuple[AttentionResult, list[Tensor]], other: tuple[AttentionResult, list[Tensor]]) -> None:
    assert fused[0].latent.draw.value is None and other[0].latent.draw.value is not None
    torch.testing.assert_close(fused[0].context, other[0].context, rtol=1e-5, atol=2e-6)
    torch.testing.assert_close(fused[0].kl, other[0].kl, rtol=1e-5, atol=1e-5)
    for mine, theirs in zip(fused[1], other[1], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-4, atol=2e-5)


@pytest.fixture(params=["torch", "C++"])
def fusing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A back end that is used whatever the size."""
    if request.param == "C++":
        request.getfixturevalue("native_kernels")
    monkeypatch.setattr(fused_attention, "_MANY_SCORES", 0)
    return str(request.param)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("law", LAWS)
def test_without_weights_as_with_them(fusing: str, law: str, mask: str) -> None:
    assert_alike(attend(law, MASKS[mask]), attend(law, MASKS[mask], need_weights=True))


@pytest.mark.parametrize("law", LAWS)
def test_causal_and_grouped_heads(fusing: str, law: str) -> None:
    for options in ({"is_causal": True}, {"groups": 2}, {"groups": 1, "is_causal": True}):
        assert_alike(attend(law, **options), attend(law, **options, need_weights=True))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("lead", [(2, HEADS), (HEADS,)])
def test_grouped_heads_that_look_at_different_keys(fusing: str, lead: tuple[int, ...], law: str) -> None:
    mask = torch.rand(*lead, 9, 21, generator=torch.Generator().manual_seed(0)) > 0.4
    mask[..., 0, :, 3:9] = False  # keys that only some heads of a group see
    assert_alike(attend(law, mask, groups=2), attend(law, mask, groups=2, need_weights=True))


@pytest.mark.parametrize("law", ["soft", "Weibull", "WC", "LF, exp"])
def test_transforms_of_functions_go_the_general_way(fusing: str, law: str) -> None:
    torch.manual_seed(0)
    family, make_prior = LAWS[law]
    prior, (query, key) = make_prior(), torch.randn(2, 3, HEADS, 5, DIM)

    def loss(query: Tensor, key: Tensor) -> Tensor:
        seed = torch.tensor(5)
        result = scaled_dot_product_attention(query, key, key, family=family, prior=prior, seed=seed)
        return result.context.square().sum() + result.kl.sum()

    found = torch.func.vmap(torch.func.grad(loss))(query, key)
    for number in range(3):
        inputs = [one[number : number + 1].clone().requires_grad_() for one in (query, key)]
        (expected,) = torch.autograd.grad(loss(*inputs), inputs[0])
        torch.testing.assert_close(found[number], expected[0], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("law", ["WC", "LF, exp"])
def test_plug_in_weights_keep_their_kl(fusing: str, law: str) -> None:
    assert_alike(attend(law, estimator=Mean()), attend(law, estimator=Mean(), need_weights=True))


def test_three_axes_are_one_head(fusing: str) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 5, DIM), torch.randn(3, 7, DIM), torch.randn(3, 7, 2)
    prior, mask = KeyPrior(DIM, GammaPrior(rate=0.5)), torch.rand(3, 5, 7) > 0.3
    options = {"family": Weibull(2.0, anchor="softmax"), "prior": prior, "attn_mask": mask, "seed": torch.tensor(1)}
    fused = scaled_dot_product_attention(query, key, value, **options)
    other = scaled_dot_product_attention(query, key, value, need_weights=True, **options)
    assert fused.latent.draw.value is None
    torch.testing.assert_close(fused.context, other.context, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(fused.kl, other.kl, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"estimator": Pathwise()},  # densities of the draw are asked for
        {"family": Categorical(), "estimator": Enumerate()},
        {"family": Weibull(torch.rand(2, 4, 9, 21) + 1.0)},  # a law for each score
        {"prior": KeyPrior(DIM, GammaPrior(), normalises="set"), "attn_mask": MASKS["bool"]},  # a row for each query
        {"prior": Uniform(GammaPrior()), "attn_mask": MASKS["bool"]},
        {"prior": KeyPrior(DIM, GammaPrior(), normalises="set", scale=2.0), "is_causal": True},  # alpha above one
        {"attn_mask": torch.zeros(9, 21, requires_grad=True)},  # a mask that is learned
    ],
    ids=["densities", "enumeration", "law of scores", "rows", "uniform rows", "large", "learned mask"],
)
def test_what_needs_all_scores_has_them(fusing: str, options: dict[str, Any]) -> None:
    rows = [torch.randn(2, HEADS, size, DIM) for size in (9, 21, 21)]
    try:
        result = scaled_dot_product_attention(*rows, **{"family": Weibull(2.0), **options})
    except ValueError as error:
        assert "one particle" in str(error)  # the estimator's own business
    else:
        assert result.latent.draw.value is not None


@pytest.mark.parametrize("prior", [KeyPrior(DIM, GammaPrior(), normalises="set"), Uniform(GammaPrior())])
def test_a_prior_over_sets_is_one_row_where_all_queries_see_alike(fusing: str, prior: Conditional) -> None:
    rows = [torch.randn(2, HEADS, size, DIM) for size in (9, 21, 21)]
    for mask in (None, MASKS["padding"]):
        made = [
            scaled_dot_product_attention(
                *rows, attn_mask=mask, family=Weibull(2.0), prior=prior, seed=torch.tensor(0), need_weights=asked
            )
            for asked in (False, True)
        ]
        assert made[0].latent.draw.value is None
        torch.testing.assert_close(made[0].kl, made[1].kl, rtol=1e-5, atol=1e-5)


def test_small_matrices_are_made_in_plain_torch() -> None:
    assert attend("WC")[0].latent.draw.value is not None


def test_dropout_is_drawn_anew_and_keeps_the_mean(fusing: str) -> None:
    rows = [torch.ones(1, 1, size, 4) for size in (2000, 50, 50)]
    first, second = (scaled_dot_product_attention(*rows, dropout_p=0.5, family=Weibull(9.0)).context for _ in range(2))
    assert not torch.equal(first, second)
    assert float(first.mean()) == pytest.approx(1.0, abs=0.02)


def test_all_weights_may_be_dropped(fusing: str) -> None:
    assert attend("soft", dropout_p=1.0)[0].context.abs().max() == 0.0


def test_keys_that_nobody_sees_may_hold_anything(fusing: str) -> None:
    rows = [torch.randn(2, HEADS, size, DIM) for size in (9, 21, 21)]
    spoiled = [rows[0], *(one.clone() for one in rows[1:])]
    for one in spoiled[1:]:
        one[:, :, 17:] = torch.nan
    options = {"attn_mask": MASKS["padding, no axes"], "family": Weibull(2.0), "seed": torch.tensor(0)}
    clean = scaled_dot_product_attention(*rows, **options)
    assert torch.equal(scaled_dot_product_attention(*spoiled, **options).context, clean.context)


def test_a_nan_is_told(fusing: str) -> None:
    rows = [torch.randn(2, HEADS, size, DIM) for size in (9, 21, 21)]
    rows[0][0, 0, 3] = torch.nan
    with pytest.raises(ValueError, match="attention scores .* NaN"):
        scaled_dot_product_attention(*rows, family=Weibull(2.0))


def test_padded_queries_have_no_kl(fusing: str) -> None:
    query_mask = torch.arange(9) < 4
    result, _ = attend("WC", query_mask=query_mask)
    assert bool((result.kl[..., 4:] == 0.0).all()) and bool((result.kl[..., :4] != 0.0).all())


@pytest.mark.parametrize("estimator", [None, Mean()])
def test_multihead_attention_uses_it(fusing: str, estimator: Estimator | None) -> None:
    torch.manual_seed(0)
    module = MultiheadAttention(
        16,
        2,
        batch_first=True,
        family=Weibull(3.0, anchor="softmax"),
        prior=KeyPrior(8, GammaPrior()),
        estimator=estimator,
    )
    x, padding = torch.randn(2, 6, 16), torch.arange(6) >= torch.tensor([6, 4])[:, None]
    torch.manual_seed(1)
    fused, result = module.forward_with_latents(x, x, x, key_padding_mask=padding)
    torch.manual_seed(1)
    other, slow = module.forward_with_latents(x, x, x, key_padding_mask=padding, need_weights=True)
    assert result.latent.draw.value is None and slow.weights is not None
    torch.testing.assert_close(fused, other, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(result.kl, slow.kl, rtol=1e-5, atol=1e-5)


def test_a_large_call_builds_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, built: Status
) -> None:
    builds = []

    def build(verbose: bool) -> Status:
        builds.append(verbose)
        return built

    monkeypatch.setattr(native, "_status", Status(False, "not built", None, may_build=True))
    monkeypatch.setattr(native, "_built", build)
    small, large = torch.randn(1, 1, 8, 8), torch.randn(1, 1, 1600, 8)
    assert scaled_dot_product_attention(small, small, small, family=Weibull(2.0)).latent.draw.value is not None
    assert not builds
    with caplog.at_level("INFO", logger="probattn.kernels"):
        for _ in range(2):
            result = scaled_dot_product_attention(large, large, large, family=Weibull(2.0))
            assert result.latent.draw.value is None
    assert builds == [False]
    assert sum("building C++ kernels" in message for message in caplog.messages) == 1
