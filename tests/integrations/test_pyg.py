"""PyG's graph attention with random weights: plug-in weights against PyG, receipts against `models.gat`."""

import copy
import importlib
import pickle
import sys
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric import EdgeIndex
from torch_geometric.nn import GAT, GATConv, GATv2Conv, SAGEConv, to_hetero
from torch_geometric.nn import Sequential as PygSequential

from probattn import (
    Elbo,
    Evaluation,
    Fixed,
    FromScores,
    GammaPrior,
    KeyPrior,
    MultiheadAttention,
    Pathwise,
    Segments,
    Site,
    Weibull,
    content_checks,
    record_latents,
    sampling,
    set_sampling,
)
from probattn.core.noise import fold_seed
from probattn.integrations.pyg import BayesianGATConv, make_stochastic_gat
from probattn.models.gat import GraphAttention, neighbourhoods
from tests.nn.families import CONFIGURATIONS, SAMPLED, Configuration

N, F, D, H = 7, 3, 4, 2
# Node 6 has no edges, node 2 has a self-loop twice, the edge 0 -> 1 is there twice.
EDGES = torch.tensor([[0, 1, 2, 2, 2, 0, 4, 5], [1, 0, 2, 2, 3, 1, 5, 0]])
FAMILY = Weibull(5.0, anchor="softmax")
GENERATOR = torch.Generator().manual_seed(0)


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=GENERATOR)


def key_prior(width: int = D) -> KeyPrior:
    return KeyPrior(width, GammaPrior(rate=1.0), hidden_dim=3)


def bayesian(*args: Any, **kwargs: Any) -> BayesianGATConv:
    return BayesianGATConv(*(args or (F, D, H)), family=FAMILY, prior=key_prior(), **kwargs)


def same_weights(theirs: GATConv, row: Configuration) -> BayesianGATConv:
    return BayesianGATConv.from_conv(theirs, **row.arguments(D, H))


# Arguments of the constructor, and of the call.
SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "averaged": ({"concat": False}, {}),
    "no-loops": ({"add_self_loops": False}, {}),
    "no-bias": ({"bias": False, "negative_slope": 0.5}, {}),
    "residual": ({"residual": True}, {}),
    "reversed": ({"flow": "target_to_source"}, {}),
    "max": ({"aggr": "max"}, {}),
    "edges": ({"edge_dim": 2}, {"edge_attr": numbers(8, 2)}),
    "edges-max": ({"edge_dim": 2, "fill_value": "max"}, {"edge_attr": numbers(8, 2)}),
    "edges-one": ({"edge_dim": 1, "fill_value": 0.5}, {"edge_attr": numbers(8)}),
    "edges-residual": ({"edge_dim": 2, "residual": True, "concat": False}, {"edge_attr": numbers(8, 2)}),
    "lazy": ({"in_channels": -1}, {}),
}
PAIR = (numbers(N, F), numbers(9, 5))
BIPARTITE: dict[str, tuple[dict[str, Any], tuple[Tensor, Tensor | None], dict[str, Any]]] = {
    "pair": ({}, PAIR, {}),
    "pair-no-loops": ({"add_self_loops": False}, PAIR, {}),
    "pair-residual": ({"residual": True}, PAIR, {}),
    "pair-sized": ({}, PAIR, {"size": (N, 9)}),
    "pair-lazy": ({"in_channels": (-1, -1), "add_self_loops": False}, PAIR, {}),
    "pair-reversed": ({"flow": "target_to_source", "add_self_loops": False}, PAIR, {}),
    "pair-shared": ({"in_channels": F}, (PAIR[0], numbers(9, F)), {}),
    "pair-shared-reversed": ({"in_channels": F, "flow": "target_to_source"}, (PAIR[0], numbers(9, F)), {}),
    "sources-only": ({"add_self_loops": False}, (PAIR[0], None), {"size": (N, 9)}),
}


def layers(arguments: dict[str, Any], row: str = "weibull-keys") -> tuple[GATConv, BayesianGATConv]:
    theirs = GATConv(**{"in_channels": F, "out_channels": D, "heads": H, **arguments})
    return theirs, same_weights(theirs, CONFIGURATIONS[row])


