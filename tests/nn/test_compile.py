"""torch.compile(fullgraph=True) of the façade gives eager's numbers at a fixed sampling seed.

Tracing, the backward graph and code generation take seconds each, so each row goes as far as it has something new to
show, and the code generator is asked once, for one function that holds all forms.
"""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from probattn import MultiheadAttention, record_latents, sampling, set_sampling
from tests.nn.families import CONFIGURATIONS, Configuration

B, H, T, D = 2, 2, 5, 4
E = H * D


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def build(row: Configuration) -> MultiheadAttention:
    module = MultiheadAttention(E, H, batch_first=True, **row.arguments(D, H))
    set_sampling(module, True, seed=3)
    return module


X = torch.randn(B, T, E, generator=torch.Generator().manual_seed(0))
PADDING = torch.tensor([[False] * T, [False, False, False, True, True]])


class AllForms(nn.Module):
    """Mean and Pathwise, `forward` and `forward_with_latents`, in one graph."""

    def __init__(self) -> None:
        super().__init__()
        self.soft = MultiheadAttention(E, H, batch_first=True)
        self.drawn = build(CONFIGURATIONS["weibull-keys"])

    def forward(self, x: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
        x = x + self.soft(x, x, x, key_padding_mask=padding, need_weights=False)[0]
        output, result = self.drawn.forward_with_latents(x, x, x, key_padding_mask=padding)
        return output, result.kl


def gradients(module: nn.Module, output: Tensor, kl: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(output.sin().sum() + kl.sum(), list(module.parameters()), allow_unused=True))


def test_generated_code() -> None:
    """Forward and backward through the default backend."""
    module = AllForms()
    compiled = torch.compile(module, fullgraph=True)
    (output, kl), (found, found_kl) = (call(X, PADDING) for call in (module, compiled))
    torch.testing.assert_close(found, output)
    torch.testing.assert_close(found_kl, kl, rtol=1e-5, atol=1e-5)
    for mine, theirs in zip(gradients(module, found, found_kl), gradients(module, output, kl), strict=True):
        assert (mine is None) == (theirs is None)
        if theirs is not None:
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("soft", "aot_eager"),
        ("weibull-keys-per-head", "aot_eager"),
        ("lognormal-keys", "aot_eager"),
        ("dirichlet", "aot_eager"),
        ("straight-through", "eager"),
        ("hard-prior", "eager"),
    ],
)
# torch's tracer does this itself where it meets an autograd.Function.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_one_graph(name: str, backend: str) -> None:
    """forward_with_latents: output, KL and gradients equal eager's."""
    module = build(CONFIGURATIONS[name])
    compiled = torch.compile(module.forward_with_latents, fullgraph=True, backend=backend)
    (output, result), (found, found_result) = (
        call(X, X, X, key_padding_mask=PADDING) for call in (module.forward_with_latents, compiled)
    )
    torch.testing.assert_close(found, output)
    torch.testing.assert_close(found_result.kl, result.kl)
    assert torch.equal(found_result.latent.seed, result.latent.seed)
    for mine, theirs in zip(
        gradients(module, found, found_result.kl), gradients(module, output, result.kl), strict=True
    ):
        assert (mine is None) == (theirs is None)
        if theirs is not None:
            torch.testing.assert_close(mine, theirs)


def test_fresh_noise_in_a_graph() -> None:
    """Without a seed a compiled module draws anew on every call, and torch.manual_seed governs it."""
    module = build(CONFIGURATIONS["weibull"])
    set_sampling(module, True)
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    torch.manual_seed(1)
    first, second = compiled(X, X, X)[0], compiled(X, X, X)[0]
    torch.manual_seed(1)
    again = compiled(X, X, X)[0]
    assert not torch.equal(first, second)
    assert torch.equal(first, again)


def test_the_switch_reaches_a_compiled_module() -> None:
    module = build(CONFIGURATIONS["weibull"])
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    drawn = compiled(X, X, X)[0]
    with sampling(module, False):
        soft = compiled(X, X, X)[0]
        torch.testing.assert_close(soft, module(X, X, X)[0])
    assert not torch.allclose(soft, drawn)
    torch.testing.assert_close(compiled(X, X, X)[0], drawn)


def test_receipts_of_a_compiled_module() -> None:
    """The recorder works around a compiled module too, also when it was compiled before the block."""
    module = build(CONFIGURATIONS["weibull-keys"])
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    compiled(X, X, X)
    with record_latents(module) as record:
        compiled(X, X, X)
    with record_latents(module) as expected:
        module(X, X, X)
    assert len(record.latents) == 1
    torch.testing.assert_close(record.kl(), expected.kl())
