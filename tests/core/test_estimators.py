"""Estimators: what they draw, and their gradients against exact expectations over every outcome.

An expectation over samples is a sum over all tuples of positions, so unbiasedness is tested to 1e-10 and not by chance;
z-scores with real noise are added so that the samplers are part of the test.
"""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

from probattn.core import (
    Dense,
    Draw,
    Elbo,
    Enumerate,
    Estimator,
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
from probattn.distributions import (
    Concrete,
    DiagonalGaussian,
    Dirichlet,
    Family,
    GumbelSoftmax,
    Lognormal,
    MaskedOneHot,
    StraightThroughGumbel,
    Weibull,
    kl,
)
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
    run_script,
    single,
    toy,
)
from tests.core.problems import problem, random_scores

COPIES = 20_000
SEEDS = [0, 1, 2]
seeds = pytest.mark.parametrize("seed", SEEDS)


def running_mean(value: float = -1.3) -> RunningMean:
    baseline = RunningMean()
    baseline.value.fill_(value)
    return baseline


SCORE_FUNCTIONS = {
    "none": (1, NoBaseline()),
    "none, 3 samples": (3, NoBaseline()),
    "soft": (1, SoftAttention()),
    "soft, 3 samples": (3, SoftAttention()),
    "leave one out, 2 samples": (2, LeaveOneOut()),
    "leave one out, 3 samples": (3, LeaveOneOut()),
    "running mean": (1, running_mean()),
}


def copied(model: Toy, count: int = COPIES) -> tuple[Toy, tuple[Tensor, ...]]:
    """Many copies of a `single` model, each with noise of its own, and leaves that have one gradient per copy."""
    leaves = tuple(
        x.detach().expand(count, *x.shape[1:]).clone().requires_grad_()
        for x in (model.prior_scores, model.posterior_scores, model.values)
    )
    wide = Toy(
        *leaves,
        readout=model.readout.detach(),
        target=model.target.expand(count, 1),
        memory_mask=model.memory_mask.expand(count, 1, -1),
        step_mask=model.step_mask.expand(count, 1),
    )
    return wide, leaves


def z_of(per_copy: tuple[Tensor, ...], exact: tuple[Tensor, ...]) -> Tensor:
    """z-scores of the mean gradient over copies, all components in one row."""
    z = []
    for made, expected in zip(per_copy, exact, strict=True):
        made = made.flatten(1)
        error = (made.std(dim=0) / math.sqrt(made.shape[0])).clamp(min=1e-12)
        z.append((made.mean(dim=0) - expected.flatten()) / error)
    return torch.cat(z)


def variance_of(per_copy: tuple[Tensor, ...]) -> float:
    """Summed variance of all components."""
    return sum(float(made.flatten(1).var(dim=0).sum()) for made in per_copy)


