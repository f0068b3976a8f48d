"""Vector-valued sites outside attention: codes of sentences and random memories.

Sizes: B examples, S positions, D features, Z width of the code, K particles.
"""

import math

import pytest
import torch
from torch import Tensor, nn

from probattn.core import Elbo, Enumerate, Evaluation, FreeBits, ImportanceWeighted, Mean, Pathwise
from probattn.distributions import Categorical
from probattn.nn import (
    AutoregressiveGaussian,
    Bottleneck,
    Conditional,
    FromScores,
    GaussianHead,
    Site,
    StandardNormal,
    fold_particles,
    unfold_particles,
)
from tests.nn.zoo import CausalSum

B, S, D, Z = 3, 4, 5, 2


def bottleneck(prior: Conditional | None = None, *, keeps_kl_terms: bool = False) -> Bottleneck:
    prior = StandardNormal(Z) if prior is None else prior
    site = Site(
        "z",
        prior=prior,
        posterior=GaussianHead(D, Z),
        unit="example",
        feeds_state=True,
        keeps_kl_terms=keeps_kl_terms,
    )
    return Bottleneck(site)


def kl_by_hand(module: Bottleneck, encoding: Tensor) -> Tensor:
    """KL(N(mu, sigma²) || N(0, 1)), summed over features."""
    head = module.site.posterior
    mu, log_variance = head.mean(encoding), head.log_variance(encoding)
    return 0.5 * (log_variance.exp() + mu.square() - 1.0 - log_variance).sum(dim=-1)


@pytest.mark.parametrize("num_samples", [1, 4])
def test_a_code_per_example(num_samples: int) -> None:
    module, encoding = bottleneck(), torch.randn(B, D)
    output = module(encoding, Pathwise(num_samples), seed=torch.tensor(1))
    (latent,) = output.latents
    assert output.value.shape == (num_samples, B, Z)
    torch.testing.assert_close(latent.kl, kl_by_hand(module, encoding))
    mu, log_variance = module.site.posterior.mean(encoding), module.site.posterior.log_variance(encoding)
    torch.testing.assert_close(output.expected, mu)
    noise = (output.value - mu) / (0.5 * log_variance).exp()
    assert noise.abs().max() < 5
    assert (latent.name, latent.unit, latent.feeds_state) == ("z", "example", True)
    assert torch.equal(output.value[:1], module(encoding, Pathwise(), seed=torch.tensor(1)).value)


def test_mean_is_the_map_code() -> None:
    module, encoding = bottleneck(), torch.randn(B, D)
    output = module(encoding, Mean())
    torch.testing.assert_close(output.value[0], module.site.posterior.mean(encoding))
    torch.testing.assert_close(output.latents[0].kl, kl_by_hand(module, encoding))


def test_a_vector_per_position() -> None:
    """A random memory (VAE + attention): padded positions cost nothing and change nothing."""
    module, encoding = bottleneck(keeps_kl_terms=True), torch.randn(B, S, D)
    mask = torch.tensor([[True] * 4, [True] * 2 + [False] * 2, [True] * 3 + [False]])
    encoding.requires_grad_()
    output = module(encoding, Pathwise(), mask=mask, seed=torch.tensor(1))
    (latent,) = output.latents
    torch.testing.assert_close(latent.kl, kl_by_hand(module, encoding) * mask)
    torch.testing.assert_close(latent.kl_terms.sum(dim=-1), latent.kl)
    (grad,) = torch.autograd.grad(latent.kl.sum(), encoding)
    assert torch.equal(grad.abs().sum(dim=-1) > 0, mask)
    longer = nn.functional.pad(encoding, (0, 0, 0, 2), value=1e4)
    padded = module(longer, Pathwise(), mask=nn.functional.pad(mask, (0, 2)), seed=torch.tensor(1))
    torch.testing.assert_close(padded.value[:, :, :S], output.value)
    torch.testing.assert_close(padded.latents[0].kl[:, :S], latent.kl)
    assert not padded.latents[0].kl[:, S:].any()


def test_the_seed() -> None:
    module, encoding = bottleneck(), torch.randn(B, D)
    torch.manual_seed(4)
    first, second = module(encoding, Pathwise()), module(encoding, Pathwise())
    torch.manual_seed(4)
    assert torch.equal(first.value, module(encoding, Pathwise()).value)
    assert not torch.equal(first.value, second.value)


def test_positions_are_refused() -> None:
    class Choice(FromScores):
        def forward(self, given: object) -> object:
            return self.family(given.context, given.memory.support)

    module = Bottleneck(Site("z", prior=None, posterior=Choice(Categorical()), unit="example"))
    with pytest.raises(ValueError, match="bottleneck 'z' must draw vectors, got positions"):
        module(torch.randn(B, D), Enumerate())


# Particles


def test_folding_particles() -> None:
    value = torch.randn(4, B, Z)
    folded = fold_particles(value)
    assert folded.shape == (4 * B, Z)
    assert torch.equal(folded[B], value[1, 0])  # particle by particle
    assert torch.equal(unfold_particles(folded, 4), value)


