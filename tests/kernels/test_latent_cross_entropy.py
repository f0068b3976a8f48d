"""The chunked readout against the straightforward one, in both back ends: values, gradients, credits, skipping."""

import pytest
import torch
from torch import Tensor

from probattn import Elbo, Marginal
from probattn.core import Bound, Draw
from probattn.kernels import latent_cross_entropy, native, row_readout

K, N, D, V = 4, 7, 5, 11


@pytest.fixture(params=["torch", "C++"], autouse=True)
def back_end(request: pytest.FixtureRequest) -> None:
    if request.param == "C++":
        request.getfixturevalue("native_kernels")


def problem(dtype: torch.dtype = torch.float32, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor, Tensor, Draw]:
    hidden = (scale * torch.randn(K, N, D)).to(dtype).requires_grad_()
    weight = torch.randn(V, D, dtype=dtype, requires_grad=True)
    bias = torch.randn(V, dtype=dtype, requires_grad=True)
    log_weight = torch.randn(K, N).log_softmax(0)
    draw = Draw(None, None, log_weight=log_weight, log_posterior=log_weight, log_prior=log_weight, is_enumerated=True)
    return hidden, weight, bias, torch.randint(V, (N,)), draw


def plain(hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
    logits = torch.nn.functional.linear(hidden, weight, bias)
    return logits.log_softmax(-1).gather(-1, target.expand(hidden.shape[:2]).unsqueeze(-1)).squeeze(-1)


def objective(bound: Bound, draw: Draw, log_lik: Tensor) -> Tensor:
    if isinstance(bound, Marginal):
        return torch.logsumexp(draw.log_weight + log_lik, dim=0).sum()
    return (draw.log_weight.exp() * log_lik).sum()


def credit_of(bound: Bound, draw: Draw):  # type: ignore[no-untyped-def]
    def credit(log_lik: Tensor, targets: slice) -> Tensor:
        part = draw.log_weight[:, targets]
        return bound.credit(Draw(None, None, part, part, part, is_enumerated=True), log_lik)

    return credit


@pytest.fixture(params=[1, 3 * K, 10**9], ids=["one target a chunk", "several chunks", "one chunk"])
def chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_readout, "_CHUNK_LOGITS", request.param * V)
    monkeypatch.setattr(row_readout, "_MIN_ROWS", 1)


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("bound", [Elbo(), Marginal()])
@pytest.mark.parametrize("with_credit", [True, False])
@pytest.mark.parametrize("scale", [1.0, 60.0], ids=["logits that exp bears", "logits that overflow"])
def test_values_and_gradients_equal_the_plain_readout(bound: Bound, with_credit: bool, scale: float) -> None:
    hidden, weight, bias, target, draw = problem(scale=scale)
    expected = plain(hidden, weight, bias, target)
    expected_grads = torch.autograd.grad(-0.3 * objective(bound, draw, expected), [hidden, weight, bias])
    credit = credit_of(bound, draw) if with_credit else None
    ours = latent_cross_entropy(hidden, weight, bias=bias, target=target, credit=credit)
    assert torch.allclose(ours, expected, atol=1e-5 * scale)
    grads = torch.autograd.grad(-0.3 * objective(bound, draw, ours), [hidden, weight, bias])
    for mine, theirs in zip(grads, expected_grads, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5 * scale)


def test_a_wrong_credit_costs_time_and_not_correctness() -> None:
    hidden, weight, bias, target, draw = problem()
    wrong = credit_of(Elbo(), draw)
    ours = latent_cross_entropy(hidden, weight, bias=bias, target=target, credit=wrong)
    grads = torch.autograd.grad(objective(Marginal(), draw, ours), [hidden, weight, bias])
    expected = torch.autograd.grad(
        objective(Marginal(), draw, plain(hidden, weight, bias, target)), [hidden, weight, bias]
    )
    for mine, theirs in zip(grads, expected, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)


