"""Bounds against brute-force enumeration: values, their order, gradients, and the credit of each particle."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from probattn.core import (
    Bound,
    Dense,
    Draw,
    Elbo,
    Enumerate,
    Evaluation,
    ImportanceWeighted,
    LeaveOneOut,
    Marginal,
    Mean,
    NoBaseline,
    Pathwise,
    RunningMean,
    ScoreFunction,
    SoftAttention,
    TopKAndSample,
    WakeSleep,
)
from probattn.core.bounds import _score_term, _vimco_signal
from probattn.core.ledger import Ledger
from probattn.distributions import DiagonalGaussian, GammaPrior, MaskedOneHot, Weibull, kl
from tests.core.oracle import (
    SEED,
    Toy,
    all_outcomes,
    elbo,
    gradient,
    importance_weighted,
    jensen,
    largest_difference,
    marginal,
    receipt,
    single,
    toy,
)

SEEDS = [0, 1, 2, 3]
seeds = pytest.mark.parametrize("seed", SEEDS)


def sampler(num_samples: int) -> ScoreFunction:
    return ScoreFunction(num_samples, NoBaseline())


class TestEnumeratedValues:
    @seeds
    def test_elbo(self, seed):
        model = toy(seed)
        terms = Elbo()(model.visit(Enumerate()))
        assert torch.allclose(terms.bound, model.per_example(elbo), rtol=0, atol=1e-10)
        assert torch.allclose(-terms.loss, terms.bound, rtol=0, atol=1e-12)
        divergence = model.per_example(lambda p, q, log_f: (q * (q.log() - p.log())).sum())
        assert torch.allclose(terms.kl["attention"], divergence, rtol=0, atol=1e-10)
        assert torch.allclose(terms.log_lik - terms.kl["attention"], terms.bound)

    @seeds
    def test_marginal(self, seed):
        model = toy(seed)
        for evaluation in (model.visit(Enumerate()), model.visit(Enumerate(), is_prior=True)):
            terms = Marginal()(evaluation)
            assert torch.allclose(terms.bound, model.per_example(marginal), rtol=0, atol=1e-10)
            assert torch.allclose(-terms.loss, terms.bound, rtol=0, atol=1e-12)

    @seeds
    def test_q_equal_to_p_is_the_jensen_bound(self, seed):
        model = toy(seed)
        terms = Elbo()(model.visit(Enumerate(), is_prior=True))
        assert torch.allclose(terms.bound, model.per_example(jensen), rtol=0, atol=1e-10)
        same = Elbo()(model.visit(Enumerate(), q=MaskedOneHot(model.prior_scores, model.support)))
        assert torch.allclose(terms.bound, same.bound, rtol=0, atol=1e-10)

    @seeds
    def test_the_exact_posterior_closes_the_gap(self, seed):
        model = toy(seed)
        draw = Enumerate()(model.prior, model.prior, SEED)
        log_joint = draw.log_posterior + model.log_lik(draw)  # (S, B, T), by falling prior probability
        exact = torch.full_like(model.prior_scores, -math.inf)
        exact = exact.scatter(-1, draw.index.movedim(0, -1), log_joint.movedim(0, -1))
        inside = exact.masked_fill(~model.memory_mask, 0.0)
        terms = Elbo()(model.visit(Enumerate(), q=MaskedOneHot(inside, model.support)))
        assert torch.allclose(terms.bound, model.per_example(marginal), rtol=0, atol=1e-10)

    @seeds
    @pytest.mark.parametrize("bound, of_unit", [(Elbo(), elbo), (Marginal(), marginal)])
    def test_gradients(self, seed, bound: Bound, of_unit):
        model = toy(seed)
        made = gradient(-bound(model.visit(Enumerate())).loss.sum(), model.parameters)
        expected = gradient(model.per_example(of_unit).sum(), model.parameters)
        assert largest_difference(made, expected) < 1e-10

    @seeds
    def test_mean_is_soft_attention_for_both_bounds(self, seed):
        model = toy(seed)
        evaluation = model.visit(Mean(), is_prior=True)
        weights = torch.softmax(model.prior_scores.masked_fill(~model.memory_mask, -math.inf), dim=-1)
        log_probs = torch.log_softmax(weights @ model.values @ model.readout, dim=-1)
        soft = log_probs.gather(-1, model.target.unsqueeze(-1)).squeeze(-1).masked_fill(~model.step_mask, 0.0)
        for bound in (Elbo(), Marginal()):
            assert torch.allclose(bound(evaluation).bound, soft.sum(dim=-1), rtol=0, atol=1e-10)


class TestTopK:
    @pytest.mark.parametrize("rest", ["renormalise", "drop"])
    @pytest.mark.parametrize("bound", [Elbo(), Marginal()])
    def test_all_positions_are_full_enumeration(self, rest, bound: Bound):
        model = toy(1)
        full, all_of_them = bound(model.visit(Enumerate())), bound(model.visit(Enumerate(5, rest)))
        assert torch.allclose(full.bound, all_of_them.bound, rtol=0, atol=1e-12)
        more = bound(model.visit(Enumerate(99, rest)))
        assert torch.allclose(full.bound, more.bound, rtol=0, atol=1e-12)

    @seeds
    @pytest.mark.parametrize("top_k", [1, 2, 3])
    def test_values(self, seed, top_k):
        model = toy(seed)

        def of_unit(is_renormalised: bool):
            def k_max(p: Tensor, q: Tensor, log_f: Tensor) -> Tensor:
                top = p.argsort(descending=True)[:top_k]
                weight = p[top] / p[top].sum() if is_renormalised else p[top]
                return (weight * log_f[top].exp()).sum().log()

            return k_max

        for rest in ("renormalise", "drop"):
            made = Marginal()(model.visit(Enumerate(top_k, rest), is_prior=True)).bound
            assert torch.allclose(made, model.per_example(of_unit(rest == "renormalise")), rtol=0, atol=1e-10)

    @seeds
    def test_dropping_is_a_lower_bound_that_rises_and_renormalising_is_not(self, seed):
        model = toy(seed)
        exact = model.per_example(marginal)
        bounds = [Marginal()(model.visit(Enumerate(k, "drop"), is_prior=True)).bound for k in range(1, 6)]
        for lower, higher in zip(bounds, [*bounds[1:], exact], strict=True):
            assert (lower <= higher + 1e-12).all()
        assert (bounds[0] < exact - 1e-3).any()

    def test_renormalised_k_max_can_exceed_the_marginal(self):
        exceeds = [
            (Marginal()(toy(s).visit(Enumerate(1), is_prior=True)).bound > toy(s).per_example(marginal)).any()
            for s in SEEDS
        ]
        assert any(exceeds)


class TestOrderOfBounds:
    """marginal >= importance-weighted, rising with K >= ELBO, by exact expectation over all tuples of samples."""

    @seeds
    def test_order(self, seed):
        model = single(seed)
        ladder = []
        for num_samples in (1, 2, 3, 4):
            outcomes = all_outcomes(model, sampler(num_samples), num_samples)
            ladder.append(float(outcomes.expected(ImportanceWeighted()(outcomes.evaluation).bound)))
            exact = float(model.per_example(importance_weighted(num_samples)).detach())
            assert ladder[-1] == pytest.approx(exact, abs=1e-10)
        evidence_bound = float(Elbo()(model.visit(Enumerate())).bound)
        assert ladder[0] == pytest.approx(evidence_bound, abs=1e-10)
        for lower, higher in zip(ladder, [*ladder[1:], float(model.per_example(marginal).detach())], strict=True):
            assert lower < higher
        assert float(outcomes.probability.sum()) == pytest.approx(1.0)

    @seeds
    def test_elbo_of_samples_is_the_elbo_for_any_number_of_samples(self, seed):
        model = single(seed)
        for num_samples in (1, 2, 3):
            outcomes = all_outcomes(model, sampler(num_samples), num_samples)
            made = float(outcomes.expected(Elbo()(outcomes.evaluation).bound))
            assert made == pytest.approx(float(model.per_example(elbo).detach()), abs=1e-10)

    def test_wake_sleep_reports_the_importance_weighted_bound(self):
        evaluation = toy(2).visit(sampler(4))
        assert torch.equal(WakeSleep()(evaluation).bound, ImportanceWeighted()(evaluation).bound)

    def test_steps_are_weighted_one_by_one(self):
        model = toy(1)
        evaluation = model.visit(sampler(4))
        draw = evaluation.latents[0].draw
        log_weight = evaluation.log_lik + draw.log_prior - draw.log_posterior
        expected = (torch.logsumexp(log_weight, dim=0) - math.log(4)).masked_fill(~model.step_mask, 0.0).sum(dim=-1)
        assert torch.allclose(ImportanceWeighted()(evaluation).bound, expected)


class TestGaussianImportanceWeights:
    """z ~ N(0, 1), y | z ~ N(z, 0.5²): the marginal is N(0, 1.25), the exact posterior N(0.8 y, 0.2)."""

    y = torch.tensor([0.3, -1.7, 2.2], dtype=torch.float64)
    marginal = torch.distributions.Normal(0.0, math.sqrt(1.25)).log_prob(y)

    def evaluation(self, mean: Tensor, log_variance: Tensor, num_samples: int) -> Evaluation:
        q, p = DiagonalGaussian(mean, log_variance), DiagonalGaussian(torch.zeros_like(mean), torch.zeros_like(mean))
        draw = Pathwise(num_samples)(q, p, SEED)
        log_lik = torch.distributions.Normal(draw.value[..., 0], 0.5).log_prob(self.y)
        return Evaluation(log_lik, (receipt("z", draw, kl(q, p), unit="example"),))

    @pytest.mark.parametrize("num_samples", [1, 2, 7])
    def test_the_exact_posterior_gives_the_marginal_for_every_sample(self, num_samples):
        mean = (0.8 * self.y).unsqueeze(-1)
        evaluation = self.evaluation(mean, torch.full_like(mean, math.log(0.2)), num_samples)
        assert torch.allclose(ImportanceWeighted()(evaluation).bound, self.marginal)

    def test_more_samples_come_closer(self):
        mean = torch.zeros(3, 1, dtype=torch.float64)
        gaps = []
        for num_samples in (1, 10, 1000, 100_000):
            evaluation = self.evaluation(mean, torch.zeros_like(mean), num_samples)
            gaps.append(float((ImportanceWeighted()(evaluation).bound - self.marginal).abs().max()))
        assert gaps[-1] < 0.02 < gaps[0]

    def test_elbo_of_the_exact_posterior_is_the_marginal(self):
        mean = (0.8 * self.y).unsqueeze(-1)
        evaluation = self.evaluation(mean, torch.full_like(mean, math.log(0.2)), 100_000)
        assert torch.allclose(Elbo()(evaluation).bound, self.marginal, atol=0.02)

    def test_kl_weight_scales_the_log_ratio_in_the_loss(self):
        mean = torch.zeros(3, 1, dtype=torch.float64)
        evaluation = self.evaluation(mean + 0.5, torch.zeros_like(mean), 5)
        draw = evaluation.latents[0].draw
        ratio = draw.log_prior - draw.log_posterior
        terms = ImportanceWeighted()(evaluation, {"z": 0.25})
        expected = torch.logsumexp(evaluation.log_lik + 0.25 * ratio, dim=0) - math.log(5)
        assert torch.allclose(-terms.loss, expected)
        assert torch.equal(terms.bound, ImportanceWeighted()(evaluation).bound)


class TestImportanceWeightedReceipts:
    @pytest.mark.parametrize("num_lost", [1, 2])
    def test_samples_under_which_the_target_is_impossible_weigh_nothing(self, num_lost):
        evaluation = toy(2).visit(sampler(3))
        draw = evaluation.latents[0].draw
        log_lik = evaluation.log_lik.detach().clone()
        log_lik[:num_lost, 0, 0] = -math.inf
        terms = ImportanceWeighted()(Evaluation(log_lik, evaluation.latents, mask=evaluation.mask))
        weights = (log_lik + draw.log_prior - draw.log_posterior).exp().mean(dim=0).log()
        assert torch.allclose(terms.bound, weights.masked_fill(~evaluation.mask, 0.0).sum(dim=-1))
        (found,) = torch.autograd.grad(terms.loss.sum(), draw.log_posterior)
        assert found.isfinite().all() and found[-1, 0, 0] != 0

    def test_a_lost_sample_takes_nothing_from_the_signal_of_the_others(self):
        log_weight = torch.tensor([-math.inf, 1.0, 2.0]).double()
        total = math.log((math.exp(1.0) + math.exp(2.0)) / 3.0)
        without = [
            math.log((math.exp(1.5) + math.exp(1.0) + math.exp(2.0)) / 3.0),  # the geometric mean of the others
            math.log(math.exp(2.0) / 3.0),  # which is zero where one of them is
            math.log(math.exp(1.0) / 3.0),
        ]
        expected = torch.tensor([total - one for one in without]).double()
        torch.testing.assert_close(_vimco_signal(log_weight), expected)

    def test_another_receipt_of_the_same_name_keeps_its_kl(self):
        """E.g. two attentions of a model whose sites have one name."""
        evaluation = toy(2).visit(sampler(3))
        other = receipt("attention", Draw(torch.zeros(1, 3, 4, 2), None, torch.zeros(1, 3, 4)), torch.rand(3, 4))
        alone = ImportanceWeighted()(evaluation)
        both = ImportanceWeighted()(replace(evaluation, latents=(*evaluation.latents, other)))
        cost = other.kl.masked_fill(~evaluation.mask, 0.0).sum(dim=-1)
        assert torch.allclose(both.bound, alone.bound - cost) and torch.allclose(both.loss, alone.loss + cost)


class TestCredit:
    """`credit` is d bound / d log_lik, so that a chunked readout can form gradients before the bound is known."""

    @pytest.mark.parametrize(
        "bound, estimator",
        [
            (Elbo(), Enumerate()),
            (Elbo(), Mean()),
            (Elbo(), ScoreFunction(3, LeaveOneOut())),
            (Elbo(), ScoreFunction(2, SoftAttention())),
            (Elbo(), TopKAndSample(2)),
            (Marginal(), Enumerate()),
            (Marginal(), Enumerate(2)),
            (Marginal(), Enumerate(2, "drop")),
            (Marginal(), Mean()),
            (ImportanceWeighted(), sampler(4)),
            (WakeSleep(), sampler(4)),
        ],
        ids=lambda value: repr(value),
    )
    def test_credit_is_the_derivative(self, bound: Bound, estimator):
        model = toy(3)
        evaluation = model.visit(estimator)
        log_lik = evaluation.log_lik.detach().requires_grad_()
        terms = bound(Evaluation(log_lik, evaluation.latents, mask=model.step_mask))
        (derivative,) = torch.autograd.grad(-terms.loss.sum(), log_lik)
        credit = bound.credit(evaluation.latents[0].draw, log_lik).masked_fill(~model.step_mask, 0.0)
        assert credit.shape == log_lik.shape
        assert torch.allclose(credit, derivative, rtol=0, atol=1e-12)
        assert credit.abs().sum() > 0

    def test_a_baseline_gets_no_credit(self):
        model = toy(3)
        evaluation = model.visit(ScoreFunction(2, SoftAttention()))
        assert (Elbo().credit(evaluation.latents[0].draw, evaluation.log_lik)[-1] == 0).all()


class TestWakeSleep:
    def test_loss_is_the_weighted_sum_of_both_log_probabilities(self):
        model = toy(1)
        evaluation = model.visit(sampler(3))
        draw = evaluation.latents[0].draw
        share = torch.softmax((evaluation.log_lik + draw.log_prior - draw.log_posterior).detach(), dim=0)
        inner = share * (evaluation.log_lik + draw.log_prior + draw.log_posterior)
        expected = -inner.sum(dim=0).masked_fill(~model.step_mask, 0.0).sum(dim=-1)
        terms = WakeSleep()(evaluation)
        assert torch.allclose(terms.loss, expected)
        made = gradient(terms.loss.sum(), model.parameters)
        assert largest_difference(made, gradient(expected.sum(), model.parameters)) < 1e-12


class TestZeroTimesInfinity:
    """A particle without weight may have any likelihood; 0 * -inf must be 0, forward and backward."""

    @pytest.mark.parametrize(
        ("bound", "estimator"),
        [
            *((bound, estimator) for bound in (Elbo(), Marginal()) for estimator in (Enumerate(), Enumerate(4))),
            (Marginal(), Enumerate(4, "drop")),
        ],
    )
    def test_padded_positions(self, bound: Bound, estimator):
        model = toy(2)
        evaluation = model.visit(estimator)
        draw = evaluation.latents[0].draw
        without_weight = torch.isneginf(draw.log_weight)
        assert without_weight.any()
        spoilt = Evaluation(
            evaluation.log_lik.masked_fill(without_weight, -math.inf), evaluation.latents, mask=model.step_mask
        )
        assert torch.equal(bound(spoilt).bound, bound(evaluation).bound)
        made = gradient(bound(spoilt).loss.sum(), model.parameters)
        assert largest_difference(made, gradient(bound(evaluation).loss.sum(), model.parameters)) < 1e-12

    def test_padded_positions_of_top_k_and_sample(self):
        model = toy(2)
        evaluation = model.visit(TopKAndSample(4))
        without_weight = torch.isneginf(evaluation.latents[0].draw.log_weight)
        assert without_weight.any()
        spoilt = Evaluation(
            evaluation.log_lik.masked_fill(without_weight, -math.inf), evaluation.latents, mask=model.step_mask
        )
        assert torch.equal(Elbo()(spoilt).bound, Elbo()(evaluation).bound)
        assert all(torch.isfinite(g).all() for g in gradient(Elbo()(spoilt).loss.sum(), model.parameters))

    def test_baseline_of_minus_infinity(self):
        model = toy(2)
        evaluation = model.visit(ScoreFunction(2, SoftAttention()))
        log_lik = torch.cat([evaluation.log_lik[:-1], torch.full_like(evaluation.log_lik[-1:], -math.inf)])
        terms = Elbo()(Evaluation(log_lik, evaluation.latents, mask=model.step_mask))
        assert torch.equal(terms.bound, Elbo()(evaluation).bound)
        assert all(torch.isfinite(g).all() for g in gradient(terms.loss.sum(), model.parameters))

    def test_padded_steps_may_hold_anything(self):
        for bound, estimator in (
            (Elbo(), Enumerate()),
            (Marginal(), Enumerate()),
            (Elbo(), ScoreFunction(2, SoftAttention())),
            (ImportanceWeighted(), sampler(3)),
            (WakeSleep(), sampler(3)),
        ):
            model = toy(2)
            clean = model.visit(estimator)
            for poison in (-math.inf, math.nan, 3.0):
                log_lik = clean.log_lik.masked_fill(~model.step_mask, poison)
                terms = bound(Evaluation(log_lik, clean.latents, mask=model.step_mask))
                assert torch.equal(terms.bound, bound(clean).bound)
                made = gradient(terms.loss.sum(), model.parameters)
                assert largest_difference(made, gradient(bound(clean).loss.sum(), model.parameters)) < 1e-12


class TestErrors:
    def test_a_target_of_probability_zero(self):
        model = toy(1)
        evaluation = model.visit(Enumerate())
        with pytest.raises(ValueError, match=r"the loss of shape \(3,\) has 3 value\(s\) that are not finite"):
            Elbo()(Evaluation(torch.full_like(evaluation.log_lik, -math.inf), evaluation.latents))
        with pytest.raises(ValueError, match="A log-likelihood of -inf means a target of probability 0"):
            Marginal()(Evaluation(torch.full_like(evaluation.log_lik, -math.inf), evaluation.latents))

    @pytest.mark.parametrize("bound", [ImportanceWeighted(), WakeSleep()])
    def test_a_sample_of_probability_zero_is_no_silent_nan(self, bound: Bound):
        evaluation = single(1).visit(sampler(2))
        log_lik = torch.full_like(evaluation.log_lik, -math.inf)
        with pytest.raises(ValueError, match="the loss of shape .* not finite"):
            bound(Evaluation(log_lik, evaluation.latents))

    def test_an_overflowing_kl(self):
        model = toy(1)
        evaluation = model.visit(Enumerate())
        latent = receipt("layer 3", evaluation.latents[0].draw, torch.full((3, 4), math.inf))
        with pytest.raises(ValueError, match=r"Sites: \['layer 3'\]. A KL with anchor='exp' overflows when"):
            Elbo()(Evaluation(evaluation.log_lik, (latent,)))

    def test_scores_of_ten_thousand_with_the_exp_anchor(self):
        """exp(1e4) is infinite, and so is the KL; the weights are not, and the softmax anchor has a finite KL."""
        scores = torch.tensor([[[1e4, -1e4, 0.0]]])
        prior = GammaPrior()(torch.full((1, 1, 3), math.log(1 / 3)), Dense())
        for anchor in ("exp", "softmax"):
            posterior = Weibull(10.0, anchor=anchor)(scores, Dense())
            draw = Pathwise()(posterior, prior, SEED)
            assert torch.isfinite(draw.value).all()
            evaluation = Evaluation(torch.zeros(1, 1, 1), (receipt("layer", draw, kl(posterior, prior)),))
            if anchor == "softmax":
                assert torch.isfinite(Elbo()(evaluation).loss).all()
            else:
                with pytest.raises(
                    ValueError, match=r"the loss .* not finite. Sites: \['layer'\]. A KL with anchor='exp'"
                ):
                    Elbo()(evaluation)

    def test_a_draw_without_score(self):
        evaluation = toy(1).visit(Mean())
        with pytest.raises(ValueError, match="site 'attention' has no score"):
            _score_term(Ledger(evaluation, {}, {}), evaluation.latents[0])

    def test_marginal_of_samples(self):
        with pytest.raises(ValueError, match="sums over enumerated positions, but site 'attention' holds samples"):
            Marginal()(toy(1).visit(sampler(2)))
        with pytest.raises(ValueError, match="Use the Enumerate estimator, or ImportanceWeighted for samples"):
            Marginal()(toy(1).visit(sampler(1)))

    @pytest.mark.parametrize("bound", [ImportanceWeighted(), WakeSleep()])
    def test_bounds_that_need_samples(self, bound: Bound):
        name = type(bound).__name__
        model = toy(1)
        with pytest.raises(ValueError, match=f"{name} needs a site with sampled particles and their log-probab"):
            bound(model.visit(Mean()))
        with pytest.raises(ValueError, match=f"{name} weights samples, but site 'attention' is enumerated; use Marg"):
            bound(model.visit(Enumerate()))

    @pytest.mark.parametrize("bound", [ImportanceWeighted(), WakeSleep()])
    @pytest.mark.parametrize(
        "estimator",
        [
            ScoreFunction(3, SoftAttention()),
            ScoreFunction(3, LeaveOneOut()),
            ScoreFunction(3, RunningMean()),
            TopKAndSample(2),
        ],
        ids=["soft", "leave one out", "running mean", "top k"],
    )
    def test_bounds_with_a_baseline_of_their_own(self, bound: Bound, estimator):
        message = r"give site 'attention' the estimator ScoreFunction\(num_samples, NoBaseline\(\)\)"
        with pytest.raises(ValueError, match=message):
            bound(toy(1).visit(estimator))

    def test_wake_sleep_wants_hard_samples(self):
        mean = torch.zeros(3, 1, dtype=torch.float64)
        evaluation = TestGaussianImportanceWeights().evaluation(mean, mean, 3)
        with pytest.raises(ValueError, match="wants hard samples, but the draw of site 'z' is differentiable"):
            WakeSleep()(evaluation)

    def test_a_draw_without_prior(self):
        draw = sampler(2)(MaskedOneHot(torch.zeros(3, 4, 5), Dense()), None, SEED)
        assert isinstance(draw, Draw) and draw.log_prior is None
        for bound in (ImportanceWeighted(), WakeSleep()):
            with pytest.raises(ValueError, match="samples by p / q, but the draw of site 'attention' has no log p"):
                bound(Evaluation(torch.zeros(2, 3, 4), (receipt("attention", draw),)))

    def test_pathwise_samples_without_log_probabilities(self):
        q = DiagonalGaussian(torch.zeros(3, 1), torch.zeros(3, 1))
        draw = Pathwise(2, keeps_log_probs=False)(q, q, SEED)
        evaluation = Evaluation(torch.zeros(2, 3), (receipt("z", draw),))
        with pytest.raises(ValueError, match="use ScoreFunction, or Pathwise with keeps_log_probs=True"):
            ImportanceWeighted()(evaluation)
        assert torch.equal(Elbo()(evaluation).bound, torch.zeros(3))


def test_toy_is_padded():
    """The oracle would agree with code that ignores masks if nothing were padded."""
    model: Toy = toy(0)
    assert not model.memory_mask.all() and not model.step_mask.all()
