"""The codebook: nearest codes, moving averages by hand, k-means start, revival, and one update a batch."""

import pytest
import torch
from torch import Tensor

from probattn import Bottleneck, Elbo, Evaluation, Mean, Site
from probattn.nn import AutoregressiveCategorical, CausalConvolutions, Codebook, k_means

SEED = torch.tensor(3)


def clusters(count: int = 6, each: int = 40, spread: float = 0.01) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    centres = 10.0 * torch.randn(count, 4, generator=draw)
    return centres, (centres.repeat(each, 1) + spread * torch.randn(each * count, 4, generator=draw))


def test_k_means_finds_separate_clusters() -> None:
    centres, vectors = clusters()
    found, sizes = k_means(vectors, 6, seed=SEED)
    nearest = torch.cdist(centres, found).argmin(dim=-1)
    assert sorted(nearest.tolist()) == list(range(6))
    torch.testing.assert_close(found[nearest], centres, atol=0.02, rtol=0.0)
    assert sizes.tolist() == [40.0] * 6
    again, _ = k_means(vectors, 6, seed=SEED)
    assert torch.equal(found, again)


def test_k_means_with_fewer_vectors_than_centres() -> None:
    found, sizes = k_means(torch.tensor([[0.0], [1.0]]), 5, seed=SEED)
    assert found.shape == (5, 1) and bool(torch.isfinite(found).all())
    assert float(sizes.sum()) == 2.0


def test_update_is_the_moving_average_by_hand() -> None:
    book = Codebook(2, 1, decay=0.9, revive_below=0.0)
    book.codes.copy_(torch.tensor([[0.0], [10.0]]))
    book.counts.copy_(torch.tensor([2.0, 1.0]))
    book.sums.copy_(torch.tensor([[0.0], [10.0]]))
    book.num_updates.fill_(1000.0)
    book.update_(torch.tensor([[1.0], [3.0], [12.0]]), torch.tensor([0, 0, 1]), seed=SEED)
    counts = torch.tensor([0.9 * 2 + 0.1 * 2, 0.9 * 1 + 0.1 * 1])
    sums = torch.tensor([[0.9 * 0 + 0.1 * 4], [0.9 * 10 + 0.1 * 12]])
    torch.testing.assert_close(book.counts, counts)
    torch.testing.assert_close(book.codes, sums / counts.unsqueeze(-1))
    assert float(book.num_updates) == 1001.0


def test_the_first_updates_forget_faster() -> None:
    """(1 + n) / (10 + n) of the past is kept, so codes stay with an encoder that moves away at once."""
    book = Codebook(1, 1, decay=0.99, revive_below=0.0)
    book.counts.fill_(1.0)
    book.codes.fill_(0.0)
    book.sums.fill_(0.0)
    kept = 1.0
    for count in range(3):
        book.update_(torch.tensor([[1.0]]), torch.tensor([0]), seed=SEED)
        kept *= (1 + count) / (10 + count)
        assert float(book.codes) == pytest.approx(1.0 - kept, rel=1e-5)


def test_codes_are_not_left_behind_by_an_encoder_that_begins_to_learn() -> None:
    vectors = 0.05 * torch.randn(400, 8, generator=torch.Generator().manual_seed(0))  # of an untrained encoder
    book = Codebook(32, 8)
    book.start_(vectors, seed=SEED)
    direction = torch.full((8,), 1.0)
    for step in range(60):  # all vectors move alike
        moved = vectors + 0.005 * (step + 1) * direction
        index = torch.cdist(moved, book.codes).argmin(dim=-1)
        book.update_(moved, index, seed=SEED + step)
    assert len(index.unique()) > 16


def test_a_warm_start_is_not_forgotten() -> None:
    """Few vectors a batch, as with one code a sentence: k-means found the best codes already."""
    vectors = torch.randn(4096, 4, generator=torch.Generator().manual_seed(0))
    errors = {}
    for is_warm in (False, True):
        book = Codebook(64, 4, revive_below=0.01)
        book.start_(vectors, seed=torch.tensor(0), per_batch=8.0, is_warm=is_warm)
        start = torch.cdist(vectors, book.codes).min(dim=-1).values.square().mean()
        for update in range(30):
            some = vectors[8 * update : 8 * update + 8]
            book.update_(some, torch.cdist(some, book.codes).argmin(dim=-1), seed=torch.tensor(update))
        errors[is_warm] = float(torch.cdist(vectors, book.codes).min(dim=-1).values.square().mean() / start)
    assert errors[True] < 1.03 and errors[False] > 1.1


def test_codes_follow_a_warm_encoder_that_moves_on() -> None:
    """Many vectors a batch, as with a code a word: what is remembered is a few batches, not a hundred."""
    draw = torch.Generator().manual_seed(0)
    vectors = (20.0 * torch.randn(16, 4, generator=draw)).repeat(64, 1) + 0.1 * torch.randn(1024, 4, generator=draw)
    book = Codebook(16, 4)
    book.start_(vectors, seed=torch.tensor(0), per_batch=64.0, is_warm=True)
    before = book.codes.mean(dim=0)
    for update in range(6):
        some = vectors[64 * update : 64 * update + 64] + 1.0
        book.update_(some, torch.cdist(some, book.codes).argmin(dim=-1), seed=torch.tensor(update))
    assert float((book.codes.mean(dim=0) - before).min()) > 0.7  # of 1.0; with a decay of 0.99 it would be 0.06


