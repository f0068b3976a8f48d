"""Baselines: the matrix from log-likelihoods to control variates, and the running mean's explicit update."""

import copy

import pytest
import torch

from probattn.core import (
    Baseline,
    Dense,
    Elbo,
    Evaluation,
    LeaveOneOut,
    NoBaseline,
    RunningMean,
    ScoreFunction,
    SoftAttention,
)
from probattn.distributions import MaskedOneHot
from tests.core.oracle import SEED, gradient, largest_difference, toy

LIKE = torch.zeros((), dtype=torch.float64)
LOG_LIK = torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64)
Q = MaskedOneHot(torch.tensor([[0.3, 0.1, 2.0]], requires_grad=True), Dense())
P = MaskedOneHot(torch.tensor([[1.3, 0.1, 0.0]], requires_grad=True), Dense())


def test_no_baseline():
    baseline = NoBaseline()
    assert baseline.particle(Q, P) is None and baseline.mixing(3, LIKE) is None and baseline.offset() is None


def test_soft_attention_is_the_last_particle():
    mixing = SoftAttention().mixing(2, LIKE)
    assert (mixing @ LOG_LIK).tolist() == [6.0, 6.0, 6.0]
    particle = SoftAttention().particle(Q, P)
    assert torch.equal(particle[0], P.plug_in) and not particle.requires_grad
    assert torch.equal(SoftAttention().particle(Q, None)[0], Q.plug_in)
    assert SoftAttention().offset() is None


def test_leave_one_out_is_the_mean_of_the_others():
    mixing = LeaveOneOut().mixing(3, LIKE)
    assert (mixing @ LOG_LIK).tolist() == [4.0, 3.5, 1.5]
    assert (mixing.diagonal() == 0).all() and mixing.dtype == torch.float64
    assert LeaveOneOut().particle(Q, P) is None and LeaveOneOut.min_samples == 2


@pytest.mark.parametrize("baseline", [NoBaseline(), SoftAttention(), LeaveOneOut(), RunningMean()])
def test_every_baseline_is_one(baseline):
    assert isinstance(baseline, Baseline)


@pytest.mark.parametrize("baseline", [NoBaseline(), SoftAttention(), LeaveOneOut(), RunningMean()])
def test_a_baseline_changes_no_bound_and_no_gradient_of_the_readout(baseline):
    model = toy(1)
    plain, made = (Elbo()(model.visit(ScoreFunction(2, b))) for b in (NoBaseline(), baseline))
    assert torch.allclose(plain.bound, made.bound)
    first, second = (gradient(terms.loss.sum(), model.parameters[2:]) for terms in (plain, made))
    assert largest_difference(first, second) < 1e-12


class TestRunningMean:
    def test_it_moves_only_by_update(self):
        baseline, model = RunningMean(0.9), toy(1)
        for _ in range(3):
            evaluation = model.visit(ScoreFunction(2, baseline))
            Elbo()(evaluation).loss.sum().backward()
        assert float(baseline.offset()) == 0.0 and not bool(baseline.is_started)
        baseline.update_(evaluation)
        mean = evaluation.log_lik[:, model.step_mask].mean().detach()
        assert float(baseline.offset()) == pytest.approx(float(mean))  # the first update sets it

    def test_later_updates_are_a_moving_average(self):
        baseline = RunningMean(0.9)
        for value in (-1.0, -3.0, -5.0):
            baseline.update_(Evaluation(torch.full((2, 3, 4), value)))
        assert float(baseline.offset()) == pytest.approx(0.9 * (0.9 * -1.0 + 0.1 * -3.0) + 0.1 * -5.0)

    def test_padded_steps_do_not_count(self):
        baseline = RunningMean()
        mask = torch.tensor([[True, True, False]])
        baseline.update_(Evaluation(torch.tensor([[[-1.0, -3.0, 77.0]]]), mask=mask))
        assert float(baseline.offset()) == -2.0

    def test_the_offset_of_a_draw_does_not_move_with_the_average(self):
        baseline = RunningMean()
        draw = ScoreFunction(1, baseline)(Q, P, SEED)
        baseline.update_(Evaluation(torch.full((1, 1), -9.0)))
        assert float(draw.baseline_offset) == 0.0 and float(baseline.offset()) == -9.0

    def test_state_dict_round_trip(self):
        baseline = RunningMean()
        baseline.update_(Evaluation(torch.full((1, 2), -4.0)))
        state = baseline.state_dict()
        assert set(state) == {"value", "is_started"}
        other = RunningMean()
        other.load_state_dict(state)
        for each in (baseline, other, copy.deepcopy(baseline)):
            each.update_(Evaluation(torch.full((1, 2), -5.0)))
            assert float(each.offset()) == pytest.approx(0.99 * -4.0 + 0.01 * -5.0)

    def test_it_subtracts_from_the_reward(self):
        model, baseline = toy(2), RunningMean()
        before = model.visit(ScoreFunction(1, baseline))
        baseline.update_(before)
        after = model.visit(ScoreFunction(1, baseline))
        draw = after.latents[0].draw
        advantage = (after.log_lik - baseline.offset()).detach().masked_fill(~model.step_mask, 0.0)
        expected = gradient(
            -(advantage * draw.score).sum() - after.log_lik.sum() + after.latents[0].kl[model.step_mask].sum(),
            model.parameters,
        )
        made = gradient(Elbo()(after).loss.sum(), model.parameters)
        assert largest_difference(made, expected) < 1e-12

    @pytest.mark.parametrize("decay", [-0.1, 1.0, 2.0])
    def test_decay(self, decay):
        with pytest.raises(ValueError, match=rf"RunningMean\(decay\) must lie in \[0, 1\), got {decay}"):
            RunningMean(decay)
