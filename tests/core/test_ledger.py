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
    Latent,
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
from probattn.core.ledger import Ledger, weighted_sum
from probattn.distributions import DiagonalGaussian, MaskedOneHot, kl
from tests.core.oracle import SEED, Scripted, gradient, largest_difference, receipt, toy


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


class TestUnits:
    def test_example_particles_sum_over_steps_first(self):
        draw, divergence = samples(3, 2)
        log_lik = leaf(3, 2, 4, seed=2)
        evaluation = Evaluation(log_lik, (receipt("z", draw, divergence, unit="example"),))
        total = log_lik.sum(dim=-1)
        ratio = draw.log_prior - draw.log_posterior
        expected = torch.logsumexp(total + ratio, dim=0) - math.log(3)
        assert torch.allclose(ImportanceWeighted()(evaluation).bound, expected)
        assert torch.allclose(Elbo()(evaluation).bound, total.mean(dim=0) - divergence)

    def test_an_example_latent_that_happens_to_have_the_shape_of_the_steps(self):
        """A memory with as many positions as there are steps is still one variable set per example."""
        draw, divergence = samples(3, 2, 4)
        log_lik = leaf(3, 2, 4, seed=2)
        mask = torch.tensor([[True, True, True, False], [True, True, False, False]])
        evaluation = Evaluation(log_lik, (receipt("memory", draw, divergence, unit="example"),), mask=mask)
        total = log_lik.masked_fill(~mask, 0.0).sum(dim=-1)
        ratio = (draw.log_prior - draw.log_posterior).sum(dim=-1)
        expected = torch.logsumexp(total + ratio, dim=0) - math.log(3)
        assert torch.allclose(ImportanceWeighted()(evaluation).bound, expected)
        terms = Elbo()(evaluation)
        assert torch.allclose(terms.kl["memory"], divergence.sum(dim=-1))  # the steps' mask is not the memory's
        assert torch.allclose(terms.bound, total.mean(dim=0) - divergence.sum(dim=-1))

    def test_padded_steps_do_not_count(self):
        model = toy(1)
        mask = model.step_mask
        divergence = leaf(3, 4, seed=3)
        draw = one_particle(3, 4)
        log_lik = leaf(1, 3, 4, seed=2)
        latent = Latent(
            "attention", "step", False, draw, divergence, SEED, penalties={"commitment": divergence.square()}
        )
        terms = Elbo()(Evaluation(log_lik, (latent,), mask=mask))
        masked = divergence.masked_fill(~mask, 0.0)
        assert torch.allclose(terms.kl["attention"], masked.sum(dim=-1))
        assert torch.allclose(terms.penalties["attention/commitment"], masked.square().sum(dim=-1))
        assert torch.allclose(terms.log_lik, log_lik[0].masked_fill(~mask, 0.0).sum(dim=-1))
        assert torch.allclose(-terms.loss, terms.log_lik - masked.sum(dim=-1) - masked.square().sum(dim=-1))

    @pytest.mark.parametrize("bound", [Elbo(), Marginal(), ImportanceWeighted(), WakeSleep()])
    def test_more_padded_steps_change_nothing(self, bound):
        estimator = ScoreFunction(3, NoBaseline()) if isinstance(bound, ImportanceWeighted | WakeSleep) else Enumerate()
        model = toy(1)
        evaluation = model.visit(estimator)
        wide = (
            torch.nn.functional.pad(model.prior_scores, (0, 0, 0, 3)),
            torch.nn.functional.pad(model.posterior_scores, (0, 0, 0, 3), value=2.0),
        )
        padded = type(model)(
            *wide,
            values=model.values,
            readout=model.readout,
            target=torch.nn.functional.pad(model.target, (0, 3)),
            memory_mask=model.memory_mask,
            step_mask=torch.nn.functional.pad(model.step_mask, (0, 3)),
        )
        first, second = bound(evaluation), bound(padded.visit(estimator))
        assert torch.allclose(first.bound, second.bound, rtol=0, atol=1e-12)
        assert torch.allclose(first.loss, second.loss, rtol=0, atol=1e-12)
        made = gradient(second.loss.sum(), model.parameters)
        assert largest_difference(made, gradient(first.loss.sum(), model.parameters)) < 1e-12

    def test_layers_with_heads_enter_by_their_kl(self):
        log_lik = leaf(1, 2, 3)
        layers = tuple(
            receipt(f"layer {n}", one_particle(2, 4, 3), leaf(2, 4, 3, seed=n), feeds_state=True) for n in (1, 2)
        )
        terms = Elbo()(Evaluation(log_lik, layers))
        expected = log_lik[0].sum(dim=-1) - sum(layer.kl.flatten(1).sum(dim=-1) for layer in layers)
        assert torch.allclose(terms.bound, expected) and set(terms.kl) == {"layer 1", "layer 2"}

    def test_a_site_that_is_visited_twice_adds_up(self):
        log_lik = leaf(1, 2, 3)
        visits = tuple(receipt("attention", one_particle(2, 3), leaf(2, 3, seed=n)) for n in (1, 2))
        terms = Elbo()(Evaluation(log_lik, visits))
        expected = sum(visit.kl.sum(dim=-1) for visit in visits)
        assert torch.allclose(terms.kl["attention"], expected)
        assert torch.allclose(terms.bound, log_lik[0].sum(dim=-1) - expected)

    def test_terms_are_detached_but_for_the_loss(self):
        latent = receipt("attention", one_particle(2, 3), leaf(2, 3, seed=1))
        terms = Elbo()(Evaluation(leaf(1, 2, 3), (latent,)))
        assert terms.loss.requires_grad
        assert not any(x.requires_grad for x in (terms.bound, terms.log_lik, *terms.kl.values()))
        assert terms.loss.shape == terms.bound.shape == terms.log_lik.shape == (2,)

    def test_no_latent_is_a_plain_likelihood(self):
        log_lik = leaf(1, 2, 3)
        for bound in (Elbo(), Marginal()):
            assert torch.equal(bound(Evaluation(log_lik)).bound, log_lik.detach()[0].sum(dim=-1))


