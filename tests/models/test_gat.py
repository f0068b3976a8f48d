"""Graph attention: against a dense implementation, KL per edge, and graphs that are wrong or empty."""

import pytest
import torch
from torch import Tensor

from probattn import Categorical, Elbo, FromScores, GammaPrior, KeyPrior, Mean, Pathwise, ScoreFunction, Site, Weibull
from probattn.data.graphs import block_model
from probattn.models.gat import GAT, GraphAttention, neighbourhoods
from probattn.nn import SparseRows

N, F = 12, 5
EDGES = torch.tensor([[0, 1, 2, 3, 4, 0, 7, 7], [1, 0, 3, 2, 5, 6, 7, 8]])


def soft(name: str) -> Site:
    return Site(name, prior=FromScores(Categorical()), posterior=None)


def bayesian(name: str, head_dim: int) -> Site:
    return Site(
        name,
        prior=KeyPrior(head_dim, GammaPrior(rate=1.0), hidden_dim=3),
        posterior=FromScores(Weibull(concentration=5.0, anchor="softmax")),
    )


def model(make: object = soft, *, dropout: float = 0.0) -> GAT:
    torch.manual_seed(0)
    sites = [soft("first"), soft("second")] if make is soft else [bayesian("first", 4), bayesian("second", 3)]
    layers = [
        GraphAttention(F, 4, num_heads=2, weights=sites[0], dropout=dropout),
        GraphAttention(8, 3, num_heads=1, weights=sites[1], concatenates=False, dropout=dropout),
    ]
    return GAT(layers, dropout=dropout)


def dense(gat: GAT, features: Tensor, edges: Tensor) -> Tensor:
    """The same network with an n x n matrix."""
    allowed = torch.eye(len(features), dtype=torch.bool)
    allowed[edges[1], edges[0]] = True
    hidden = features
    for number, layer in enumerate(gat.layers):
        assert isinstance(layer, GraphAttention)
        hidden = torch.nn.functional.elu(hidden) if number else hidden
        nodes = layer.project(hidden).view(len(features), layer.num_heads, layer.head_dim)
        target, source = (nodes * layer.score.target_weight).sum(-1), (nodes * layer.score.source_weight).sum(-1)
        scores = torch.nn.functional.leaky_relu(target.unsqueeze(1) + source.unsqueeze(0), 0.2)  # (N, N, H)
        weights = scores.masked_fill(~allowed.unsqueeze(-1), -torch.inf).softmax(dim=1)
        context = torch.einsum("ijh,jhd->ihd", weights, nodes)
        hidden = (context.flatten(1) if layer.concatenates else context.mean(dim=1)) + layer.bias
    return hidden


def test_soft_weights_equal_the_dense_network() -> None:
    gat, features = model(), torch.randn(N, F)
    support = neighbourhoods(EDGES, N)
    logits, latents = gat.logits(features, support, estimators={"first": Mean(), "second": Mean()})
    assert torch.allclose(logits, dense(gat, features, EDGES), atol=1e-5)
    assert [latent.name for latent in latents] == ["first", "second"]


def test_every_node_attends_to_itself_once() -> None:
    support = neighbourhoods(EDGES, N)
    assert support.source is not None
    loops = (support.index == support.source).nonzero().flatten()
    assert len(loops) == N and torch.equal(support.index[loops], torch.arange(N))


def test_bayesian_weights_have_a_kl_that_trains() -> None:
    graph = block_model(120, num_features=F, num_classes=3, train_per_class=10)
    gat = model(bayesian)
    support = neighbourhoods(graph.edges, graph.num_nodes)
    estimators = {"first": Pathwise(), "second": Pathwise()}
    evaluation = gat(graph.features, support, labels=graph.labels, nodes=graph.train, estimators=estimators)
    terms = Elbo()(evaluation, {"first": 0.1, "second": 0.2})
    assert terms.loss.shape == (1,)
    total = sum(float(latent.kl.detach().sum()) for latent in evaluation.latents)
    assert float(terms.log_lik - terms.bound) == pytest.approx(total, rel=1e-4)
    weighted = sum(
        weight * float(latent.kl.detach().sum()) for weight, latent in zip((0.1, 0.2), evaluation.latents, strict=True)
    )
    assert float(terms.cost.detach()) == pytest.approx(weighted, rel=1e-4)
    terms.loss.sum().backward()
    assert all(parameter.grad is not None for parameter in gat.parameters())
    again = gat(graph.features, support, labels=graph.labels, nodes=graph.train, estimators=estimators)
    assert not torch.equal(again.log_lik, evaluation.log_lik)
    fixed = [gat.logits(graph.features, support, estimators=estimators, seed=torch.tensor(3))[0] for _ in range(2)]
    assert torch.equal(fixed[0], fixed[1])