def assert_same(ours: nn.Module, theirs: nn.Module, *args: Any, **kwargs: Any) -> None:
    """Outputs with plug-in weights; dropout masks and weights that the first call makes come from one seed."""
    torch.manual_seed(1)
    expected = theirs(*args, **kwargs)
    torch.manual_seed(1)
    with sampling(ours, False):
        torch.testing.assert_close(ours(*args, **kwargs), expected, atol=1e-6, rtol=1e-6)


class TestPlugInWeightsAreGATConv:
    @pytest.mark.parametrize("shape", SHAPES)
    def test_on_one_kind_of_nodes(self, shape: str) -> None:
        arguments, call = SHAPES[shape]
        theirs, ours = layers(arguments)
        x = torch.randn(N, F)
        assert_same(ours, theirs, x, EDGES, **call)

    @pytest.mark.parametrize("shape", BIPARTITE)
    def test_on_two_kinds_of_nodes(self, shape: str) -> None:
        arguments, x, call = BIPARTITE[shape]
        theirs, ours = layers({"in_channels": (F, 5), **arguments})
        assert_same(ours, theirs, x, EDGES, **call)

    @pytest.mark.parametrize("row", CONFIGURATIONS)
    def test_for_every_family(self, row: str) -> None:
        theirs, ours = layers({"dropout": 0.4}, row)
        x = torch.randn(N, F)
        assert_same(ours, theirs, x, EDGES)
        assert_same(ours.eval(), theirs.eval(), x, EDGES)

    @pytest.mark.parametrize("row", ["soft", "weibull-keys"])
    @pytest.mark.parametrize("loops", [True, False])
    def test_without_edges(self, row: str, loops: bool) -> None:
        theirs, ours = layers({"add_self_loops": loops}, row)
        x, nothing = torch.randn(N, F), EDGES[:, :0]
        assert_same(ours, theirs, x, nothing)
        drawn, latent = ours.forward_with_latents(x, nothing)
        torch.testing.assert_close(drawn, theirs(x, nothing))  # one edge at most per node: nothing to draw
        assert latent.kl.shape == (N, H)
        assert ours(x[:0], nothing).shape == (0, D * H)

    @pytest.mark.parametrize("kind", ["int32", "EdgeIndex", "sorted EdgeIndex", "sparse"])
    def test_for_other_forms_of_edges(self, kind: str) -> None:
        theirs, ours = layers({"add_self_loops": False})
        listed = EdgeIndex(EDGES, sparse_size=(N, N))
        with torch.sparse.check_sparse_tensor_invariants():
            sparse = torch.sparse_coo_tensor(EDGES.flip(0), torch.ones(8), (N, N)).coalesce()
        edges = {"int32": EDGES.int(), "EdgeIndex": listed, "sorted EdgeIndex": listed.sort_by("col")[0]}.get(
            kind, sparse
        )
        x = torch.randn(N, F)
        assert_same(ours, theirs, x, edges)
        output, latent = ours.forward_with_latents(x, edges)
        (output.sum() + latent.kl.sum()).backward()
        assert type(output) is type(latent.kl) is type(ours.att_src.grad) is Tensor

    def test_weights_on_request(self) -> None:
        theirs, ours = layers({})
        x = torch.randn(N, F)
        with sampling(ours, False):
            _, (edges, weights) = ours(x, EDGES, return_attention_weights=True)
        _, (expected_edges, expected) = theirs(x, EDGES, return_attention_weights=True)
        assert torch.equal(edges, expected_edges)
        torch.testing.assert_close(weights, expected)
        _, (edges, drawn) = ours(x, EDGES, return_attention_weights=True)
        totals = Segments(edges[1], N).sum(drawn)
        torch.testing.assert_close(totals, torch.ones(N, H))
        assert not torch.allclose(drawn, weights, atol=1e-2)

    def test_gradients(self) -> None:
        theirs, ours = layers({"edge_dim": 2, "residual": True})
        x, features = torch.randn(N, F), torch.randn(8, 2)
        with sampling(ours, False):
            ours(x, EDGES, features).square().sum().backward()
        theirs(x, EDGES, features).square().sum().backward()
        for name, parameter in theirs.named_parameters():
            torch.testing.assert_close(ours.get_parameter(name).grad, parameter.grad, msg=name)


