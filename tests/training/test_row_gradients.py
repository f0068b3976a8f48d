"""Dense gradients of large tables from sparse ones: torch's own as the oracle."""

import pytest
import torch
from torch import nn

from probattn.training.row_gradients import RowGradients, square_sum


class Classifier(nn.Module):
    """Two tables, one of them large, and a linear layer."""

    def __init__(self, num_words: int = 50) -> None:
        super().__init__()
        self.words = nn.Embedding(num_words, 3, padding_idx=0)
        self.places = nn.Embedding(4, 3)
        self.out = nn.Linear(3, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.out((self.words(tokens) + self.places.weight[: tokens.shape[1]]).tanh().mean(dim=1))


@pytest.mark.parametrize("optimiser", [torch.optim.AdamW, torch.optim.SGD])
def test_training_is_that_of_dense_gradients(optimiser: type[torch.optim.Optimizer]) -> None:
    weights = []
    for is_sparse in (False, True):
        torch.manual_seed(0)
        model = Classifier()
        rows = RowGradients(model, min_rows=50) if is_sparse else None
        assert rows is None or rows.tables == [model.words]
        steps = (
            optimiser(model.parameters(), lr=0.1, momentum=0.9)
            if optimiser is torch.optim.SGD
            else optimiser(model.parameters(), lr=0.1)
        )
        for step in range(6):
            tokens = torch.randint(0, 50, (4, 4), generator=torch.Generator().manual_seed(step))
            tokens[0, 2:] = 0  # padding; and other words in every batch
            steps.zero_grad()
            model(tokens).square().sum().backward()
            if rows is not None:
                assert model.words.weight.grad is not None and model.words.weight.grad.is_sparse
                rows.collect()
                rows.collect()  # twice does nothing
            assert model.words.weight.grad is not None and not model.words.weight.grad.is_sparse
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            steps.step()
        weights.append([one.detach().clone() for one in model.parameters()])
    for plain, sparse in zip(*weights, strict=True):
        torch.testing.assert_close(plain, sparse, atol=1e-6, rtol=1e-6)


def test_the_gradient_is_written_where_it_was_before() -> None:
    table = nn.Embedding(5000, 2)
    rows = RowGradients([table])
    found = []
    for words in ([3, 4], [4, 8]):
        table.weight.grad = None
        table(torch.tensor(words)).sum().backward()
        rows.collect()
        assert table.weight.grad is not None
        found.append(table.weight.grad)
        assert table.weight.grad.abs().sum(dim=1).nonzero().flatten().tolist() == words
    assert found[0] is found[1]


def test_a_table_that_a_batch_does_not_reach_has_no_gradient() -> None:
    first, second = nn.Embedding(5000, 2), nn.Embedding(5000, 2)
    rows = RowGradients([first, second])
    second(torch.tensor([1])).sum().backward()
    rows.collect()
    assert first.weight.grad is None and second.weight.grad is not None and not second.weight.grad.is_sparse


def test_small_shared_and_normalised_tables_are_left_alone() -> None:
    model = nn.Module()
    model.small = nn.Embedding(4095, 2)
    model.normalised = nn.Embedding(5000, 2, max_norm=1.0)
    model.frequent = nn.Embedding(5000, 2, scale_grad_by_freq=True)
    model.tied = nn.Embedding(5000, 2)
    model.output = nn.Linear(2, 5000)
    model.output.weight = model.tied.weight
    assert RowGradients(model).tables == [] and not model.tied.sparse


def test_squares_of_a_sparse_gradient_are_those_of_its_sum() -> None:
    twice = torch.sparse_coo_tensor(
        torch.tensor([[1, 1, 2]]), torch.tensor([[1.0], [2.0], [1.0]]), (4, 1), check_invariants=True
    )
    assert square_sum(twice) == 10.0 == square_sum(twice.to_dense())
