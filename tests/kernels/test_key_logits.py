"""The prior's network in C++ gives what `KeyPrior.logits` gives, and its gradients."""

import pytest
import torch
from torch import Tensor

from probattn.distributions import GammaPrior
from probattn.kernels.key_logits import key_logits
from probattn.nn import KeyPrior


def network(heads: int | None, dim: int, hidden: int, dtype: torch.dtype) -> KeyPrior:
    torch.manual_seed(0)
    prior = KeyPrior(dim, GammaPrior(), hidden_dim=hidden, num_heads=heads).to(dtype)
    torch.nn.init.normal_(prior.hidden_bias)
    return prior


def outcome(prior: KeyPrior, keys: Tensor, above: Tensor, *, in_cpp: bool) -> list[Tensor]:
    leaves = [keys, prior.hidden_weight, prior.hidden_bias, prior.out_weight]
    logits = key_logits(*leaves) if in_cpp else prior.logits(keys, head_axis=-2)
    assert logits is not None
    return [logits.detach(), *torch.autograd.grad(logits, leaves, above)]


@pytest.mark.parametrize(
    ("nodes", "heads", "own", "dim", "hidden"),
    [(1500, 8, 8, 8, 5), (700, 3, None, 7, 4), (64, 2, 2, 3, 1), (1, 1, 1, 1, 1), (0, 2, 2, 3, 4)],
)
def test_as_torch(native_kernels: None, nodes: int, heads: int, own: int | None, dim: int, hidden: int) -> None:
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        prior = network(own, dim, hidden, dtype)
        keys = torch.randn(nodes, heads, dim, dtype=dtype, requires_grad=True)
        above = torch.randn(nodes, heads, dtype=dtype)
        mine, theirs = (outcome(prior, keys, above, in_cpp=in_cpp) for in_cpp in (True, False))
        for one, other in zip(mine, theirs, strict=True):
            largest = float(other.abs().max()) if other.numel() else 1.0
            torch.testing.assert_close(one, other, rtol=0.0, atol=tolerance * max(1.0, largest))


def test_any_number_of_threads(native_kernels: None) -> None:
    prior = network(4, 6, 5, torch.float32)
    keys, above = torch.randn(5000, 4, 6, requires_grad=True), torch.randn(5000, 4)
    before = torch.get_num_threads()
    made = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        made.append(outcome(prior, keys, above, in_cpp=True))
    torch.set_num_threads(before)
    for other in made[1:]:
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(made[0], other, strict=True))


def test_left_to_torch_without_the_back_end() -> None:
    prior = network(2, 3, 4, torch.float32)
    assert key_logits(torch.randn(5, 2, 3), prior.hidden_weight, prior.hidden_bias, prior.out_weight) is None


def test_second_derivative_is_refused(native_kernels: None) -> None:
    prior = network(2, 3, 4, torch.float32)
    keys = torch.randn(5, 2, 3, requires_grad=True)
    logits = key_logits(keys, prior.hidden_weight, prior.hidden_bias, prior.out_weight)
    assert logits is not None
    (gradient,) = torch.autograd.grad(logits.sum(), keys, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        gradient.sum().backward()