class TestStateDict:
    def test_without_a_prior_it_is_the_same(self) -> None:
        theirs = GATConv(F, D, H, edge_dim=2, residual=True)
        for prior in (None, Fixed(GammaPrior(), 0.3)):
            ours = BayesianGATConv(F, D, H, edge_dim=2, residual=True, family=FAMILY, prior=prior)
            ours.load_state_dict(theirs.state_dict())
            theirs.load_state_dict(ours.state_dict())

    def test_a_key_prior_is_what_is_missing(self) -> None:
        ours = bayesian()
        report = ours.load_state_dict(GATConv(F, D, H).state_dict(), strict=False)
        assert set(report.missing_keys) == {"prior.hidden_weight", "prior.hidden_bias", "prior.out_weight"}
        assert report.unexpected_keys == []

    def test_from_conv_copies(self) -> None:
        theirs = GATConv(F, D, H, dropout=0.3).double().eval()
        ours = BayesianGATConv.from_conv(theirs, family=FAMILY, prior=key_prior())
        assert not ours.training and ours.aggr == "add" and ours.dropout == 0.3
        assert {parameter.dtype for parameter in ours.parameters()} == {torch.float64}
        for name, parameter in theirs.named_parameters():
            assert torch.equal(ours.get_parameter(name), parameter)
            assert ours.get_parameter(name) is not parameter
        again = BayesianGATConv.from_conv(ours, family=FAMILY)
        assert again.prior is None

    def test_copies_and_pickles(self) -> None:
        ours, x = bayesian(), torch.randn(N, F)
        set_sampling(ours, True, seed=1)
        for other in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
            assert torch.equal(other(x, EDGES), ours(x, EDGES))

    def test_reset_reaches_the_prior(self) -> None:
        ours = bayesian()
        before = copy.deepcopy(ours.state_dict())
        ours.reset_parameters()
        changed = {name for name, tensor in ours.state_dict().items() if not torch.equal(tensor, before[name])}
        assert changed == {"att_src", "att_dst", "lin.weight", "prior.hidden_weight", "prior.out_weight"}


class TestAgainstOurOwnLayer:
    def pair(self, *, concat: bool = True) -> tuple[BayesianGATConv, GraphAttention]:
        conv = bayesian(F, D, H, concat).double()
        site = Site("weights", prior=conv.prior, posterior=FromScores(FAMILY))
        own = GraphAttention(F, D, num_heads=H, weights=site, concatenates=concat).double()
        with torch.no_grad():
            own.project.weight.copy_(conv.lin.weight)
            own.score.source_weight.copy_(conv.att_src[0])
            own.score.target_weight.copy_(conv.att_dst[0])
        return conv, own

    @pytest.mark.parametrize("concat", [True, False])
    def test_draw_output_and_kl(self, concat: bool) -> None:
        conv, own = self.pair(concat=concat)
        x = torch.randn(N, F, dtype=torch.float64)
        with sampling(conv, seed=5):
            output, latent = conv.forward_with_latents(x, EDGES)
        expected, receipt = own(x, neighbourhoods(EDGES, N), Pathwise(), seed=latent.seed)
        torch.testing.assert_close(output, expected)
        assert latent.draw.value is not None and receipt.draw.value is not None
        torch.testing.assert_close(latent.draw.value, receipt.draw.value)
        torch.testing.assert_close(latent.kl, receipt.kl)
        assert latent.kl.shape == (N, H) and float(latent.kl.detach().min()) > 0.0
        assert latent.example is not None and receipt.example is not None
        assert torch.equal(latent.example, receipt.example)

    @pytest.mark.parametrize("is_shared", [True, False])
    def test_the_prior_of_two_kinds_of_nodes_reads_the_sources(self, is_shared: bool) -> None:
        """Psi is a softmax over all nodes that messages can come from."""
        x = PAIR[0], numbers(9, F) if is_shared else PAIR[1]
        conv = bayesian(F if is_shared else (F, 5), D, H, add_self_loops=False)
        _, latent = conv.forward_with_latents(x, EDGES)
        projections = (conv.lin, conv.lin) if is_shared else (conv.lin_src, conv.lin_dst)
        sources, targets = (project(nodes).view(-1, H, D) for project, nodes in zip(projections, x, strict=True))
        scores = (sources * conv.att_src).sum(-1)[EDGES[0]] + (targets * conv.att_dst).sum(-1)[EDGES[1]]
        support = Segments(EDGES[1], len(x[1]))
        q = FAMILY(nn.functional.leaky_relu(scores, 0.2), support)
        assert isinstance(conv.prior, KeyPrior)
        log_psi = conv.prior.logits(sources, head_axis=-2).log_softmax(dim=0)
        p = GammaPrior(rate=1.0)(log_psi[EDGES[0]], support)
        torch.testing.assert_close(latent.kl, torch.distributions.kl_divergence(q, p))

    def test_reversed_edges(self) -> None:
        forward, backward = bayesian(), bayesian(flow="target_to_source")
        backward.load_state_dict(forward.state_dict())
        x = torch.randn(N, F)
        kls = [
            conv.forward_with_latents(x, edges)[1].kl for conv, edges in ((forward, EDGES), (backward, EDGES.flip(0)))
        ]
        torch.testing.assert_close(*kls)