class TestGraphs:
    """Rows are nodes; examples are graphs."""

    example = torch.tensor([0, 0, 1, 0, 1])

    def test_nodes_add_up_to_graphs(self):
        log_lik = leaf(1, 5)
        latent = receipt("attention", one_particle(5, 2), leaf(5, 2, seed=1), feeds_state=True)
        terms = Elbo()(Evaluation(log_lik, (latent,), example=self.example, num_examples=3))
        for graph in range(2):
            own = self.example == graph
            expected = log_lik[0, own].sum() - latent.kl[own].sum()
            assert float(terms.bound[graph]) == pytest.approx(float(expected.detach()))
        assert float(terms.bound[2]) == 0.0 and terms.bound.shape == (3,)
        fewer = Elbo()(Evaluation(log_lik, (latent,), example=self.example))
        assert torch.equal(fewer.bound, terms.bound[:2])

    def test_a_transductive_graph_is_one_example(self):
        log_lik = leaf(1, 5)
        terms = Elbo()(Evaluation(log_lik, example=torch.zeros(5, dtype=torch.int64)))
        assert terms.bound.shape == (1,) and float(terms.bound) == pytest.approx(float(log_lik.detach().sum()))

    def test_one_log_likelihood_per_graph_and_variables_per_node(self):
        log_lik = leaf(1, 3)  # the third graph has no node
        divergence = leaf(5, 2, seed=1)
        latent = receipt("attention", one_particle(5, 2), divergence, example=self.example)
        terms = Elbo()(Evaluation(log_lik, (latent,)))
        per_node = divergence.detach().sum(dim=-1)
        expected = torch.tensor([per_node[self.example == g].sum() for g in range(3)]).double()
        assert torch.allclose(terms.kl["attention"], expected)
        assert torch.allclose(terms.bound, log_lik.detach()[0] - expected)

    def test_units_of_one_example_do_not_leak_into_the_others(self):
        latent = receipt("attention", one_particle(2), torch.ones(2), example=torch.zeros(2, dtype=torch.int64))
        terms = Elbo()(Evaluation(torch.zeros(1, 3), (latent,)))
        assert terms.kl["attention"].tolist() == [2.0, 0.0, 0.0]

    @pytest.mark.parametrize("feeds_state", [False, True])
    def test_importance_weights_per_node_or_per_graph(self, feeds_state):
        """Draws that stay in their node compete per node; with one log-likelihood per graph they compete per graph."""
        draw, divergence = samples(3, 5)
        ratio = (draw.log_prior - draw.log_posterior).detach()
        log_lik = leaf(3, 5, seed=2)
        if not feeds_state:
            latent = receipt("attention", draw, divergence)
            evaluation = Evaluation(log_lik, (latent,), example=self.example)
            per_node = torch.logsumexp(log_lik.detach() + ratio, dim=0) - math.log(3)
            expected = [per_node[self.example == g].sum() for g in range(2)]
        else:
            latent = receipt("attention", draw, divergence, unit="example", feeds_state=True, example=self.example)
            evaluation = Evaluation(log_lik[:, :2], (latent,))
            expected = [
                torch.logsumexp(log_lik.detach()[:, g] + ratio[:, self.example == g].sum(dim=1), dim=0) - math.log(3)
                for g in range(2)
            ]
        assert torch.allclose(ImportanceWeighted()(evaluation).bound, torch.stack(expected))

    @pytest.mark.parametrize("per_graph", [False, True])
    def test_hard_draws_that_feed_other_nodes(self, per_graph):
        """Two nodes of one graph, each with a hard choice that changes the likelihood of both."""
        scores, table = leaf(2, 3), leaf(3, 3, 2, seed=1)
        pairs = torch.tensor(list(itertools.product(range(3), repeat=2)))  # (9, 2)
        example = torch.arange(9).repeat_interleave(2)  # nine graphs of two nodes
        q = Scripted(scores.repeat(9, 1), Dense(), pairs.flatten().unsqueeze(0))
        draw = ScoreFunction(1, NoBaseline())(q, q, SEED)
        per_node = table[tuple(pairs.T)]  # (9, 2)
        latent = receipt("attention", draw, feeds_state=True, example=example)
        if per_graph:
            evaluation = Evaluation(per_node.sum(dim=-1).unsqueeze(0), (latent,))
        else:
            evaluation = Evaluation(per_node.flatten().unsqueeze(0), (latent,), example=example)
        probability = torch.softmax(scores[0], dim=0).outer(torch.softmax(scores[1], dim=0))
        made = gradient(-(probability.detach().flatten() * Elbo()(evaluation).loss).sum(), (scores, table))
        exact = gradient((probability * table.sum(dim=-1)).sum(), (scores, table))
        assert largest_difference(made, exact) < 1e-10