class TestUnbiasedExactly:
    @seeds
    @pytest.mark.parametrize("name", SCORE_FUNCTIONS)
    def test_score_function(self, name, seed):
        num_samples, baseline = SCORE_FUNCTIONS[name]
        model = single(seed)
        outcomes = all_outcomes(model, ScoreFunction(num_samples, baseline), num_samples)
        made = outcomes.expected_gradient(Elbo()(outcomes.evaluation).loss)
        expected = gradient(model.per_example(elbo).sum(), model.parameters)
        assert largest_difference(made, expected) < 1e-10
        one = outcomes.evaluation.latents[0].draw.score
        assert one is not None and one.requires_grad

    @seeds
    @pytest.mark.parametrize("name", SCORE_FUNCTIONS)
    def test_hard_attention(self, name, seed):
        """q = p: the prior itself learns from the score function."""
        num_samples, baseline = SCORE_FUNCTIONS[name]
        model = single(seed)
        outcomes = all_outcomes(model, ScoreFunction(num_samples, baseline), num_samples, is_prior=True)
        made = outcomes.expected_gradient(Elbo()(outcomes.evaluation).loss)
        assert largest_difference(made, gradient(model.per_example(jensen).sum(), outcomes.leaves)) < 1e-10

    @pytest.mark.parametrize("kl_weight", [0.0, 0.3, 2.0])
    def test_kl_weights(self, kl_weight):
        model = single(4)
        outcomes = all_outcomes(model, ScoreFunction(2, LeaveOneOut()), 2)
        made = outcomes.expected_gradient(Elbo()(outcomes.evaluation, {"attention": kl_weight}).loss)

        def weighted(p: Tensor, q: Tensor, log_f: Tensor) -> Tensor:
            return (q * (log_f + kl_weight * (p.log() - q.log()))).sum()

        assert largest_difference(made, gradient(model.per_example(weighted).sum(), model.parameters)) < 1e-10

    @seeds
    @pytest.mark.parametrize("top_k", [1, 2, 3])
    def test_top_k_and_sample(self, top_k, seed):
        model = single(seed, positions=4)
        q = torch.softmax(model.posterior_scores.detach()[0, 0], dim=0)
        rest = q.argsort(descending=True)[top_k:]
        outcomes = run_script(model, TopKAndSample(top_k), rest.view(1, -1, 1), q[rest] / q[rest].sum())
        terms = Elbo()(outcomes.evaluation)
        assert float(outcomes.expected(terms.bound)) == pytest.approx(
            float(model.per_example(elbo).detach()), abs=1e-10
        )
        made = outcomes.expected_gradient(terms.loss)
        assert largest_difference(made, gradient(model.per_example(elbo).sum(), model.parameters)) < 1e-10

    @seeds
    @pytest.mark.parametrize("num_samples", [1, 2, 3])
    @pytest.mark.parametrize("kl_weight", [1.0, 0.4])
    def test_vimco(self, num_samples, kl_weight, seed):
        model = single(seed)
        outcomes = all_outcomes(model, ScoreFunction(num_samples, NoBaseline()), num_samples)
        terms = ImportanceWeighted()(outcomes.evaluation, {"attention": kl_weight})
        made = outcomes.expected_gradient(terms.loss)
        objective = model.per_example(importance_weighted(num_samples, kl_weight)).sum()
        assert largest_difference(made, gradient(objective, model.parameters)) < 1e-10
        assert float(outcomes.expected(-terms.loss).detach()) == pytest.approx(float(objective.detach()), abs=1e-10)

    def test_the_exact_gradient_is_not_zero(self):
        for seed in SEEDS:
            model = single(seed)
            assert min(float(g.abs().max()) for g in gradient(model.per_example(elbo).sum(), model.parameters)) > 1e-2

    def test_a_baseline_that_sees_its_own_sample_is_biased(self):
        """Breaks the rule on purpose, so that the tests above can fail."""

        class Mean3(LeaveOneOut):
            def mixing(self, num_samples: int, like: Tensor) -> Tensor:
                return torch.full((num_samples, num_samples), 1.0 / num_samples, dtype=like.dtype)

        model = single(0)
        outcomes = all_outcomes(model, ScoreFunction(3, Mean3()), 3)
        made = outcomes.expected_gradient(Elbo()(outcomes.evaluation).loss)
        assert largest_difference(made, gradient(model.per_example(elbo).sum(), model.parameters)) > 1e-2


class TestUnbiasedByZScore:
    """The same with the noise that is really drawn."""

    @pytest.mark.parametrize(
        "estimator",
        [
            *(ScoreFunction(number, baseline) for number, baseline in SCORE_FUNCTIONS.values()),
            TopKAndSample(1),
            TopKAndSample(2),
        ],
        ids=[*SCORE_FUNCTIONS, "top 1 and sample", "top 2 and sample"],
    )
    def test_elbo(self, estimator: Estimator):
        model = single(3, positions=5)
        wide, leaves = copied(model)
        made = gradient(-Elbo()(wide.visit(estimator)).loss.sum(), leaves)
        exact = gradient(model.per_example(elbo).sum(), model.parameters)[:3]
        assert (z_of(made, exact).abs() < 4.0).all()

    def test_importance_weighted(self):
        model = single(3)
        wide, leaves = copied(model)
        made = gradient(-ImportanceWeighted()(wide.visit(ScoreFunction(3, NoBaseline()))).loss.sum(), leaves)
        exact = gradient(model.per_example(importance_weighted(3)).sum(), model.parameters)[:3]
        assert (z_of(made, exact).abs() < 4.0).all()


