"""Autoregressive priors: nothing leaks, draws follow the law, KLs are the papers'.

Sizes: B examples, S positions, D features, C codes.
"""

import itertools

import pytest
import scipy.stats
import torch
from torch import Tensor, nn

from probattn.core import Dense, Elbo, Evaluation, Given, ImportanceWeighted, Memory, Pathwise, ScoreFunction
from probattn.distributions import Categorical, CodeDelta, DiagonalGaussian, MaskedOneHot
from probattn.nn import (
    AutoregressiveCategorical,
    AutoregressiveGaussian,
    Bottleneck,
    CausalConvolutions,
    Conditional,
    FromScores,
    GaussianHead,
    Site,
)
from probattn.nn.autoregressive import truncated_logits
from tests.nn.zoo import CausalSum

B, S, D, C = 2, 4, 3, 5


class NearestCode(Conditional):
    """The posterior of DAVAM: the code nearest to the encoding."""

    def __init__(self, codes: Tensor):
        super().__init__()
        self.codes = nn.Parameter(codes)

    def forward(self, given: Given) -> CodeDelta:
        return CodeDelta(given.context, self.codes, mask=given.mask)


def categorical_prior(codes: Tensor | None = None) -> AutoregressiveCategorical:
    table = torch.randn(C, D) if codes is None else codes
    return AutoregressiveCategorical(CausalSum(D, C), table, detaches_value=False)


def gaussian_prior() -> AutoregressiveGaussian:
    return AutoregressiveGaussian(CausalSum(D, 2 * D), D)


def given_value(value: Tensor) -> Given:
    return Given(Memory(keys=value[0], values=value[0], support=Dense()), value=value)


def parameters_of(distribution: DiagonalGaussian | MaskedOneHot) -> Tensor:
    """(B, S, ...) everything that describes the prior of a position."""
    if isinstance(distribution, MaskedOneHot):
        return distribution.log_probs
    return torch.cat([distribution.location, distribution.log_variance], dim=-1)


@pytest.mark.parametrize("build", [categorical_prior, gaussian_prior])
@pytest.mark.parametrize("position", range(S))
def test_a_position_sees_the_earlier_ones_only(build: object, position: int) -> None:
    prior = build()
    value = torch.randn(1, B, S, D)
    changed = value.clone()
    changed[:, :, position] += 1.0
    before, after = parameters_of(prior(given_value(value))), parameters_of(prior(given_value(changed)))
    assert torch.equal(before[:, : position + 1], after[:, : position + 1])
    is_changed = (before != after).flatten(2).any(dim=-1)
    assert bool(is_changed[:, position + 1 :].all())


@pytest.mark.parametrize("build", [categorical_prior, gaussian_prior])
def test_no_gradient_leaks_from_later_positions(build: object) -> None:
    prior = build()
    value = torch.randn(1, B, S, D, requires_grad=True)
    output = parameters_of(prior(given_value(value)))
    for position in range(S):
        (grad,) = torch.autograd.grad(output[:, position].square().sum(), value, retain_graph=True)
        assert not grad[:, :, position:].any()
        assert bool((grad[0, :, :position].abs().sum(dim=-1) > 0).all())


def law_of_codes(prior: AutoregressiveCategorical, length: int) -> dict[tuple[int, ...], float]:
    """Probability of every sequence of codes, from the prior evaluated at it."""
    sequences = list(itertools.product(range(prior.codes.shape[0]), repeat=length))
    index = torch.tensor(sequences)
    log_probs = prior(given_value(prior.codes[index].unsqueeze(0))).log_probs  # (sequences, S, C)
    log_law = log_probs.gather(-1, index.unsqueeze(-1)).sum(dim=(1, 2))
    return dict(zip(sequences, log_law.exp().tolist(), strict=True))


def test_ancestral_codes_follow_the_law() -> None:
    """Chi-square over all sequences of two positions and three codes; a law without memory is rejected."""
    codes = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    prior = AutoregressiveCategorical(CausalSum(D, 3), codes)
    for parameter in prior.parameters():
        nn.init.normal_(parameter, std=1.5)
    with torch.no_grad():
        law = law_of_codes(prior, 2)
        draws = prior.ancestral(4000, 2, seed=torch.tensor(11))
    drawn = (draws @ codes.T).argmax(dim=-1)
    counts = torch.zeros(3, 3)
    for first, second in drawn.tolist():
        counts[first, second] += 1
    assert sum(law.values()) == pytest.approx(1.0, abs=1e-5)
    expected = 4000 * torch.tensor([law[pair] for pair in sorted(law)]).view(3, 3)
    assert scipy.stats.chisquare(counts.flatten(), expected.flatten() * 4000 / expected.sum()).pvalue > 1e-3
    memoryless = expected.sum(dim=1, keepdim=True) * expected.sum(dim=0) / expected.sum()
    assert scipy.stats.chisquare(counts.flatten(), memoryless.flatten() * 4000 / memoryless.sum()).pvalue < 1e-6