class TestWeights:
    def evaluation(self) -> Evaluation:
        latents = (
            Latent("z", "example", False, one_particle(2), leaf(2, seed=1), SEED, penalties={"norm": leaf(2, seed=4)}),
            receipt("attention", one_particle(2, 3), leaf(2, 3, seed=2)),
        )
        return Evaluation(leaf(1, 2, 3), latents)

    def test_weights_change_the_loss_and_not_the_bound(self):
        evaluation = self.evaluation()
        plain, weighted = Elbo()(evaluation), Elbo()(evaluation, {"z": 0.5, "z/norm": 3.0, "attention": 0.0})
        z, attention = evaluation.latents
        log_lik = evaluation.log_lik[0].sum(dim=-1)
        assert torch.allclose(-weighted.loss, log_lik - 0.5 * z.kl - 3.0 * z.penalties["norm"])
        assert torch.allclose(-plain.loss, log_lik - z.kl - attention.kl.sum(dim=-1) - z.penalties["norm"])
        assert torch.equal(plain.bound, weighted.bound) and torch.equal(plain.kl["z"], weighted.kl["z"])
        assert torch.equal(plain.penalties["z/norm"], z.penalties["norm"])
        assert torch.allclose(plain.bound, log_lik - z.kl - attention.kl.sum(dim=-1))  # penalties are no part of it

    def test_weights_of_other_sites_reach_every_bound(self):
        model = toy(1)
        other = receipt("z", one_particle(3), leaf(3, seed=1), unit="example")
        for bound, estimator in (
            (Marginal(), Enumerate()),
            (ImportanceWeighted(), ScoreFunction(2, NoBaseline())),
            (WakeSleep(), ScoreFunction(2, NoBaseline())),
        ):
            evaluation = model.visit(estimator)
            evaluation = Evaluation(evaluation.log_lik, (*evaluation.latents, other), mask=evaluation.mask)
            plain, weighted = bound(evaluation), bound(evaluation, {"z": 0.25})
            assert torch.allclose(plain.loss - weighted.loss, 0.75 * other.kl)
            assert torch.equal(plain.bound, weighted.bound)
            assert set(plain.kl) == {"attention", "z"}

    @pytest.mark.parametrize("bound", [Elbo(), Marginal(), ImportanceWeighted(), WakeSleep()])
    def test_unknown_names(self, bound):
        message = r"no site is called \['weigths'\]; this evaluation has \['attention', 'z', 'z/norm'\]"
        with pytest.raises(KeyError, match=message):
            bound(self.evaluation(), {"weigths": 1.0})

    def test_unknown_free_bits(self):
        with pytest.raises(KeyError, match=r"no site is called \['q'\]"):
            Elbo(free_bits={"q": FreeBits(1.0)})(self.evaluation())


