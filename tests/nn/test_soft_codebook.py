"""The soft codebook: probabilities by hand, its limit, its start; what it is scaled by, in training and testing."""

import math

import pytest
import torch

from probattn.core import Dense, Given, ImportanceWeighted, Mean, Memory, Pathwise, WithoutPrior
from probattn.core.records import Evaluation
from probattn.distributions import CodeDelta
from probattn.nn import AutoregressiveCategorical, Bottleneck, Site, SoftCodebook, Unquantised
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


def test_what_was_read_is_taken_as_it_is_compared_with_codes() -> None:
    book, latent = bottleneck()
    book.centre.fill_(0.5)
    found = latent(VECTORS, WithoutPrior(Unquantised()))
    assert torch.equal(found.value[0], book.scaled(VECTORS)) and not torch.allclose(found.value[0], VECTORS)
    squared = torch.cdist(found.value, book.codes).square()
    torch.testing.assert_close(torch.log_softmax(-squared[0], dim=-1), book(given(VECTORS)).log_probs)


def test_a_warm_start_is_alike_in_training_and_testing() -> None:
    """Batches of sentences of one length have means of their own, which training must not take away."""
    draw = torch.Generator().manual_seed(0)
    vectors = 3.0 * torch.randn(400, 6, generator=draw) + 2.0
    cold, warm = SoftCodebook(16, 6), SoftCodebook(16, 6)
    cold.start_(vectors, seed=SEED)
    warm.start_(vectors, seed=SEED, is_warm=True)
    batch = vectors[:32] + torch.arange(6.0)  # another mean than all vectors have
    for book, is_alike in ((cold, False), (warm, True)):
        training, testing = (book.train(mode)(given(batch)).log_probs for mode in (True, False))
        assert torch.equal(training, testing) is is_alike
        entropy = float(book(given(vectors)).entropy().detach().mean())
        assert entropy == pytest.approx((0.1 if is_alike else 0.5) * math.log(16), rel=1e-2)
        before = book.centre.clone()
        book.update_(batch)
        assert torch.equal(book.centre, before) is is_alike


def test_what_was_settled_before_a_warm_up_stays() -> None:
    """The decoder learns to read vectors scaled so, and codes come among them."""
    book = SoftCodebook(4, 6)
    book.settle_(VECTORS.view(-1, 4).repeat(8, 2)[:, :6])
    before = book.centre.clone(), book.width.clone()
    moved = 10.0 + 3.0 * torch.randn(200, 6)
    scaled = book.scaled(moved)
    book.start_(moved, seed=SEED, is_warm=True)
    assert torch.equal(book.centre, before[0]) and torch.equal(book.width, before[1])
    assert torch.equal(book.scaled(moved), scaled)
    nearest = torch.cdist(scaled, book.codes.detach()).argmin(dim=-1)
    assert len(nearest.unique()) == 4  # the codes are among them


def test_each_place_of_a_memory_of_a_fixed_size_has_a_centre() -> None:
    draw = torch.Generator().manual_seed(0)
    vectors = 0.01 * torch.randn(50, 3, 6, generator=draw)
    offset = torch.randn(3, 6, generator=draw)
    mask = torch.ones(50, 3, dtype=torch.bool)
    mask[7] = False
    plain, moved = SoftCodebook(4, 6, num_places=3), SoftCodebook(4, 6, num_places=3)
    junk = torch.where(mask.unsqueeze(-1), vectors + offset, 1e4)
    torch.testing.assert_close(moved.scaled(junk, mask)[mask], plain.scaled(vectors, mask)[mask], atol=1e-3, rtol=1e-3)
    for book, shift in ((plain, 0.0), (moved, offset)):
        book.settle_((vectors + shift).flatten(0, 1))
        torch.testing.assert_close(book.centre, (vectors + shift).mean(dim=0))
    found = plain.scaled(vectors)
    torch.testing.assert_close(moved.scaled(vectors + offset), found, atol=1e-3, rtol=1e-3)
    one = SoftCodebook(4, 6)
    one.settle_((vectors + offset).flatten(0, 1))
    flat = one.scaled(vectors + offset)

    def share(scaled: torch.Tensor) -> float:
        """Of the variance, what the place does not explain."""
        return float(scaled.var(dim=0, correction=0).mean() / scaled.flatten(0, 1).var(dim=0, correction=0).mean())

    assert share(found) > 0.95 and share(flat) < 0.01
    moved.start_((vectors + offset).flatten(0, 1), seed=SEED, is_warm=True)
    entropy = float(moved(given(vectors + offset)).entropy().detach().mean())
    assert entropy == pytest.approx(0.1 * math.log(4), rel=1e-2)
    with pytest.raises(ValueError, match=r"memories of 3 vectors, got \(50, 2, 6\)"):
        moved.scaled(vectors[:, :2])
    with pytest.raises(ValueError, match="memories of 3 vectors, got 10 vectors in all"):
        moved.update_(vectors.flatten(0, 1)[:10])
    with pytest.raises(ValueError, match=r"SoftCodebook\(num_places\) must be at least 1, got 0"):
        SoftCodebook(4, 6, num_places=0)


def test_one_code_is_no_choice() -> None:
    book = SoftCodebook(1, 4)
    book.start_(VECTORS.view(-1, 4), seed=SEED, is_warm=True)
    assert float(book.temperature.detach()) == 1.0
    prior = AutoregressiveCategorical(CausalSum(4, 1), book, detaches_value=False)
    found = Bottleneck(Site("codes", prior=prior, posterior=book, unit="example", feeds_state=True))(
        VECTORS, Pathwise()
    )
    assert torch.equal(found.latents[0].kl, torch.zeros(2, 2))
    assert torch.equal(found.value[0], book.codes.detach().expand(2, 2, 4))
