"""Graphs from .npz files: what is read, and what is said of files that do not fit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from probattn.data.graph_files import read_graph, write_graph
from probattn.data.graphs import block_model


def arrays(**changes: Any) -> dict[str, np.ndarray]:
    """A path of five nodes with two classes."""
    content = {
        "features": np.eye(5),
        "edges": np.array([[0, 1, 2, 3], [1, 2, 3, 4]]),
        "labels": np.array([0, 1, 0, 1, -1]),
        "train": np.array([0, 1]),
        "valid": np.array([2]),
        "test": np.array([False, False, False, True, False]),
    }
    return {name: np.asarray(array) for name, array in {**content, **changes}.items() if array is not None}


def file_of(folder: Path, **changes: Any) -> Path:
    path = folder / "mine.npz"
    np.savez(path, **arrays(**changes))
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    graph = block_model(120, num_classes=3, seed=1)
    write_graph(graph, tmp_path / "graph.npz")
    read = read_graph(tmp_path / "graph.npz")
    assert read.name == "graph" and read.num_classes == 3
    for name in ("features", "labels", "edges"):
        assert torch.equal(getattr(read, name), getattr(graph, name))
    for name in ("train", "valid", "test"):
        assert torch.equal(getattr(read, name), getattr(graph, name).sort().values)


def test_masks_directions_and_nodes_without_label(tmp_path: Path) -> None:
    graph = read_graph(file_of(tmp_path))
    assert graph.test.tolist() == [3] and graph.edges.shape == (2, 4) and graph.labels[4] == -1
    both = read_graph(file_of(tmp_path, is_directed=np.array(False)))
    assert both.edges.shape == (2, 8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"valid": None}, "lacks valid"),
        ({"features": np.full((5, 5), np.nan)}, "node 0 are not finite"),
        ({"features": np.zeros(5)}, "'features' must be an array of numbers with 2"),
        ({"features": np.array([["a"] * 5] * 5)}, "'features' must be an array of numbers"),
        ({"labels": np.zeros(4, dtype=int)}, "4 labels, 5 nodes"),
        ({"labels": np.zeros(5)}, "'labels' must hold integers, got float64"),
        ({"edges": np.zeros((4, 2), dtype=int)}, r"\(2, E\).*\(4, 2\)"),
        ({"edges": np.array([[0, 7], [1, 2]])}, "nodes 0 to 7.*only nodes 0 to 4"),
        ({"train": np.array([0, 4])}, "node 4 is in 'train' but has no label"),
        ({"valid": np.array([1])}, "share nodes"),
        ({"test": np.array([True, False])}, "mask of 2 nodes, but there are 5"),
        ({"valid": np.array([], dtype=int)}, "'valid' holds no nodes"),
        ({"labels": np.array([0, 1, 2, 1, -1])}, "no training node has the class 2"),
    ],
)
def test_a_file_that_does_not_fit_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = file_of(tmp_path, **changes)
    with pytest.raises(ValueError, match=f"{path}.*{message}"):
        read_graph(path)


def test_no_file_and_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_graph(tmp_path / "absent.npz")
    path = file_of(tmp_path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match="cut off"):
        read_graph(path)


def test_an_edge_that_is_there_twice_is_one(tmp_path: Path) -> None:
    graph = block_model(88, seed=0)
    write_graph(replace(graph, edges=torch.cat([graph.edges, graph.edges[:, :5]], dim=1)), tmp_path / "graph.npz")
    found = read_graph(tmp_path / "graph.npz").edges
    assert {tuple(edge) for edge in found.T.tolist()} == {tuple(edge) for edge in graph.edges.T.tolist()}
    assert found.shape == graph.edges.shape


def test_an_array_alone_is_no_graph(tmp_path: Path) -> None:
    path = tmp_path / "array.npz"
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(ValueError, match=r"array\.npz is no \.npz file"):
        read_graph(path)


def test_a_byte_that_was_turned_is_told(tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    write_graph(block_model(88, seed=0), path)
    content = path.read_bytes()
    for place in range(40, len(content), len(content) // 60):
        path.write_bytes(content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :])
        try:
            read_graph(path)
        except ValueError as error:
            assert "graph.npz" in str(error)