class TestParticles:
    def test_two_sites_with_several_particles(self):
        latents = tuple(receipt(name, samples(2, 3)[0], unit="example") for name in ("z", "attention"))
        with pytest.raises(ValueError, match=r"at most one site may carry several particles, got \['z', 'attention'\]"):
            Elbo()(Evaluation(torch.zeros(2, 3), latents))

    def test_numbers_of_particles_must_agree(self):
        latent = receipt("z", samples(2, 3)[0], unit="example")
        with pytest.raises(ValueError, match="log_lik has 4 particles, but site 'z' has 2"):
            Elbo()(Evaluation(torch.zeros(4, 3), (latent,)))
        with pytest.raises(ValueError, match="log_lik has 4 particles, but no site has more than one"):
            Elbo()(Evaluation(torch.zeros(4, 3), (receipt("z", one_particle(3)),)))

    @pytest.mark.parametrize("estimator", [ScoreFunction(2, NoBaseline()), Enumerate(), TopKAndSample(1)])
    def test_several_particles_on_a_site_that_feeds_the_state(self, estimator):
        model = toy(1)
        evaluation = model.visit(estimator)
        latent = receipt("attention", evaluation.latents[0].draw, feeds_state=True)
        with pytest.raises(ValueError, match="site 'attention' feeds the recurrence, so several particles per step"):
            Elbo()(Evaluation(evaluation.log_lik, (latent,)))
        with pytest.raises(ValueError, match=r"\(feeds_state=False\), or fold the particles into the batch and use"):
            Elbo()(Evaluation(evaluation.log_lik, (latent,)))

    def test_what_is_allowed_on_a_site_that_feeds_the_state(self):
        model = toy(1)
        for estimator in (ScoreFunction(1, SoftAttention()), Mean()):
            evaluation = model.visit(estimator)
            latent = receipt("attention", evaluation.latents[0].draw, feeds_state=True)
            Elbo()(Evaluation(evaluation.log_lik, (latent,)))
        draw, divergence = samples(4, 3)
        Elbo()(Evaluation(torch.zeros(4, 3, 5), (receipt("z", draw, divergence, unit="example", feeds_state=True),)))

    @pytest.mark.parametrize("estimator", [Enumerate(), TopKAndSample(1)])
    def test_enumeration_of_one_head_at_a_time(self, estimator):
        """Positions of different heads cannot be paired by their rank."""
        q = MaskedOneHot(random_heads(), Dense())
        draw = estimator(q, q, SEED)
        evaluation = Evaluation(torch.zeros(draw.num_particles, 2, 4), (receipt("layer", draw),))
        message = r"weights of the particles of site 'layer' differ between variables. An example has several of its"
        with pytest.raises(ValueError, match=message):
            Elbo()(evaluation)
        with pytest.raises(ValueError, match=r"of shape \(2, 3, 4\), so a particle is a sample of all of them"):
            Elbo()(evaluation)

    @pytest.mark.parametrize("bound", [Marginal(), ImportanceWeighted(), WakeSleep()])
    def test_two_sites_with_one_sample_each(self, bound):
        latents = tuple(receipt(name, samples(1, 3)[0], unit="example") for name in ("z", "attention"))
        message = r"sites \['z', 'attention'\] hold one particle each, so it is not clear which one this bound weights"
        with pytest.raises(ValueError, match=message):
            bound(Evaluation(torch.zeros(1, 3), latents))

    def test_an_enumerated_memory_of_one_position_beside_a_sample(self):
        q = MaskedOneHot(torch.zeros(3, 1, dtype=torch.float64), Dense())
        draw, divergence = samples(1, 3)
        log_lik = leaf(1, 3)
        latents = (receipt("z", draw, divergence, unit="example"), receipt("attention", Enumerate()(q, q, SEED)))
        assert torch.allclose(Marginal()(Evaluation(log_lik, latents)).bound, log_lik[0] - divergence)

    @pytest.mark.parametrize("bound", [Marginal(), ImportanceWeighted(), WakeSleep()])
    def test_hard_samples_of_a_second_site(self, bound):
        model = toy(1)
        estimator = Enumerate() if isinstance(bound, Marginal) else ScoreFunction(2, NoBaseline())
        evaluation = model.visit(estimator)
        hard = ScoreFunction(1, NoBaseline())(model.prior, model.prior, SEED)
        spoilt = Evaluation(evaluation.log_lik, (*evaluation.latents, receipt("second", hard)))
        message = f"{type(bound).__name__} gives the hard samples of site 'second' no gradient; use Elbo"
        with pytest.raises(ValueError, match=message):
            bound(spoilt)