def test_unfolding_what_does_not_divide() -> None:
    with pytest.raises(ValueError, match="cannot unfold 7 rows into 2 particles"):
        unfold_particles(torch.zeros(7, Z), 2)


class Decoder(nn.Module):
    """A sentence of S words from a code; every word has its own logits."""

    def __init__(self, num_words: int):
        super().__init__()
        self.out = nn.Linear(Z, S * num_words)

    def forward(self, codes: Tensor, words: Tensor) -> Tensor:
        """(R, Z) codes and (R, S) words give (R, S) log-likelihoods."""
        log_probs = self.out(codes).unflatten(-1, (S, -1)).log_softmax(dim=-1)
        return log_probs.gather(-1, words.unsqueeze(-1)).squeeze(-1)


def test_trajectories_are_examples() -> None:
    """K codes of an example are K trajectories: likelihoods are added over words before they are compared."""
    module, decoder, words = bottleneck(), Decoder(6), torch.randint(6, (B, S))
    output = module(torch.randn(B, D), Pathwise(5))
    log_lik = unfold_particles(decoder(fold_particles(output.value), words.repeat(5, 1)), 5)  # (K, B, S)
    evaluation = Evaluation(log_lik, output.latents)
    draw = output.latents[0].draw
    elbo, weighted = Elbo()(evaluation), ImportanceWeighted()(evaluation)
    torch.testing.assert_close(elbo.bound, log_lik.sum(dim=-1).mean(dim=0) - output.latents[0].kl)
    log_weight = log_lik.sum(dim=-1) + draw.log_prior - draw.log_posterior
    torch.testing.assert_close(weighted.bound, torch.logsumexp(log_weight, dim=0) - math.log(5))
    assert torch.isfinite(elbo.loss).all()


@pytest.mark.parametrize("num_samples", [1, 3])
def test_a_memory_is_one_trajectory(num_samples: int) -> None:
    """All positions of a memory are drawn together: one likelihood an example, and densities add up."""
    module = bottleneck()
    output = module(torch.randn(B, S, D), Pathwise(num_samples))
    log_lik = torch.randn(num_samples, B)
    (latent,) = output.latents
    evaluation = Evaluation(log_lik, output.latents)
    torch.testing.assert_close(Elbo()(evaluation).bound, log_lik.mean(dim=0) - latent.kl.sum(dim=-1))
    log_weight = log_lik + (latent.draw.log_prior - latent.draw.log_posterior).sum(dim=-1)
    expected = torch.logsumexp(log_weight, dim=0) - math.log(num_samples)
    torch.testing.assert_close(ImportanceWeighted()(evaluation).bound, expected)


@pytest.mark.parametrize("kind", ["standard", "autoregressive"])
def test_overfits(kind: str) -> None:
    """VED's bottleneck and GAVAM's memory learn to carry three sentences."""
    torch.manual_seed(2)
    encoder = nn.Embedding(B, D)
    words = torch.randint(6, (B, S))
    if kind == "standard":
        module, decoder = bottleneck(), Decoder(6)
    else:
        module = bottleneck(AutoregressiveGaussian(CausalSum(Z, 2 * Z), Z))
        decoder = nn.Linear(Z, 6)
    parameters = [*encoder.parameters(), *module.parameters(), *decoder.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=0.1)
    history = []
    for _ in range(60):
        optimizer.zero_grad()
        encoding = encoder(torch.arange(B))
        if kind == "standard":
            output = module(encoding, Pathwise())
            log_lik = decoder(output.value[0], words)
        else:
            positions = torch.eye(S, D).expand(B, S, D)
            output = module(encoding.unsqueeze(1) * 0.5 + 3.0 * positions, Pathwise())
            log_lik = decoder(output.value[0]).log_softmax(dim=-1).gather(-1, words.unsqueeze(-1)).squeeze(-1)
        terms = Elbo()(Evaluation(log_lik.unsqueeze(0), output.latents), {"z": 0.01})
        terms.loss.sum().backward()
        optimizer.step()
        history.append(terms.log_lik.mean().item() / S)
    assert history[0] < -1.4
    assert sum(history[-5:]) / 5 > -0.7
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in parameters)


def test_free_bits_per_factor() -> None:
    """8 nats over 32 dimensions, in small: dimensions below the floor are not pressed."""
    module, encoding = bottleneck(keeps_kl_terms=True), torch.randn(B, D, requires_grad=True)
    output = module(encoding, Pathwise())
    (latent,) = output.latents
    floor = latent.kl_terms.median().item()
    terms = Elbo({"z": FreeBits(floor, per="factor")})(Evaluation(torch.zeros(1, B), output.latents))
    torch.testing.assert_close(terms.loss, latent.kl_terms.clamp(min=floor).sum(dim=-1))
    torch.testing.assert_close(terms.bound, -latent.kl.detach())
