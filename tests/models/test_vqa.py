"""Deng et al.'s network for questions about pictures: overfits, mixes exactly, and is blind to padding."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import probattn as pa
from probattn.core import Bound, Estimator
from probattn.models.vqa import QuestionEncoder, RegionVqa, VqaInputs
from probattn.nn.answer_posterior import AnswerPosterior

D, Q, A = 6, 8, 5


def build(*, has_network: bool = False, dropout: float = 0.0) -> RegionVqa:
    torch.manual_seed(0)
    question = QuestionEncoder(nn.Embedding(12, 7), Q)
    posterior = None
    if has_network:
        encoder = nn.Embedding(A, 4)
        posterior = AnswerPosterior(D, Q, answer_dim=4, hidden_dim=16, family=pa.Categorical(), answer_encoder=encoder)
    site = pa.Site("weights", prior=pa.FromScores(pa.Categorical()), posterior=posterior)
    return RegionVqa(question, site, region_dim=D, attention_dim=16, hidden_dim=24, num_answers=A, dropout=dropout)


def inputs(count: int = 8) -> tuple[VqaInputs, torch.Tensor]:
    torch.manual_seed(3)
    mask = torch.ones(count, 4, dtype=torch.bool)
    mask[0, 3] = False
    words_mask = torch.ones(count, 5, dtype=torch.bool)
    words_mask[1, 3:] = False
    asked = VqaInputs(torch.randn(count, 4, D), mask, torch.randint(1, 12, (count, 5)), words_mask)
    return asked, torch.randint(A, (count,))


ROWS = [
    (pa.Mean(), pa.Elbo(), False),
    (pa.Enumerate(), pa.Marginal(), False),
    (pa.Enumerate(), pa.Elbo(), False),
    (pa.ScoreFunction(), pa.Elbo(), False),
    (pa.Enumerate(), pa.Elbo(), True),
    (pa.ScoreFunction(), pa.Elbo(), True),
]


@pytest.mark.parametrize(("estimator", "bound", "has_network"), ROWS)
def test_overfits_eight_questions(estimator: Estimator, bound: Bound, has_network: bool) -> None:
    model = build(has_network=has_network)
    asked, answers = inputs()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(120):
        loss = bound(model(asked, answers, {"weights": estimator}, bound=bound)).loss.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    test = pa.Mean() if isinstance(estimator, pa.Mean) else pa.Enumerate()
    found = model.predict(asked, {"weights": test})
    assert torch.equal(found.log_probs.argmax(dim=-1), answers)
    if has_network:
        assert model.posterior_weights(asked, answers) is not None


def test_predictions_mix_exactly_and_bounds_are_ordered() -> None:
    model, (asked, answers) = build(has_network=True), inputs()
    with torch.no_grad():
        mixed = model.predict(asked, {"weights": pa.Enumerate()}).log_probs
        marginal = pa.Marginal()(model(asked, answers, {"weights": pa.Enumerate()}, use_posterior=False)).bound
        elbo = pa.Elbo()(model(asked, answers, {"weights": pa.Enumerate()})).bound
    torch.testing.assert_close(mixed.exp().sum(dim=-1), torch.ones(8))
    torch.testing.assert_close(mixed.gather(-1, answers.unsqueeze(-1)).squeeze(-1), marginal)
    assert bool((elbo < marginal).all())


def test_the_exact_posterior_is_bayes_rule() -> None:
    model, (asked, answers) = build(), inputs()
    with torch.no_grad():
        prior = model.predict(asked, {"weights": pa.Mean()}).weights
        regions = [
            replace(asked, regions=asked.regions[:, [one]], regions_mask=asked.regions_mask[:, [0]]) for one in range(4)
        ]
        log_probs = [model.predict(one, {"weights": pa.Mean()}).log_probs for one in regions]
    lik = torch.stack([one.gather(-1, answers.unsqueeze(-1)).squeeze(-1) for one in log_probs], dim=1).exp()
    expected = prior * lik / (prior * lik).sum(dim=-1, keepdim=True)
    torch.testing.assert_close(model.exact_posterior(asked, answers), expected)
    assert model.posterior_weights(asked, answers) is None


def test_gradients_with_and_without_a_bound_agree() -> None:
    asked, answers = inputs()
    gradients = []
    for bound in (None, pa.Marginal()):
        model = build()
        pa.Marginal()(model(asked, answers, {"weights": pa.Enumerate()}, bound=bound)).loss.sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_padding_changes_nothing() -> None:
    model, (asked, _) = build(), inputs()
    more = VqaInputs(
        torch.cat([asked.regions.masked_fill(~asked.regions_mask.unsqueeze(-1), 1e4), torch.full((8, 2, D), 1e4)], 1),
        torch.cat([asked.regions_mask, torch.zeros(8, 2, dtype=torch.bool)], 1),
        torch.cat([asked.words.masked_fill(~asked.words_mask, 11), torch.full((8, 1), 11)], 1),
        torch.cat([asked.words_mask, torch.zeros(8, 1, dtype=torch.bool)], 1),
    )
    with torch.no_grad():
        one, other = (model.predict(some, {"weights": pa.Enumerate()}) for some in (asked, more))
    torch.testing.assert_close(one.log_probs, other.log_probs)
    torch.testing.assert_close(one.weights, other.weights[:, :4])


def test_particles_share_their_dropout() -> None:
    """All regions alike: then all particles of a question have one likelihood, whatever is dropped."""
    model, (asked, answers) = build(dropout=0.5).train(), inputs()
    alike = replace(asked, regions=asked.regions[:, :1].expand(-1, 4, -1))
    log_lik = model(alike, answers, {"weights": pa.Enumerate()}).log_lik
    torch.testing.assert_close(log_lik[0, 1:], log_lik[1, 1:])
    assert not torch.equal(log_lik, model(alike, answers, {"weights": pa.Enumerate()}).log_lik)


def test_wrong_shapes_are_named() -> None:
    model, (asked, answers) = build(), inputs()
    with pytest.raises(ValueError, match="expected regions of 6 features, got 3; use features of the extractor"):
        model(replace(asked, regions=asked.regions[..., :3]), answers, {"weights": pa.Mean()})
    with pytest.raises(ValueError, match=r"as many questions, got \(7, 4, 6\) and \(8, 5\)"):
        replace(asked, regions=asked.regions[:7])
