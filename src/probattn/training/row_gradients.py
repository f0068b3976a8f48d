"""Gradients of large embedding tables, of which a batch reaches a few rows.

torch's backward pass of an embedding makes a new table of zeros for every update. With 30,000 words that is a third of
a fine-tuning step on short sentences, on a CPU: the table is larger than any block that the allocator keeps.

Sizes: V rows, d columns, n rows that a batch reaches.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

__all__ = ["RowGradients", "square_sum"]


class RowGradients:
    """Keeps one dense gradient for every large embedding, in which only the rows of the last batch are written.

    The optimiser sees what it saw before, so its moments of rows that a batch did not reach go on as ever. Call
    `collect` between `backward()` and whatever reads gradients, with `.grad` of these tables set to None before
    `backward()`.

    Args:
        model: Its embeddings are switched to sparse gradients, those that have their table to themselves and look it up
            plainly.
        min_rows: Of tables that this pays for.

    Example:
        >>> table = nn.Embedding(5000, 2)
        >>> rows = RowGradients([table])
        >>> table(torch.tensor([7, 7, 9])).sum().backward()
        >>> rows.collect()
        >>> table.weight.grad.is_sparse, table.weight.grad[[6, 7, 9]].tolist()
        (False, [[0.0, 0.0], [2.0, 2.0], [1.0, 1.0]])
    """

    def __init__(self, model: nn.Module | Iterable[nn.Module], *, min_rows: int = 4096):
        modules = list(model.modules()) if isinstance(model, nn.Module) else list(model)
        owners: dict[Tensor, int] = {}
        for module in modules:
            for parameter in module.parameters(recurse=False):
                owners[parameter] = owners.get(parameter, 0) + 1
        self.tables = [
            one
            for one in modules
            if isinstance(one, nn.Embedding)
            and one.num_embeddings >= min_rows
            # a table that is an output layer too has a dense gradient besides, and a norm that is kept is not linear
            and owners[one.weight] == 1
            and not one.scale_grad_by_freq
            and one.max_norm is None
        ]
        for table in self.tables:
            table.sparse = True
        self._kept: dict[nn.Embedding, tuple[Tensor, Tensor]] = {}  # (V, d) gradient and (n) its rows that are not zero

    def collect(self) -> None:
        """Make the gradients of the last `backward()` dense."""
        for table in self.tables:
            found = table.weight.grad
            if found is None or not found.is_sparse:  # not reached, or collected already
                continue
            found = found.coalesce()
            rows, values = found.indices()[0], found.values()  # (n), (n, d)
            dense, old = self._kept.get(table) or (torch.zeros_like(table.weight), rows[:0])
            dense[old] = 0.0
            dense[rows] = values
            table.weight.grad = dense
            self._kept[table] = (dense, rows)


def square_sum(gradient: Tensor) -> float:
    """The sum of squares in float64, of a sparse gradient too."""
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    return float(values.double().square().sum())
