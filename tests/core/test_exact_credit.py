"""Gradients and bounds against sums over all outcomes, where sites of different units meet."""

import math
from collections.abc import Sequence
from itertools import product

import pytest
import torch
from torch import Tensor

import probattn as pa
from probattn.core import Baseline, Bound, Dense, Draw, Evaluation, Latent
from probattn.distributions import MaskedOneHot
from probattn.nn import Dot

SEED = torch.tensor(0)


def hard(scores: Tensor, positions: Sequence[int], *, feeds_state: bool = False) -> Latent:
    """The receipt of one hard sample per step, scores (1, T, S)."""
    index = torch.tensor([[list(positions)]])
    log_prob = MaskedOneHot(scores, Dense()).log_prob_index(index)
    draw = Draw(None, index, torch.zeros(1, 1, len(positions)), log_prob, log_prob, score=log_prob)
    return Latent("hard", "step", feeds_state, draw, torch.zeros(1, len(positions)), SEED)


def later(kl: Tensor, unit: str) -> Latent:
    assert unit in ("step", "example")
    draw = Draw(torch.zeros(1, *kl.shape, 1), None, torch.zeros(1, *kl.shape))
    return Latent("later", unit, False, draw, kl, SEED)  # type: ignore[arg-type]


@pytest.mark.parametrize("unit", ["step", "example"])
@pytest.mark.parametrize("bound", [pa.Elbo(), pa.ImportanceWeighted()])
def test_a_hard_draw_is_credited_with_the_kl_of_later_sites(bound: Bound, unit: str) -> None:
    costs = torch.tensor([0.1, 3.0])
    scores = torch.tensor([[[0.3, -0.2]]], requires_grad=True)
    probs = scores.softmax(dim=-1)[0, 0]
    (exact,) = torch.autograd.grad((probs * costs).sum(), scores)
    total = torch.zeros(())
    for position in range(2):
        kl = costs[position].view((1, 1) if unit == "step" else (1,))
        terms = bound(Evaluation(torch.zeros(1, 1, 1), [hard(scores, [position]), later(kl, unit)]))
        total = total + probs[position].detach() * terms.loss.sum()
    (found,) = torch.autograd.grad(total, scores)
    torch.testing.assert_close(found, exact)


@pytest.mark.parametrize("feeds_state", [False, True])
def test_hard_choices_before_bayesian_self_attention_learn_from_its_kl(feeds_state: bool) -> None:
    """Receipts of `MultiheadAttention` have unit "example": their KL depends on all choices."""
    torch.manual_seed(0)
    scores, values = torch.randn(1, 2, 3, requires_grad=True), 2.0 * torch.randn(1, 3, 4)
    prior = pa.Fixed(pa.GammaPrior(), 1.0)
    attention = pa.MultiheadAttention(4, 1, batch_first=True, family=pa.Weibull(5.0), prior=prior)
    pa.set_sampling(attention, False)
    probs = scores.softmax(dim=-1)[0]
    loss = exact = torch.zeros(())
    for first, second in product(range(3), repeat=2):
        read = values[:, [first, second]]
        result = attention.forward_with_latents(read, read, read)[1]
        assert result.latent is not None and result.kl is not None
        receipts = [hard(scores, [first, second], feeds_state=feeds_state), result.latent]
        share = probs[0, first] * probs[1, second]
        loss = loss + share.detach() * pa.Elbo()(Evaluation(torch.zeros(1, 1, 2), receipts)).loss.sum()
        exact = exact + share * result.kl.sum().detach()
    found, expected = (torch.autograd.grad(one, scores)[0] for one in (loss, exact))
    assert float(expected.abs().max()) > 0.01
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("bound", [pa.ImportanceWeighted(), pa.WakeSleep()])
def test_importance_weights_refuse_hard_draws_that_feed_the_state(bound: Bound) -> None:
    receipt = hard(torch.zeros(1, 2, 3), [0, 1], feeds_state=True)
    with pytest.raises(ValueError, match="site 'hard' feeds the recurrence"):
        bound(Evaluation(torch.zeros(1, 1, 2), [receipt]))


def test_padded_steps_of_a_site_with_heads_cost_nothing() -> None:
    torch.manual_seed(0)
    posterior, prior = pa.FromScores(pa.Weibull()), pa.Fixed(pa.GammaPrior(), 1.0)
    attention = pa.Attention(Dot(), weights=pa.Site("w", prior=prior, posterior=posterior))
    query, memory = torch.randn(1, 2, 7, 4), torch.randn(1, 2, 5, 4)  # (B, H, T, D)
    found = attention(query, pa.Memory(memory, memory, Dense()), estimators={"w": pa.Pathwise()})
    mask = (torch.arange(7) < 3).unsqueeze(0)
    terms = pa.Elbo()(Evaluation(torch.zeros(1, 1, 7), found.latents, mask=mask))
    expected = found.latents[0].kl[..., :3].sum()
    torch.testing.assert_close(terms.kl["w"], expected.view(1))
    torch.testing.assert_close(terms.bound, -expected.view(1).detach())


