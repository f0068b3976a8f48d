"""Mixing over particles against sums of probabilities."""

import pytest
import torch

from probattn.decoding import mix_log_probs


def make(num_particles=3, rows=4, tokens=6):
    log_weight = torch.randn(num_particles, rows, dtype=torch.float64).log_softmax(0)
    log_probs = torch.randn(num_particles, rows, tokens, dtype=torch.float64).log_softmax(-1)
    return log_weight, log_probs


def test_is_the_sum_of_weighted_probabilities():
    log_weight, log_probs = make()
    expected = torch.einsum("kr,krv->rv", log_weight.exp(), log_probs.exp())
    torch.testing.assert_close(mix_log_probs(log_weight, log_probs).exp(), expected)
    torch.testing.assert_close(expected.sum(-1), torch.ones(4, dtype=torch.float64))


def test_one_particle_is_no_mixture():
    _, log_probs = make(1)
    torch.testing.assert_close(mix_log_probs(torch.zeros(1, 4, dtype=torch.float64), log_probs), log_probs[0])


def test_is_stable_where_probabilities_underflow():
    log_probs = torch.tensor([[[-2000.0]], [[-2001.0]]])
    mixed = mix_log_probs(torch.tensor([[0.5], [0.5]]).log(), log_probs)
    assert mixed.item() == pytest.approx(-2000.0 + torch.tensor(0.5 * (1 + torch.e**-1)).log().item(), abs=1e-3)


def test_weights_are_used_as_they_are():
    log_weight, log_probs = make()
    torch.testing.assert_close(mix_log_probs(log_weight - 1.0, log_probs), mix_log_probs(log_weight, log_probs) - 1.0)


def test_tokens_without_probability_stay_at_minus_infinity():
    log_weight, log_probs = make()
    log_probs[:, 1, 2] = -torch.inf  # in all particles
    log_probs[0, 1, 3] = -torch.inf  # in one
    mixed = mix_log_probs(log_weight, log_probs)
    assert mixed[1, 2] == -torch.inf
    assert torch.isfinite(mixed).sum() == mixed.numel() - 1


def test_a_particle_without_weight_is_out_even_if_it_is_nan():
    log_weight, log_probs = make()
    log_weight[1] = -torch.inf
    log_probs[1] = torch.nan
    torch.testing.assert_close(mix_log_probs(log_weight, log_probs), mix_log_probs(log_weight[::2], log_probs[::2]))
    assert bool((mix_log_probs(torch.full_like(log_weight, -torch.inf), log_probs) == -torch.inf).all())


def test_nan_of_a_particle_with_weight_is_not_hidden():
    log_weight, log_probs = make()
    log_probs[1, 2, 3] = torch.nan
    assert torch.isnan(mix_log_probs(log_weight, log_probs)).nonzero().tolist() == [[2, 3]]


@pytest.mark.parametrize(
    ("weight_shape", "message"),
    [((4, 3), "got \\(4, 3\\) and \\(3, 4, 6\\)"), ((3,), "expected log_weight of shape \\(K, R\\)")],
)
def test_shapes_are_checked(weight_shape, message):
    with pytest.raises(ValueError, match=message):
        mix_log_probs(torch.zeros(weight_shape), torch.zeros(3, 4, 6))


def test_no_particle():
    with pytest.raises(ValueError, match="needs at least one particle"):
        mix_log_probs(torch.zeros(0, 4), torch.zeros(0, 4, 6))
