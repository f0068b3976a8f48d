"""The readout with bfloat16 factors: against rounded and exact products, and where it must not be taken."""

import pytest
import torch
from torch import Tensor

from probattn.kernels import Credit, half_products, has_half_products, latent_cross_entropy


def plain(hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
    logits = torch.nn.functional.linear(hidden, weight, bias)
    return logits.log_softmax(-1).gather(-1, target.expand(hidden.shape[:2]).unsqueeze(-1)).squeeze(-1)


def one_particle(words: int, width: int, targets: int) -> tuple[list[Tensor], Tensor]:
    """Hidden states, weight and bias, and targets; every size is one that does not fit a block or a tile."""
    leaves = [torch.randn(1, targets, width), 0.3 * torch.randn(words, width), torch.randn(words)]
    return [one.requires_grad_() for one in leaves], torch.randint(words, (targets,))


def everything(log_lik: Tensor, targets: slice) -> Tensor:
    return torch.ones_like(log_lik)


@pytest.fixture
def half(native_kernels: None) -> None:
    """Skips where products of bfloat16 factors cannot be taken."""
    if not has_half_products():
        pytest.skip("this processor does not multiply bfloat16 (AVX-512 BF16)")


@pytest.mark.usefixtures("half")
@pytest.mark.parametrize(("words", "width", "targets"), [(11, 4, 7), (513, 6, 17), (1537, 34, 300), (1024, 16, 32)])
@pytest.mark.parametrize("credit", [everything, None])
def test_factors_are_rounded_and_nothing_else(words: int, width: int, targets: int, credit: Credit | None) -> None:
    (hidden, weight, bias), target = one_particle(words, width, targets)
    with half_products():
        ours = latent_cross_entropy(hidden, weight, bias=bias, target=target, credit=credit)
    rounded = plain(hidden.bfloat16().float(), weight.bfloat16().float(), bias, target)
    assert torch.allclose(ours, rounded, atol=1e-5)
    exact = plain(hidden, weight, bias, target)
    assert 0.0 < float((ours - exact).detach().abs().max()) < 0.05
    grads = torch.autograd.grad(-0.7 * ours.sum(), [hidden, weight, bias])
    for mine, theirs in zip(grads, torch.autograd.grad(-0.7 * exact.sum(), [hidden, weight, bias]), strict=True):
        assert mine.dtype == torch.float32
        assert float((mine - theirs).norm() / theirs.norm()) < 0.01  # a bfloat16 has 8 bits: 0.2% of a factor


@pytest.mark.usefixtures("half")
def test_rows_without_credit_are_left_out() -> None:
    (hidden, weight, _), target = one_particle(40, 8, 20)
    given = torch.rand(1, 20)
    with half_products():
        ours = latent_cross_entropy(
            hidden, weight, bias=None, target=target, credit=lambda _, part: given[:, part], skip_below=0.5
        )
    (grad,) = torch.autograd.grad((given * ours).sum(), [hidden])
    (expected,) = torch.autograd.grad((given * plain(hidden, weight, None, target)).sum(), [hidden])
    assert torch.equal(grad[given <= 0.5], torch.zeros_like(grad[given <= 0.5]))
    assert torch.allclose(grad[given > 0.5], expected[given > 0.5], atol=0.01)


@pytest.mark.usefixtures("half")
def test_half_products_are_the_same_for_any_number_of_threads() -> None:
    (hidden, weight, bias), target = one_particle(1537, 16, 50)

    def run() -> list[Tensor]:
        with half_products():
            log_lik = latent_cross_entropy(hidden, weight, bias=bias, target=target, credit=everything)
        return [log_lik, *torch.autograd.grad(log_lik.sum(), [hidden, weight, bias])]

    before, threads = run(), torch.get_num_threads()
    try:
        torch.set_num_threads(2 if threads == 1 else 1)
        for one, other in zip(before, run(), strict=True):
            assert torch.equal(one, other)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("particles", [1, 3])
def test_half_products_change_nothing_where_they_do_not_serve(particles: int) -> None:
    hidden, weight, target = torch.randn(particles, 5, 3), torch.randn(9, 3), torch.randint(9, (5,))  # an odd width
    if particles > 1:
        hidden, weight = hidden[..., :2].contiguous(), weight[:, :2].contiguous()  # they compete
    expected = latent_cross_entropy(hidden, weight, bias=None, target=target)
    with half_products():
        assert torch.equal(latent_cross_entropy(hidden, weight, bias=None, target=target), expected)


def test_half_products_end_with_their_block() -> None:
    (hidden, weight, bias), target = one_particle(9, 4, 5)
    expected = latent_cross_entropy(hidden, weight, bias=bias, target=target)
    with pytest.raises(KeyError), half_products():
        raise KeyError
    assert torch.equal(latent_cross_entropy(hidden, weight, bias=bias, target=target), expected)
