"""Edges in two orders: against loops, and edges that name nodes which do not exist."""

import pytest
import torch

from probattn import Segments
from probattn.core.edges import EdgeLists, edge_lists

TARGET = torch.tensor([3, 0, 3, 1, 0, 3, 3])
SOURCE = torch.tensor([1, 4, 1, 0, 2, 0, 1])


def test_lists_by_hand() -> None:
    lists = edge_lists(TARGET, SOURCE, 5)
    by_target = [(target, edge) for target in range(5) for edge in range(7) if TARGET[edge] == target]
    assert lists.edge_of.tolist() == [edge for _, edge in by_target]
    assert lists.target_start.tolist() == [0, 2, 3, 3, 7, 7]
    assert lists.source_of.tolist() == [int(SOURCE[edge]) for _, edge in by_target]
    positions = [place for source in range(5) for place, (_, edge) in enumerate(by_target) if SOURCE[edge] == source]
    assert lists.position_of.tolist() == positions
    assert lists.source_start.tolist() == [0, 2, 5, 6, 6, 7]
    assert lists.target_of.tolist() == [by_target[place][0] for place in positions]
    assert lists.num_sources == 5
    assert all(one.dtype == torch.int32 and one.is_contiguous() for one in lists.tensors())


def test_rows_return_to_the_callers_order() -> None:
    lists = edge_lists(TARGET, SOURCE, 5)
    rows = torch.randn(7, 2)
    assert torch.equal(lists.in_callers_order(rows[lists.edge_of]), rows)


def test_an_edge_of_its_own() -> None:
    lists = edge_lists(TARGET, None, 4)
    assert lists.source_of.tolist() == lists.edge_of.tolist() and lists.num_sources == 7


def test_no_edges() -> None:
    nothing = torch.zeros(0, dtype=torch.int64)
    lists = edge_lists(nothing, nothing, 3)
    assert lists.target_start.tolist() == [0, 0, 0, 0] and lists.source_start.tolist() == [0]
    assert lists.num_sources == 0


def test_a_support_sorts_once() -> None:
    support = Segments(TARGET, 5, source=SOURCE)
    assert isinstance(support.edge_lists, EdgeLists)
    assert support.edge_lists is support.edge_lists


@pytest.mark.parametrize(("target", "source"), [([0, 5], [0, 0]), ([-1, 0], [0, 0]), ([0, 1], [0, -2])])
def test_edges_that_leave_the_graph(target: list[int], source: list[int]) -> None:
    with pytest.raises(ValueError, match="sources start at 0, and targets are 0 to 4"):
        edge_lists(torch.tensor(target), torch.tensor(source), 5)
