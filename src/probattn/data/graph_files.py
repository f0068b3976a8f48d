"""Your own graph for node classification: an .npz file with features, edges, labels and a split.

| array | shape | what |
|---|---|---|
| features | (N, F) | numbers |
| edges | (2, E) | integers: sources, targets; a row for each direction of an undirected graph, or `is_directed` False |
| labels | (N) | integers from 0; -1 where a node has none |
| train, valid, test | (n), or (N) of bool | nodes to learn from, to select by, to report |
| is_directed | () bool | optional; False adds the other direction of every edge |
"""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from probattn.data.graphs import NodeGraph, undirected

__all__ = ["read_graph", "write_graph"]

SPLITS = ("train", "valid", "test")
_NAMES = ("features", "edges", "labels", *SPLITS)


def read_graph(path: str | Path, *, needs_labels: bool = True) -> NodeGraph:
    """The graph in an .npz file.

    Args:
        path: The file.
        needs_labels: False: of a graph whose nodes are to be classified features and edges are enough; labels and
            splits are not read.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: An array is missing or does not fit the others; says which, what was expected and what came.
    """
    path = Path(path)
    arrays = _arrays(path)
    wanted = _NAMES if needs_labels else _NAMES[:2]
    missing = [name for name in wanted if name not in arrays]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}; expected the arrays {', '.join(wanted)}")
    if not needs_labels:
        none = np.zeros(0, dtype=np.int64)
        arrays = {**arrays, "labels": np.full(len(arrays["features"]), -1), **dict.fromkeys(SPLITS, none)}
    features = _numbers(path, arrays, "features", dims=2).float()
    if not bool(torch.isfinite(features).all()):
        row = int((~torch.isfinite(features)).any(dim=-1).nonzero()[0])
        raise ValueError(f"{path}: the features of node {row} are not finite; clean them before training")
    num_nodes = len(features)
    labels = _integers(path, arrays, "labels", dims=1)
    if len(labels) != num_nodes or num_nodes == 0:
        raise ValueError(
            f"{path}: expected a label for each of the nodes, got {len(labels)} labels, {num_nodes} nodes with features"
        )
    edges = _integers(path, arrays, "edges", dims=2)
    if edges.shape[0] != 2:
        raise ValueError(f"{path}: edges must have shape (2, E): sources, targets; got {tuple(edges.shape)}")
    _require_nodes(path, "edges", edges, num_nodes)
    if not bool(arrays.get("is_directed", np.array(True))):
        edges = undirected(edges, num_nodes)
    if len(torch.unique(edges[0].long() * num_nodes + edges[1])) < edges.shape[1]:  # an edge twice would count twice
        edges = torch.unique(edges, dim=1)
    splits = {name: _split(path, arrays, name, num_nodes, may_be_empty=not needs_labels) for name in SPLITS}
    for name, nodes in splits.items():
        without = nodes[labels[nodes] < 0]
        if len(without):
            raise ValueError(f"{path}: node {int(without[0])} is in '{name}' but has no label ({len(without)} such)")
    shared = [name for name in ("valid", "test") if bool(torch.isin(splits[name], splits["train"]).any())]
    if shared or bool(torch.isin(splits["valid"], splits["test"]).any()):
        raise ValueError(f"{path}: train, valid and test share nodes; every node is in one of them at most")
    unseen = set(labels[labels >= 0].tolist()) - set(labels[splits["train"]].tolist())
    if unseen:
        raise ValueError(f"{path}: no training node has the class {min(unseen)}; number the classes 0, 1, ... anew")
    return NodeGraph(features=features, labels=labels, edges=edges, **splits, name=path.stem)


def write_graph(graph: NodeGraph, path: str | Path) -> None:
    """Write a graph so that `read_graph` reads it."""
    arrays = {name: getattr(graph, name).cpu().numpy() for name in _NAMES}
    with Path(path).open("wb") as file:  # by name, numpy would add a suffix
        np.savez_compressed(file, **arrays)


def _arrays(path: Path) -> Mapping[str, np.ndarray]:
    if not path.is_file():
        raise FileNotFoundError(f"no graph in {path}: there is no such file; expected an .npz with {', '.join(_NAMES)}")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            return {name: content[name] for name in content.files}
    except (ValueError, OSError, EOFError, TypeError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is no .npz file of numbers, or was cut off ({error})") from error


def _numbers(path: Path, arrays: Mapping[str, np.ndarray], name: str, *, dims: int) -> Tensor:
    array = arrays[name]
    if array.ndim != dims or array.dtype.kind not in "biuf":
        raise ValueError(
            f"{path}: '{name}' must be an array of numbers with {dims} dimension(s), got {array.dtype} of shape "
            f"{array.shape}"
        )
    return torch.from_numpy(np.ascontiguousarray(array))


def _integers(path: Path, arrays: Mapping[str, np.ndarray], name: str, *, dims: int) -> Tensor:
    found = _numbers(path, arrays, name, dims=dims)
    if found.dtype == torch.bool or found.is_floating_point():
        raise ValueError(f"{path}: '{name}' must hold integers, got {arrays[name].dtype}")
    return found.long()


def _split(path: Path, arrays: Mapping[str, np.ndarray], name: str, num_nodes: int, *, may_be_empty: bool) -> Tensor:
    if arrays[name].dtype.kind == "b":
        chosen = _numbers(path, arrays, name, dims=1)
        if len(chosen) != num_nodes:
            raise ValueError(f"{path}: '{name}' is a mask of {len(chosen)} nodes, but there are {num_nodes}")
        nodes = chosen.nonzero().squeeze(1)
    else:
        nodes = _integers(path, arrays, name, dims=1).unique()
        _require_nodes(path, name, nodes, num_nodes)
    if len(nodes) == 0 and not may_be_empty:
        raise ValueError(f"{path}: '{name}' holds no nodes")
    return nodes


def _require_nodes(path: Path, name: str, nodes: Tensor, num_nodes: int) -> None:
    if nodes.numel() and (int(nodes.min()) < 0 or int(nodes.max()) >= num_nodes):
        raise ValueError(
            f"{path}: '{name}' names nodes {int(nodes.min())} to {int(nodes.max())}, but there are only nodes 0 to "
            f"{num_nodes - 1}"
        )
