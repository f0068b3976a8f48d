"""The estimator table: its exact gradients are exact, its verdicts agree with the claims."""

import pytest
import torch

from probattn.recipes.estimators import ROWS, ToyModel, exact_elbo, measure


def test_exact_elbo_agrees_with_enumeration() -> None:
    model = ToyModel(3)
    row = next(row for row in ROWS if row.name == "Enumerate()")
    loss = model.loss(row.family, row.estimator, row.bound, torch.tensor(0))
    assert float(loss.detach()) == pytest.approx(float(exact_elbo(model).detach()), abs=1e-10)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_measured_bias_agrees_with_the_claim(row) -> None:  # type: ignore[no-untyped-def]
    result = measure(row, repetitions=150)
    if row.is_unbiased:
        assert result["relative_bias"] <= 3.0 * result["bias_noise_floor"] + 1e-9
    elif "0.1" not in row.name:  # at temperature 0.1 the bias drowns in the variance
        assert result["relative_bias"] > 3.0 * result["bias_noise_floor"]
