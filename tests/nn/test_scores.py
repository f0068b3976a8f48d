"""Score functions against explicit loops."""

import math

import pytest
import torch
from torch import Tensor

from probattn.core import Dense, Memory, Segments
from probattn.nn import Additive, Bilinear, Dot, GraphAdditive, Placed, Score

# Sizes: B examples, T queries, S positions, D and E widths, N nodes, H heads.
B, T, S, D, E, N, H = 2, 3, 4, 5, 6, 4, 2

EDGES = torch.tensor([[0, 1, 3, 2, 0, 2], [0, 0, 0, 1, 2, 2]])  # source, target; node 3 has no edges into it


def loop(query: Tensor, keys: Tensor, one: object) -> Tensor:
    """(B, T, S) scores, one pair at a time."""
    scores = torch.empty(B, T, S, dtype=query.dtype)
    for b in range(B):
        for t in range(T):
            for s in range(S):
                scores[b, t, s] = one(query[b, t], keys[b, s])
    return scores


def dense(keys: Tensor) -> Memory:
    return Memory(keys=keys, values=keys, support=Dense())


@pytest.mark.parametrize("scale", [None, 0.3])
def test_dot(scale: float | None) -> None:
    query, keys = torch.randn(B, T, D), torch.randn(B, S, D)
    factor = 1.0 / math.sqrt(D) if scale is None else scale
    expected = loop(query, keys, lambda q, k: factor * (q * k).sum())
    torch.testing.assert_close(Dot(scale)(query, dense(keys)), expected)


def test_bilinear() -> None:
    score = Bilinear(D, E)
    query, keys = torch.randn(B, T, D), torch.randn(B, S, E)
    weight = score.project.weight  # (E, D)
    expected = loop(query, keys, lambda q, k: sum(k[i] * weight[i, j] * q[j] for i in range(E) for j in range(D)))
    torch.testing.assert_close(score(query, dense(keys)), expected)


def test_additive() -> None:
    score = Additive(D, E, hidden_dim=7)
    query, keys = torch.randn(B, T, D), torch.randn(B, S, E)
    w, u, v = score.project_query.weight, score.project_key.weight, score.energy.weight[0]
    expected = loop(query, keys, lambda q, k: (v * torch.tanh(w @ q + u @ k)).sum())
    torch.testing.assert_close(score(query, dense(keys)), expected)


def test_placed() -> None:
    inner = Additive(D, E, hidden_dim=7)
    query, keys = torch.randn(B, T, D), torch.randn(B, S, E)
    places = torch.zeros(S, E)
    for s in range(S):
        for i in range(E // 2):
            angle = s / 10_000.0 ** (2 * i / E)
            places[s, i], places[s, E // 2 + i] = math.sin(angle), math.cos(angle)
    torch.testing.assert_close(Placed(inner)(query, dense(keys)), inner(query, dense(keys + places)))
    with pytest.raises(ValueError, match="need an even width, got 5"):
        Placed(Dot()).prepare(torch.zeros(B, S, 5))


@pytest.mark.parametrize("score", [Dot(), Bilinear(D, D), Additive(D, D, hidden_dim=3)], ids=lambda s: type(s).__name__)
def test_heads_are_further_leading_axes(score: Score) -> None:
    query, keys = torch.randn(B, H, T, D), torch.randn(B, H, S, D)
    together = score(query, dense(keys))
    for h in range(H):
        torch.testing.assert_close(together[:, h], score(query[:, h], dense(keys[:, h])))


@pytest.mark.parametrize("score", [Dot(), Bilinear(D, D), Additive(D, D, hidden_dim=3)], ids=lambda s: type(s).__name__)
def test_step_by_step(score: Score) -> None:
    """A decoder prepares the keys once and compares one query after another."""
    query, keys = torch.randn(B, T, D), torch.randn(B, S, D)
    prepared = score.prepare(keys)
    steps = [score.compare(query[:, t : t + 1], prepared) for t in range(T)]
    torch.testing.assert_close(torch.cat(steps, dim=1), score(query, dense(keys)))


@pytest.mark.parametrize("score", [Dot(), Bilinear(D, D), Additive(D, D, hidden_dim=3)], ids=lambda s: type(s).__name__)
def test_gradients(score: Score) -> None:
    score.double()
    query = torch.randn(1, 2, D, dtype=torch.float64, requires_grad=True)
    keys = torch.randn(1, 3, D, dtype=torch.float64, requires_grad=True)
    parameters = tuple(score.parameters())
    assert torch.autograd.gradcheck(lambda q, k, *_: score(q, dense(k)), (query, keys, *parameters))


@pytest.mark.parametrize("has_source", [True, False])
def test_graph_additive_against_a_loop(has_source: bool) -> None:
    score = GraphAdditive(D, H, negative_slope=0.2)
    source, target = EDGES
    query, nodes = torch.randn(N, H, D), torch.randn(N, H, D)
    keys = nodes if has_source else nodes[source]
    support = Segments(target, N, source if has_source else None)
    scores = score(query, Memory(keys=keys, values=keys, support=support))
    assert scores.shape == (EDGES.shape[1], H)
    for e, (j, i) in enumerate(EDGES.T.tolist()):
        for h in range(H):
            energy = (score.target_weight[h] * query[i, h]).sum() + (score.source_weight[h] * nodes[j, h]).sum()
            expected = energy if energy > 0 else 0.2 * energy
            torch.testing.assert_close(scores[e, h], expected)


def test_graph_additive_gives_the_weights_of_graph_attention() -> None:
    """softmax over the neighbours j of leaky_relu(a . [h_i || h_j]), Velickovic et al. 2018, eq. 3."""
    score = GraphAdditive(D, H)
    source, target = EDGES
    nodes = torch.randn(N, H, D)
    support = Segments(target, N, source)
    weights = support.log_softmax(score(nodes, Memory(keys=nodes, values=nodes, support=support))).exp()
    attention = torch.cat([score.target_weight, score.source_weight], dim=-1)  # (H, 2 D)
    for i in range(N):
        edges = [e for e in range(EDGES.shape[1]) if target[e] == i]
        if not edges:
            continue
        pairs = torch.stack([torch.cat([nodes[i], nodes[source[e]]], dim=-1) for e in edges])  # (degree, H, 2 D)
        expected = torch.nn.functional.leaky_relu((pairs * attention).sum(dim=-1), 0.2).softmax(dim=0)
        torch.testing.assert_close(weights[edges], expected)


def test_graph_additive_gradients() -> None:
    score = GraphAdditive(3, 2).double()
    source, target = EDGES
    nodes = torch.randn(N, 2, 3, dtype=torch.float64, requires_grad=True)
    support = Segments(target, N, source)

    def run(x: Tensor, *_: Tensor) -> Tensor:
        return score(x, Memory(keys=x, values=x, support=support))

    assert torch.autograd.gradcheck(run, (nodes, *score.parameters()))


def test_dot_names_both_shapes_and_the_way_out() -> None:
    with pytest.raises(
        ValueError, match=r"one width, got query \(2, 3, 5\) and keys \(2, 4, 6\); use Bilinear or Additive"
    ):
        Dot()(torch.zeros(B, T, D), dense(torch.zeros(B, S, E)))


def test_graph_additive_wants_segments() -> None:
    with pytest.raises(TypeError, match="needs a Segments support, got Dense"):
        GraphAdditive(D, H)(torch.zeros(N, H, D), dense(torch.zeros(N, H, D)))


def test_the_base_class_scores_nothing() -> None:
    with pytest.raises(NotImplementedError):
        Score()(torch.zeros(B, T, D), dense(torch.zeros(B, S, D)))
