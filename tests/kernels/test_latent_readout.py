"""`latent_readout_loss` against logits that are all kept, in float64 and in both back ends."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from probattn.kernels import latent_readout_loss, native, row_readout
from probattn.kernels.latent_readout_operator import latent_readout_operator

B, T, S, D, V = 2, 3, 5, 7, 1100  # three tiles of the vocabulary
GRADIENTS = ("query", "memory", "log_prior", "log_posterior", "weight", "bias")


@pytest.fixture(params=["torch", "C++"], autouse=True)
def back_end(request: pytest.FixtureRequest) -> str:
    if request.param == "C++":
        request.getfixturevalue("native_kernels")
    return str(request.param)


@pytest.fixture(params=[2, 10**6], ids=["a chunk for each target", "one chunk"])
def chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_readout, "_CHUNK_LOGITS", request.param)
    monkeypatch.setattr(row_readout, "_MIN_ROWS", 1)


def problem(
    *, is_elbo: bool = False, has_bias: bool = True, scale: float = 1.0, peak: float = 1.0, **sizes: int
) -> dict[str, Tensor]:
    """Leaves in float32, with padded positions, a target without a position, and one that is not read."""
    size = {"B": B, "T": T, "S": S, "D": D, "V": V} | sizes
    shape = size["B"], size["T"]
    scores = peak * torch.randn(2, *shape, size["S"])
    if size["S"] > 2:
        scores[:, :1, :, -2:] = -torch.inf
    if min(size["B"], size["T"]) > 1:
        scores[:, -1, 0] = -torch.inf
    log_prior, log_posterior = scores.log_softmax(-1).masked_fill(scores == -torch.inf, -torch.inf)
    made = {
        "query": torch.randn(*shape, size["D"]),
        "memory": torch.randn(size["B"], size["S"], size["D"]),
        "log_prior": log_prior,
        "weight": scale * torch.randn(size["V"], size["D"]),
    }
    made |= {"log_posterior": log_posterior} if is_elbo else {}
    made |= {"bias": scale * torch.randn(size["V"])} if has_bias else {}
    for one in made.values():
        one.requires_grad_()
    target_weight = torch.rand(shape) + 0.5
    target_weight.view(-1)[1:2] = 0.0
    return made | {"target": torch.randint(size["V"], shape), "target_weight": target_weight}


def reference(given: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """All logits at once, in float64; what is masked is left out by an index."""
    double = {name: one.detach().double().requires_grad_() for name, one in given.items() if name in GRADIENTS}
    hidden = torch.tanh(double["query"].unsqueeze(2) + double["memory"].unsqueeze(1))  # (B, T, S, D)
    log_prob = F.linear(hidden, double["weight"], double.get("bias")).log_softmax(-1)  # (B, T, S, V)
    log_weight = double.get("log_posterior", double["log_prior"])
    losses = torch.zeros(given["target"].shape, dtype=torch.float64)
    for index in torch.cartesian_prod(*(torch.arange(size) for size in losses.shape)).tolist():
        at = tuple(index)
        is_open = log_weight[at].detach() > -torch.inf
        factor = float(given["target_weight"][at])
        if factor == 0.0 or not is_open.any():
            continue
        log_lik = log_prob[at][is_open][:, given["target"][at]]
        weights, prior = log_weight[at][is_open], double["log_prior"][at][is_open]
        if "log_posterior" in double:
            losses[at] = -factor * (weights.exp() * (log_lik - weights + prior)).sum()
        else:
            losses[at] = -factor * torch.logsumexp(weights + log_lik, dim=0)
    found = torch.autograd.grad(losses.sum(), list(double.values()), allow_unused=True)
    return losses.detach(), {name: one for name, one in zip(double, found, strict=True) if one is not None}


def gradients(given: dict[str, Tensor], losses: Tensor) -> dict[str, Tensor]:
    leaves = {name: one for name, one in given.items() if name in GRADIENTS}
    found = torch.autograd.grad(losses.sum(), list(leaves.values()), retain_graph=True)
    return dict(zip(leaves, found, strict=True))


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Largest difference over the largest entry; NaN if there is one."""
    if found.numel() == 0:
        return 0.0
    return float((found.detach().double() - expected).abs().max() / expected.abs().max().clamp(min=1e-30))