def test_it_learns_a_block_model() -> None:
    graph = block_model(400, num_features=F, num_classes=3, homophily=0.9, signal=2.0)
    gat = model(bayesian)
    support = neighbourhoods(graph.edges, graph.num_nodes)
    optimizer = torch.optim.Adam(gat.parameters(), lr=0.02)
    estimators = {"first": Pathwise(), "second": Pathwise()}
    for _ in range(60):
        evaluation = gat(graph.features, support, labels=graph.labels, nodes=graph.train, estimators=estimators)
        loss = Elbo()(evaluation, {"first": 1e-4, "second": 1e-4}).loss.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        logits, _ = gat.logits(graph.features, support, estimators={"first": Mean(), "second": Mean()})
    accuracy = (logits.argmax(-1) == graph.labels)[graph.test].float().mean()
    assert float(accuracy) > 0.85


def test_isolated_nodes_and_empty_graphs() -> None:
    gat, features = model(), torch.randn(N, F)
    nothing = torch.zeros(2, 0, dtype=torch.int64)
    estimators = {"first": Mean(), "second": Mean()}
    logits, _ = gat.logits(features, neighbourhoods(nothing, N), estimators=estimators)
    assert torch.allclose(logits, dense(gat, features, nothing), atol=1e-5)  # every node sees itself alone
    empty, _ = gat.logits(features[:0], neighbourhoods(nothing, 0), estimators=estimators)
    assert empty.shape == (0, 3)


@pytest.mark.parametrize(
    ("edges", "error", "message"),
    [
        (EDGES.int(), TypeError, "must be int64 node numbers, got torch.int32"),
        (EDGES.T, ValueError, r"must have shape \(2, E\)"),
        (EDGES + 5, ValueError, "nodes 5 to 13, but there are only nodes 0 to 11"),
        (EDGES - 1, ValueError, "nodes -1 to 7"),
    ],
)
def test_wrong_edges_are_named(edges: Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        neighbourhoods(edges, N)


def test_wrong_features_estimators_and_names() -> None:
    gat, support = model(), neighbourhoods(EDGES, N)
    features = torch.randn(N, F)
    features[3, 1] = torch.nan
    with pytest.raises(ValueError, match="the node features"):
        gat.logits(features, support, estimators={"first": Mean(), "second": Mean()})
    with pytest.raises(ValueError, match="passes one draw of weights on"):
        gat.logits(torch.randn(N, F), support, estimators={"first": ScoreFunction(), "second": Mean()})
    with pytest.raises(ValueError, match="need different names"):
        GAT(
            [GraphAttention(F, 4, num_heads=2, weights=soft("a")), GraphAttention(8, 3, num_heads=1, weights=soft("a"))]
        )


def test_sparse_features_give_what_dense_ones_give() -> None:
    gat, features = model(), torch.randn(N, F) * (torch.rand(N, F) < 0.4)
    support, estimators = neighbourhoods(EDGES, N), {"first": Mean(), "second": Mean()}
    outputs = []
    for given in (features, SparseRows.from_dense(features)):
        gat.zero_grad()
        logits, _ = gat.logits(given, support, estimators=estimators)
        logits.square().sum().backward()
        first = gat.layers[0]
        assert isinstance(first, GraphAttention) and first.project.weight.grad is not None
        outputs.append((logits.detach(), first.project.weight.grad.clone()))
    for dense_part, sparse_part in zip(*outputs, strict=True):
        assert torch.allclose(dense_part, sparse_part, atol=1e-5)


def test_sparse_features_with_nan_are_refused() -> None:
    features = torch.zeros(N, F)
    features[2, 1] = torch.nan
    with pytest.raises(ValueError, match="the node features"):
        model().logits(
            SparseRows.from_dense(features), neighbourhoods(EDGES, N), estimators={"first": Mean(), "second": Mean()}
        )
