"""The update rule of aggressive encoders: bursts, their end, and where a resumed run finds them."""

import copy

import pytest

from probattn.training import Aggressive
from probattn.training.stage import HasLogs

RULE = Aggressive(encoder=("encoder.*",), others=("decoder.*",), max_burst=6, window=2, metric="mi")


def walk(rule: Aggressive, losses: list[float]) -> str:
    """First letters of what each step moved."""
    moved = ""
    for loss in losses:
        moved += rule.moves()[0][0]
        rule.after_update(loss)
    return moved


def test_a_burst_ends_after_its_longest_length() -> None:
    assert walk(copy.deepcopy(RULE), [float(-n) for n in range(15)]) == "eeeeeedeeeeeede"


def test_a_burst_ends_when_a_window_is_worse_than_the_one_before() -> None:
    # windows of two: means 5, 4, 4.5: the third is worse than the second
    assert walk(copy.deepcopy(RULE), [6.0, 4.0, 4.0, 4.0, 4.0, 5.0, 0.0, 0.0]) == "eeeeeede"
    assert walk(copy.deepcopy(RULE), [1.0, 1.0, 2.0, 2.0, 0.0, 0.0]) == "eeeede"


def test_falling_information_ends_it_for_good() -> None:
    rule = copy.deepcopy(RULE)
    for value in (0.5, 0.9, 0.9):
        rule.after_validation({"mi": value})
        assert not rule.is_over
    rule.after_validation({"mi": 0.8})
    assert rule.is_over and walk(rule, [1.0] * 3) == "***"
    rule.after_validation({"mi": 5.0})
    assert rule.is_over


def test_the_log_hears_which_steps_move_the_encoder_alone() -> None:
    rule = copy.deepcopy(RULE)
    assert isinstance(rule, HasLogs)
    heard = []
    for loss in range(8):
        heard.append((rule.moves()[0][0], rule.logs()["is_burst"]))
        rule.after_update(-float(loss))
    assert heard == [("e", 1.0)] * 6 + [("d", 0.0), ("e", 1.0)]
    rule.after_validation({"mi": 1.0})
    rule.after_validation({"mi": 0.5})
    assert rule.logs() == {"is_burst": 0.0}


def test_state_is_the_whole_position() -> None:
    rule = copy.deepcopy(RULE)
    walk(rule, [3.0, 2.0, 2.5])
    rule.after_validation({"mi": 1.0})
    other = copy.deepcopy(RULE)
    other.load_state_dict(copy.deepcopy(rule.state_dict()))
    losses = [2.0, 1.0, 4.0, 0.5, 0.1, 0.2, 0.3]
    assert walk(rule, losses) == walk(other, losses)
    assert rule.state_dict() == other.state_dict()


def test_bad_use_is_refused() -> None:
    with pytest.raises(KeyError, match="'mi'"):
        copy.deepcopy(RULE).after_validation({"ppl": 1.0})
    with pytest.raises(ValueError, match="at least 1"):
        Aggressive(encoder=("*",), others=("*",), window=0)