def test_counts_start_as_a_batch_will_have_them() -> None:
    vectors = torch.tensor([[0.0], [0.1], [0.2], [5.0]])
    book = Codebook(2, 1)
    book.start_(vectors, seed=torch.tensor(0), per_batch=8.0)
    assert sorted(book.counts.tolist()) == [2.0, 6.0]
    book.start_(vectors, seed=torch.tensor(0), per_batch=1.0)
    assert sorted(book.counts.tolist()) == [0.5, 0.75]  # none below an even share
    assert torch.allclose(book.sums / book.counts.unsqueeze(-1), book.codes)


def test_codes_follow_a_moving_encoder() -> None:
    centres, vectors = clusters()
    book = Codebook(6, 4, decay=0.8)
    book.start_(vectors, seed=SEED)
    for step in range(60):
        moved = vectors + 0.05 * step
        index = torch.cdist(moved, book.codes).argmin(dim=-1)
        book.update_(moved, index, seed=SEED + step)
    expected = centres + 0.05 * 59
    distance = torch.cdist(expected, book.codes).min(dim=-1).values
    assert float(distance.max()) < 0.6  # 0.05 a step, seen with a delay of 0.8 / (1 - 0.8) steps, in four features


def test_dead_codes_are_revived_from_the_batch() -> None:
    """All codes far from everything but one: without revival that one is all there is, as in the released code."""
    draw = torch.Generator().manual_seed(0)
    book = Codebook(64, 4)
    _put_far_away(book)
    revived = 0
    for step in range(800):
        vectors = torch.randn(256, 4, generator=draw)
        index = torch.cdist(vectors, book.codes).argmin(dim=-1)
        revived += book.update_(vectors, index, seed=SEED + step)
    assert revived >= 63
    assert book.perplexity > 32.0
    chosen = torch.cdist(torch.randn(4000, 4, generator=draw), book.codes).argmin(dim=-1)
    assert len(chosen.unique()) > 56
    dead = Codebook(64, 4, revive_below=0.0)
    _put_far_away(dead)
    for step in range(800):
        vectors = torch.randn(256, 4, generator=draw)
        dead.update_(vectors, torch.cdist(vectors, dead.codes).argmin(dim=-1), seed=SEED + step)
    assert dead.perplexity < 2.0


def _put_far_away(book: Codebook) -> None:
    book.codes.add_(100.0)
    book.codes[0] = 0.0
    book.sums.copy_(book.codes)


def test_forward_changes_nothing_and_survives_a_later_update() -> None:
    book = Codebook(3, 4)
    site = Site("memory", prior=None, posterior=book)
    encoded = torch.randn(2, 5, 4, requires_grad=True)
    before = {name: value.clone() for name, value in book.state_dict().items()}
    drawn = Bottleneck(site)(encoded, Mean())
    assert all(torch.equal(before[name], value) for name, value in book.state_dict().items())
    log_lik = -drawn.value.square().sum(dim=-1)
    terms = Elbo()(Evaluation(log_lik, drawn.latents), {"memory/commitment": 0.5})
    book.update_(encoded.detach().flatten(0, 1), torch.zeros(10, dtype=torch.int64), seed=SEED)
    terms.loss.sum().backward()  # type: ignore[no-untyped-call]
    assert encoded.grad is not None and float(encoded.grad.abs().sum()) > 0


def test_prior_shares_the_codes_of_the_book_and_not_its_state() -> None:
    book = Codebook(8, 3)
    prior = AutoregressiveCategorical(CausalConvolutions(3, 8, channels=4, num_layers=1), book)
    assert not any("codes" in name for name in prior.state_dict())
    drawn = prior.ancestral(2, 5, seed=SEED)
    assert bool((torch.cdist(drawn, book.codes).min(dim=-1).values == 0).all())
    book.codes.mul_(2.0)
    assert prior.codes is book.codes


def test_bad_input_leaves_the_codebook_as_it_was() -> None:
    book = Codebook(3, 2)
    before = book.codes.clone()
    with pytest.raises(ValueError, match="NaN or an infinity"):
        book.update_(torch.tensor([[float("nan"), 0.0]]), torch.tensor([0]), seed=SEED)
    with pytest.raises(ValueError, match="leave out padding"):
        book.update_(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), seed=SEED)
    with pytest.raises(ValueError, match="one code number for each"):
        book.update_(torch.zeros(2, 2), torch.tensor([0]), seed=SEED)
    with pytest.raises(ValueError, match="expected vectors"):
        book.start_(torch.zeros(4, 3), seed=SEED)
    assert torch.equal(book.codes, before)
    for arguments in ({"num_codes": 0, "dim": 1}, {"num_codes": 1, "dim": 1, "decay": 1.0}):
        with pytest.raises(ValueError, match="Codebook"):
            Codebook(**arguments)  # type: ignore[arg-type]