def test_padded_steps_of_a_site_with_heads_have_no_importance() -> None:
    ratio, mask = torch.randn(2, 1, 3, 4), torch.tensor([[True, True, False, False]])  # (K, B, H, T)
    draw = Draw(
        torch.zeros(2, 1, 3, 4, 1), None, torch.full((2, 1, 3, 4), -math.log(2)), torch.zeros_like(ratio), ratio
    )
    receipt = Latent("w", "step", False, draw, torch.zeros(1, 3, 4), SEED)
    bound = pa.ImportanceWeighted()(Evaluation(torch.zeros(2, 1, 4), [receipt], mask=mask)).bound
    totals = ratio[..., :2].sum(dim=(-1, -2))  # (K, B)
    torch.testing.assert_close(bound, torch.logsumexp(totals, dim=0) - math.log(2))


@pytest.mark.parametrize(("rest", "expected"), [("renormalise", 0.35), ("drop", 0.175)])
def test_k_max_with_an_inference_network_weighs_by_the_prior(rest: str, expected: float) -> None:
    """Positions are the two that q finds most probable; their weights are p's, and q gets no gradient."""
    scores = torch.tensor([[[2.0, 1.0, -1.0, -1.0]]], requires_grad=True)
    q, p = MaskedOneHot(scores, Dense()), MaskedOneHot(torch.zeros(1, 1, 4, requires_grad=True), Dense())
    draw = pa.Enumerate(2, rest)(q, p, SEED)  # type: ignore[arg-type]
    assert draw.index is not None
    log_lik = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()[draw.index]
    terms = pa.Marginal()(Evaluation(log_lik, [Latent("a", "step", False, draw, torch.zeros(1, 1), SEED)]))
    assert float(terms.bound) == pytest.approx(math.log(expected), abs=1e-5)
    assert torch.autograd.grad(terms.loss.sum(), scores, allow_unused=True)[0] is None


@pytest.mark.parametrize("top_k", [1, 2, 4])
def test_the_elbo_wants_all_positions_or_weights_that_sum_to_one(top_k: int) -> None:
    """Leaving a log-likelihood of -4 out would raise the ELBO above the likelihood."""
    p = MaskedOneHot(torch.zeros(1, 1, 4), Dense())
    draw = pa.Enumerate(top_k, "drop")(p, p, SEED)
    evaluation = Evaluation(
        torch.full((top_k, 1, 1), -4.0), [Latent("a", "step", False, draw, torch.zeros(1, 1), SEED)]
    )
    if top_k == 4:
        assert float(pa.Elbo()(evaluation).bound) == pytest.approx(-4.0)
    else:
        with pytest.raises(ValueError, match=r"leaves out of site 'a' would raise the ELBO.*rest='renormalise'"):
            pa.Elbo()(evaluation)
    assert float(pa.Marginal()(evaluation).bound) == pytest.approx(-4.0 + math.log(top_k / 4))


@pytest.mark.parametrize("baseline", [pa.SoftAttention(), pa.LeaveOneOut()])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_baselines_take_log_likelihoods_of_any_dtype(baseline: Baseline, dtype: torch.dtype) -> None:
    p = MaskedOneHot(torch.zeros(1, 2, 3, requires_grad=True), Dense())
    draw = pa.ScoreFunction(2, baseline)(p, p, SEED)
    receipt = Latent("a", "step", False, draw, torch.zeros(1, 2), SEED)
    terms = pa.Elbo()(Evaluation(torch.zeros(draw.num_particles, 1, 2, dtype=dtype), [receipt]))
    terms.loss.sum().backward()  # type: ignore[no-untyped-call]
    assert bool(torch.isfinite(terms.loss).all())


def test_a_batch_of_padding_leaves_the_running_mean_as_it_is() -> None:
    mean = pa.RunningMean()
    mean.update_(Evaluation(torch.zeros(1, 2, 3), mask=torch.zeros(2, 3, dtype=torch.bool)))
    mean.update_(Evaluation(torch.zeros(1, 0, 3)))
    assert float(mean.value) == 0.0 and not bool(mean.is_started)
    mean.update_(Evaluation(-torch.ones(1, 2, 3)))
    assert float(mean.value) == -1.0


@pytest.mark.parametrize("per", ["unit", "factor"])
def test_padded_positions_of_a_memory_have_no_floor(per: str) -> None:
    torch.manual_seed(0)
    site = pa.Site(
        "z", prior=pa.StandardNormal(2), posterior=pa.GaussianHead(3, 2), unit="example", keeps_kl_terms=True
    )
    box, encoding = pa.Bottleneck(site), torch.randn(1, 2, 3)
    floor = pa.Elbo({"z": pa.FreeBits(4.0, per)})  # type: ignore[arg-type]
    losses = []
    for padding in (0, 3):
        padded = torch.cat([encoding, torch.zeros(1, padding, 3)], dim=1)
        found = box(padded, pa.Mean(), mask=(torch.arange(2 + padding) < 2).unsqueeze(0))
        losses.append(float(floor(Evaluation(torch.zeros(1, 1, 2), found.latents)).loss.detach()))
    assert losses == pytest.approx([losses[0]] * 2) and losses[0] >= 8.0