def assert_equals_reference(given: dict[str, Tensor], losses: Tensor) -> None:
    expected, expected_gradients = reference(given)
    assert losses.shape == expected.shape
    assert relative_error(losses, expected) <= 1e-5
    for name, one in gradients(given, losses).items():
        assert relative_error(one, expected_gradients.get(name, torch.zeros(()))) <= 1e-5, name


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("is_elbo", [False, True], ids=["marginal", "ELBO"])
@pytest.mark.parametrize("has_bias", [False, True], ids=["no bias", "bias"])
def test_values_and_gradients(is_elbo: bool, has_bias: bool) -> None:
    given = problem(is_elbo=is_elbo, has_bias=has_bias)
    assert_equals_reference(given, latent_readout_loss(**given))


@pytest.mark.parametrize("is_elbo", [False, True], ids=["marginal", "ELBO"])
@pytest.mark.parametrize("sizes", [{"S": 1}, {"B": 1, "T": 1}, {"V": 2, "D": 1}, {"D": 64, "S": 40, "T": 9}], ids=str)
def test_sizes(sizes: dict[str, int], is_elbo: bool) -> None:
    given = problem(is_elbo=is_elbo, **sizes)
    assert_equals_reference(given, latent_readout_loss(**given))


@pytest.mark.parametrize("is_elbo", [False, True], ids=["marginal", "ELBO"])
def test_extreme_logits(is_elbo: bool) -> None:
    given = problem(is_elbo=is_elbo, scale=1e4)
    assert_equals_reference(given, latent_readout_loss(**given))


@pytest.mark.parametrize("sizes", [{"B": 0}, {"T": 0}, {"S": 0}], ids=str)
@pytest.mark.parametrize("is_elbo", [False, True], ids=["marginal", "ELBO"])
def test_nothing_to_read(sizes: dict[str, int], is_elbo: bool) -> None:
    given = problem(is_elbo=is_elbo, **sizes)
    losses = latent_readout_loss(**given)
    assert losses.shape == given["target"].shape
    assert not losses.any()
    assert not any(one.any() for one in gradients(given, losses).values())


def test_one_word() -> None:
    given = problem(V=1)
    losses = latent_readout_loss(**given)
    torch.testing.assert_close(losses, torch.zeros(B, T), rtol=0.0, atol=1e-6)
    found = gradients(given, losses)
    assert not any(found[name].abs().max() > 1e-6 for name in ("query", "memory", "weight", "bias"))


def test_masks_that_are_only_very_negative() -> None:
    given = problem(is_elbo=True)
    losses = latent_readout_loss(**given)
    lowest = torch.finfo(torch.float32).min
    names = ("log_prior", "log_posterior")
    finite = {name: given[name].detach().clamp(min=lowest).requires_grad_() for name in names}
    others = latent_readout_loss(**given | finite)
    torch.testing.assert_close(others, losses, rtol=0.0, atol=0.0)
    for name, one in gradients(given | finite, others).items():
        torch.testing.assert_close(one, gradients(given, losses)[name])


def test_one_position_is_cross_entropy() -> None:
    given = problem(S=1)
    hidden = torch.tanh(given["query"] + given["memory"])
    expected = F.cross_entropy(
        F.linear(hidden, given["weight"], given["bias"]).flatten(0, 1), given["target"].flatten(), reduction="none"
    )
    losses = latent_readout_loss(**{**given, "log_prior": torch.zeros(B, T, 1), "target_weight": torch.ones(B, T)})
    torch.testing.assert_close(losses.flatten(), expected, rtol=1e-5, atol=1e-6)