class TestVariance:
    def variances(self, estimators: dict[str, Estimator], seed: int = 3) -> dict[str, float]:
        wide, leaves = copied(single(seed, positions=5), 4000)
        found = {}
        for name, estimator in estimators.items():
            found[name] = variance_of(gradient(-Elbo()(wide.visit(estimator)).loss.sum(), leaves[1:2]))
        return found

    @seeds
    def test_baselines_beat_no_baseline(self, seed):
        found = self.variances(
            {
                "none": ScoreFunction(4, NoBaseline()),
                "soft": ScoreFunction(4, SoftAttention()),
                "leave one out": ScoreFunction(4, LeaveOneOut()),
            },
            seed,
        )
        assert found["soft"] < 0.7 * found["none"] and found["leave one out"] < 0.7 * found["none"]

    @seeds
    def test_the_most_probable_positions_exactly_beat_sampling(self, seed):
        found = self.variances(
            {
                "sample": ScoreFunction(1, SoftAttention()),
                "top 1": TopKAndSample(1),
                "top 2": TopKAndSample(2),
                "top 5": TopKAndSample(5),
                "all": Enumerate(),
            },
            seed,
        )
        assert found["top 2"] < found["sample"] and found["top 2"] < found["top 1"]
        assert found["top 5"] < 1e-20 and found["all"] < 1e-20

    def test_vimco_beats_the_plain_signal(self):
        """At K = 1 there is no other sample, and the signal is the bound itself."""
        wide, leaves = copied(single(3, positions=5), 4000)
        found = {}
        for num_samples in (1, 4):
            evaluation = wide.visit(ScoreFunction(num_samples, NoBaseline()))
            found[num_samples] = variance_of(gradient(-ImportanceWeighted()(evaluation).loss.sum(), leaves[1:2]))
        assert found[4] < 0.5 * found[1]


class TestMeasuredBias:
    """Estimators that do not claim an unbiased gradient: the bias is there, and shrinks where it should."""

    def relaxed(self, family: Family, seed: int = 3) -> tuple[float, float]:
        """z-scores of the value and (largest component) of the gradient of E_q[log f] against the hard choice."""
        model = single(seed)
        wide, leaves = copied(model)
        posterior = family(wide.posterior_scores, wide.support)
        evaluation = wide.visit(Pathwise(), q=posterior)
        made = gradient(-Elbo()(evaluation).loss.sum(), leaves[1:2])
        exact = gradient(model.per_example(elbo).sum(), model.parameters)[1:2]
        values, expected = Elbo()(evaluation).bound, float(model.per_example(elbo).detach())
        z_value = (float(values.mean()) - expected) / (float(values.std()) / math.sqrt(COPIES))
        return z_value, float(z_of(made, exact).abs().max())

    def test_concrete_is_biased_in_value_and_gradient(self):
        z_value, z_gradient = self.relaxed(GumbelSoftmax(1.0))
        assert abs(z_value) > 5.0 and z_gradient > 5.0

    def test_concrete_value_becomes_unbiased_at_low_temperature(self):
        model = single(3)
        exact = float(model.per_example(elbo).detach())
        bias = {}
        for temperature in (1.0, 0.3, 0.1, 0.01):
            wide, _ = copied(model)
            posterior = GumbelSoftmax(temperature)(wide.posterior_scores, wide.support)
            bias[temperature] = abs(float(Elbo()(wide.visit(Pathwise(), q=posterior)).bound.mean()) - exact)
        assert bias[0.3] < bias[1.0] and bias[0.1] < 0.5 * bias[1.0]
        z_value, _ = self.relaxed(GumbelSoftmax(0.001))
        assert abs(z_value) < 4.0

    def test_straight_through_has_the_right_value_and_a_biased_gradient(self):
        z_value, z_gradient = self.relaxed(StraightThroughGumbel(1.0))
        assert abs(z_value) < 4.0 and z_gradient > 5.0

    @seeds
    def test_wake_sleep_approaches_its_target_as_samples_are_added(self, seed):
        """By enumeration: the model's gradient tends to that of the marginal, q's to that of -KL(posterior || q)."""
        model = single(seed)

        def inclusive(p: Tensor, q: Tensor, log_f: Tensor) -> Tensor:
            posterior = torch.softmax((p.log() + log_f).detach(), dim=0)
            return (posterior * q.log()).sum()

        target = gradient((model.per_example(marginal) + model.per_example(inclusive)).sum(), model.parameters)
        bias = []
        for num_samples in (1, 2, 4, 6):
            outcomes = all_outcomes(model, ScoreFunction(num_samples, NoBaseline()), num_samples)
            made = outcomes.expected_gradient(WakeSleep()(outcomes.evaluation).loss)
            bias.append(math.sqrt(sum(float((a - b).square().sum()) for a, b in zip(made, target, strict=True))))
        assert bias[0] > 1e-2
        assert all(later < earlier for earlier, later in itertools.pairwise(bias))

    @seeds
    def test_k_max_approaches_the_marginal(self, seed):
        model = toy(seed)
        exact = gradient(model.per_example(marginal).sum(), model.parameters)
        bias = []
        for top_k in (1, 3, 5):
            made = gradient(-Marginal()(model.visit(Enumerate(top_k))).loss.sum(), model.parameters)
            bias.append(largest_difference(made, exact))
        assert bias[0] > 1e-2 and bias[1] < bias[0] and bias[2] < 1e-10


