"""Tensors without data: nothing may assume the CPU, read contents, or change a dtype.

The meta device is a device of its own: an operation that mixes it with a CPU tensor raises. Under FakeTensorMode
reading a tensor's contents raises. A fake accelerator cannot be indexed where torch was built without it, so it is not
tried here.
"""

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from probattn import MultiheadAttention, record_latents, sampling, scaled_dot_product_attention
from tests.nn.families import CONFIGURATIONS, Configuration

B, H, T, S, D = 2, 2, 3, 4, 4
E = H * D
EVERY = pytest.mark.parametrize("row", CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
NO_GAMMA_GRADIENT = pytest.mark.xfail(
    raises=NotImplementedError, strict=True, reason="torch has no meta kernel for _standard_gamma_grad"
)
EVERY_WITH_GRADIENT = pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=name, marks=NO_GAMMA_GRADIENT if name.startswith("dirichlet") else ())
        for name, row in CONFIGURATIONS.items()
    ],
)


def attend(row: Configuration, device: str, dtype: torch.dtype, mask: str) -> tuple[Tensor, Tensor, Tensor]:
    """Context, KL and inputs of `scaled_dot_product_attention` on a device."""
    shapes = ((T, D), (S, D), (S, D))
    inputs = [torch.empty(B, H, *shape, device=device, dtype=dtype, requires_grad=True) for shape in shapes]
    arguments = row.arguments(D, H)
    if arguments["prior"] is not None:
        arguments["prior"] = arguments["prior"].to(device=device, dtype=dtype)
    options = {
        "none": {},
        "causal": {"is_causal": True},
        "bool": {"attn_mask": torch.ones(B, 1, T, S, dtype=torch.bool, device=device)},
        "float": {"attn_mask": torch.zeros(T, S, dtype=dtype, device=device)},
    }[mask]
    result = scaled_dot_product_attention(*inputs, need_weights=True, **options, **arguments)
    assert result.context.shape == (B, H, T, D)
    assert result.weights.shape == (B, H, T, S)
    assert result.kl.shape == (B, H, T)
    for tensor in (result.context, result.weights, result.kl, result.latent.seed):
        assert tensor.device.type == torch.device(device).type
    assert result.context.dtype == dtype
    assert result.kl.dtype == torch.promote_types(dtype, torch.float32)
    return result.context, result.kl, inputs[0]


@EVERY
@pytest.mark.parametrize(
    ("mask", "dtype"),
    [("none", torch.float64), ("causal", torch.float16), ("bool", torch.float32), ("float", torch.bfloat16)],
)
def test_attention_on_meta(row: Configuration, mask: str, dtype: torch.dtype) -> None:
    attend(row, "meta", dtype, mask)


@EVERY_WITH_GRADIENT
def test_gradients_on_meta(row: Configuration) -> None:
    context, kl, query = attend(row, "meta", torch.float32, "bool")
    (context.sum() + kl.sum()).backward()
    if row.family is None or row.estimator is None:
        assert query.grad.shape == query.shape
        assert query.grad.device.type == "meta"


@EVERY
@pytest.mark.parametrize("is_sampling", [True, False])
def test_multihead_attention_on_meta(row: Configuration, is_sampling: bool) -> None:
    module = MultiheadAttention(E, H, batch_first=True, add_bias_kv=True, add_zero_attn=True, **row.arguments(D, H))
    module.to("meta")
    x = torch.empty(B, T, E, device="meta")
    padding = torch.zeros(B, T, dtype=torch.bool, device="meta")
    mask = torch.zeros(T, T, device="meta")
    with sampling(module, is_sampling, seed=3), record_latents(module) as record:
        output, weights = module(x, x, x, key_padding_mask=padding, attn_mask=mask)
    assert output.shape == (B, T, E)
    assert weights.shape == (B, T, T + 2)
    assert {tensor.device.type for tensor in (output, weights, record.kl(), record.latents[0].seed)} == {"meta"}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_modules_are_built_on_a_device_and_in_a_dtype(dtype: torch.dtype) -> None:
    module = MultiheadAttention(E, H, device="meta", dtype=dtype)
    assert {parameter.device.type for parameter in module.parameters()} == {"meta"}
    assert {parameter.dtype for parameter in module.parameters()} == {dtype}
    copied = MultiheadAttention.from_torch(torch.nn.MultiheadAttention(E, H, device="meta", dtype=dtype))
    assert {parameter.device.type for parameter in copied.parameters()} == {"meta"}
    assert {parameter.dtype for parameter in copied.parameters()} == {dtype}


@EVERY
def test_fake_tensors(row: Configuration) -> None:
    """No branch depends on the contents of a tensor; forward and backward."""
    with FakeTensorMode():
        module = MultiheadAttention(E, H, batch_first=True, **row.arguments(D, H))
        x = torch.randn(B, T, E)
        padding = torch.zeros(B, T, dtype=torch.bool)
        output, result = module.forward_with_latents(x, x, x, key_padding_mask=padding, need_weights=True)
        assert output.shape == (B, T, E)
        (output.sum() + result.kl.sum()).backward()
        assert module.in_proj_weight.grad.shape == module.in_proj_weight.shape
