"""Sparse rows times a dense matrix, against the dense product."""

import pytest
import torch

from probattn.nn import SparseRows


def matrix(rows: int = 7, columns: int = 5) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(rows, columns, dtype=torch.float64) * (torch.rand(rows, columns) < 0.4)


@pytest.mark.parametrize("x", [matrix(), torch.zeros(4, 3, dtype=torch.float64), matrix(1, 1), matrix(9, 2)])
def test_product_and_gradient_equal_the_dense_ones(x: torch.Tensor) -> None:
    other = torch.randn(x.shape[1], 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(x.shape[0], 6, dtype=torch.float64)
    sparse = SparseRows.from_dense(x)
    (product,) = (sparse @ other,)
    assert torch.allclose(product, x @ other)
    (gradient,) = torch.autograd.grad((product * weight).sum(), other)
    assert torch.allclose(gradient, x.T @ weight)


def test_there_and_back() -> None:
    sparse = SparseRows.from_dense(matrix())
    assert torch.equal(sparse.to_dense(), matrix())
    assert sparse.shape == (7, 5) and len(sparse) == 7
    assert torch.equal(sparse.to("cpu").to_dense(), matrix())


def test_map_changes_values_in_both_directions() -> None:
    sparse = SparseRows.from_dense(matrix()).map(lambda values: 3.0 * values)
    other = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad((sparse @ other).sum(), other)
    assert torch.allclose(gradient, 3.0 * matrix().T @ torch.ones(7, 2, dtype=torch.float64))


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(ValueError, match=r"\(N, F\), got shape \(3,\)"):
        SparseRows.from_dense(torch.zeros(3))
    with pytest.raises(ValueError, match=r"\(7, 5\) cannot be multiplied with \(4, 2\)"):
        SparseRows.from_dense(matrix()) @ torch.zeros(4, 2)
