"""Lengths, forbidden tokens, and the messages about what a stepper returned."""

import pytest
import torch

from probattn.decoding import Constraints, MaxLength
from probattn.decoding.constraints import require_continuation, require_log_probs


def test_limits():
    lengths = torch.tensor([0, 3, 10])
    assert Constraints(bos=0, eos=1, max_length=7).limits(lengths).tolist() == [7, 7, 7]
    growing = MaxLength(factor=1.5, offset=2)
    assert Constraints(bos=0, eos=1, max_length=growing).limits(lengths).tolist() == [2, 6, 17]


def test_limits_leave_room_for_the_shortest_sentence():
    constraints = Constraints(bos=0, eos=1, max_length=MaxLength(factor=1.0, offset=0), min_length=4)
    assert constraints.limits(torch.tensor([0, 20])).tolist() == [5, 20]


def test_allow_bars_tokens_and_early_ends_in_a_copy():
    constraints = Constraints(bos=0, eos=1, max_length=9, min_length=2, forbidden=(0, 3))
    log_probs = torch.full((2, 5), -1.0)
    is_barred = constraints.allow(log_probs, 1) == -torch.inf
    assert is_barred.tolist() == [[True, True, False, True, False]] * 2
    is_barred = constraints.allow(log_probs, 2) == -torch.inf
    assert is_barred.tolist() == [[True, False, False, True, False]] * 2
    assert bool((log_probs == -1.0).all())


def test_allow_without_bars_is_still_a_copy():
    log_probs = torch.full((1, 3), -1.0)
    Constraints(bos=0, eos=1, max_length=9).allow(log_probs, 0).zero_()
    assert bool((log_probs == -1.0).all())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eos": -1}, "token numbers are at least 0"),
        ({"forbidden": (2, -3)}, "token numbers are at least 0"),
        ({"forbidden": (1,)}, r"EOS \(token 1\) is forbidden, so no sentence could end; use min_length"),
        ({"min_length": -1}, "min_length must be at least 0, got -1"),
        ({"max_length": 0}, "max_length counts EOS and must be above min_length, got 0 and 0"),
        ({"max_length": 5, "min_length": 5}, "must be above min_length, got 5 and 5"),
    ],
)
def test_impossible_constraints(arguments, message):
    with pytest.raises(ValueError, match=message):
        Constraints(**{"bos": 0, "eos": 1, "max_length": 9, **arguments})


@pytest.mark.parametrize(("factor", "offset"), [(-1.0, 3), (float("nan"), 3), (float("inf"), 3), (1.0, -1)])
def test_impossible_max_length(factor, offset):
    with pytest.raises(ValueError, match="needs a factor and an offset of at least 0"):
        MaxLength(factor=factor, offset=offset)


def test_tokens_outside_the_vocabulary():
    constraints = Constraints(bos=0, eos=1, max_length=9, forbidden=(7,))
    with pytest.raises(ValueError, match="name token 7, but the stepper has 5 tokens"):
        constraints.allow(torch.zeros(1, 5), 0)


def test_messages_name_sentence_and_step():
    with pytest.raises(ValueError, match="sentence 8 of the batch are NaN at step 3"):
        require_log_probs(torch.tensor([-1.0, float("nan")]), sentences=[4, 8], step=3)
    with pytest.raises(ValueError, match="got 2.5 for sentence 4 of the batch at step 3; apply log_softmax"):
        require_log_probs(torch.tensor([2.5, -1.0]), sentences=[4, 8], step=3)
    with pytest.raises(ValueError, match="no token may follow in sentence 8 of the batch at step 3"):
        require_continuation(torch.tensor([-1.0, -torch.inf]), sentences=[4, 8], step=3)


def test_rounding_above_zero_is_no_error():
    require_log_probs(torch.tensor([1e-6]), sentences=[0], step=0)
