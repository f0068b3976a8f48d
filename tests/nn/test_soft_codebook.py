"""The soft codebook: probabilities by hand, its limit, its start; reading a few states of a sequence."""

import math

import pytest
import torch
from torch import nn

from probattn.core import Dense, Given, ImportanceWeighted, Mean, Memory, Pathwise
from probattn.core.records import Evaluation
from probattn.distributions import CodeDelta
from probattn.nn import AutoregressiveCategorical, Bottleneck, EvenReading, Site, SoftCodebook
from tests.nn.zoo import CausalSum

SEED = torch.tensor(3)
VECTORS = torch.randn(2, 2, 4, generator=torch.Generator().manual_seed(1))


def given(context: torch.Tensor, mask: torch.Tensor | None = None) -> Given:
    return Given(Memory(keys=context, values=context, support=Dense()), context=context, mask=mask)


@torch.no_grad()
def test_probabilities_by_hand() -> None:
    book = SoftCodebook(3, 4, temperature=0.5).eval()
    book.centre.fill_(0.3)
    book.width.fill_(2.0)
    vectors = torch.randn(5, 4)
    found = book(given(vectors)).log_probs.exp()
    for vector, probabilities in zip(vectors, found, strict=True):
        own = (vector - 0.3) / 2.0
        own = (own - own.mean()) / own.std(correction=0)
        weights = [math.exp(-float((own - code).square().sum()) / 0.5) for code in book.codes]
        assert probabilities.tolist() == pytest.approx([weight / sum(weights) for weight in weights], abs=1e-3)


@torch.no_grad()
def test_a_cold_choice_is_the_nearest_code() -> None:
    cold = SoftCodebook(5, 4, temperature=1e-4).eval()
    vectors = torch.randn(6, 2, 4)
    choice = cold(given(vectors))
    nearest = CodeDelta(cold.scaled(vectors), cold.codes).index
    assert torch.equal(choice.draw_raw(3, SEED).argmax(dim=-1), nearest.expand(3, 6, 2))
    assert float(choice.entropy().max()) < 1e-3


def test_the_choice_follows_an_encoder_that_moves_and_grows() -> None:
    book = SoftCodebook(4, 6).eval()
    vectors = 0.01 * torch.randn(300, 6) + 5.0
    book.start_(vectors, seed=SEED)
    first = book(given(vectors)).log_probs.detach()
    for _ in range(150):
        book.update_(3.0 + 100.0 * vectors)
    torch.testing.assert_close(book(given(3.0 + 100.0 * vectors)).log_probs.detach(), first, atol=1e-2, rtol=1e-2)
    once = SoftCodebook(2, 6, decay=0.75)
    once.update_(vectors)
    torch.testing.assert_close(once.centre, 0.25 * vectors.mean(dim=0))
    torch.testing.assert_close(once.width, 0.75 + 0.25 * vectors.var(dim=0, correction=0).mean().sqrt())


def test_training_standardises_by_the_batch_so_that_no_gradient_moves_all_vectors_alike() -> None:
    book = SoftCodebook(3, 4)
    vectors = (5.0 + 0.1 * torch.randn(2, 6, 4)).requires_grad_()
    mask = torch.tensor([[True] * 6, [True] * 3 + [False] * 3])
    found = book.scaled(vectors, mask)
    junk = torch.where(mask.unsqueeze(-1), vectors, 1e4)
    torch.testing.assert_close(book.scaled(junk, mask)[mask], found[mask])  # padding does not count
    torch.testing.assert_close(book.scaled(7.0 + 3.0 * vectors, mask)[mask], found[mask], atol=1e-3, rtol=1e-3)
    (grad,) = torch.autograd.grad((found[mask] * torch.randn(9, 4)).sum(), vectors)
    assert float(grad.abs().max()) > 0.1
    torch.testing.assert_close(grad[mask].sum(dim=0), torch.zeros(4), atol=1e-4, rtol=0.0)


def test_a_feature_that_fades_out_is_not_blown_up() -> None:
    book = SoftCodebook(3, 4, decay=0.0).eval()
    vectors = torch.randn(50, 4)
    vectors[:, 0] *= 1e-5
    book.update_(vectors)
    first = vectors.clone().requires_grad_()
    book.scaled(first)[:, 1].sum().backward()
    assert first.grad is not None and float(first.grad.abs().max()) < 30.0


def test_gradients_reach_codes_temperature_and_encoder() -> None:
    book = SoftCodebook(4, 4)
    context = VECTORS.clone().requires_grad_()
    choice = book(given(context))
    (choice.realise(choice.draw_raw(1, SEED)) * torch.randn(2, 2, 4)).sum().backward()
    for grad in (context.grad, book.codes.grad, book.log_temperature.grad):
        assert grad is not None and float(grad.abs().sum()) > 0.0