class Damped(nn.Module):
    """z_s ~ N(0.8 z_(s-1), 0.25): an AR(1) process, whose moments are known."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([0.8 * x, torch.full_like(x, 0.25).log()], dim=-1)


def test_ancestral_gaussians_follow_the_law() -> None:
    prior = AutoregressiveGaussian(Damped(), D)
    nn.init.constant_(prior.start, 2.0)
    with torch.no_grad():
        draws = prior.ancestral(4000, 3, seed=torch.tensor(5)).double()  # (N, S, D)
    mean, variance = 2.0, 0.0
    for position in range(3):
        mean, variance = 0.8 * mean, 0.64 * variance + 0.25
        found = draws[:, position]
        assert ((found.mean(dim=0) - mean) / (variance / 4000) ** 0.5).abs().max() < 4
        assert ((found.var(dim=0) - variance) / (variance * (2 / 4000) ** 0.5)).abs().max() < 4
    step = draws[:, 2] - 0.8 * draws[:, 1]  # independent of the past
    assert (torch.corrcoef(torch.cat([step.T, draws[:, 1].T]))[:D, D:]).abs().max() < 4 / 4000**0.5


@pytest.mark.parametrize("build", [categorical_prior, gaussian_prior])
def test_ancestral_draws_are_a_function_of_the_seed(build: object) -> None:
    prior = build()
    first, again = (prior.ancestral(B, S, seed=torch.tensor(3)) for _ in range(2))
    assert first.shape == (B, S, D)
    assert torch.equal(first, again)
    assert not torch.equal(first, prior.ancestral(B, S, seed=torch.tensor(4)))
    torch.manual_seed(1)
    governed = prior.ancestral(B, S)
    assert not torch.equal(governed, prior.ancestral(B, S))
    torch.manual_seed(1)
    assert torch.equal(governed, prior.ancestral(B, S))


@pytest.mark.parametrize("build", [categorical_prior, gaussian_prior])
def test_a_longer_draw_begins_like_a_shorter_one(build: object) -> None:
    prior = build()
    long, short = (prior.ancestral(B, length, seed=torch.tensor(3)) for length in (S, S - 2))
    torch.testing.assert_close(long[:, : S - 2], short)


def test_kl_of_codes_is_the_cross_entropy() -> None:
    """DAVAM, eq. 7, per position; padded positions cost nothing."""
    posterior = NearestCode(torch.randn(C, D))
    prior = categorical_prior(posterior.codes)
    bottleneck = Bottleneck(Site("memory", prior=prior, posterior=posterior, unit="example"))
    encoding = torch.randn(B, S, D)
    mask = torch.tensor([[True] * S, [True, True, False, False]])
    (latent,) = bottleneck(encoding, Pathwise(), mask=mask).latents
    index = torch.cdist(encoding, posterior.codes).argmin(dim=-1)
    codes = posterior.codes[index]
    shifted = torch.cat([prior.start.expand(B, 1, D), codes[:, :-1]], dim=1)
    logits = prior.network(shifted)
    expected = nn.functional.cross_entropy(logits.flatten(0, 1), index.flatten(), reduction="none").view(B, S)
    torch.testing.assert_close(latent.kl, expected * mask)
    grads = torch.autograd.grad(latent.kl.sum(), list(prior.network.parameters()))
    assert all(grad.abs().max() > 0 for grad in grads)


def gaussian_bottleneck() -> tuple[Bottleneck, AutoregressiveGaussian]:
    prior = gaussian_prior()
    return Bottleneck(Site("memory", prior=prior, posterior=GaussianHead(6, D), unit="example")), prior


def test_kl_of_gaussians() -> None:
    """GAVAM: KL(q_s || p(z_s | z_<s)) at the draw's own past, and its gradient reaches both sides."""
    bottleneck, prior = gaussian_bottleneck()
    encoding = torch.randn(B, S, 6)
    output = bottleneck(encoding, Pathwise(), seed=torch.tensor(2))
    (latent,) = output.latents
    posterior = bottleneck.site.posterior(Given(Memory(encoding, encoding, Dense()), context=encoding))
    shifted = torch.cat([prior.start.expand(B, 1, D), output.value[0, :, :-1]], dim=1)
    mean, log_variance = prior.network(shifted).chunk(2, dim=-1)
    difference = (posterior.mean - mean).square()
    ratio = posterior.log_variance - log_variance
    expected = 0.5 * (ratio.exp() + difference / log_variance.exp() - 1.0 - ratio).sum(dim=-1)
    torch.testing.assert_close(latent.kl, expected)
    for name, parameter in bottleneck.named_parameters():
        (grad,) = torch.autograd.grad(latent.kl.sum(), parameter, retain_graph=True)
        assert grad.abs().max() > 0, name


