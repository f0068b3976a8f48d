"""Graph attention in C++ against plain torch: values, every gradient, odd graphs, threads, compilers, refusals."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from probattn import Dense, GammaPrior, Lognormal, LognormalPrior, Segments, Weibull
from probattn.distributions import NormalisedGamma, NormalisedLognormal
from probattn.kernels import Dropout, GraphContext, graph_attention, graph_attention_reference, is_active, switched
from probattn.kernels.graph_operator import graph_attention_operator

N, M, E = 9, 7, 30  # targets (the last two have no edges), sources, edges (some of them twice)
FAMILIES = ["weibull", "lognormal"]
PRIORS = ["contextual", "constant", "none"]
SIZES = [(heads, dim) for heads in (1, 3, 8) for dim in (1, 3, 8, 17)]


def graph(seed: int = 0) -> Segments:
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(N - 2, (E,), generator=generator)
    source = torch.randint(M, (E,), generator=generator)
    return Segments(target, N, source=source)


@dataclass(frozen=True)
class Case:
    """Which attention is computed."""

    family: str | None = None
    prior: str = "none"
    anchor: str = "softmax"
    dropout: float = 0.0
    has_noise: bool = True
    heads: int = 3
    dim: int = 3

    def leaves(self, dtype: torch.dtype, support: Segments, num_sources: int = M) -> dict[str, Tensor]:
        torch.manual_seed(1)
        shapes = {
            "target_scores": (support.num_segments, self.heads),
            "source_scores": (num_sources, self.heads),
            "values": (num_sources, self.heads, self.dim),
            "log_psi": (num_sources, self.heads),
        }
        made = {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}
        made["law"] = 0.7 + torch.rand(self.heads, dtype=torch.float64)  # k or sigma of each head
        made["scale"] = 0.7 + torch.rand((), dtype=torch.float64)  # beta or sigma_p
        return {name: leaf.to(dtype).requires_grad_() for name, leaf in made.items()}

    def attend(self, function, leaves: dict[str, Tensor], support: Segments) -> GraphContext:  # type: ignore[no-untyped-def]
        family: Weibull | Lognormal | None = None
        prior: NormalisedGamma | NormalisedLognormal | None = None
        if self.family is not None:
            kind = Weibull if self.family == "weibull" else Lognormal
            family = kind(leaves["law"], anchor=self.anchor)  # type: ignore[arg-type]
        log_psi = leaves["log_psi"] if self.prior == "contextual" else torch.full_like(leaves["log_psi"][:1], 0.3)
        if self.prior != "none" and self.family == "weibull":
            concentration = GammaPrior()(log_psi, Dense()).concentration
            prior = NormalisedGamma(concentration, leaves["scale"], support=Dense())
        elif self.prior != "none":
            location = LognormalPrior(location="log_psi")(log_psi, Dense()).location
            prior = NormalisedLognormal(location, leaves["scale"], support=Dense())
        return function(  # type: ignore[no-any-return]
            leaves["target_scores"],
            leaves["source_scores"],
            values=leaves["values"],
            support=support,
            family=family,
            prior=prior,
            seed=torch.tensor(5) if self.has_noise and family is not None else None,
            dropout=Dropout(self.dropout, torch.tensor(5)) if self.dropout else None,
            keeps_weights=True,
        )


def outcome(case: Case, function, dtype: torch.dtype, support: Segments) -> dict[str, Tensor]:  # type: ignore[no-untyped-def]
    """Outputs and gradients; the loss weighs every number of every output differently."""
    leaves = case.leaves(dtype, support)
    made = case.attend(function, leaves, support)
    assert made.weights is not None
    outputs = {"context": made.context, "kl": made.kl, "weights": made.weights}
    torch.manual_seed(2)
    loss = sum((one * torch.randn(one.shape, dtype=torch.float64).to(dtype)).sum() for one in outputs.values())
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    named = {f"d {name}": gradient for name, gradient in zip(leaves, gradients, strict=True)}
    return {name: one.detach() for name, one in (outputs | named).items()}


def compare(case: Case, support: Segments) -> None:
    for dtype, tolerance in ((torch.float64, 1e-11), (torch.float32, 1e-5)):
        made = outcome(case, graph_attention, dtype, support)
        expected = outcome(case, graph_attention_reference, dtype, support)
        for name, value in expected.items():
            size = 1.0 + float(value.abs().max())
            torch.testing.assert_close(made[name] / size, value / size, rtol=0.0, atol=tolerance, msg=name)


@pytest.fixture(autouse=True)
def _active(native_kernels: None) -> None:
    assert is_active()


@pytest.mark.parametrize(("heads", "dim"), SIZES)
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("anchor", ["exp", "softmax"])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("family", FAMILIES)
def test_equals_plain_torch(family: str, prior: str, anchor: str, dropout: float, heads: int, dim: int) -> None:
    compare(Case(family, prior, anchor, dropout, heads=heads, dim=dim), graph())


@pytest.mark.parametrize(("heads", "dim"), [(1, 7), (4, 2), (8, 8)])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_soft_attention_equals_plain_torch(dropout: float, heads: int, dim: int) -> None:
    compare(Case(dropout=dropout, heads=heads, dim=dim), graph())


@pytest.mark.parametrize("anchor", ["exp", "softmax"])
@pytest.mark.parametrize("family", FAMILIES)
def test_expected_weights_with_a_kl(family: str, anchor: str) -> None:
    compare(Case(family, "contextual", anchor, has_noise=False, heads=8, dim=8), graph())


@pytest.mark.parametrize("anchor", ["exp", "softmax"])
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_derivatives(family: str, anchor: str) -> None:
    case = Case(family, "contextual", anchor, dropout=0.3, heads=2, dim=2)
    support = Segments(torch.tensor([1, 0, 1, 1, 3]), 4, source=torch.tensor([0, 2, 1, 1, 0]))
    leaves = case.leaves(torch.float64, support, num_sources=4)

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        made = case.attend(graph_attention, dict(zip(leaves, tensors, strict=True)), support)
        assert made.weights is not None
        return made.context, made.kl, made.weights

    assert torch.autograd.gradcheck(function, tuple(leaves.values()))


@pytest.mark.parametrize("power", [1, 2])  # with 1, what comes from above needs no gradient
def test_second_derivatives_are_refused(power: int) -> None:
    leaves = Case("weibull", "contextual").leaves(torch.float64, graph())
    context = Case("weibull", "contextual").attend(graph_attention, leaves, graph()).context
    (first,) = torch.autograd.grad(context.pow(power).sum(), leaves["values"], create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        first.sum().backward()


def test_gradient_of_the_kl_alone() -> None:
    case, support = Case("weibull", "contextual"), graph()
    found = []
    for function in (graph_attention, graph_attention_reference):
        leaves = case.leaves(torch.float64, support)
        case.attend(function, leaves, support).kl.sum().backward()
        found.append([leaves[name].grad for name in ("target_scores", "source_scores", "log_psi")])
    torch.testing.assert_close(found[0], found[1], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("family", [None, *FAMILIES])
def test_targets_without_edges(family: str | None) -> None:
    case = Case(family, "none" if family is None else "contextual")
    made = case.attend(graph_attention, case.leaves(torch.float32, graph()), graph())
    assert not made.context[-2:].any() and not made.kl[-2:].any()
    assert torch.isfinite(made.context).all() and torch.isfinite(made.kl).all()


@pytest.mark.parametrize("nodes", [0, 3])
def test_no_edges(nodes: int) -> None:
    nothing = torch.zeros(0, dtype=torch.int64)
    support = Segments(nothing, nodes, source=nothing)
    case = Case("weibull", "contextual", dropout=0.5)
    leaves = case.leaves(torch.float32, support, num_sources=nodes)
    made = case.attend(graph_attention, leaves, support)
    assert made.context.shape == (nodes, 3, 3) and not made.context.any() and not made.kl.any()
    made.context.sum().backward()
    assert leaves["values"].grad is not None and not leaves["values"].grad.any()


def test_a_row_of_memory_for_each_edge() -> None:
    support = Segments(graph().index, N)
    case, found = Case("lognormal", "contextual"), []
    for function in (graph_attention, graph_attention_reference):
        made = case.attend(function, case.leaves(torch.float64, support, num_sources=E), support)
        found.append((made.context, made.kl))
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=1e-12)


def test_large_scores() -> None:
    support, case = graph(), Case("weibull", "contextual", heads=8)
    found = []
    for function in (graph_attention, graph_attention_reference):
        leaves = {name: leaf.detach() for name, leaf in case.leaves(torch.float32, support).items()}
        leaves |= {name: leaves[name] * 3e3 for name in ("target_scores", "source_scores")}
        found.append(case.attend(function, leaves, support))
    assert torch.isfinite(found[0].context).all()
    torch.testing.assert_close(found[0].context, found[1].context, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found[0].kl, found[1].kl, rtol=1e-4, atol=1e-2)


def test_same_bits_for_any_number_of_threads_and_chunk() -> None:
    torch.manual_seed(0)
    edges, nodes = 3000, 400  # many chunks
    support = Segments(torch.randint(nodes, (edges,)), nodes, source=torch.randint(nodes, (edges,)))
    case = Case("weibull", "contextual", dropout=0.3, heads=8, dim=8)
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        leaves = case.leaves(torch.float32, support, num_sources=nodes)
        made = case.attend(graph_attention, leaves, support)
        gradients = torch.autograd.grad(made.context.square().sum() + made.kl.sum(), list(leaves.values()))
        found.append([made.context, made.kl, *gradients])
    torch.set_num_threads(before)
    assert all(torch.equal(one, other) for later in found[1:] for one, other in zip(found[0], later, strict=True))


def test_order_of_edges_is_the_callers() -> None:
    support, case = graph(), Case("weibull", has_noise=False)
    order = torch.randperm(E)
    shuffled = Segments(support.index[order], N, source=graph().source[order])  # type: ignore[index]
    leaves = case.leaves(torch.float64, support)
    made, moved = (case.attend(graph_attention, leaves, one) for one in (support, shuffled))
    assert made.weights is not None and moved.weights is not None
    torch.testing.assert_close(moved.weights, made.weights[order])
    torch.testing.assert_close(moved.context, made.context)


@pytest.mark.parametrize("family", [Weibull(1.0), Lognormal(1.0)], ids=FAMILIES)
def test_noise_agrees_in_the_tails(family: Weibull | Lognormal) -> None:
    nodes, heads = 5000, 8
    support = Segments(torch.arange(nodes).repeat(2), nodes, source=torch.zeros(2 * nodes, dtype=torch.int64))
    scores, values = torch.zeros(nodes, heads), torch.zeros(1, heads, 1)
    arguments = {"values": values, "support": support, "family": family, "seed": torch.tensor(8), "keeps_weights": True}
    made, expected = (
        function(scores, scores[:1], **arguments).weights  # type: ignore[operator]
        for function in (graph_attention, graph_attention_reference)
    )
    assert expected.min() < 1e-2
    torch.testing.assert_close(made, expected, rtol=1e-5, atol=0.0)


def test_dropout_repeats_and_has_its_rate() -> None:
    factors = Dropout(0.25, torch.tensor(3)).factors(torch.zeros(4000, 8))
    assert torch.equal(factors, Dropout(0.25, torch.tensor(3)).factors(torch.zeros(4000, 8)))
    assert sorted(factors.unique().tolist()) == pytest.approx([0.0, 4.0 / 3.0])
    assert abs(float((factors == 0).float().mean()) - 0.25) < 0.01


def test_half_precision_runs_in_torch() -> None:
    case, support = Case(), graph()
    leaves = {name: leaf.detach().bfloat16() for name, leaf in case.leaves(torch.float32, support).items()}
    made = case.attend(graph_attention, leaves, support)
    assert torch.equal(made.context, case.attend(graph_attention_reference, leaves, support).context)


def test_switched_off_runs_in_torch() -> None:
    case, support = Case("weibull", "contextual", dropout=0.2), graph()
    leaves = case.leaves(torch.float32, support)
    with switched(False):
        made = case.attend(graph_attention, leaves, support)
        expected = case.attend(graph_attention_reference, leaves, support)
    assert torch.equal(made.context, expected.context) and torch.equal(made.kl, expected.kl)


def test_inside_compiled_code() -> None:
    case, support = Case("weibull", "contextual", dropout=0.2), graph()
    assert support.edge_lists.num_sources == M  # sorted before, so that the compiler sees tensors
    leaves = case.leaves(torch.float32, support)

    def loss(leaves: dict[str, Tensor]) -> Tensor:
        made = case.attend(graph_attention, leaves, support)
        return made.context.square().sum() + made.kl.sum()

    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    expected = torch.autograd.grad(loss(leaves), list(leaves.values()))
    torch.testing.assert_close(torch.autograd.grad(compiled(leaves), list(leaves.values())), expected)


def test_operator_is_registered_as_torch_wants_it() -> None:
    support = graph()
    leaves = Case("weibull", "contextual").leaves(torch.float64, support)
    scores = [leaves[name] for name in ("target_scores", "source_scores", "values")]
    lists, terms = support.edge_lists.tensors(), torch.ones(4, 3, dtype=torch.float64, requires_grad=True)
    arguments = (*scores, lists, terms, leaves["log_psi"].detach().exp(), torch.tensor(5), None, 0, True, 0.0, 0.2)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(graph_attention_operator, arguments, test_utils=tests)


GOOD = {"target_scores": torch.zeros(N, 2), "source_scores": torch.zeros(M, 2), "values": torch.zeros(M, 2, 3)}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"values": torch.zeros(M, 6)}, ValueError, "expected target_scores \\(9, H\\), source_scores \\(M, H\\)"),
        ({"target_scores": torch.zeros(N, 3)}, ValueError, "got \\(9, 3\\), \\(7, 2\\) and \\(7, 2, 3\\)"),
        ({"seed": torch.tensor(1)}, ValueError, "a prior or a seed needs a family"),
        ({"negative_slope": -0.1}, ValueError, "negative_slope must not be negative, got -0.1"),
        ({"family": "weibull"}, TypeError, "family must be Weibull, Lognormal or None, got str"),
        ({"family": Weibull(anchor="mean")}, ValueError, "anchor must be 'exp' or 'softmax', got 'mean'"),
        (
            {"family": Weibull(), "prior": NormalisedLognormal(torch.zeros(1, 1), 1.0, support=Dense())},
            TypeError,
            "the KL of Weibull weights is known for a NormalisedGamma prior, got NormalisedLognormal",
        ),
        (
            {"family": Weibull(), "prior": NormalisedGamma(torch.ones(E, 2), 1.0, support=Dense())},
            ValueError,
            "the prior has one row for each source, \\(7, 2\\) or what broadcasts to it, got \\(30, 2\\)",
        ),
        (
            {"source_scores": torch.zeros(2, 2), "values": torch.zeros(2, 2, 3)},
            ValueError,
            "an edge names source 6, but there are only 2 rows of values",
        ),
    ],
)  # fmt: skip
def test_refusals(changes: dict[str, object], error: type[Exception], message: str) -> None:
    arguments = GOOD | changes
    with pytest.raises(error, match=message):
        graph_attention(**arguments, support=graph())  # type: ignore[arg-type]


def test_dropout_of_everything_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 0 and below 1, got 1.0"):
        Dropout(1.0, torch.tensor(3))


def test_cases_differ() -> None:
    """The comparison above can fail: another anchor is another answer."""
    leaves = Case("weibull", "contextual").leaves(torch.float64, graph())
    made = [replace(Case("weibull", "contextual"), anchor=one) for one in ("exp", "softmax")]
    first, second = (case.attend(graph_attention, leaves, graph()).kl for case in made)
    assert not torch.allclose(first, second)