class TestReceipts:
    @pytest.mark.parametrize("row", SAMPLED)
    def test_every_family_draws(self, row: str) -> None:
        _, ours = layers({}, row)
        x = torch.randn(N, F)
        with record_latents(ours) as record:
            first, second = ours(x, EDGES), ours(x, EDGES)
        assert not torch.equal(first, second)
        assert [latent.kl.shape for latent in record.latents] == [(N, H), (N, H)]
        assert record.kl().shape == (1,)

    def test_kl_reaches_every_parameter(self) -> None:
        ours = bayesian(bias=False)
        with record_latents() as record:
            ours(torch.randn(N, F), EDGES)
        record.kl().sum().backward()
        for name, parameter in ours.named_parameters():
            assert parameter.grad is not None and float(parameter.grad.abs().max()) > 0.0, name

    def test_no_prior_no_kl(self) -> None:
        for row in ("soft", "weibull"):
            _, latent = layers({}, row)[1].forward_with_latents(torch.randn(N, F), EDGES)
            assert torch.equal(latent.kl, torch.zeros(N, H))

    def test_isolated_nodes_have_none(self) -> None:
        ours = bayesian(add_self_loops=False)
        output, latent = ours.forward_with_latents(torch.randn(N, F), EDGES)
        assert torch.equal(latent.kl[6], torch.zeros(H))
        assert torch.equal(output[6], ours.bias)

    def test_forward_with_latents_does_not_record(self) -> None:
        with record_latents() as record:
            bayesian().forward_with_latents(torch.randn(N, F), EDGES)
        assert record.latents == []

    def test_a_batch_of_graphs(self) -> None:
        """With a prior that looks at one node's neighbours at a time, graphs do not see each other."""
        ours = BayesianGATConv(F, D, H, family=FAMILY, prior=Fixed(GammaPrior(), 0.3))
        x, batch = torch.randn(2 * N, F), torch.arange(2).repeat_interleave(N)
        _, latent = ours.forward_with_latents(x, torch.cat([EDGES, EDGES + N], dim=1), batch=batch)
        terms = Elbo()(Evaluation(torch.zeros(1, 2), [latent]))
        alone = [ours.forward_with_latents(half, EDGES)[1].kl.sum() for half in (x[:N], x[N:])]
        torch.testing.assert_close(terms.kl["attention"], torch.stack(alone))
        with pytest.raises(ValueError, match=r"batch must have shape \(14,\), got \(7,\)"):
            ours.forward_with_latents(x, EDGES, batch=batch[:N])

    def test_nothing_is_left_on_the_module(self) -> None:
        ours = bayesian()
        before = set(vars(ours))
        ours(torch.randn(N, F), EDGES)
        with pytest.raises(RuntimeError):
            ours(torch.randn(N, F + 1), EDGES)
        assert set(vars(ours)) == before and not ours.lin._forward_hooks

    def test_bound(self) -> None:
        """A transductive graph is one example: labels of some nodes, the KL of all of them."""
        ours = bayesian()
        output, latent = ours.forward_with_latents(torch.randn(N, F), EDGES)
        log_lik = output.log_softmax(dim=-1)[:3, 0].unsqueeze(0)
        example = torch.zeros(3, dtype=torch.int64)
        terms = Elbo()(Evaluation(log_lik, [latent], example=example, num_examples=1), {"attention": 0.1})
        torch.testing.assert_close(terms.loss, (0.1 * latent.kl.sum() - log_lik.sum()).view(1))


