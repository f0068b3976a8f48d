"""Sampled attention inside torch: layouts, compilers, checkpoints, ranks, threads, half precision, memory."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from probattn import Dense, Weibull
from probattn.distributions import NormalisedGamma
from probattn.kernels import attention_operator, is_active, sampled_attention, status, switched
from probattn.kernels.attention_chunked import AttentionCall
from tests.kernels.attention_cases import SEED, Case, Outcome, far_apart, mask_of, outcome, reference

ROOT = Path(__file__).resolve().parents[2]
ROWS = ("query", "key", "value")


@pytest.fixture(autouse=True, params=["torch", "C++"])
def back_end(request: pytest.FixtureRequest) -> str:
    if request.param == "C++":
        request.getfixturevalue("native_kernels")
    assert is_active() == (request.param == "C++")
    return str(request.param)


def found(case: Case, leaves: Outcome) -> Outcome:
    """Outputs and gradients of the kernel."""
    made = case.attend(leaves)
    return outcome({"context": made.context, "kl": made.kl}, leaves)


def loss_of(case: Case, leaves: Outcome) -> Tensor:
    made = case.attend(leaves)
    return made.context.square().sum() + made.kl.sum()


def function_of(case: Case) -> Callable[[Outcome], Tensor]:
    """`loss_of` for a compiler, which cannot make a mask from a generator."""
    mask = mask_of(case)

    def function(leaves: Outcome) -> Tensor:
        made = case.attend_masked(leaves, mask)
        return made.context.square().sum() + made.kl.sum()

    return function


REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum of all": lambda context: context.sum(),
    "over queries": lambda context: context.mean(dim=-2),
    "over draws": lambda context: context.mean(dim=0),
    "over draws and queries": lambda context: context.mean(dim=(0, -2)),
    "over features": lambda context: context.mean(dim=-1),
    "heads side by side": lambda context: context.transpose(-3, -2).flatten(-2),
    "one query": lambda context: context[..., 2, :],
}


@pytest.mark.parametrize("draws", [1, 3])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_gradients_from_above_in_every_layout(name: str, draws: int) -> None:
    """Gradients of sums are expanded tensors: rows lie on each other, and draws and examples cannot be flattened."""
    case = Case(prior="none", draws=draws, batch=3)
    leaves = case.leaves()
    exact = {key: leaf.detach().double().requires_grad_() for key, leaf in leaves.items()}
    random, gradients = torch.Generator(), []
    for context, inputs in ((case.attend(leaves).context, leaves), (reference(case, exact)["context"], exact)):
        made = REDUCTIONS[name](context)
        loss = (made * torch.randn(made.shape, generator=random.manual_seed(4)).to(made.dtype)).sum()
        gradients.append(torch.autograd.grad(loss, [inputs[row] for row in ROWS]))
    assert max(map(far_apart, *gradients)) < 1e-5


def layouts(x: Tensor) -> dict[str, Tensor]:
    """The same numbers in other places; x is (B, H, rows, D)."""
    wide = torch.full((*x.shape[:-1], 2 * x.shape[-1]), torch.nan)
    wide[..., ::2] = x
    padded = torch.full((*x.shape[:-1], x.shape[-1] + 3), torch.nan)
    padded[..., :-3] = x
    return {
        "rows before heads": x.transpose(1, 2).contiguous().transpose(1, 2),
        "features first": x.transpose(-1, -2).contiguous().transpose(-1, -2),
        "every other feature": wide[..., ::2],
        "part of a wider row": padded[..., :-3],
    }


@pytest.mark.parametrize(
    "layout", ["rows before heads", "features first", "every other feature", "part of a wider row"]
)
def test_layouts_of_inputs(layout: str) -> None:
    case = Case(draws=2, mask="causal")
    leaves = case.leaves()
    expected = found(case, leaves)
    moved = {name: layouts(leaf.detach())[layout] if name in ROWS else leaf.detach() for name, leaf in leaves.items()}
    made = found(case, {name: leaf.requires_grad_() for name, leaf in moved.items()})
    for name, value in expected.items():
        torch.testing.assert_close(made[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("is_single", [False, True])
@pytest.mark.parametrize("name", ROWS)
def test_rows_that_lie_on_each_other(name: str, is_single: bool) -> None:
    """An expanded tensor has a stride of zero; its first row alone has it too."""
    case = Case(queries=6, keys=6)
    rows = {row: leaf.detach() for row, leaf in case.leaves().items() if row in ROWS}
    rows[name] = rows[name][:, :, :1].expand(-1, -1, 6, -1)
    if is_single:
        alike = ROWS[:1] if name == "query" else ROWS[1:]
        rows |= {row: rows[row][:, :, :1] for row in alike}
    packed = {row: torch.empty(one.shape).copy_(one) for row, one in rows.items()}
    made, expected = (sampled_attention(**one, family=Weibull(1.0), seed=SEED).context for one in (rows, packed))
    assert torch.equal(made, expected)


def test_masks_in_every_layout() -> None:
    case = Case("weibull", mask="bool", queries=9, keys=9)
    leaves, mask = case.leaves(), mask_of(case)
    assert mask is not None
    rows = [leaves[name] for name in ROWS]
    expected = sampled_attention(*rows, mask=mask).context
    moved = torch.zeros(*mask.shape[:-1], 18, dtype=torch.bool)
    moved[..., ::2] = mask
    others = [mask.transpose(-1, -2).contiguous().transpose(-1, -2), moved[..., ::2]]
    added = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    others += [added.to(dtype) for dtype in (torch.float32, torch.float64, torch.bfloat16)]
    for other in others:
        torch.testing.assert_close(sampled_attention(*rows, mask=other).context, expected)


@pytest.mark.parametrize("sizes", [{"batch": 0}, {"queries": 0}, {"keys": 0}, {"dim": 0}, {"value_dim": 0}], ids=str)
def test_empty_sizes(sizes: dict[str, int]) -> None:
    case = replace(Case(draws=2, mask="causal"), **sizes)  # type: ignore[arg-type]
    leaves = case.leaves()
    exact = {name: leaf.detach().double().requires_grad_() for name, leaf in leaves.items()}
    made, expected = found(case, leaves), outcome(reference(case, exact), exact)
    assert {name: one.shape for name, one in made.items()} == {name: one.shape for name, one in expected.items()}
    assert all(far_apart(made[name], value) < 1e-5 for name, value in expected.items())


def test_only_what_is_asked_for_is_differentiated() -> None:
    """One leaf at a time; the KL alone and the context alone."""
    case = Case(draws=2)
    leaves = case.leaves()
    expected = found(case, leaves)
    for name in leaves:
        one = {other: leaf.detach().requires_grad_(other == name) for other, leaf in leaves.items()}
        made = case.attend(one)
        both = outcome({"context": made.context, "kl": made.kl}, {name: one[name]})
        torch.testing.assert_close(both[f"d {name}"], expected[f"d {name}"])
    by_kl = torch.autograd.grad(case.attend(leaves).kl.sum(), [leaves["query"], leaves["log_psi"]])
    exact = {name: leaf.detach().double().requires_grad_() for name, leaf in leaves.items()}
    wanted = torch.autograd.grad(reference(case, exact)["kl"].sum(), [exact["query"], exact["log_psi"]])
    assert max(map(far_apart, by_kl, wanted)) < 1e-5


@pytest.mark.parametrize("anchor", ["exp", "softmax"])
@pytest.mark.parametrize("family", ["weibull", "lognormal"])
def test_gradients_are_derivatives(family: str, anchor: str, back_end: str) -> None:
    """In float64, which plain torch does whatever is active."""
    if back_end == "C++":
        pytest.skip("C++ has no float64")
    case = Case(family, "contextual", anchor, "empty", dropout=0.3, draws=2, batch=1, queries=3, keys=4, dim=2)
    leaves = case.leaves(torch.float64)

    def function(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        made = case.attend(dict(zip(leaves, tensors, strict=True)))
        return made.context, made.kl

    assert torch.autograd.gradcheck(function, tuple(leaves.values()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["weibull", "lognormal"])
def test_half_precision_is_summed_in_float32(family: str, dtype: torch.dtype) -> None:
    """Against the same numbers in float32: what is returned in half precision is rounded once, the KL not at all."""
    case = Case(family, queries=140, keys=300, dim=16, value_dim=16, draws=2, mask="causal", batch=1)
    half = {name: leaf.detach() for name, leaf in case.leaves().items()}
    half = {name: (leaf.to(dtype) if name in ROWS else leaf).requires_grad_() for name, leaf in half.items()}
    full = {name: leaf.detach().float().requires_grad_() for name, leaf in half.items()}
    made, expected = found(case, half), found(case, full)
    step = torch.finfo(dtype).eps
    assert made["context"].dtype == dtype and made["kl"].dtype == torch.float32
    assert far_apart(made["kl"], expected["kl"]) < 1e-6
    assert far_apart(made["context"], expected["context"]) <= step / 2
    for name in ROWS:
        assert made[f"d {name}"].dtype == dtype
        assert far_apart(made[f"d {name}"], expected[f"d {name}"]) < step, name


def test_float64_agrees_with_the_families() -> None:
    """Noise has 52 random bits there; see `draw_raw`."""
    case = Case(draws=3, mask="empty")
    leaves = case.leaves(torch.float64)
    family, _ = case.laws(leaves, Dense())
    scores = leaves["query"] @ leaves["key"].transpose(-2, -1) / 2.0
    posterior = family(scores, Dense(mask_of(case)))
    expected = posterior.realise(posterior.draw_raw(3, SEED)) @ leaves["value"]
    torch.testing.assert_close(case.attend(leaves).context, expected, rtol=1e-12, atol=1e-12)


def test_autocast_changes_nothing() -> None:
    case = Case(draws=2)
    leaves = case.leaves()
    expected = found(case, leaves)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = found(case, leaves)
    assert all(torch.equal(made[name], value) for name, value in expected.items())


def test_second_derivatives_are_refused() -> None:
    case = Case()
    leaves = case.leaves()
    (first,) = torch.autograd.grad(loss_of(case, leaves), leaves["query"], create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        first.sum().backward()


def test_second_derivatives_of_a_sum_are_refused() -> None:
    leaves = Case("weibull", "none").leaves()
    context = attention_operator.attend(call_of(leaves))[0]  # what comes from above needs no gradient
    (first,) = torch.autograd.grad(context.sum(), leaves["query"], create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        first.sum().backward()


def test_second_derivatives_of_the_operator_are_refused() -> None:
    leaves = Case("weibull", "none").leaves()
    inputs = [getattr(call_of(leaves), name) for name in AttentionCall.__dataclass_fields__]
    context = attention_operator.attention_operator(*inputs[:-2], list(inputs[-2]), list(inputs[-1]))[0]
    (first,) = torch.autograd.grad(context.square().sum(), leaves["query"], create_graph=True)
    with pytest.raises(RuntimeError, match="no autograd formula|no second derivative|not differentiable"):
        first.sum().backward()


def call_of(leaves: Outcome) -> AttentionCall:
    """Arguments of the operator, with everything that may be absent."""
    shape = (*leaves["query"].shape[:2], leaves["key"].shape[2])
    return AttentionCall(
        query=leaves["query"].transpose(1, 2).contiguous().transpose(1, 2),
        key=leaves["key"].transpose(1, 2).contiguous().transpose(1, 2),
        value=leaves["value"].transpose(1, 2).contiguous().transpose(1, 2),
        mask=torch.ones(1, 1, 1, shape[2], dtype=torch.bool),
        weight=torch.ones(shape, requires_grad=True),
        constant=torch.zeros(shape, requires_grad=True),
        noise_scale=torch.ones(shape[1], requires_grad=True),
        seed=SEED,
        dropout_seed=torch.tensor(3),
        shift=None,
        switches=(1, 1, 1, 1, 2),
        numbers=(0.5, 1.0, 0.2),
    )


def test_operators_are_registered_as_torch_wants_it() -> None:
    """Inputs are not contiguous: what the compiler is told of strides must be true."""
    call = call_of(Case().leaves())
    inputs = [getattr(call, name) for name in AttentionCall.__dataclass_fields__]
    inputs[-2:] = [list(one) for one in inputs[-2:]]
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(attention_operator.attention_operator, tuple(inputs), test_utils=tests)
    context, log_normaliser, kl, log_noisy, pull = attention_operator.attention_operator(*inputs)
    outputs = [one.detach() for one in (context, log_noisy, log_normaliser, pull)]
    above = (torch.randn(context.shape), torch.randn(kl.shape), torch.randn(kl.shape), True)
    detached = [one.detach() if isinstance(one, Tensor) else one for one in inputs]
    arguments = (*detached, outputs, *above)
    torch.library.opcheck(
        attention_operator._backward_operator, arguments, test_utils=("test_schema", "test_faketensor")
    )


@pytest.mark.parametrize(
    "case",
    [Case(draws=2, dropout=0.2, mask="causal"), Case("lognormal", anchor="exp", mask="float"), Case("gumbel", "none")],
    ids=["weibull", "lognormal", "gumbel"],
)
def test_inside_compiled_code(case: Case) -> None:
    leaves = case.leaves()
    torch.compiler.reset()
    compiled = torch.compile(function_of(case), fullgraph=True, backend="aot_eager")
    wanted, options = list(leaves.values()), {"allow_unused": True, "materialize_grads": True}
    expected = torch.autograd.grad(loss_of(case, leaves), wanted, **options)  # type: ignore[arg-type]
    made = torch.autograd.grad(compiled(leaves), wanted, **options)  # type: ignore[arg-type]
    torch.testing.assert_close(made, expected, rtol=1e-5, atol=1e-5)


def test_generated_code(back_end: str) -> None:
    """The operator asks for the back end when it runs, so one compiled function serves both."""
    if back_end == "torch":
        pytest.skip("done with the other back end")
    case = Case("lognormal", draws=2, mask="causal")
    leaves = {name: leaf.detach() for name, leaf in case.leaves().items()}
    moved = {name: layouts(leaf)["rows before heads"] if name in ROWS else leaf for name, leaf in leaves.items()}
    leaves = {name: leaf.requires_grad_() for name, leaf in moved.items()}
    torch.compiler.reset()
    compiled = torch.compile(function_of(case), fullgraph=True)
    expected = torch.autograd.grad(loss_of(case, leaves), list(leaves.values()))
    for is_native in (True, False):
        with switched(is_native):
            made = torch.autograd.grad(compiled(leaves), list(leaves.values()))
        torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-4)
    torch.compiler.reset()


@pytest.mark.parametrize("is_reentrant", [False, True])
def test_checkpointing(is_reentrant: bool) -> None:
    case = Case(draws=2, dropout=0.3)
    leaves = case.leaves()
    expected = torch.autograd.grad(loss_of(case, leaves), list(leaves.values()))

    def function(*tensors: Tensor) -> Tensor:
        return loss_of(case, dict(zip(leaves, tensors, strict=True)))

    checkpoint(function, *leaves.values(), use_reentrant=is_reentrant).backward()
    for leaf, gradient in zip(leaves.values(), expected, strict=True):
        assert leaf.grad is not None and torch.equal(leaf.grad, gradient)


def test_many_threads_give_the_same_bits() -> None:
    case = Case(batch=2, heads=2, key_heads=1, queries=140, keys=300, dim=16, value_dim=16, mask="causal", draws=2)
    before, outcomes = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        try:
            outcomes.append(found(case, case.leaves()))
        finally:
            torch.set_num_threads(before)
    for later in outcomes[1:]:
        assert all(torch.equal(later[name], value) for name, value in outcomes[0].items())


def test_memory_is_linear() -> None:
    """All scores would be 134 MB in float32, and a backward pass needs several matrices of their size."""
    rows = [torch.randn(1, 2, 4096, 32, requires_grad=True) for _ in range(3)]
    prior = NormalisedGamma(torch.rand(1, 2, 1, 4096) + 0.5, 1.0, support=Dense())

    def step() -> None:
        made = sampled_attention(*rows, family=Weibull(10.0, anchor="softmax"), prior=prior, seed=SEED)
        (made.context.sum() + made.kl.sum()).backward()

    assert peak_growth(lambda: torch.ones(2, 4096, 4096)) > 100.0  # the meter sees one matrix
    assert peak_growth(step) < 100.0


def peak_growth(call: Callable[[], object]) -> float:
    """How many megabytes the process held at most above what it held before."""
    control = Path("/proc/self/clear_refs")
    if not os.access(control, os.W_OK):
        pytest.skip("this system cannot reset the peak of resident memory")
    before = _resident("VmRSS")
    control.write_text("5")
    call()
    return _resident("VmHWM") - before


def _resident(name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None
    return int(found[1]) / 1e3


RANK = """
import os, sys
import torch
import torch.distributed as dist
from torch import nn
from probattn import Dense, Weibull
from probattn.distributions import NormalisedGamma
from probattn.kernels import is_active, sampled_attention, switched

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.project = nn.Linear(8, 24)
        self.log_k, self.log_alpha = nn.Parameter(torch.zeros(2, 1, 1)), nn.Parameter(torch.zeros(1, 2, 1, 5))
    def forward(self, x, seed):
        rows = self.project(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        prior = NormalisedGamma(self.log_alpha.exp(), 1.0, support=Dense())
        made = sampled_attention(*rows, family=Weibull(self.log_k.exp(), anchor="softmax"), prior=prior, seed=seed)
        return made.context.square().mean() + made.kl.mean()

rank, store = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
inputs = [torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(one)) for one in range(2)]
seeds = [torch.tensor(one) for one in range(2)]
for is_native in sorted({False, is_active()}):
    with switched(is_native):
        alone = Layer()
        sum(0.5 * alone(x, seed) for x, seed in zip(inputs, seeds)).backward()
        layer = nn.parallel.DistributedDataParallel(Layer())
        layer(inputs[rank], seeds[rank]).backward()
        for one, other in zip(layer.parameters(), alone.parameters()):
            torch.testing.assert_close(one.grad, other.grad)
        print("C++" if is_active() else "torch")
dist.destroy_process_group()
"""


def test_two_ranks_get_the_mean_of_their_gradients(back_end: str, tmp_path: Path) -> None:
    if back_end == "torch" and shutil.which(os.environ.get("CXX", "c++")) is not None:
        pytest.skip("done with the other back end: importing torch takes longer than the test")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PROBATTN_KERNELS": "off", "GLOO_SOCKET_IFNAME": "lo"}
    library = status().library
    if back_end == "C++" and library is not None:
        environment |= {"PROBATTN_KERNELS": "auto", "TORCH_EXTENSIONS_DIR": str(library.parents[1])}
    commands = [[sys.executable, "-c", RANK, str(rank), str(tmp_path / "store")] for rank in range(2)]
    options = {"env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    ranks = [subprocess.Popen(command, **options) for command in commands]  # type: ignore[call-overload]
    answers = [rank.communicate(timeout=120) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], answers
    assert {printed for printed, _ in answers} == {"torch\n" if back_end == "torch" else "torch\nC++\n"}