def test_logits_are_computed_once_with_a_credit(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = row_readout.NativeRows if native.is_active() else row_readout.TorchRows
    calls = []
    original = kind.read
    monkeypatch.setattr(kind, "read", lambda *args: calls.append(1) or original(*args))
    hidden, weight, bias, target, draw = problem()
    credit = credit_of(Marginal(), draw)
    objective(
        Marginal(), draw, latent_cross_entropy(hidden, weight, bias=bias, target=target, credit=credit)
    ).backward()
    assert len(calls) == 1


def test_skipping_leaves_out_what_it_says() -> None:
    hidden, weight, bias, target, _ = problem()
    weights = torch.tensor([0.9, 0.0995, 0.0003, 0.0002]).unsqueeze(-1).expand(K, N).log()
    draw = Draw(None, None, weights, weights, weights, is_enumerated=True)
    exact, skipped = (
        torch.autograd.grad(
            objective(
                Elbo(),
                draw,
                latent_cross_entropy(
                    hidden, weight, bias=bias, target=target, credit=credit_of(Elbo(), draw), skip_below=threshold
                ),
            ),
            [hidden, weight],
        )
        for threshold in (0.0, 1e-3)
    )
    assert torch.equal(skipped[0][2:], torch.zeros(2, N, D))
    assert torch.allclose(skipped[0][:2], exact[0][:2], atol=1e-6)
    assert 0.0 < float((skipped[1] - exact[1]).abs().max()) < 1e-2


def test_a_second_backward_pass_gives_the_same_gradients() -> None:
    hidden, weight, bias, target, draw = problem()
    log_lik = latent_cross_entropy(hidden, weight, bias=bias, target=target, credit=credit_of(Elbo(), draw))
    loss = objective(Elbo(), draw, log_lik)
    first, second = (torch.autograd.grad(loss, [hidden, weight, bias], retain_graph=True) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_particles_without_credit_cost_no_gradient() -> None:
    hidden, weight, bias, target, _ = problem()
    log_weight = torch.tensor([0.0, -torch.inf, -torch.inf, -torch.inf]).unsqueeze(-1).expand(K, N)
    draw = Draw(None, None, log_weight, log_weight, log_weight)
    ours = latent_cross_entropy(hidden, weight, bias=bias, target=target, credit=credit_of(Elbo(), draw))
    grads = torch.autograd.grad(ours[0].sum(), [hidden, weight, bias])
    expected = torch.autograd.grad(plain(hidden, weight, bias, target)[0].sum(), [hidden, weight, bias])
    for mine, theirs in zip(grads, expected, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)


def test_no_bias_and_half_precision_inputs() -> None:
    hidden, weight, _, target, draw = problem(torch.bfloat16)
    ours = latent_cross_entropy(hidden, weight, bias=None, target=target, credit=credit_of(Elbo(), draw))
    assert ours.dtype == torch.float32
    objective(Elbo(), draw, ours).backward()
    assert hidden.grad is not None and hidden.grad.dtype == torch.bfloat16
    expected = plain(hidden.detach().float(), weight.detach().float(), None, target)
    assert torch.allclose(ours, expected, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("skip_below", [0.0, 1e-3])
def test_autocast_changes_nothing(dtype: torch.dtype, skip_below: float) -> None:
    hidden, weight, bias, target, _ = problem(scale=5.0)
    log_weight = torch.tensor([0.0, -1.0, -9.0, -torch.inf]).log_softmax(0).unsqueeze(-1).expand(K, N)
    draw = Draw(None, None, log_weight, log_weight, log_weight)

    def gradients() -> tuple[Tensor, ...]:
        ours = latent_cross_entropy(
            hidden, weight, bias=bias, target=target, credit=credit_of(Elbo(), draw), skip_below=skip_below
        )
        return torch.autograd.grad((draw.log_weight.exp()[:3] * ours[:3]).sum(), [hidden, weight, bias])

    expected = gradients()
    with torch.autocast("cpu", dtype):
        mine = gradients()
    for one, other in zip(mine, expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("scale", [0.9, 1.1])
def test_both_sides_of_the_safe_logit_agree(scale: float) -> None:
    weight, bias = torch.eye(3), torch.zeros(3)
    hidden = (60.0 * scale * torch.tensor([[[1.0, 0.0, 0.0], [0.0, -1.0, 0.0]]])).requires_grad_()
    target = torch.tensor([0, 1])
    ours = latent_cross_entropy(hidden, weight, bias=bias, target=target)
    expected = plain(hidden, weight, bias, target)
    assert torch.allclose(ours, expected, rtol=1e-5)
    assert torch.allclose(
        torch.autograd.grad(ours.sum(), hidden)[0], torch.autograd.grad(expected.sum(), hidden)[0], atol=1e-6
    )


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_nothing_to_read_out(shape: tuple[int, int]) -> None:
    hidden = torch.zeros(*shape, D, requires_grad=True)
    weight = torch.zeros(V, D, requires_grad=True)
    target = torch.zeros(shape[1], dtype=torch.int64)
    ours = latent_cross_entropy(hidden, weight, bias=None, target=target, credit=lambda log_lik, _: log_lik)
    assert ours.shape == shape
    ours.sum().backward()
    assert hidden.grad is not None and hidden.grad.shape == hidden.shape


def test_no_gradients_are_formed_without_grad_mode() -> None:
    hidden, weight, bias, target, _ = problem()
    asked = []
    with torch.no_grad():
        latent_cross_entropy(hidden, weight, bias=bias, target=target, credit=lambda *args: asked.append(args))  # type: ignore[arg-type, func-returns-value]
    assert not asked


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(ValueError, match=r"expected hidden \(K, N, D\)"):
        latent_cross_entropy(torch.zeros(2, 3), torch.zeros(4, 3), bias=None, target=torch.zeros(2, dtype=torch.long))


def test_threads_change_no_bit() -> None:
    hidden, weight = torch.randn(9, 40, 96, requires_grad=True), torch.randn(1100, 96, requires_grad=True)
    bias, target = torch.randn(1100, requires_grad=True), torch.randint(1100, (40,))
    log_weight = torch.randn(9, 40).log_softmax(0)
    draw = Draw(None, None, log_weight, log_weight, log_weight, is_enumerated=True)

    def outcome(threads: int) -> list[Tensor]:
        torch.set_num_threads(threads)
        credit = credit_of(Elbo(), draw)  # no softmax over particles: torch's own depends on threads in its last bits
        ours = latent_cross_entropy(hidden, weight, bias=bias, target=target, credit=credit)
        return [ours, *torch.autograd.grad(objective(Elbo(), draw, ours), [hidden, weight, bias])]

    try:
        for one, other in zip(outcome(1), outcome(2), strict=True):
            assert torch.equal(one, other)
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_float32_is_close_to_float64(scale: float) -> None:
    hidden, weight, bias, target, draw = problem(scale=scale)
    ours = latent_cross_entropy(hidden, weight, bias=bias, target=target, credit=credit_of(Elbo(), draw))
    leaves = [one.detach().double().requires_grad_() for one in (hidden, weight, bias)]
    expected = plain(*leaves, target)
    found = torch.autograd.grad(objective(Elbo(), draw, ours), [hidden, weight, bias])
    wanted = torch.autograd.grad(objective(Elbo(), draw, expected), leaves)
    for mine, theirs in zip([ours, *found], [expected, *wanted], strict=True):
        assert float((mine - theirs).detach().abs().max() / theirs.detach().abs().max()) <= 1e-5


def test_a_second_derivative_is_refused() -> None:
    hidden, weight, bias, target, draw = problem()
    ours = latent_cross_entropy(hidden, weight, bias=bias, target=target, credit=credit_of(Elbo(), draw))
    (grad,) = torch.autograd.grad(objective(Elbo(), draw, ours), hidden, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        (grad.sum() + weight.sum()).backward()


def test_a_target_outside_the_vocabulary() -> None:
    hidden, weight, bias, _, _ = problem()
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        latent_cross_entropy(hidden, weight, bias=bias, target=torch.full((N,), V))
