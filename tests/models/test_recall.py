"""The recall network: overfits, and does not know which estimator it runs with."""

import math

import pytest
import torch

import probattn as pa
from probattn.data import RecallTask
from probattn.models import RecallModel
from probattn.nn import Bilinear

TASK = RecallTask(num_symbols=8)


def build(posterior: pa.InferenceNetwork | None = None) -> RecallModel:
    torch.manual_seed(0)
    site = pa.Site("weights", prior=pa.FromScores(pa.Categorical()), posterior=posterior)
    return RecallModel(site, dim=TASK.dim, hidden_dim=32, num_symbols=TASK.num_symbols)


def network() -> pa.InferenceNetwork:
    return pa.InferenceNetwork(Bilinear(64, 64), pa.Categorical())


@pytest.mark.parametrize(
    ("estimator", "bound"),
    [
        (pa.Mean(), pa.Elbo()),
        (pa.Enumerate(), pa.Marginal()),
        (pa.Enumerate(), pa.Elbo()),
        (pa.ScoreFunction(4, pa.LeaveOneOut()), pa.Elbo()),
    ],
)
def test_overfits_eight_examples(estimator: pa.core.Estimator, bound: pa.core.Bound) -> None:
    model = build()
    batch = TASK.batch(8, 0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(150):
        loss = bound(model(batch, {"weights": estimator})).loss.sum() / batch.target.numel()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        prediction = model.predict(batch, {"weights": pa.Enumerate()})
    accuracy = (prediction.log_probs.argmax(-1) == batch.target).float().mean()
    assert float(accuracy) > 0.95


def test_predictions_are_distributions_and_mix_exactly() -> None:
    model = build()
    batch = TASK.batch(3, 0)
    with torch.no_grad():
        mixed = model.predict(batch, {"weights": pa.Enumerate()}).log_probs
        exact = pa.Marginal()(model(batch, {"weights": pa.Enumerate()}))
    assert torch.allclose(mixed.exp().sum(-1), torch.ones(3, TASK.num_queries), atol=1e-5)
    by_hand = mixed.gather(-1, batch.target.unsqueeze(-1)).squeeze(-1).sum(-1)
    assert torch.allclose(by_hand, exact.bound, atol=1e-5)


def test_posterior_sees_the_answer_and_prediction_does_not() -> None:
    model = build(network())
    batch = TASK.batch(4, 0)
    other = RecallTask(num_symbols=8).batch(4, 0)
    other = type(other)(**{**vars(other), "target": (other.target + 1) % 8})
    with torch.no_grad():
        assert not torch.equal(model.posterior_weights(batch), model.posterior_weights(other))
        first, second = (model.predict(b, {"weights": pa.Enumerate()}).log_probs for b in (batch, other))
    assert torch.equal(first, second)


def test_without_posterior_there_are_no_posterior_weights_and_kl_is_zero() -> None:
    model = build(network())
    batch = TASK.batch(4, 0)
    assert build().posterior_weights(batch) is None
    terms = pa.Elbo()(model(batch, {"weights": pa.Enumerate()}, use_posterior=False))
    assert float(terms.kl["weights"].abs().sum()) == 0.0
    assert math.isfinite(float(terms.loss.detach().sum()))
