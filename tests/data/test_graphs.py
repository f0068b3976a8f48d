"""Graphs: the generated twin, and the published ones where they are."""

import io
import lzma
import pickle
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from probattn.data import planetoid
from probattn.data.graphs import NodeGraph, block_model, fewer_labels, rewired, swapped_features, undirected

SIZES = {
    "cora": (2708, 5278, 1433, 7, 140),
    "citeseer": (3327, 4552, 3703, 6, 120),
    "pubmed": (19717, 44324, 500, 3, 60),
}


def check(graph: NodeGraph) -> None:
    assert graph.edges.dtype == torch.int64 and int(graph.edges.max()) < graph.num_nodes
    assert not bool((graph.edges[0] == graph.edges[1]).any())  # no self-loops
    codes = graph.edges[1] * graph.num_nodes + graph.edges[0]
    assert len(codes.unique()) == len(codes)
    back = graph.edges[0] * graph.num_nodes + graph.edges[1]
    assert torch.equal(codes.sort().values, back.sort().values)  # both directions
    parts = torch.cat([graph.train, graph.valid, graph.test])
    assert len(parts.unique()) == len(parts)


def test_block_model_is_a_function_of_its_seed() -> None:
    one, same, other = block_model(300, seed=1), block_model(300, seed=1), block_model(300, seed=2)
    assert torch.equal(one.edges, same.edges) and torch.equal(one.features, same.features)
    assert not torch.equal(one.features, other.features)
    check(one)


@pytest.mark.parametrize("homophily", [0.25, 0.9])
def test_block_model_has_the_structure_it_is_asked_for(homophily: float) -> None:
    graph = block_model(4000, homophily=homophily, degree=8.0)
    same = (graph.labels[graph.edges[0]] == graph.labels[graph.edges[1]]).float().mean()
    assert float(same) == pytest.approx(homophily + (1 - homophily) / 4, abs=0.03)
    assert graph.edges.shape[1] / graph.num_nodes == pytest.approx(8.0, rel=0.02)
    assert [int((graph.labels[graph.train] == one).sum()) for one in range(4)] == [20] * 4


def test_features_carry_the_class_as_strongly_as_asked() -> None:
    for signal, low, high in ((0.0, 0.0, 0.35), (6.0, 0.95, 1.0)):
        graph = block_model(2000, signal=signal)
        centres = torch.stack([graph.features[graph.labels == one].mean(dim=0) for one in range(4)])
        nearest = torch.cdist(graph.features, centres).argmin(dim=-1)
        assert low <= float((nearest == graph.labels).float().mean()) <= high


def test_a_large_graph_is_made_in_linear_memory() -> None:
    graph = block_model(100_000, degree=10.0, num_features=4)
    assert 990_000 < graph.edges.shape[1] <= 1_000_000


def test_too_few_nodes() -> None:
    with pytest.raises(ValueError, match="ask for at least 88"):
        block_model(50)


def test_undirected_drops_loops_and_repetitions() -> None:
    edges = undirected(torch.tensor([[0, 1, 2, 0, 1], [1, 0, 2, 1, 2]]), 3)
    assert edges.T.tolist() == [[1, 0], [0, 1], [2, 1], [1, 2]]