def test_the_marginal_likelihood_is_the_elbo_of_the_exact_posterior() -> None:
    given = problem()
    marginal = latent_readout_loss(**given)
    (share,) = torch.autograd.grad(marginal.sum(), given["log_prior"], retain_graph=True)
    posterior = (-share / given["target_weight"].unsqueeze(-1)).log()
    elbo = latent_readout_loss(**given, log_posterior=posterior.nan_to_num(nan=-torch.inf, neginf=-torch.inf))
    torch.testing.assert_close(marginal, elbo, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("is_elbo", [False, True], ids=["marginal", "ELBO"])
def test_other_gradients_from_above_are_right_too(is_elbo: bool) -> None:
    given = problem(is_elbo=is_elbo)
    factor = given["target_weight"]
    losses = latent_readout_loss(**{**given, "target_weight": factor > 0})
    assert_equals_reference(given, factor * losses)


def test_logits_are_computed_once(back_end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = row_readout.NativeRows if back_end == "C++" else row_readout.TorchRows
    calls, original = [], kind.read
    monkeypatch.setattr(kind, "read", lambda *args: calls.append(1) or original(*args))
    given = problem()
    (-0.3 * latent_readout_loss(**given)).sum().backward()
    assert len(calls) == 1


@pytest.mark.parametrize("is_elbo", [False, True], ids=["marginal", "ELBO"])
def test_a_second_backward_pass(is_elbo: bool) -> None:
    given = problem(is_elbo=is_elbo)
    losses = latent_readout_loss(**given)
    first = gradients(given, losses)
    for name, one in gradients(given, losses).items():
        assert relative_error(one, first[name].double()) <= 1e-5


@pytest.mark.parametrize("is_elbo", [False, True], ids=["marginal", "ELBO"])
@pytest.mark.parametrize("is_fixed", [False, True], ids=["learned weights", "fixed weights"])
def test_a_second_derivative_is_refused(is_elbo: bool, is_fixed: bool) -> None:
    given = problem(is_elbo=is_elbo)
    if is_fixed:
        given |= {name: given[name].detach() for name in ("log_prior", "log_posterior") if name in given}
    (grad,) = torch.autograd.grad(latent_readout_loss(**given).sum(), given["weight"], create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        (grad.sum() + given["bias"].sum()).backward()


@pytest.mark.parametrize("skip_below", [1e-4, 1e-2])
@pytest.mark.parametrize("is_elbo", [False, True], ids=["marginal", "ELBO"])
def test_skipping_keeps_its_bound(skip_below: float, is_elbo: bool) -> None:
    given = problem(is_elbo=is_elbo, peak=6.0, S=12)
    exact, skipped = latent_readout_loss(**given), latent_readout_loss(**given, skip_below=skip_below)
    factor = given["target_weight"]
    excess = (skipped - exact).detach() / factor.clamp(min=1e-30)
    limit = 0.0 if is_elbo else -math.log1p(-12 * skip_below)
    assert bool((excess > -1e-5).all()) and bool((excess < limit + 1e-5).all())
    ours, theirs = gradients(given, skipped), gradients(given, exact)
    assert not torch.equal(ours["weight"], theirs["weight"])
    # log f changes by at most |grad logits| |hidden|, and |grad logits| <= sqrt 2 (one-hot minus a softmax)
    largest = math.sqrt(2.0 * (D + 1))
    weights = ours["weight"] - theirs["weight"], ours["bias"] - theirs["bias"]
    distance = math.sqrt(sum(float(one.square().sum()) for one in weights))
    assert distance <= 2.0 * 12 * skip_below * largest * float(factor.sum())


def test_skipping_does_not_read_what_cannot_matter(back_end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = row_readout.NativeRows if back_end == "C++" else row_readout.TorchRows
    rows, original = [], kind.read
    monkeypatch.setattr(kind, "read", lambda self, *args: rows.append(len(args[0])) or original(self, *args))
    given = problem(B=1, S=12, V=50)
    with torch.no_grad():
        given["log_prior"][:, :, 3:10] = -60.0
        given["target_weight"].fill_(1.0)
    latent_readout_loss(**given, skip_below=1e-6)
    assert rows == [T, 3 * T]  # the best of each target ahead, then positions 0, 1, 2; 10 and 11 are padding


@pytest.mark.parametrize("nats", [1.0, -1.0])
def test_an_improbable_position_that_explains_the_target_is_read(nats: float) -> None:
    memory = torch.tensor([[[-3.0, 0.0], [3.0, 0.0]]])
    weight = torch.zeros(50, 2)
    weight[7, 0] = 10.0  # the second position says word 7, the first one says it with probability 1e-6
    fixed = {"query": torch.zeros(1, 1, 2), "memory": memory, "weight": weight, "target": torch.tensor([[7]])}
    log_lik = F.linear(memory.tanh(), weight).log_softmax(-1)[0, :, 7]
    log_prior = torch.tensor([[[0.0, math.log(1e-3) + float(log_lik[0]) + nats]]])
    exact = latent_readout_loss(log_prior=log_prior, **fixed)
    skipped = latent_readout_loss(log_prior=log_prior, skip_below=1e-3, **fixed)
    assert bool(exact < skipped - 1e-4) == (nats < 0.0)


@pytest.mark.parametrize("is_elbo", [False, True], ids=["marginal", "ELBO"])
@pytest.mark.parametrize("top_k", [S, S + 1])
def test_all_positions_are_the_most_probable_ones(top_k: int, is_elbo: bool) -> None:
    given = problem(is_elbo=is_elbo)
    torch.testing.assert_close(latent_readout_loss(**given, top_k=top_k), latent_readout_loss(**given), rtol=0, atol=0)


@pytest.mark.parametrize("rest", ["renormalise", "drop"])
def test_the_most_probable_positions(rest: Any) -> None:
    given = problem()
    losses = latent_readout_loss(**given, top_k=2, rest=rest)
    best = given["log_prior"].topk(2, dim=-1)
    log_prior = torch.full_like(given["log_prior"], -torch.inf).scatter(-1, best.indices, best.values)
    if rest == "renormalise":
        log_prior = log_prior.log_softmax(-1).nan_to_num(nan=-torch.inf)
    short = {**given, "log_prior": log_prior.detach().requires_grad_()}
    expected, expected_gradients = reference(short)
    assert relative_error(losses, expected) <= 1e-5
    found = gradients(given, losses)
    for name in ("query", "memory", "weight", "bias"):
        assert relative_error(found[name], expected_gradients[name]) <= 1e-5, name
    assert not found["log_prior"].isnan().any()
    if rest == "drop":
        assert bool((losses >= latent_readout_loss(**given) - 1e-5).all())


@pytest.mark.parametrize("is_elbo", [False, True], ids=["marginal", "ELBO"])
@pytest.mark.parametrize("skip_below", [0.0, 1e-3])
def test_threads_change_no_bit(is_elbo: bool, skip_below: float) -> None:
    given = problem(is_elbo=is_elbo, D=96, S=20, T=12, peak=3.0)

    def outcome(threads: int) -> list[Tensor]:
        torch.set_num_threads(threads)
        losses = latent_readout_loss(**given, skip_below=skip_below)
        return [losses, *gradients(given, losses).values()]

    try:
        for one, other in zip(outcome(1), outcome(2), strict=True):
            assert torch.equal(one, other)
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_inputs(dtype: torch.dtype) -> None:
    given = problem()
    halves = {name: one.detach().to(dtype).requires_grad_() for name, one in given.items() if name in GRADIENTS}
    losses = latent_readout_loss(**given | halves)
    assert losses.dtype == torch.float32
    expected, expected_gradients = reference(given | halves)
    assert relative_error(losses, expected) <= 1e-5
    for name, one in gradients(halves, losses).items():
        assert one.dtype == dtype
        assert relative_error(one, expected_gradients[name]) <= 1e-2, name
    with torch.autocast("cpu", dtype):
        assert torch.equal(latent_readout_loss(**given | halves), losses)


def test_float64_passes_gradcheck() -> None:
    given = {name: one.double() if one.is_floating_point() else one for name, one in problem(V=6, is_elbo=True).items()}
    fixed = {name: given[name] for name in ("log_prior", "log_posterior", "target", "target_weight")}
    leaves = [given[name].detach().requires_grad_() for name in ("query", "memory", "weight", "bias")]

    def function(query: Tensor, memory: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return latent_readout_loss(query, memory, weight=weight, bias=bias, **fixed)

    assert latent_readout_loss(**given).dtype == torch.float64
    torch.autograd.gradcheck(function, leaves)


@pytest.mark.parametrize("is_elbo", [False, True], ids=["marginal", "ELBO"])
def test_compiled(is_elbo: bool) -> None:
    given = problem(is_elbo=is_elbo, V=30)
    compiled = torch.compile(latent_readout_loss, fullgraph=True, backend="aot_eager")
    assert_equals_reference(given, compiled(**given))
    factor = given["target_weight"]
    assert_equals_reference(given, factor * compiled(**{**given, "target_weight": (factor > 0).float()}))
    with torch.no_grad():
        torch.testing.assert_close(compiled(**given), latent_readout_loss(**given))


def test_the_operator_is_sound() -> None:
    given = problem(V=30)
    tensors = [given[name].detach() for name in ("query", "memory", "log_prior", "target", "target_weight", "weight")]
    torch.library.opcheck(
        latent_readout_operator,
        (*tensors, given["bias"].detach(), True, 0.0, True),
        test_utils=("test_schema", "test_faketensor"),
    )


def test_checkpointing() -> None:
    given = problem()
    losses = torch.utils.checkpoint.checkpoint(lambda: latent_readout_loss(**given), use_reentrant=False)
    assert_equals_reference(given, losses)


class Learned(torch.nn.Module):
    """The inputs of a problem as parameters."""

    def __init__(self, given: dict[str, Tensor]):
        super().__init__()
        self.learned = torch.nn.ParameterDict({name: given[name].detach() for name in GRADIENTS if name in given})
        self.given = given

    def forward(self) -> Tensor:
        return latent_readout_loss(**{**self.given, **self.learned})


def test_data_parallel_training() -> None:
    given = problem(is_elbo=True)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        model = Learned(given)
        torch.nn.parallel.DistributedDataParallel(model)().sum().backward()
    finally:
        torch.distributed.destroy_process_group()
    expected = gradients(given, latent_readout_loss(**given))
    for name, parameter in model.learned.items():
        torch.testing.assert_close(parameter.grad, expected[name])


def test_inference_mode_and_no_grad() -> None:
    given = problem()
    expected = latent_readout_loss(**given).detach()
    with torch.inference_mode():
        assert torch.equal(latent_readout_loss(**given), expected)
    with torch.no_grad():
        assert not latent_readout_loss(**given).requires_grad


def test_memory_is_that_of_a_chunk() -> None:
    from benchmarks.peak_memory import peak_megabytes

    given = problem(B=2, T=40, S=40, D=16, V=2000)  # all logits: 25.6 MB; a chunk of 256 rows: 2 MB
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_readout, "_CHUNK_LOGITS", 1)
        assert peak_megabytes(lambda: latent_readout_loss(**given).sum().backward()) < 6.0


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"query": torch.zeros(2, 3)}, ValueError, r"expected query \(B, T, D\), got \(2, 3\)"),
        ({"memory": torch.zeros(B, S, D + 1)}, ValueError, r"expected memory \(2, 5, 7\), got \(2, 5, 8\)"),
        ({"weight": torch.zeros(V, D + 1)}, ValueError, r"expected weight \(1100, 7\), got \(1100, 8\)"),
        ({"log_prior": torch.zeros(B, T)}, ValueError, r"expected log_prior \(2, 3, 5\), got \(2, 3\)"),
        ({"log_posterior": torch.zeros(B, T)}, ValueError, r"expected log_posterior \(2, 3, 5\)"),
        ({"bias": torch.zeros(1)}, ValueError, r"expected bias \(1100,\), got \(1,\)"),
        ({"target": torch.zeros(B, dtype=torch.int64)}, ValueError, r"expected target \(2, 3\), got \(2,\)"),
        ({"target_weight": torch.ones(1, T)}, ValueError, r"expected target_weight \(2, 3\), got \(1, 3\)"),
        ({"target_weight": torch.ones(B, T, requires_grad=True)}, ValueError, "detach it"),
        ({"target": torch.zeros(B, T)}, TypeError, r"expected an int64 target .* convert it with \.long"),
        ({"query": torch.zeros(B, T, D, dtype=torch.int64)}, TypeError, "expected a floating-point query, got"),
        ({"top_k": 0}, ValueError, "top_k must be at least 1, got 0"),
        ({"rest": "keep"}, ValueError, "rest must be 'renormalise' or 'drop', got 'keep'"),
        ({"rest": "drop", "log_posterior": torch.zeros(B, T, S)}, ValueError, "does not sum to one; use rest="),
        ({"skip_below": 1.0}, ValueError, "at least 0 and below 1, got 1.0"),
        ({"skip_below": -0.1}, ValueError, "at least 0 and below 1, got -0.1"),
    ],
    ids=str,
)
def test_wrong_arguments_are_named(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        latent_readout_loss(**{**problem(), **change})


def test_a_target_outside_the_vocabulary() -> None:
    given = problem()
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        latent_readout_loss(**{**given, "target": torch.full((B, T), V)})
    ignored = latent_readout_loss(
        **{**given, "target": torch.where(given["target_weight"] == 0, -100, given["target"])}
    )
    assert bool((ignored == latent_readout_loss(**given)).all())


def test_the_back_end_is_the_one_that_is_tested(back_end: str) -> None:
    made = row_readout.row_readout(torch.zeros(3, 2), None, max_rows=1, hidden_norm=None, has_gradients=False)
    assert isinstance(made, row_readout.NativeRows) == (back_end == "C++") == native.is_active()
