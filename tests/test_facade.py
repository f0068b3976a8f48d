"""The names at the top of the package, and hard attention through them."""

import importlib
import importlib.metadata
import itertools
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from torch import Tensor

import probattn
from probattn import (
    Categorical,
    Elbo,
    Evaluation,
    KeyPrior,
    MultiheadAttention,
    NoBaseline,
    ScoreFunction,
    record_latents,
    scaled_dot_product_attention,
)

ROOT = Path(__file__).resolve().parents[1]


def test_every_name_is_there_once() -> None:
    assert len(set(probattn.__all__)) == len(probattn.__all__)
    for name in probattn.__all__:
        assert getattr(probattn, name) is not None, name


def test_names_are_those_of_the_packages() -> None:
    """Nothing is defined here: each name is the object of the package that made it."""
    from probattn import core, distributions, loading, nn
    from probattn.integrations import conversion

    predicting = importlib.import_module("probattn.predict")  # the name in the façade is the function
    for name in set(probattn.__all__) - {"__version__"}:
        sources = [
            package for package in (core, distributions, loading, nn, predicting, conversion) if name in package.__all__
        ]
        assert len(sources) == 1, name
        assert getattr(probattn, name) is getattr(sources[0], name), name


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert probattn.__version__ == project["version"]
    try:
        installed = importlib.metadata.version("probattn")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package is not installed, only on the path")
    assert probattn.__version__ == installed


