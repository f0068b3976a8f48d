"""Inputs that break attention elsewhere: a finite answer with finite gradients, or a clear error, never a silent NaN.

Sizes: B batch, H heads, T queries, S keys, D features, E = H * D.
"""

import pytest
import torch
from torch import Tensor

from probattn import (
    Dirichlet,
    Fixed,
    GammaPrior,
    KeyPrior,
    Lognormal,
    LognormalPrior,
    MultiheadAttention,
    Weibull,
    content_checks,
    sampling,
    scaled_dot_product_attention,
)
from tests.nn.families import CONFIGURATIONS, Configuration

B, H, T, S, D = 2, 2, 3, 4, 4
E = H * D
EVERY = pytest.mark.parametrize("row", CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
HALF = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])


def tensors(num_keys: int = S, *, factor: float = 1.0) -> list[Tensor]:
    shapes = ((T, D), (num_keys, D), (num_keys, D))
    return [torch.randn(B, H, *shape).mul(factor if i < 2 else 1.0).requires_grad_() for i, shape in enumerate(shapes)]


def attend_and_differentiate(inputs: list[Tensor], row: Configuration, **options: object) -> tuple[Tensor, Tensor]:
    """Context and KL; raises if anything, gradients included, is not finite."""
    arguments = row.arguments(D, H)
    parameters = [] if arguments["prior"] is None else list(arguments["prior"].parameters())
    result = scaled_dot_product_attention(*inputs, **options, **arguments)
    draw = result.latent.draw
    loss = result.context.sin().sum() + result.kl.sum() + (0.0 if draw.score is None else draw.score.sum())
    grads = torch.autograd.grad(loss, [*inputs, *parameters], allow_unused=True)
    for tensor in (result.context, result.kl, *(grad for grad in grads if grad is not None)):
        assert torch.isfinite(tensor).all()
    return result.context, result.kl


@EVERY
def test_scores_of_ten_thousand(row: Configuration) -> None:
    inputs = tensors(factor=200.0)
    scores = inputs[0] @ inputs[1].transpose(-1, -2) / D**0.5
    assert scores.max() > 1e4
    assert scores.min() < -1e4
    context, _ = attend_and_differentiate(inputs, row)
    assert context.abs().max() <= inputs[2].abs().max() * (1 + 1e-5)  # weights still sum to one


@EVERY
def test_a_row_with_nothing_to_see(row: Configuration) -> None:
    mask = torch.ones(B, H, T, S, dtype=torch.bool)
    mask[0, 1, 2] = False
    mask[1, :, :, -1] = False
    context, kl = attend_and_differentiate(tensors(), row, attn_mask=mask)
    assert not context[0, 1, 2].any()
    assert kl[0, 1, 2] == 0
    assert context[0, 1, 1].any()


@EVERY
@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_an_example_with_nothing_to_see(row: Configuration, kind: torch.dtype) -> None:
    module = MultiheadAttention(E, H, batch_first=True, **row.arguments(D, H))
    query, memory = torch.randn(B, T, E), torch.randn(B, S, E)
    padding = torch.tensor([[False] * S, [True] * S])
    padding = padding if kind == torch.bool else torch.zeros(B, S).masked_fill(padding, -torch.inf)
    output, result = module.forward_with_latents(query, memory, memory, key_padding_mask=padding)
    torch.testing.assert_close(output[1], module.out_proj.bias.expand(T, E))
    assert not result.kl[1].any()
    (output.sum() + result.kl.sum()).backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in module.parameters())


@EVERY
def test_one_key(row: Configuration) -> None:
    inputs = tensors(1)
    context, _ = attend_and_differentiate(inputs, row)
    torch.testing.assert_close(context, inputs[2].expand(B, H, T, D))