class TestSampling:
    def test_the_switch_is_not_eval(self) -> None:
        ours, x = bayesian().eval(), torch.randn(N, F)
        assert not torch.equal(ours(x, EDGES), ours(x, EDGES))
        ours.train()
        with sampling(ours, False):
            assert torch.equal(ours(x, EDGES), ours(x, EDGES))
        with sampling(ours, True, seed=3):
            assert torch.equal(ours(x, EDGES), ours(x, EDGES))
        assert not torch.equal(ours(x, EDGES), ours(x, EDGES))

    def test_torchs_seed_governs(self) -> None:
        ours, x = bayesian(dropout=0.3), torch.randn(N, F)
        outputs = []
        for seed in (4, 4, 5):
            torch.manual_seed(seed)
            outputs.append(ours(x, EDGES))
        assert torch.equal(outputs[0], outputs[1]) and not torch.equal(outputs[0], outputs[2])

    def test_replay(self) -> None:
        ours, x = bayesian(), torch.randn(N, F)
        output, latent = ours.forward_with_latents(x, EDGES)
        ours.sampling_seed = latent.seed
        assert torch.equal(ours(x, EDGES), output)

    def test_seeds_of_layers_differ(self) -> None:
        model = nn.ModuleList([bayesian(), MultiheadAttention(4, 2, family=FAMILY), bayesian()])
        with sampling(model, seed=7):
            seeds = [int(conv.forward_with_latents(torch.randn(N, F), EDGES)[1].seed) for conv in model[::2]]
        assert seeds == [int(fold_seed(torch.tensor(7), number)) for number in (0, 2)]

    def test_threads(self) -> None:
        """Calls of one module that run at the same time do not see each other's nodes."""
        ours = bayesian()
        set_sampling(ours, True, seed=2)
        inputs = [torch.randn(N, F) for _ in range(4)]
        expected = [ours.forward_with_latents(x, EDGES)[1].kl for x in inputs]
        results: dict[int, list[Tensor]] = {}

        def work(number: int) -> None:
            results[number] = [ours.forward_with_latents(inputs[number], EDGES)[1].kl for _ in range(20)]

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number, kl in enumerate(expected):
            assert all(torch.equal(kl, other) for other in results[number])
        assert len(results) == 4


class TestInModels:
    def test_a_model_of_pyg(self) -> None:
        theirs = GAT(F, 8, num_layers=3, out_channels=5, heads=2, dropout=0.3)
        model = copy.deepcopy(theirs)
        make_stochastic_gat(model, family=FAMILY, prior=lambda conv: key_prior(conv.out_channels))
        x = torch.randn(N, F)
        assert_same(model, theirs, x, EDGES)
        with record_latents(model) as record:
            model(x, EDGES).sum().backward()
        assert record.names == [latent.name for latent in record.latents] == ["convs.0", "convs.1", "convs.2"]
        expected = sum(float(latent.kl.detach().sum()) for latent in record.latents)
        assert float(record.kl().detach()) == pytest.approx(expected, rel=1e-5)

    def test_shared_layers_stay_shared(self) -> None:
        conv = GATConv(D, D)
        model = PygSequential("x, edges", [(conv, "x, edges -> x"), nn.ReLU(), (conv, "x, edges -> x")])
        make_stochastic_gat(model, family=FAMILY)
        found = [module for module in model.modules() if isinstance(module, BayesianGATConv)]
        assert len(found) == 1 and not any(type(module) is GATConv for module in model.modules())
        with record_latents(model) as record:
            model(torch.randn(N, D), EDGES)
        assert len(record.latents) == 2

    def test_what_cannot_be_converted(self) -> None:
        with pytest.raises(ValueError, match="ModuleList has no GATConv layer to replace"):
            make_stochastic_gat(nn.ModuleList([GATv2Conv(F, D), bayesian()]), family=FAMILY)
        with pytest.raises(ValueError, match="use BayesianGATConv.from_conv"):
            make_stochastic_gat(GATConv(F, D), family=FAMILY)

    def test_subclasses_keep_their_draws(self) -> None:
        class Named(BayesianGATConv):
            pass

        ours = Named(F, D, H, family=FAMILY, prior=key_prior())
        assert bool((ours.forward_with_latents(torch.randn(N, F), EDGES)[1].kl > 0.0).all())

    def test_several_kinds_of_nodes(self) -> None:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first = BayesianGATConv((-1, -1), D, add_self_loops=False, family=FAMILY, prior=key_prior())
                self.second = SAGEConv((-1, -1), 2)

            def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
                output: Tensor = self.second(self.first(x, edge_index).relu(), edge_index)
                return output

        kinds = ["paper", "author"], [("author", "writes", "paper"), ("paper", "by", "author")]
        model = to_hetero(Net(), kinds)
        x = {"paper": torch.randn(N, 3), "author": torch.randn(6, 4)}
        edges = {kinds[1][0]: torch.tensor([[0, 5], [6, 1]]), kinds[1][1]: torch.tensor([[6, 1], [0, 5]])}
        with record_latents(model) as record:
            output = model(x, edges)
        assert {kind: tuple(rows.shape) for kind, rows in output.items()} == {"paper": (N, 2), "author": (6, 2)}
        assert sorted(latent.kl.shape[0] for latent in record.latents) == [6, N]
        assert record.kl().shape == (1,)