def test_importing_it_imports_no_optional_library() -> None:
    """Importing stays cheap, and works where only torch is installed."""
    optional = ["matplotlib", "jsonargparse", "transformers", "torch_geometric", "scipy", "sacrebleu"]
    code = f"import sys, probattn; print([name for name in {optional} if name in sys.modules])"
    environment = {"PYTHONPATH": str(ROOT / "src"), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "[]"


# Hard attention: the receipt carries what an unbiased gradient needs.


HARD = ScoreFunction(1, baseline=NoBaseline())
T, S, D = 2, 3, 2
DRAWS = 20_000


def per_draw_gradients(loss: Tensor, leaf: Tensor) -> Tensor:
    """(N, ...) gradients of N independent copies of one example, one draw each."""
    (grad,) = torch.autograd.grad(loss.sum(), leaf)
    return grad


def z_scores(samples: Tensor, expected: Tensor) -> Tensor:
    return (samples.mean(dim=0) - expected) / (samples.std(dim=0) / samples.shape[0] ** 0.5)


def log_lik(context: Tensor) -> Tensor:
    """(N) some log-likelihood of the contexts (N, ..., D) of an example, not linear in them."""
    return -(context.flatten(1) - 1.0).square().sum(dim=-1)


def test_hard_attention_has_an_unbiased_gradient() -> None:
    """The expectation over all S^T choices is enumerated; fixed seeds, z-scores."""
    query, key, value = (torch.randn(1, n, D, dtype=torch.float64) for n in (T, S, S))

    def exact(q: Tensor) -> Tensor:
        weights = (q[0] @ key[0].T / D**0.5).softmax(dim=-1)  # (T, S)
        total = torch.zeros((), dtype=torch.float64)
        for choice in itertools.product(range(S), repeat=T):
            probability = torch.stack([weights[t, s] for t, s in enumerate(choice)]).prod()
            total = total + probability * log_lik(value[0, list(choice)].unsqueeze(0)).sum()
        return -total

    leaf = query.clone().requires_grad_()
    (expected,) = torch.autograd.grad(exact(leaf), leaf)
    copies = query.expand(DRAWS, T, D).clone().requires_grad_()
    keys, values = (x.expand(DRAWS, S, D) for x in (key, value))
    result = scaled_dot_product_attention(copies, keys, values, family=Categorical(), estimator=HARD)
    terms = Elbo()(Evaluation(log_lik(result.context).unsqueeze(0), [result.latent]))
    assert z_scores(per_draw_gradients(terms.loss, copies), expected[0]).abs().max() < 4
    assert abs(z_scores(-terms.bound, exact(query).detach())) < 4
    without_score = Elbo()(Evaluation(log_lik(result.context).unsqueeze(0), []))
    assert not without_score.loss.requires_grad  # no gradient at all but through the score
    assert expected.abs().max() > 0.1


def test_stacked_hard_attention_with_a_prior_has_an_unbiased_gradient() -> None:
    """The first layer's draw changes the second layer's KL, which is part of its reward."""
    torch.manual_seed(3)  # an example on which leaving that out gives a z-score of 16
    x = torch.randn(1, T, D, dtype=torch.float64)
    mix = 1.5 * torch.randn(D, D, dtype=torch.float64)
    prior = KeyPrior(D, Categorical(), hidden_dim=8).double()
    for parameter in prior.parameters():
        torch.nn.init.normal_(parameter, std=2.0)
    kl_weight = 40.0

    def law(z: Tensor) -> tuple[Tensor, Tensor]:
        """(T, T) weights and the KL of one layer."""
        weights = (z @ z.T / D**0.5).softmax(dim=-1)
        p = prior.logits(z).softmax(dim=-1)
        return weights, (weights * (weights.log() - p.log())).sum()

    def exact(z: Tensor) -> Tensor:
        first, first_kl = law(z[0])
        total = -kl_weight * first_kl
        for choice in itertools.product(range(T), repeat=T):
            hidden = torch.tanh(z[0, list(choice)] @ mix)
            second, second_kl = law(hidden)
            inner = -kl_weight * second_kl
            for other in itertools.product(range(T), repeat=T):
                probability = torch.stack([second[t, s] for t, s in enumerate(other)]).prod()
                inner = inner + probability * log_lik(hidden[list(other)].unsqueeze(0)).sum()
            total = total + torch.stack([first[t, s] for t, s in enumerate(choice)]).prod() * inner
        return -total

    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(exact(leaf), leaf)
    copies = x.expand(DRAWS, T, D).clone().requires_grad_()
    # heads of size one: the unit (N, 1, T) is not a step of the log-likelihood
    hidden, latents = copies.unsqueeze(1), []
    for name in ("first", "second"):
        result = scaled_dot_product_attention(
            hidden, hidden, hidden, family=Categorical(), prior=prior, estimator=HARD, name=name
        )
        latents.append(result.latent)
        hidden = torch.tanh(result.context @ mix) if name == "first" else result.context
    weights = {"first": kl_weight, "second": kl_weight}
    terms = Elbo()(Evaluation(log_lik(hidden).unsqueeze(0), latents), weights)
    assert z_scores(per_draw_gradients(terms.loss, copies), expected[0]).abs().max() < 4


def test_hard_multihead_attention_trains() -> None:
    """A module that must look at one position learns to, from receipts that its caller never sees."""
    torch.manual_seed(0)
    module = MultiheadAttention(8, 2, batch_first=True, family=Categorical(), estimator=HARD)
    where = torch.arange(64) % 4
    x = torch.randn(64, 4, 8)
    x[:, :, 0] = 0.0
    x[torch.arange(64), where, 0] = 3.0  # marks the position to find
    query = torch.ones(64, 1, 8)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    found = []
    for _ in range(60):
        optimizer.zero_grad()
        with record_latents(module) as record:
            output, _ = module(query, x, x)
        error = (output[:, 0] - x[torch.arange(64), where]).square().sum(dim=-1)
        reward = error.detach().mean() - error  # the batch's mean is a baseline
        Elbo()(Evaluation(reward.unsqueeze(0), record.latents)).loss.mean().backward()
        optimizer.step()
        chosen = record.latents[0].draw.index[0, :, :, 0]  # (B, H)
        found.append((chosen == where.unsqueeze(-1)).float().mean().item())
    assert sum(found[:5]) / 5 < 0.5
    assert sum(found[-5:]) / 5 > 0.9