def test_the_gradient_of_the_kl_passes_through_the_draw() -> None:
    """Prior means depend on earlier draws, so the KL of later positions moves the posterior of earlier ones."""
    bottleneck, _ = gaussian_bottleneck()
    encoding = torch.randn(B, S, 6, requires_grad=True)
    (latent,) = bottleneck(encoding, Pathwise()).latents
    (grad,) = torch.autograd.grad(latent.kl[:, -1].sum(), encoding)
    assert bool((grad.abs().sum(dim=-1) > 0).all())


def test_densities_of_the_draw() -> None:
    """Importance weights need log p at the draw, which is known only after it; padding has none."""
    bottleneck, prior = gaussian_bottleneck()
    mask = torch.tensor([[True] * S, [True, True, False, False]])
    output = bottleneck(torch.randn(B, S, 6), Pathwise(), mask=mask)
    draw = output.latents[0].draw
    expected = parameters_of(prior(given_value(output.value)))
    normal = torch.distributions.Normal(expected[..., :D], (0.5 * expected[..., D:]).exp())
    torch.testing.assert_close(draw.log_prior[0], normal.log_prob(output.value[0]).sum(dim=-1) * mask)
    assert torch.equal(draw.log_posterior[0] == 0, ~mask)


def test_codes_have_no_importance_weights() -> None:
    """A point mass has no density; a bound that would silently leave the KL out must refuse it."""
    posterior = NearestCode(torch.randn(C, D))
    prior = categorical_prior(posterior.codes)
    bottleneck = Bottleneck(Site("memory", prior=prior, posterior=posterior, unit="example"))
    latents = bottleneck(torch.randn(B, S, D), Pathwise()).latents
    evaluation = Evaluation(torch.zeros(1, B), latents)
    torch.testing.assert_close(Elbo()(evaluation).bound, -latents[0].kl.sum(dim=-1))
    with pytest.raises(ValueError, match="ImportanceWeighted needs a site with sampled particles"):
        ImportanceWeighted()(evaluation)


@pytest.mark.parametrize("build", [categorical_prior, gaussian_prior])
def test_errors_of_the_value(build: object) -> None:
    memory = Memory(torch.zeros(B, S, D), torch.zeros(B, S, D), Dense())
    with pytest.raises(ValueError, match=r"evaluated after the draw, but Given.value is absent"):
        build()(Given(memory))
    with pytest.raises(ValueError, match="reads one trajectory, got 3 particles; fold them into the batch"):
        build()(given_value(torch.zeros(3, B, S, D)))


def test_hard_draws_are_refused() -> None:
    site = Site("memory", prior=gaussian_prior(), posterior=FromScores(Categorical()))
    memory = Memory(torch.zeros(B, S, D), torch.zeros(B, S, D), Dense())
    with pytest.raises(ValueError, match="prior of site 'memory' reads the draw.*use Pathwise or Mean"):
        site(Given(memory, scores=torch.zeros(B, S, C)), ScoreFunction())


def test_plain_codes_are_saved_and_moved() -> None:
    prior = AutoregressiveCategorical(CausalConvolutions(4, 8, channels=4, num_layers=1), torch.randn(8, 4))
    assert "table" in prior.state_dict()
    assert prior.double().ancestral(2, 3).dtype == torch.float64
    learnt = nn.Parameter(torch.randn(8, 4))
    trained = AutoregressiveCategorical(CausalConvolutions(4, 8, channels=4, num_layers=1), learnt)
    assert any(one is learnt for one in trained.parameters())


def test_truncation_keeps_the_best_however_low_logits_are() -> None:
    logits = torch.tensor([-12_500.0, -20_000.0, -50_000.0])  # of a very low temperature
    torch.testing.assert_close(truncated_logits(logits, 0.9).softmax(dim=-1), torch.tensor([1.0, 0.0, 0.0]))
