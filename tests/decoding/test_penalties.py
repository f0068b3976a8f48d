"""Length and EOS penalties against numbers computed by hand, and the bound of the exact stop rule."""

import pytest
import torch

from probattn.decoding import AveragePenalty, NoPenalty, WuPenalty
from probattn.decoding.penalties import Scoring

LENGTH = torch.tensor([1.0, 4.0, 7.0], dtype=torch.float64)


@pytest.mark.parametrize(
    ("penalty", "divisor"),
    [
        (NoPenalty(), [1.0, 1.0, 1.0]),
        (AveragePenalty(), [1.0, 4.0, 7.0]),
        (WuPenalty(), [1.0, 1.5, 2.0]),
        (WuPenalty(alpha=2.0), [1.0, 2.25, 4.0]),
        (WuPenalty(alpha=0.0), [1.0, 1.0, 1.0]),
        (WuPenalty(counts_bos=True), [7 / 6, 10 / 6, 13 / 6]),
    ],
    ids=repr,
)
def test_divisors(penalty, divisor):
    torch.testing.assert_close(penalty(LENGTH), torch.tensor(divisor, dtype=torch.float64))


def build(length_penalty, eos_penalty=0.0, limits=(6, 4)):
    return Scoring.build(
        torch.tensor([10, 3]), torch.tensor(limits), length_penalty=length_penalty, eos_penalty=eos_penalty
    )


def test_eos_costs_by_hand():
    # 3 * src_len / (cur_len + 1): a source of 10, EOS as the first token: cur_len is 1 (BOS), so 15
    scoring = build(NoPenalty(), 3.0)
    assert scoring.eos_cost[0, 1:].tolist() == pytest.approx([15.0, 10.0, 7.5, 6.0, 5.0, 30 / 7])
    assert scoring.eos_cost[1, 2] == pytest.approx(3.0)


def test_no_eos_cost_by_default():
    assert not build(WuPenalty()).eos_cost.any()


@pytest.mark.parametrize("penalty", [NoPenalty(), AveragePenalty(), WuPenalty(), WuPenalty(alpha=-1.0)], ids=repr)
@pytest.mark.parametrize("strength", [0.0, 2.0])
@pytest.mark.parametrize("num_tokens", [1, 3])
def test_attainable_is_the_maximum_over_all_ends(penalty, strength, num_tokens):
    scoring = build(penalty, strength)
    log_prob = torch.tensor([-2.0, -1.5], dtype=torch.float64)
    expected = [
        max(
            (float(log_prob[row]) - strength * source / (length + 1)) / float(penalty(torch.tensor(float(length))))
            for length in range(num_tokens + 1, limit + 1)
        )
        for row, (source, limit) in enumerate([(10, 6), (3, 4)])
    ]
    attained = scoring.best_attainable(log_prob, torch.tensor([0, 1]), num_tokens=num_tokens)
    assert attained.tolist() == pytest.approx(expected, rel=1e-6)


def test_nothing_is_attainable_behind_the_limit():
    scoring = build(NoPenalty())
    log_prob = torch.tensor([-2.0, -1.5], dtype=torch.float64)
    both = torch.tensor([0, 1])
    assert scoring.best_attainable(log_prob, both, num_tokens=4).tolist() == [-2.0, -torch.inf]
    assert scoring.best_attainable(log_prob, both, num_tokens=6).tolist() == [-torch.inf, -torch.inf]


def test_a_penalty_must_be_positive():
    with pytest.raises(ValueError, match="must give one positive finite number for each length from 1 to 6"):
        build(lambda length: length - 3.0)


@pytest.mark.parametrize("strength", [-1.0, float("nan"), float("inf")])
def test_eos_penalty_must_not_be_negative(strength):
    with pytest.raises(ValueError, match="eos_penalty must be at least 0 and finite"):
        build(NoPenalty(), strength)
