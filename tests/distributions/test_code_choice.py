"""A random choice of codes: its law, its gradients, its KL by enumeration against Monte Carlo, padding."""

import pytest
import torch
from torch import Tensor

from probattn.core import Dense
from probattn.distributions import CodeChoice, MaskedOneHot, StraightThroughConcrete, kl
from tests.distributions.laws import COPIES, SEED, assert_frequencies, copies, z_scores

CODES = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
SCORES = torch.tensor([[0.5, -1.0, 0.2], [2.0, 0.0, -2.0]], dtype=torch.float64)
PRIOR = torch.tensor([[0.0, 0.7, -0.4], [-1.0, 1.0, 0.3]], dtype=torch.float64)
MASK = torch.tensor([True, False])


def test_samples_follow_the_law() -> None:
    choice = CodeChoice(copies(SCORES[0]), CODES)
    raw = choice.draw_raw(1, SEED)[0].detach()
    assert torch.equal(raw.sum(dim=-1), torch.ones(COPIES, dtype=torch.float64))
    assert_frequencies(raw.sum(dim=0), SCORES[0].softmax(dim=-1))
    assert torch.equal(choice.realise(raw), CODES[raw.argmax(dim=-1)])
    assert choice.batch_shape == (COPIES,) and choice.event_shape == (2,)


@pytest.mark.parametrize("relaxation", [0.5, 1.0])
def test_values_and_gradients_are_the_straight_through_concretes(relaxation: float) -> None:
    """The library's relaxation over the same noise, read out of the codes, is a second road to the same numbers."""
    direction = torch.randn(4, 2, 2, dtype=torch.float64)
    found: list[tuple[Tensor, ...]] = []
    for is_own in (True, False):
        scores, codes = SCORES.clone().requires_grad_(), CODES.clone().requires_grad_()
        if is_own:
            choice = CodeChoice(scores, codes, relaxation=relaxation)
            value = choice.realise(choice.draw_raw(4, SEED))
        else:
            concrete = StraightThroughConcrete(scores, relaxation, support=Dense())
            value = concrete.realise(concrete.draw_raw(4, SEED)) @ codes
        found.append((value.detach(), *torch.autograd.grad((value * direction).sum(), (scores, codes))))
    for own, other in zip(*found, strict=True):
        torch.testing.assert_close(own, other)


def test_plug_in_is_the_most_probable_code_with_the_gradient_of_the_expected_one() -> None:
    scores = SCORES.clone().requires_grad_()
    choice = CodeChoice(scores, CODES)
    assert torch.allclose(choice.plug_in, CODES[torch.tensor([0, 0])])
    (own,) = torch.autograd.grad(choice.plug_in.sum(), scores)
    (expected,) = torch.autograd.grad((scores.softmax(dim=-1) @ CODES).sum(), scores)
    torch.testing.assert_close(own, expected)


def test_kl_is_the_categorical_one_and_that_of_monte_carlo() -> None:
    choice, prior = CodeChoice(SCORES, CODES), MaskedOneHot(PRIOR, Dense())
    expected = torch.distributions.kl_divergence(
        torch.distributions.Categorical(logits=SCORES), torch.distributions.Categorical(logits=PRIOR)
    )
    torch.testing.assert_close(kl(choice, prior), expected)
    raw = choice.draw_raw(COPIES, SEED)
    ratio = choice.log_prob(raw) - choice.log_prob_under(prior, choice.realise(raw))
    assert float(z_scores(ratio, expected).abs().max()) < 4.0


def test_gradcheck_of_kl_and_entropy() -> None:
    def divergence(scores: Tensor, prior: Tensor) -> Tensor:
        choice = CodeChoice(scores, CODES, mask=MASK)
        return kl(choice, MaskedOneHot(prior, Dense())) + choice.entropy()

    assert torch.autograd.gradcheck(divergence, (SCORES.clone().requires_grad_(), PRIOR.clone().requires_grad_()))


def test_log_probabilities_of_codes_and_padding() -> None:
    prior = MaskedOneHot(PRIOR, Dense())
    choice = CodeChoice(SCORES, CODES, mask=MASK)
    for code in range(3):
        raw = torch.nn.functional.one_hot(torch.tensor([[code, code]]), 3).double()
        assert choice.log_prob(raw).tolist() == [[pytest.approx(float(SCORES[0].log_softmax(-1)[code])), 0.0]]
        under = choice.log_prob_under(prior, choice.realise(raw))
        assert under.tolist() == [[pytest.approx(float(PRIOR[0].log_softmax(-1)[code])), 0.0]]
    assert float(kl(choice, prior)[1]) == 0.0 and float(choice.entropy()[1]) == 0.0
    assert float(kl(choice, prior)[0]) > 0.0


def test_noise_of_a_position_does_not_depend_on_padding_behind_it() -> None:
    longer = torch.cat([SCORES, torch.full((3, 3), 9.0, dtype=torch.float64)])
    short, padded = (CodeChoice(one.unsqueeze(0), CODES).draw_raw(1, SEED) for one in (SCORES, longer))
    assert torch.equal(short, padded[:, :, :2])


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="one score for each code"):
        CodeChoice(SCORES, CODES[:2])
    with pytest.raises(ValueError, match="must be positive"):
        CodeChoice(SCORES, CODES, relaxation=0.0)
    with pytest.raises(ValueError, match="one for each choice, got "):
        CodeChoice(SCORES, CODES, encoded=CODES)
    with pytest.raises(ValueError, match="at most one size"):
        CodeChoice(SCORES, CODES).rsample((2, 3))
    assert CodeChoice(SCORES, CODES).rsample((2,)).shape == (2, 2, 3)
    assert CodeChoice(SCORES, CODES).rsample().shape == (2, 3)