def test_start_finds_clusters_and_their_width() -> None:
    draw = torch.Generator().manual_seed(0)
    centres = 10.0 * torch.randn(4, 8, generator=draw)
    vectors = centres.repeat(500, 1) + 0.3 * torch.randn(2000, 8, generator=draw)
    book = SoftCodebook(4, 8)
    assert not bool(book.is_started)
    book.start_(vectors, seed=SEED)
    assert bool(book.is_started)
    distance = torch.cdist(book.scaled(vectors), book.codes).detach()
    assert torch.bincount(distance.argmin(dim=-1)).tolist() == [500] * 4
    entropy = book(given(vectors)).entropy().detach().mean()
    assert float(entropy) == pytest.approx(0.5 * math.log(4), rel=1e-2)  # half of what it can be
    with pytest.raises(ValueError, match="leave out padding"):
        book.start_(vectors.unsqueeze(0), seed=SEED)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="at least one code"):
        SoftCodebook(0, 2)
    with pytest.raises(ValueError, match="must be positive"):
        SoftCodebook(2, 2, temperature=0.0)
    with pytest.raises(ValueError, match="lie in"):
        SoftCodebook(2, 2, decay=1.0)
    with pytest.raises(ValueError, match="at least 1"):
        EvenReading(0, nn.Identity())
    with pytest.raises(ValueError, match="Given.context"):
        SoftCodebook(2, 2)(Given(Memory(keys=VECTORS, values=VECTORS, support=Dense())))


def bottleneck() -> tuple[SoftCodebook, Bottleneck]:
    torch.manual_seed(0)
    book = SoftCodebook(3, 4).eval()
    prior = AutoregressiveCategorical(CausalSum(4, 3), book, detaches_value=False)
    return book, Bottleneck(Site("codes", prior=prior, posterior=book, unit="example", feeds_state=True))


def test_a_site_gives_importance_weights_of_codes() -> None:
    """The receipt's log-probabilities are those of the chosen codes, and its KL is enumerated; padding has none."""
    book, latent = bottleneck()
    mask = torch.tensor([[True, True], [True, False]])
    found = latent(VECTORS, Pathwise(), mask=mask, seed=SEED)
    draw, choice = found.latents[0].draw, book(given(VECTORS, mask))
    index = torch.cdist(found.value, book.codes).argmin(dim=-1)[0]  # (2, 2)
    prior = latent.site.prior(Given(given(VECTORS).memory, value=found.value))
    own = choice.log_probs.gather(-1, index.unsqueeze(-1)).squeeze(-1)
    other = prior.log_probs.gather(-1, index.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(draw.log_posterior[0], own * mask)
    torch.testing.assert_close(draw.log_prior[0], other * mask)
    kl = (choice.log_probs.exp() * (choice.log_probs - prior.log_probs)).sum(dim=-1)
    torch.testing.assert_close(found.latents[0].kl, kl * mask)
    bound = ImportanceWeighted()(Evaluation(log_lik=torch.zeros(1, 2, 2), latents=found.latents)).bound
    torch.testing.assert_close(bound, ((other - own) * mask).sum(dim=-1).detach())


def test_the_kl_reaches_posterior_and_prior() -> None:
    book, latent = bottleneck()
    for estimator in (Pathwise(), Mean()):
        latent.zero_grad()
        latent(VECTORS, estimator).latents[0].kl.sum().backward()
        assert all(one.grad is not None and float(one.grad.abs().sum()) > 0.0 for one in latent.parameters())
    assert book.codes.grad is not None


def test_even_reading_takes_the_ends_of_equal_parts() -> None:
    states = torch.arange(24.0).view(2, 12, 1)
    mask = torch.arange(12) < torch.tensor([[12], [5]])
    found, found_mask = EvenReading(4, nn.Identity())(states, mask)
    assert found[..., 0].tolist() == [[2.0, 5.0, 8.0, 11.0], [13.0, 14.0, 15.0, 16.0]]
    assert bool(found_mask.all()) and found_mask.shape == (2, 4)
    short, _ = EvenReading(4, nn.Identity())(states[:, :2], mask[:, :2])
    assert short[0, :, 0].tolist() == [0.0, 0.0, 1.0, 1.0]
    junk = torch.cat([states, torch.full((2, 3, 1), 1e4)], dim=1)
    padded, _ = EvenReading(4, nn.Identity())(junk, torch.cat([mask, torch.zeros(2, 3, dtype=torch.bool)], dim=1))
    assert torch.equal(found, padded)