class TestPathwise:
    """E[log f] for two positions is a one-dimensional integral, and so is its derivative."""

    scores = torch.tensor([0.7, -0.4], dtype=torch.float64)
    values = torch.tensor([[1.0, -0.5, 0.3], [-0.8, 0.9, 1.4]], dtype=torch.float64)
    readout = random_scores(3, 4, seed=8)

    def log_f(self, weight: Tensor) -> Tensor:
        """log f of the first word, given the first position's weight."""
        context = weight.unsqueeze(-1) * self.values[0] + (1.0 - weight.unsqueeze(-1)) * self.values[1]
        return torch.log_softmax(context @ self.readout, dim=-1)[..., 0]

    def exact(self, name: str, scores: Tensor) -> float:
        if name == "dirichlet":  # W_0 is Beta distributed
            law = scipy.stats.beta(*(float(s) for s in scores.exp()))
            levels = (np.arange(200_000) + 0.5) / 200_000
            weight = law.ppf(levels)
        else:  # W_0 = sigmoid(difference of the scores + difference of the noises)
            noise = scipy.stats.logistic(scale=1 / 1.3) if name == "weibull" else scipy.stats.norm(scale=1.1 * 2**0.5)
            levels = (np.arange(200_000) + 0.5) / 200_000
            weight = 1.0 / (1.0 + np.exp(-(float(scores[0] - scores[1]) + noise.ppf(levels))))
        return float(self.log_f(torch.as_tensor(weight)).mean())

    @pytest.mark.parametrize(
        "name, family",
        [("weibull", Weibull(1.3)), ("lognormal", Lognormal(1.1)), ("dirichlet", Dirichlet())],
        ids=["weibull", "lognormal", "dirichlet"],
    )
    def test_value_and_gradient(self, name, family: Family):
        leaf = self.scores.expand(COPIES, 1, 2).clone().requires_grad_()
        posterior = family(leaf, Dense())
        draw = Pathwise(2)(posterior, posterior, SEED)
        evaluation = Evaluation(self.log_f(draw.value[..., 0]), (receipt("attention", draw),))
        terms = Elbo()(evaluation)
        error = float(terms.bound.std()) / math.sqrt(COPIES)
        assert abs(float(terms.bound.mean()) - self.exact(name, self.scores)) < 4.0 * error
        step = 1e-3
        expected = [
            (self.exact(name, self.scores + step * unit) - self.exact(name, self.scores - step * unit)) / (2 * step)
            for unit in torch.eye(2, dtype=torch.float64)
        ]
        made = gradient(-terms.loss.sum(), (leaf,))
        z = z_of(made, (torch.tensor(expected),))
        assert (z.abs() < 4.0).all()
        assert max(abs(x) for x in expected) > 0.02  # there is something to get wrong

    def test_gaussian(self):
        """E[z⁴] of N(mu, sigma²) is mu⁴ + 6 mu² sigma² + 3 sigma⁴."""
        mean = torch.full((COPIES, 1), 0.6, dtype=torch.float64, requires_grad=True)
        log_variance = torch.full((COPIES, 1), -0.5, dtype=torch.float64, requires_grad=True)
        q = DiagonalGaussian(mean, log_variance)
        draw = Pathwise()(q, q, SEED)
        loss = Elbo()(Evaluation(draw.value[..., 0].pow(4), (receipt("z", draw, unit="example"),))).loss
        made = gradient(-loss.sum(), (mean, log_variance))
        variance = math.exp(-0.5)
        of_mean = 4 * 0.6**3 + 12 * 0.6 * variance
        of_log_variance = (6 * 0.36 + 6 * variance) * variance
        expected = (torch.tensor([of_mean]).double(), torch.tensor([of_log_variance]).double())
        assert (z_of(made, expected).abs() < 4.0).all()


