"""Units, examples, masks, weights; and what a draw is credited with, by enumeration of everything it can change."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from probattn.core import (
    Baseline,
    Dense,
    Draw,
    Elbo,
    Enumerate,
    Evaluation,
    FreeBits,
    ImportanceWeighted,
    LeaveOneOut,
    NoBaseline,
    Pathwise,
    RunningMean,
    ScoreFunction,
    SoftAttention,
)
from probattn.distributions import DiagonalGaussian, MaskedOneHot, kl
from tests.core.oracle import SEED, Scripted, gradient, largest_difference, receipt


def leaf(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def one_particle(*unit: int) -> Draw:
    return Draw(value=torch.zeros(1, *unit, 2), index=None, log_weight=torch.zeros(1, *unit, dtype=torch.float64))


def samples(num_samples: int, *unit: int, seed: int = 5) -> tuple[Draw, Tensor]:
    """K Gaussian samples of scalars and their KL."""
    mean = leaf(*unit, 1, seed=seed)
    q, p = DiagonalGaussian(mean, torch.zeros_like(mean)), DiagonalGaussian(0 * mean, torch.zeros_like(mean))
    return Pathwise(num_samples)(q, p, SEED), kl(q, p)


class TestTrajectories:
    """Three steps whose draws feed the state: each changes later log-likelihoods, distributions and KLs."""

    steps, positions = 3, 3

    def setup_method(self):
        shape = [(self.positions,) * (t + 1) for t in range(self.steps)]
        self.posterior = [leaf(*s, seed=10 + t) for t, s in enumerate(shape)]  # scores of z_t given z_<t
        self.prior = [leaf(*s, seed=20 + t) for t, s in enumerate(shape)]
        self.log_f = [leaf(*s, seed=30 + t) for t, s in enumerate(shape)]  # log f_t given z_<=t
        self.other_kl = [leaf(*s, seed=40 + t) for t, s in enumerate(shape)]  # a second site's KL given z_<=t
        self.soft = [leaf(*s[:-1], seed=50 + t).detach() for t, s in enumerate(shape)]  # readout without z_t
        self.leaves = (*self.posterior, *self.prior, *self.log_f)
        self.all = list(itertools.product(range(self.positions), repeat=self.steps))

    def objective(self, *, kl_weight: float = 1.0, other_weight: float = 0.0, floor: float | None = None) -> Tensor:
        """The exact objective, by enumeration of all trajectories."""
        total = torch.zeros((), dtype=torch.float64)
        for path in self.all:
            probability, gain = torch.ones((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
            for t in range(self.steps):
                log_q = torch.log_softmax(self.posterior[t][path[:t]], dim=-1)
                log_p = torch.log_softmax(self.prior[t][path[:t]], dim=-1)
                divergence = (log_q.exp() * (log_q - log_p)).sum()
                divergence = divergence if floor is None else divergence.clamp(min=floor)
                probability = probability * log_q[path[t]].exp()
                gain = gain + self.log_f[t][path[: t + 1]] - kl_weight * divergence
                gain = gain - other_weight * self.other_kl[t][path[: t + 1]]
            total = total + probability * gain
        return total

    def evaluation(
        self, baseline: Baseline, *, feeds_state: bool = True, has_other: bool = False, padding: int = 0
    ) -> Evaluation:
        """Every trajectory as an example, with its samples given."""

        def gathered(tables: list[Tensor], length: int) -> Tensor:
            columns = [torch.stack([tables[t][path[: t + length]] for path in self.all]) for t in range(self.steps)]
            return torch.stack(columns + [columns[0]] * padding, dim=1)  # (M, T, ...), garbage on padded steps

        count, steps = len(self.all), self.steps + padding
        script = torch.tensor([[*path, *([0] * padding)] for path in self.all]).unsqueeze(0)
        q = Scripted(gathered(self.posterior, 0), Dense(), script)
        p = MaskedOneHot(gathered(self.prior, 0), Dense())
        draw = ScoreFunction(1, baseline)(q, p, SEED)
        log_lik = gathered(self.log_f, 1).unsqueeze(0)
        if draw.has_baseline:
            log_lik = torch.cat([log_lik, gathered(self.soft, 0).unsqueeze(0)])
        latents = [receipt("attention", draw, kl(q, p), feeds_state=feeds_state)]
        if has_other:
            latents.append(receipt("context", one_particle(count, steps), gathered(self.other_kl, 1), feeds_state=True))
        mask = torch.arange(steps).expand(count, steps) < self.steps
        return Evaluation(log_lik, tuple(latents), mask=mask)

    def expected_gradient(self, loss: Tensor) -> tuple[Tensor, ...]:
        probability = torch.ones(len(self.all), dtype=torch.float64)
        for t in range(self.steps):
            log_q = torch.log_softmax(self.posterior[t].detach(), dim=-1)
            probability = probability * torch.stack([log_q[path[: t + 1]].exp() for path in self.all])
        assert float(probability.sum()) == pytest.approx(1.0)
        return gradient(-(probability * loss).sum(), self.leaves)

    @pytest.mark.parametrize("padding", [0, 2])
    @pytest.mark.parametrize("baseline", [NoBaseline(), SoftAttention(), RunningMean()], ids=["none", "soft", "mean"])
    def test_reward_to_go_is_unbiased(self, baseline: Baseline, padding):
        if isinstance(baseline, RunningMean):
            baseline.value.fill_(0.7)
        made = self.expected_gradient(Elbo()(self.evaluation(baseline, padding=padding)).loss)
        assert largest_difference(made, gradient(self.objective(), self.leaves)) < 1e-10

    def test_dropping_later_rewards_would_be_biased(self):
        made = self.expected_gradient(Elbo()(self.evaluation(SoftAttention(), feeds_state=False)).loss)
        assert largest_difference(made, gradient(self.objective(), self.leaves)) > 1e-2

    @pytest.mark.parametrize("kl_weight", [0.0, 0.3])
    def test_later_kls_count_with_their_weight(self, kl_weight):
        made = self.expected_gradient(Elbo()(self.evaluation(SoftAttention()), {"attention": kl_weight}).loss)
        assert largest_difference(made, gradient(self.objective(kl_weight=kl_weight), self.leaves)) < 1e-10
        assert largest_difference(made, gradient(self.objective(), self.leaves)) > 1e-2

    def test_later_kls_count_with_their_floor(self):
        bound = Elbo(free_bits={"attention": FreeBits(0.6)})
        made = self.expected_gradient(bound(self.evaluation(NoBaseline())).loss)
        exact = gradient(self.objective(floor=0.6), self.leaves)
        assert largest_difference(made, exact) < 1e-10
        assert largest_difference(exact, gradient(self.objective(), self.leaves)) > 1e-2  # some KLs lie below it

    @pytest.mark.parametrize("weight", [1.0, 0.4])
    def test_the_kls_of_another_site_count_in_the_same_step_and_later(self, weight):
        evaluation = self.evaluation(SoftAttention(), has_other=True)
        made = self.expected_gradient(Elbo()(evaluation, {"context": weight}).loss)
        assert largest_difference(made, gradient(self.objective(other_weight=weight), self.leaves)) < 1e-10
        assert largest_difference(made, gradient(self.objective(), self.leaves)) > 1e-2

    def test_one_step_whose_draw_changes_the_next_site(self):
        """A hard choice of weights whose context a second site reads: no state is fed, and its KL changes."""
        script = torch.arange(self.positions).view(1, -1, 1)
        q = Scripted(self.posterior[0].expand(self.positions, 1, -1), Dense(), script)
        draw = ScoreFunction(1, NoBaseline())(q, q, SEED)
        other = receipt("context", one_particle(self.positions, 1), self.other_kl[0].unsqueeze(-1))
        evaluation = Evaluation(self.log_f[0].view(1, -1, 1), (receipt("attention", draw), other))
        probability = torch.softmax(self.posterior[0], dim=0)
        leaves = (self.posterior[0], self.log_f[0], self.other_kl[0])
        made = gradient(-(probability.detach() * Elbo()(evaluation).loss).sum(), leaves)
        exact = gradient((probability * (self.log_f[0] - self.other_kl[0])).sum(), leaves)
        assert largest_difference(made, exact) < 1e-10


class TestSharedLikelihood:
    """Several variables, one log-likelihood: what each is credited with, by enumeration of all combinations."""

    positions = 3

    def combinations(self, variables: int) -> Tensor:
        """(M, variables)."""
        return torch.tensor(list(itertools.product(range(self.positions), repeat=variables)))

    def test_heads_of_one_layer(self):
        """Two heads and two steps with the log-likelihood of the whole example: unit (B, H, T), log_lik (1, B)."""
        scores, table = leaf(2, 2, 3), leaf(3, 3, 3, 3, seed=1)
        chosen = self.combinations(4).view(-1, 2, 2)  # (M, H, T)
        q = Scripted(scores.expand(len(chosen), -1, -1, -1), Dense(), chosen.unsqueeze(0))
        draw = ScoreFunction(1, NoBaseline())(q, q, SEED)
        log_lik = table[tuple(chosen.flatten(1).T)].unsqueeze(0)
        for feeds_state in (False, True):
            latent = receipt("layer", draw, feeds_state=feeds_state)
            terms = Elbo()(Evaluation(log_lik, (latent,)))
            assert torch.equal(terms.bound, log_lik[0].detach())
            probability = torch.softmax(scores, dim=-1)
            weight = torch.ones(len(chosen), dtype=torch.float64)
            for place, (head, step) in enumerate(itertools.product(range(2), range(2))):
                weight = weight * probability[head, step][chosen.flatten(1)[:, place]]
            made = gradient(-(weight.detach() * terms.loss).sum(), (scores, table))
            exact = gradient((weight * log_lik[0]).sum(), (scores, table))
            assert largest_difference(made, exact) < 1e-10

    @pytest.mark.parametrize("baseline", [NoBaseline(), LeaveOneOut()], ids=["none", "leave one out"])
    def test_several_samples_of_two_heads(self, baseline: Baseline):
        scores, table = leaf(2, 3), leaf(3, 3, seed=1)
        pairs = self.combinations(4).view(-1, 2, 2)  # (M, K, H): two samples of two heads
        q = Scripted(scores.expand(len(pairs), -1, -1), Dense(), pairs.transpose(0, 1))
        draw = ScoreFunction(2, baseline)(q, q, SEED)
        log_lik = table[pairs[..., 0], pairs[..., 1]].T  # (K, M)
        terms = Elbo()(Evaluation(log_lik, (receipt("layer", draw),)))
        assert torch.allclose(terms.bound, log_lik.detach().mean(dim=0))  # one likelihood, not one per head
        probability = torch.softmax(scores, dim=-1)
        weight = (probability[0][pairs[..., 0]] * probability[1][pairs[..., 1]]).prod(dim=1)
        made = gradient(-(weight.detach() * terms.loss).sum(), (scores, table))
        exact = gradient((probability[0].outer(probability[1]) * table).sum(), (scores, table))
        assert largest_difference(made, exact) < 1e-10

    def test_importance_weights_of_a_memory(self):
        """Two positions of a memory are one particle: their log-probabilities add up before the logarithm."""
        scores, prior, table = leaf(2, 3), leaf(2, 3, seed=2), leaf(3, 3, seed=1)
        pairs = self.combinations(4).view(-1, 2, 2)
        q = Scripted(scores.expand(len(pairs), -1, -1), Dense(), pairs.transpose(0, 1))
        p = MaskedOneHot(prior.expand(len(pairs), -1, -1), Dense())
        draw = ScoreFunction(2, NoBaseline())(q, p, SEED)
        log_lik = table[pairs[..., 0], pairs[..., 1]].T.unsqueeze(-1) / 2.0  # (K, M, T): two equal steps
        log_lik = log_lik.expand(-1, -1, 2)
        terms = ImportanceWeighted()(Evaluation(log_lik, (receipt("memory", draw, kl(q, p), unit="example"),)))
        log_q, log_p = torch.log_softmax(scores, dim=-1), torch.log_softmax(prior, dim=-1)
        joint_q = log_q[0].unsqueeze(1) + log_q[1]
        log_weight = table + log_p[0].unsqueeze(1) + log_p[1] - joint_q  # (3, 3)
        each = torch.logsumexp(log_weight[pairs[..., 0], pairs[..., 1]], dim=1) - math.log(2)
        assert torch.allclose(terms.bound, each.detach())
        probability = joint_q[pairs[..., 0], pairs[..., 1]].sum(dim=1).exp()
        made = gradient(-(probability.detach() * terms.loss).sum(), (scores, prior, table))
        exact = gradient((probability * each).sum(), (scores, prior, table))
        assert largest_difference(made, exact) < 1e-10

    def test_two_hard_sites_of_which_one_has_a_soft_baseline(self):
        first, second, table = leaf(3), leaf(3, seed=2), leaf(3, 3, seed=1)
        soft = leaf(3, seed=3).detach()  # the first site's soft readout, which depends on the second's draw
        pairs = self.combinations(2)
        q1 = Scripted(first.expand(9, 1, -1), Dense(), pairs[:, :1].unsqueeze(0))
        q2 = Scripted(second.expand(9, 1, -1), Dense(), pairs[:, 1:].unsqueeze(0))
        draw1, draw2 = ScoreFunction(1, SoftAttention())(q1, q1, SEED), ScoreFunction(1, NoBaseline())(q2, q2, SEED)
        log_lik = torch.stack([table[tuple(pairs.T)], soft[pairs[:, 1]]]).unsqueeze(-1)  # (2, 9, 1)
        terms = Elbo()(Evaluation(log_lik, (receipt("first", draw1), receipt("second", draw2))))
        assert torch.equal(terms.bound, log_lik[0, :, 0].detach())
        probability = torch.softmax(first, dim=0).outer(torch.softmax(second, dim=0))
        leaves = (first, second, table)
        made = gradient(-(probability.detach().flatten() * terms.loss).sum(), leaves)
        assert largest_difference(made, gradient((probability * table).sum(), leaves)) < 1e-10

    @pytest.mark.parametrize("unit", ["step", "example"])
    def test_an_enumerated_site_beside_a_hard_one(self, unit):
        first, second, table = leaf(3), leaf(3, seed=2), leaf(3, 3, seed=1)
        q1 = MaskedOneHot(first.expand(3, -1), Dense())
        q2 = Scripted(second.expand(3, -1), Dense(), torch.arange(3).view(1, 3))
        draw1, draw2 = Enumerate()(q1, q1, SEED), ScoreFunction(1, NoBaseline())(q2, q2, SEED)
        log_lik = table[draw1.index[:, 0]]  # (K, B): rows are the enumerated positions, columns the samples
        latents = (receipt("first", draw1, unit=unit), receipt("second", draw2))
        terms = Elbo()(Evaluation(log_lik, latents))
        probability = torch.softmax(first, dim=0).outer(torch.softmax(second, dim=0))
        leaves = (first, second, table)
        made = gradient(-(torch.softmax(second.detach(), dim=0) * terms.loss).sum(), leaves)
        assert largest_difference(made, gradient((probability * table).sum(), leaves)) < 1e-10

    def test_a_code_of_an_example_changes_the_kls_of_its_steps(self):
        scores, table, divergence = leaf(3), leaf(3, 4, seed=1), leaf(3, 4, seed=2)
        q = Scripted(scores.expand(3, -1), Dense(), torch.arange(3).view(1, 3))
        draw = ScoreFunction(1, NoBaseline())(q, q, SEED)
        code = receipt("code", draw, unit="example", feeds_state=True)
        steps = receipt("steps", one_particle(3, 4), divergence, feeds_state=True)
        for latents in ((code, steps), (steps, code)):
            terms = Elbo()(Evaluation(table.unsqueeze(0), latents))
            probability = torch.softmax(scores, dim=0)
            leaves = (scores, table, divergence)
            made = gradient(-(probability.detach() * terms.loss).sum(), leaves)
            exact = gradient((probability * (table - divergence).sum(dim=-1)).sum(), leaves)
            assert largest_difference(made, exact) < 1e-10
