"""What the shape of a receipt says of its variables, whatever its contents."""

from dataclasses import replace

import pytest
import torch

from probattn.core import Bound, Dense, Draw, Elbo, Enumerate, Evaluation, FreeBits, Latent, Marginal
from probattn.distributions import MaskedOneHot
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


def one_step(kl: float, mask: list[bool], penalty: float) -> Latent:
    draw = Draw(value=torch.zeros(1, 2, 1, 3), index=None, log_weight=torch.zeros(1, 2, 1))
    far = {"far": torch.full((2, 1), penalty)}
    real = torch.tensor([mask]).T
    return Latent("a", "step", False, draw, torch.full((2, 1), kl), SEED, penalties=far, mask=real)


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
