"""What the shape of a receipt says of its variables, whatever its contents."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from probattn.core import (
    Bound,
    Dense,
    Draw,
    Elbo,
    Enumerate,
    Evaluation,
    FreeBits,
    ImportanceWeighted,
    Latent,
    Marginal,
    Pathwise,
)
from probattn.distributions import DiagonalGaussian, MaskedOneHot, kl
from probattn.models.draws import stack_steps
from tests.core.oracle import SEED, receipt


@pytest.mark.parametrize("bound", [Elbo(), Marginal()])
def test_enumerated_heads_are_refused_also_while_their_weights_are_equal(bound: Bound) -> None:
    q = MaskedOneHot(torch.zeros(2, 2, 4), Dense())  # as with zero-initialised scores
    evaluation = Evaluation(torch.zeros(4, 2), (receipt("layer", Enumerate()(q, q, SEED)),))
    with pytest.raises(ValueError, match="site 'layer' are enumerated positions. An example has several"):
        bound(evaluation)


@pytest.mark.parametrize("bound", [Elbo(), Marginal()])
def test_one_variable_may_have_axes_of_size_one(bound: Bound) -> None:
    scores = torch.randn(2, 1, 5, generator=torch.Generator().manual_seed(0))
    log_lik = -torch.rand(5, 2, generator=torch.Generator().manual_seed(1))
    bounds = []
    for given in (scores, scores[:, 0]):  # units (2, 1) and (2)
        q = MaskedOneHot(given, Dense())
        bounds.append(bound(Evaluation(log_lik, (receipt("a", Enumerate()(q, q, SEED)),))).bound)
    torch.testing.assert_close(*bounds)
    if isinstance(bound, Marginal):  # positions come in the order of their weight
        weight = torch.log_softmax(scores[:, 0], dim=-1).sort(dim=-1, descending=True).values
        torch.testing.assert_close(bounds[0], torch.logsumexp(weight.T + log_lik, dim=0))


def one_step(cost: float, mask: list[bool], penalty: float) -> Latent:
    draw = Draw(value=torch.zeros(1, 2, 1, 3), index=None, log_weight=torch.zeros(1, 2, 1))
    far = {"far": torch.full((2, 1), penalty)}
    real = torch.tensor([mask]).T
    return Latent("a", "step", False, draw, torch.full((2, 1), cost), SEED, penalties=far, mask=real)


def test_a_receipt_of_one_step_does_not_fit_a_mask_of_several() -> None:
    steps = tuple(replace(one_step(2.0, [True, True], 0.0), mask=None) for _ in range(3))
    real = torch.tensor([[True, True, True], [True, False, False]])
    with pytest.raises(ValueError, match=r"site 'a' is of one step, unit \(2, 1\).*stack_steps"):
        Elbo()(Evaluation(torch.zeros(1, 2, 3), steps, mask=real))
    terms = Elbo()(Evaluation(torch.zeros(1, 2, 3), (stack_steps(steps),), mask=real))
    assert terms.kl["a"].tolist() == [6.0, 2.0]


def test_stacked_steps_keep_penalties_and_masks_of_all_of_them() -> None:
    masks = [[False, True], [True, True], [True, False]]
    stacked = stack_steps([one_step(2.0, mask, 1.0 + number) for number, mask in enumerate(masks)])
    assert stacked.penalties["far"].tolist() == [[1.0, 2.0, 3.0]] * 2
    assert stacked.mask is not None and stacked.mask.tolist() == [[False, True, True], [True, True, False]]
    evaluation = Evaluation(torch.zeros(1, 2, 3), (stacked,))
    terms = Elbo({"a": FreeBits(5.0)})(evaluation, {"a/far": 0.0})
    assert terms.loss.tolist() == [10.0, 10.0] and terms.kl["a"].tolist() == [4.0, 4.0]


@pytest.mark.parametrize("mask", [torch.ones(2, 1).bool(), torch.ones(3).bool(), torch.ones(2, 3)])
def test_a_mask_is_of_every_step(mask: Tensor) -> None:
    """One that broadcasts would reach the log-likelihood and not the KLs."""
    receipts = (stack_steps([one_step(2.0, [True, True], 0.0)] * 3),)
    with pytest.raises(ValueError, match=r"expected a bool mask of steps \(2, 3\).*got torch.* write it out"):
        Elbo()(Evaluation(torch.zeros(1, 2, 3), receipts, mask=mask))


@pytest.mark.parametrize("num_samples", [1, 4])
def test_a_code_of_each_graph_beside_rows_that_are_nodes(num_samples: int) -> None:
    q = DiagonalGaussian(torch.tensor([[0.5], [-1.0]]), torch.zeros(2, 1))
    p = DiagonalGaussian(torch.zeros(2, 1), torch.zeros(2, 1))
    latent = receipt("code", Pathwise(num_samples)(q, p, SEED), kl(q, p), unit="example")
    log_lik = torch.randn(num_samples, 5, generator=torch.Generator().manual_seed(0))
    evaluation = Evaluation(log_lik, (latent,), example=torch.tensor([1, 0, 1, 1, 0]), num_examples=2)
    totals = torch.stack([log_lik[:, [1, 4]].sum(dim=-1), log_lik[:, [0, 2, 3]].sum(dim=-1)], dim=-1)  # (K, 2)
    torch.testing.assert_close(Elbo()(evaluation).bound, totals.mean(dim=0) - torch.tensor([0.125, 0.5]))
    ratio = latent.draw.log_prior - latent.draw.log_posterior
    expected = torch.logsumexp(totals + ratio, dim=0) - math.log(num_samples)
    torch.testing.assert_close(ImportanceWeighted()(evaluation).bound, expected)


def test_no_rows_are_no_examples() -> None:
    nothing = torch.zeros(0, dtype=torch.int64)
    assert Elbo()(Evaluation(torch.zeros(1, 0), example=nothing)).bound.shape == (0,)