class _LargestTensor(TorchDispatchMode):
    """Remembers the size of the largest result of any operation."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.largest = max(self.largest, tensor.numel())
        return result


def test_memory_is_linear_in_edges() -> None:
    nodes, edges = 20_000, 40_000
    ours = bayesian()
    index = torch.randint(nodes, (2, edges))
    with _LargestTensor() as seen:
        output, latent = ours.forward_with_latents(torch.randn(nodes, F), index)
        (output.sum() + latent.kl.sum()).backward()
    assert seen.largest <= (edges + nodes) * H * D


class TestErrors:
    @pytest.mark.parametrize("loops", [True, False])
    @pytest.mark.parametrize(
        ("edges", "error", "message"),
        [
            (EDGES.float(), TypeError, "edge_index must hold integer node numbers, got torch.float32; convert it with"),
            (EDGES.bool(), TypeError, "got torch.bool"),
            (EDGES.T, ValueError, r"edge_index must have shape \(2, E\): sources, targets; got \(8, 2\)"),
            (EDGES[0], ValueError, r"got \(8,\)"),
            (EDGES + 2, IndexError, "larger than 6 .got 7"),
            (EDGES - 1, IndexError, "negative indices in 'edge_index' .got -1"),
        ],
    )
    def test_wrong_edges(self, edges: Tensor, error: type[Exception], message: str, loops: bool) -> None:
        with pytest.raises(error, match=message):
            bayesian(add_self_loops=loops)(torch.randn(N, F), edges)

    def test_numbers_that_are_not_finite(self) -> None:
        ours, x = bayesian(), torch.randn(N, F)
        x[3, 1] = torch.nan
        with pytest.raises(ValueError, match="attention scores of shape .* not finite"):
            ours(x, EDGES)
        with content_checks(False):
            assert torch.isnan(ours(x, EDGES)[3]).all()

    def test_overflow_of_the_kl(self) -> None:
        ours = BayesianGATConv(F, D, H, family=Weibull(5.0, anchor="exp"), prior=Fixed(GammaPrior(), 0.3))
        with pytest.raises(ValueError, match="the KL of the attention weights of shape .* Use anchor='softmax'"):
            ours(1e4 * torch.randn(N, F), EDGES)

    def test_arguments(self) -> None:
        with pytest.raises(ValueError, match="a prior or an estimator needs a family"):
            BayesianGATConv(F, D, prior=key_prior())
        with pytest.raises(
            ValueError, match="one draw of weights on to the next layer, the estimator gave 3 particles"
        ):
            bayesian(estimator=Pathwise(3))(torch.randn(N, F), EDGES)

    def test_edge_update_alone(self) -> None:
        scores = (torch.zeros(N, H), torch.zeros(N, H))
        with pytest.raises(RuntimeError, match="inside a running forward pass only; call the module itself"):
            bayesian().edge_updater(EDGES, alpha=scores, edge_attr=None)

    def test_without_pyg(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "torch_geometric.nn", None)
        monkeypatch.delitem(sys.modules, "probattn.integrations.pyg")
        with pytest.raises(ImportError, match=r"install it with: pip install 'probattn\[graph\]'"):
            importlib.import_module("probattn.integrations.pyg")