@pytest.mark.parametrize("name", SIZES)
def test_published_graphs(name: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBATTN_DATA", str(data_dir))
    graph = planetoid.load(name)
    nodes, edges, features, classes, train = SIZES[name]
    assert (graph.num_nodes, graph.edges.shape[1] // 2, graph.features.shape[1]) == (nodes, edges, features)
    assert (graph.num_classes, len(graph.train), len(graph.valid), len(graph.test)) == (classes, train, 500, 1000)
    check(graph)
    sums = graph.features.sum(dim=-1)
    assert bool(((sums - 1.0).abs().lt(1e-4) | sums.eq(0.0)).all())
    degree = torch.zeros(nodes).index_add(0, graph.edges[1], torch.ones(2 * edges))
    assert int((degree == 0).sum()) == (48 if name == "citeseer" else 0)


def test_a_pickle_cannot_run_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(pickle.UnpicklingError, match=r"posix.system|os.system|nt.system"):
        planetoid._unpickle(pickle.dumps(__import__("os").system, protocol=2))
    archive = tmp_path / "planetoid" / "planetoid.tar.xz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:xz") as file:
        member = tarfile.TarInfo("ind.cora.x")
        member.size = 3
        file.addfile(member, io.BytesIO(b"abc"))
    monkeypatch.setenv("PROBATTN_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="is missing or not the published file"):
        planetoid.load("cora")
    with pytest.raises(ValueError, match="cora"):
        planetoid.load("coral")


def test_fewer_labels_are_balanced_and_taken_from_the_training_nodes() -> None:
    graph = block_model(400, num_classes=4, train_per_class=20)
    fewer = fewer_labels(graph, 3, seed=1)
    assert torch.bincount(graph.labels[fewer.train]).tolist() == [3, 3, 3, 3]
    assert bool(torch.isin(fewer.train, graph.train).all())
    assert torch.equal(fewer.test, graph.test)
    with pytest.raises(ValueError, match="ask for 1 to 20; got 21"):
        fewer_labels(graph, 21)


def test_swapped_features_come_from_other_nodes() -> None:
    graph = block_model(300)
    swapped = swapped_features(graph, 0.25, seed=2)
    changed = swapped.features != graph.features
    assert float(changed.float().mean()) == pytest.approx(0.25, abs=0.02)
    assert bool(torch.isin(swapped.features, graph.features).all())
    assert torch.equal(swapped_features(graph, 0.0).features, graph.features)
    with pytest.raises(ValueError, match="between 0 and 1, got 2"):
        swapped_features(graph, 2.0)


def test_rewired_graphs_stay_undirected_without_loops() -> None:
    graph = block_model(300)
    moved = rewired(graph, 0.5, seed=3)
    codes = {tuple(edge) for edge in moved.edges.T.tolist()}
    assert all((b, a) in codes and a != b for a, b in codes)
    kept = len(codes & {tuple(edge) for edge in graph.edges.T.tolist()}) / graph.edges.shape[1]
    assert kept == pytest.approx(0.5, abs=0.08)


def test_rewiring_moves_low_and_high_numbers_alike() -> None:
    graph = block_model(2000, degree=8.0)
    before, after = (torch.bincount(one.edges[0], minlength=2000).float() for one in (graph, rewired(graph, 1.0)))
    halves = [float((after - before)[part].mean()) for part in (slice(0, 1000), slice(1000, 2000))]
    assert halves[0] == pytest.approx(halves[1], abs=0.5)


def citations(count: int = 40) -> NodeGraph:
    """Every node cites the one before it: directed, from larger numbers to smaller ones."""
    graph = block_model(88, seed=0)
    return replace(graph, edges=torch.stack([torch.arange(1, count), torch.arange(count - 1)]))


def test_rewiring_keeps_the_directions_of_a_directed_graph() -> None:
    graph = citations()
    same = rewired(graph, 0.0)
    assert {tuple(edge) for edge in same.edges.T.tolist()} == {tuple(edge) for edge in graph.edges.T.tolist()}
    half = {tuple(edge) for edge in rewired(graph, 0.5).edges.T.tolist()}
    known = {tuple(edge) for edge in graph.edges.T.tolist()}
    assert 8 < len(half & known) < 32 and len(half) > 34
    assert all(source != target for source, target in half)


def test_a_damaged_archive_is_told_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "planetoid" / "planetoid.tar.xz"
    path.parent.mkdir()
    monkeypatch.setenv("PROBATTN_DATA", str(tmp_path))
    whole = lzma.compress(b"0" * 4000)
    for content in (whole[:30], whole[:20] + b"x" + whole[21:], b"<html>not found</html>"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"planetoid\.tar\.xz is damaged, or no archive"):
            planetoid.load("cora")