@pytest.mark.parametrize("name", [name for name in CONFIGURATIONS if not name.startswith("hard")])
def test_zero_keys(name: str) -> None:
    context, kl = attend_and_differentiate(tensors(0), CONFIGURATIONS[name])
    assert torch.equal(context, torch.zeros(B, H, T, D))
    assert torch.equal(kl, torch.zeros(B, H, T))


def test_a_hard_choice_among_zero_keys() -> None:
    with pytest.raises(ValueError, match="a hard choice needs at least one position, but the memory is empty"):
        attend_and_differentiate(tensors(0), CONFIGURATIONS["hard"])


@EVERY
def test_zero_queries(row: Configuration) -> None:
    _, key, value = tensors()
    context, kl = attend_and_differentiate([torch.randn(B, H, 0, D, requires_grad=True), key, value], row)
    assert context.shape == (B, H, 0, D)
    assert kl.shape == (B, H, 0)


@EVERY
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_query_or_key(row: Configuration, which: int, bad: float) -> None:
    inputs = [x.detach().clone() for x in tensors()]
    inputs[which][0, 0, 1, 2] = bad
    with pytest.raises(ValueError, match=r"attention scores of shape \(2, 2, 3, 4\) has .* not finite. Look for a NaN"):
        attend_and_differentiate([x.requires_grad_() for x in inputs], row)


def test_scores_that_overflow() -> None:
    """Finite inputs whose product is not: softmax of +inf would be NaN."""
    with pytest.raises(ValueError, match="attention scores .* not finite"):
        scaled_dot_product_attention(*tensors(factor=1e25))


@EVERY
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e30])
@pytest.mark.parametrize("is_causal", [False, True])
def test_bad_values_behind_padding(row: Configuration, bad: float, is_causal: bool) -> None:
    """Cross-attention to a memory whose padding was never written: output, KL and all gradients are as without it."""
    module = MultiheadAttention(E, H, batch_first=True, **row.arguments(D, H))
    query, memory = torch.randn(B, T, E), torch.randn(B, S, E)
    results = []
    for extra in (0, 2):
        padded = torch.nn.functional.pad(memory, (0, 0, 0, extra), value=bad)
        padding = torch.nn.functional.pad(torch.zeros(B, S, dtype=torch.bool), (0, extra), value=True)
        mask = torch.ones(T, S + extra, dtype=torch.bool).triu(1) if is_causal else None
        with sampling(module, seed=1):
            output, result = module.forward_with_latents(
                query, padded, padded, key_padding_mask=padding, attn_mask=mask
            )
        loss = output.sin().sum() + result.kl.sum()
        grads = torch.autograd.grad(loss, list(module.parameters()), allow_unused=True)
        results.append([output, result.kl, *(grad for grad in grads if grad is not None)])
    for plain, padded in zip(*results, strict=True):
        assert torch.isfinite(padded).all()
        torch.testing.assert_close(padded, plain, rtol=1e-4, atol=1e-5)


def test_a_bad_padded_query_is_named() -> None:
    """In self-attention padding is a query too; its NaN would reach the gradient of the projections."""
    module = MultiheadAttention(E, H, batch_first=True)
    x = torch.randn(B, T, E)
    x[1, 2] = float("nan")
    padding = torch.tensor([[False] * T, [False, False, True]])
    with pytest.raises(ValueError, match="attention scores .* not finite"):
        module(x, x, x, key_padding_mask=padding)


# Half precision


@EVERY
@HALF
def test_autocast(row: Configuration, dtype: torch.dtype) -> None:
    """Weights and KLs are made in float32; outputs have the dtype that torch's module gives."""
    module = MultiheadAttention(E, H, batch_first=True, **row.arguments(D, H))
    reference = torch.nn.MultiheadAttention(E, H, batch_first=True)
    x = torch.randn(B, T, E)
    padding = torch.tensor([[False] * T, [False, False, True]])
    with torch.autocast("cpu", dtype=dtype):
        expected, _ = reference(x, x, x, key_padding_mask=padding)
        output, result = module.forward_with_latents(x, x, x, key_padding_mask=padding)
    assert output.dtype == expected.dtype
    assert result.kl.dtype == torch.float32
    (output.float().sin().sum() + result.kl.sum()).backward()
    for tensor in (output, result.kl, *(p.grad for p in module.parameters() if p.grad is not None)):
        assert torch.isfinite(tensor).all()