class TestDraws:
    """What each estimator hands over."""

    case = problem()
    scores = random_scores(2, 5, 5)
    other_scores = random_scores(2, 5, 5, seed=9)

    def pair(self, name: str) -> tuple[MaskedOneHot, MaskedOneHot]:
        if name == "dense":
            return MaskedOneHot(self.scores, self.case.dense), MaskedOneHot(self.other_scores, self.case.dense)
        edges, others = self.case.to_edges(self.scores), self.case.to_edges(self.other_scores)
        return MaskedOneHot(edges, self.case.segments), MaskedOneHot(others, self.case.segments)

    def test_mean(self):
        q, p = self.pair("dense")
        draw = Mean()(q, p, SEED)
        assert torch.equal(draw.value[0], q.plug_in) and draw.value.shape[0] == draw.num_particles == 1
        assert torch.equal(draw.log_weight, torch.zeros(1, 2, 5).double())
        assert draw.index is None and draw.score is None and draw.log_posterior is None

    @pytest.mark.parametrize("num_samples", [1, 3])
    def test_pathwise(self, num_samples):
        q, p = Concrete(self.scores, 0.5, support=self.case.dense), Concrete(self.other_scores, 1.0, support=Dense())
        draw = Pathwise(num_samples)(q, p, SEED)
        raw = q.draw_raw(num_samples, SEED)
        assert torch.equal(draw.value, q.realise(raw))
        assert torch.equal(draw.log_posterior, q.log_prob(raw)) and torch.equal(draw.log_prior, p.log_prob(raw))
        assert torch.allclose(draw.log_weight.exp(), torch.full((num_samples, 2, 5), 1.0 / num_samples).double())
        assert Pathwise(num_samples)(q, None, SEED).log_prior is None
        same = Pathwise(num_samples)(q, q, SEED)
        assert same.log_prior is same.log_posterior
        light = Pathwise(num_samples, keeps_log_probs=False)(q, p, SEED)
        assert light.log_posterior is None and light.log_prior is None
        assert torch.equal(light.value, draw.value) and torch.equal(light.log_weight, draw.log_weight)

    @pytest.mark.parametrize("name", ["dense", "segments"])
    def test_score_function(self, name):
        q, p = self.pair(name)
        draw = ScoreFunction(3, SoftAttention())(q, p, SEED)
        assert draw.num_particles == 4 and draw.has_baseline and not draw.is_enumerated
        assert torch.equal(draw.index, q.draw_index(3, SEED))
        assert torch.equal(draw.log_posterior, q.log_prob_index(draw.index))
        assert torch.equal(draw.log_prior, p.log_prob_index(draw.index))
        assert torch.equal(draw.value[0], p.plug_in.detach()) and not draw.value.requires_grad
        assert torch.allclose(draw.log_weight[:3].exp(), torch.full_like(draw.log_weight[:3], 1.0 / 3.0))
        assert torch.isneginf(draw.log_weight[3]).all()
        assert torch.equal(draw.score[:3], draw.log_posterior) and (draw.score[3] == 0).all()
        assert torch.isfinite(draw.score).all()

    @pytest.mark.parametrize("name", ["dense", "segments"])
    def test_enumerate(self, name):
        q, p = self.pair(name)
        draw = Enumerate()(q, p, SEED)
        assert draw.is_enumerated and draw.score is None and not draw.has_baseline
        assert torch.allclose(draw.log_weight.exp().sum(dim=0), torch.ones(q.batch_shape).double())
        assert torch.allclose(draw.log_prior.exp().sum(dim=0), torch.ones(q.batch_shape).double())
        is_empty = q.is_empty()
        first = draw.log_weight[:, is_empty]
        assert (first[0] == 0).all() and torch.isneginf(first[1:]).all()  # "nothing" is one outcome
        top = Enumerate(2)(q, p, SEED)
        assert top.num_particles == 2
        assert torch.allclose(top.log_weight.exp().sum(dim=0), torch.ones(q.batch_shape).double())
        dropped = Enumerate(2, "drop")(q, p, SEED)
        assert torch.equal(dropped.log_weight, dropped.log_posterior)
        assert (dropped.log_weight.exp().sum(dim=0) <= 1.0 + 1e-12).all()

    @pytest.mark.parametrize("name", ["dense", "segments"])
    def test_top_k_and_sample(self, name):
        q, p = self.pair(name)
        draw = TopKAndSample(2)(q, p, SEED)
        assert draw.num_particles == 3
        assert torch.allclose(draw.log_weight.exp().sum(dim=0), torch.ones(q.batch_shape).double())
        assert torch.equal(draw.index[:2], q.top_index(2))
        left = draw.log_weight[-1].exp()
        assert (left > 0).any() and (left == 0).any()
        assert ((draw.index[:2] == draw.index[2]).any(dim=0) & (left > 0)).sum() == 0
        assert torch.isfinite(draw.score).all() and (draw.score[:2] == 0).all()
        expected = (draw.log_posterior[-1] - draw.log_weight[-1]).masked_fill(left == 0, 0.0)
        assert torch.allclose(draw.score[-1], expected)

    @pytest.mark.parametrize("name", ["dense", "segments"])
    @pytest.mark.parametrize(
        "estimator", [ScoreFunction(2), Enumerate(), Enumerate(2), TopKAndSample(2)], ids=lambda e: type(e).__name__
    )
    def test_no_nan_gradient_with_padding_and_empty_sets(self, name, estimator: Estimator):
        scores = self.scores if name == "dense" else self.case.to_edges(self.scores)
        support = self.case.dense if name == "dense" else self.case.segments
        leaf = scores.clone().requires_grad_()
        q = MaskedOneHot(leaf, support)
        draw = estimator(q, q, SEED)
        log_lik = torch.randn(draw.log_weight.shape, dtype=torch.float64)
        terms = Elbo()(Evaluation(log_lik, (receipt("attention", draw, kl(q, q)),)))
        assert torch.isfinite(terms.loss).all()
        (found,) = torch.autograd.grad(terms.loss.sum(), leaf)
        assert torch.isfinite(found).all() and found.abs().sum() > 0

    def test_same_object_as_prior_means_q_equals_p(self):
        q, _ = self.pair("dense")
        for estimator in (ScoreFunction(2), Enumerate(2), TopKAndSample(1)):
            draw = estimator(q, q, SEED)
            assert torch.equal(draw.log_prior, draw.log_posterior)
            assert estimator(q, None, SEED).log_prior is None

    def test_soft_attention_of_the_posterior_where_there_is_no_prior(self):
        q, _ = self.pair("dense")
        assert torch.equal(ScoreFunction(1)(q, None, SEED).value[0], q.plug_in)