def random_heads() -> Tensor:
    return leaf(2, 3, 4, 5).detach()


class TestWeightedSum:
    def test_zero_weight_times_infinity_is_zero(self):
        log_weight = torch.tensor([[0.0], [-math.inf]], requires_grad=True)
        log_lik = torch.tensor([[2.0], [-math.inf]], requires_grad=True)
        total = weighted_sum(log_weight, log_lik)
        total.sum().backward()
        assert total.tolist() == [2.0]
        assert torch.isfinite(log_weight.grad).all() and torch.isfinite(log_lik.grad).all()

    def test_nan_weights_are_not_hidden(self):
        assert torch.isnan(weighted_sum(torch.tensor([math.nan, 0.0]), torch.tensor([1.0, 1.0])))


def test_unit_of_a_latent():
    """in_unit_of: the step's likelihood for one variable per step, else the example's."""
    log_lik = leaf(1, 2, 3)
    step, code = receipt("a", one_particle(2, 3)), receipt("b", one_particle(2), unit="example")
    heads = receipt("c", one_particle(2, 4, 3))
    ledger = Ledger(Evaluation(log_lik, (step, code, heads)), {}, {})
    total = log_lik.sum(dim=-1)
    assert torch.equal(ledger.in_unit_of(step), log_lik)
    assert torch.equal(ledger.in_unit_of(code), total)
    assert torch.equal(ledger.in_unit_of(heads), total.view(1, 2, 1, 1).expand(1, 2, 4, 3))
