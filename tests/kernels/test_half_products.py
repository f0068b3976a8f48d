"""The readout with bfloat16 factors: against rounded and exact products, and where it must not be taken."""

import pytest
import torch
from torch import Tensor

from probattn.kernels import Credit, half_products, has_half_products, latent_cross_entropy, row_readout


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


def with_rounded_factors(
    hidden: Tensor, weight: Tensor, bias: Tensor, *, target: Tensor, credit: float
) -> tuple[Tensor, list[Tensor]]:
    """(N) log-likelihoods, and gradients of credit * their sum, in float64 but for factors of the products."""

    def halved(x: Tensor) -> Tensor:
        return x.detach().float().bfloat16().double()

    states, rows = halved(hidden[0]), halved(weight)
    log_probs = (states @ rows.T + bias.detach().double()).log_softmax(-1)
    derivative = credit * (torch.nn.functional.one_hot(target, len(weight)) - log_probs.exp())  # of the logits
    found = log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    rounded = halved(derivative)
    return found, [(rounded @ rows).unsqueeze(0), rounded.T @ states, derivative.sum(dim=0)]


SIZES = [(1, 2, 1), (11, 4, 7), (513, 6, 17), (1537, 34, 300), (1024, 16, 32), (9217, 8, 40)]  # (V, D, N)


@pytest.mark.usefixtures("half")
@pytest.mark.parametrize(("words", "width", "targets"), SIZES)
@pytest.mark.parametrize("credit", [everything, None])
@pytest.mark.parametrize("chunk", [None, 16], ids=["one chunk", "several chunks"])
def test_factors_are_rounded_and_nothing_else(
    words: int, width: int, targets: int, credit: Credit | None, chunk: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if chunk is not None:
        monkeypatch.setattr(row_readout, "_CHUNK_LOGITS", 1)
        monkeypatch.setattr(row_readout, "_MIN_ROWS", chunk)
    (hidden, weight, bias), target = one_particle(words, width, targets)
    with half_products():
        ours = latent_cross_entropy(hidden, weight, bias=bias, target=target, credit=credit)
    grads = torch.autograd.grad(-0.7 * ours.sum(), [hidden, weight, bias])
    inside = -0.7 if credit is None else 1.0  # what is known of the factor before the derivative is rounded
    expected, expected_grads = with_rounded_factors(hidden, weight, bias, target=target, credit=inside)
    assert ours.dtype == torch.float32 and torch.allclose(ours[0].double(), expected, atol=1e-5)
    exact = torch.autograd.grad(plain(hidden, weight, bias, target).sum(), [hidden, weight, bias])
    for mine, theirs, unrounded in zip(grads, expected_grads, exact, strict=True):
        assert mine.dtype == torch.float32
        wanted = -0.7 / inside * theirs
        distance = float((mine.double() - wanted).norm())
        assert distance <= 1e-3 * float(wanted.norm()) + 1e-6  # a derivative may fall on the other side of a tie
        if words > 1:
            assert 0.0 < float((mine + 0.7 * unrounded).norm()) < 0.01 * float(unrounded.norm())


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


@pytest.mark.usefixtures("half")
def test_a_row_without_credit_is_not_looked_at() -> None:
    (hidden, weight, bias), target = one_particle(9, 4, 5)
    broken = hidden.detach().clone()
    broken[0, 2] = torch.nan
    broken.requires_grad_()
    given = torch.tensor([[1.0, 0.5, 0.0, 2.0, 1.0]])
    with half_products():
        log_lik = latent_cross_entropy(broken, weight, bias=bias, target=target, credit=lambda _, part: given[:, part])
        others = latent_cross_entropy(hidden, weight, bias=bias, target=target, credit=lambda _, part: given[:, part])
    found = torch.autograd.grad(log_lik, [broken, weight, bias], given)
    for mine, theirs in zip(found, torch.autograd.grad(others, [hidden, weight, bias], given), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.usefixtures("half")
@pytest.mark.parametrize("bits", [0x7FC00000, 0x7FFFFFFF, -1])
def test_a_nan_is_seen(bits: int) -> None:
    (hidden, weight, bias), target = one_particle(9, 4, 5)
    hidden.detach()[0, 2, 1] = torch.tensor(bits, dtype=torch.int32).view(torch.float32)
    with half_products():
        found = latent_cross_entropy(hidden, weight, bias=bias, target=target)
    assert found.isnan().tolist() == [[False, False, True, False, False]]


@pytest.mark.usefixtures("half")
def test_a_weight_that_is_a_transpose() -> None:
    (hidden, weight, bias), target = one_particle(9, 4, 5)
    turned = weight.detach().T.contiguous().requires_grad_()
    with half_products():
        found = latent_cross_entropy(hidden, turned.T, bias=bias, target=target, credit=everything)
        expected = latent_cross_entropy(hidden, weight, bias=bias, target=target, credit=everything)
    assert torch.equal(found, expected)
    (mine,), (theirs,) = torch.autograd.grad(found.sum(), [turned]), torch.autograd.grad(expected.sum(), [weight])
    assert torch.equal(mine.T, theirs)


@pytest.mark.usefixtures("half")
def test_without_onednn_products_are_float32() -> None:
    (hidden, weight, bias), target = one_particle(9, 4, 5)
    expected = latent_cross_entropy(hidden, weight, bias=bias, target=target)
    before = torch.backends.mkldnn.set_flags(False)[0]
    try:
        assert not has_half_products()
        with half_products():
            assert torch.equal(latent_cross_entropy(hidden, weight, bias=bias, target=target), expected)
    finally:
        torch.backends.mkldnn.set_flags(before)
    assert has_half_products()


@pytest.mark.usefixtures("half")
@pytest.mark.parametrize("particles", [1, 3])
def test_half_products_change_nothing_where_they_do_not_serve(particles: int) -> None:
    hidden, weight, target = torch.randn(particles, 5, 3), torch.randn(9, 3), torch.randint(9, (5,))  # an odd width
    if particles > 1:
        hidden, weight = hidden[..., :2].contiguous(), weight[:, :2].contiguous()  # they compete
    expected = latent_cross_entropy(hidden, weight, bias=None, target=target)
    with half_products():
        assert torch.equal(latent_cross_entropy(hidden, weight, bias=None, target=target), expected)


@pytest.mark.usefixtures("half")
def test_half_products_end_with_their_block() -> None:
    (hidden, weight, bias), target = one_particle(9, 4, 5)
    expected = latent_cross_entropy(hidden, weight, bias=bias, target=target)
    with pytest.raises(KeyError), half_products():
        raise KeyError
    assert torch.equal(latent_cross_entropy(hidden, weight, bias=bias, target=target), expected)