class TestErrors:
    hard = MaskedOneHot(torch.zeros(2, 3), Dense())
    soft = Concrete(torch.zeros(2, 3), 1.0, support=Dense())

    def test_pathwise_needs_differentiable_samples(self):
        with pytest.raises(TypeError, match="needs a distribution with differentiable samples, got MaskedOneHot"):
            Pathwise()(self.hard, None, SEED)

    @pytest.mark.parametrize(
        "estimator", [ScoreFunction(), Enumerate(), TopKAndSample()], ids=lambda e: type(e).__name__
    )
    def test_discrete_estimators_need_positions(self, estimator: Estimator):
        name = type(estimator).__name__
        with pytest.raises(TypeError, match=f"{name} needs a distribution over positions, got Concrete"):
            estimator(self.soft, None, SEED)
        message = "a discrete posterior's prior needs a distribution over positions, got Concrete"
        with pytest.raises(TypeError, match=message):
            estimator(self.hard, self.soft, SEED)

    @pytest.mark.parametrize(
        "make, name",
        [
            (lambda: Pathwise(0), r"Pathwise\(num_samples\)"),
            (lambda: ScoreFunction(0), r"ScoreFunction\(num_samples\)"),
            (lambda: Enumerate(0), r"Enumerate\(top_k\)"),
            (lambda: TopKAndSample(0), r"TopKAndSample\(top_k\)"),
        ],
    )
    def test_counts_must_be_positive(self, make: Callable[[], Estimator], name):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
            make()

    def test_leave_one_out_needs_another_one(self):
        with pytest.raises(ValueError, match="LeaveOneOut needs num_samples >= 2, got 1"):
            ScoreFunction(1, LeaveOneOut())

    def test_nothing_to_enumerate(self):
        empty = MaskedOneHot(torch.zeros(2, 0), Dense())
        with pytest.raises(ValueError, match="a hard choice needs at least one position"):
            Enumerate()(empty, empty, SEED)

    def test_a_family_that_offers_no_position(self):
        class Nowhere(MaskedOneHot):
            def top_index(self, k: int | None) -> Tensor:
                return torch.zeros(0, 2, dtype=torch.int64)

        with pytest.raises(ValueError, match="nothing to enumerate: the memory has no positions"):
            Enumerate()(Nowhere(torch.zeros(2, 3), Dense()), None, SEED)

    def test_draws_are_records(self):
        draw = Mean()(self.soft, None, SEED)
        assert isinstance(draw, Draw)