@EVERY
@HALF
def test_half_precision_modules(row: Configuration, dtype: torch.dtype) -> None:
    module = MultiheadAttention(E, H, batch_first=True, **row.arguments(D, H)).to(dtype)
    x = torch.randn(B, T, E, dtype=dtype)
    output, result = module.forward_with_latents(x, x, x, need_weights=True)
    assert output.dtype == dtype
    assert result.kl.dtype == torch.float32
    (output.float().sin().sum() + result.kl.sum()).backward()
    for tensor in (output, result.kl, *(p.grad for p in module.parameters() if p.grad is not None)):
        assert torch.isfinite(tensor).all()


@HALF
def test_autocast_without_sampling_equals_torch(dtype: torch.dtype) -> None:
    reference = torch.nn.MultiheadAttention(E, H, batch_first=True)
    module = MultiheadAttention.from_torch(reference, family=Weibull())
    x = torch.randn(B, T, E)
    with torch.autocast("cpu", dtype=dtype), sampling(module, False):
        expected, found = reference(x, x, x)[0], module(x, x, x)[0]
    tolerance = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@HALF
def test_large_scores_in_half_precision(dtype: torch.dtype) -> None:
    """A few thousand fit; what passes 65504 in float16 is named."""
    row = CONFIGURATIONS["weibull-keys"]
    with torch.autocast("cpu", dtype=dtype):
        attend_and_differentiate(tensors(factor=60.0), row)
    if dtype == torch.float16:
        with torch.autocast("cpu", dtype=dtype), pytest.raises(ValueError, match="half-precision scores above 65504"):
            attend_and_differentiate(tensors(factor=2000.0), row)


# The anchor


@pytest.mark.parametrize(
    ("family", "prior"),
    [(Weibull(5.0), GammaPrior()), (Weibull(5.0), GammaPrior(rate=1e-10))],
    ids=["rate 1", "rate 1e-10"],
)
@pytest.mark.parametrize("build", [lambda p: Fixed(p, 1.0), lambda p: KeyPrior(D, p)], ids=["fixed", "keys"])
def test_the_paper_anchor_overflows_with_a_clear_error(family: Weibull, prior: GammaPrior, build: object) -> None:
    inputs = tensors(factor=200.0)
    with pytest.raises(
        ValueError, match="the KL of the attention weights .* not finite. Use anchor='softmax', or smaller"
    ):
        scaled_dot_product_attention(*inputs, family=family, prior=build(prior))
    context = scaled_dot_product_attention(*inputs, family=family).context  # without a KL the anchor does not matter
    assert torch.isfinite(context).all()


def test_the_lognormal_anchor_does_not_overflow() -> None:
    """Its KL is quadratic in the scores: 1e4 squared fits."""
    prior = Fixed(LognormalPrior(), 1.0)
    kl = scaled_dot_product_attention(*tensors(factor=200.0), family=Lognormal(0.5), prior=prior).kl
    assert torch.isfinite(kl).all()


def test_dirichlet_concentrations_are_clamped() -> None:
    result = scaled_dot_product_attention(*tensors(factor=200.0), family=Dirichlet(), need_weights=True)
    torch.testing.assert_close(result.weights.sum(dim=-1), torch.ones(B, H, T))


def test_checks_can_be_switched_off() -> None:
    inputs = [x.detach() for x in tensors()]
    inputs[0][0, 0, 0, 0] = float("nan")
    with content_checks(False):
        context = scaled_dot_product_attention(*inputs).context
    assert torch.isnan(context).any()
    with pytest.raises(ValueError, match="attention scores"):
        scaled_dot_product_attention(*inputs)
