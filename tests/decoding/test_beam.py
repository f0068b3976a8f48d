"""Beam search against enumeration of all sentences, and against a plain beam that never stops early."""

import math

import pytest
import torch

from probattn.decoding import (
    AveragePenalty,
    Constraints,
    MaxLength,
    NoPenalty,
    StopRule,
    WuPenalty,
    beam_search,
    greedy,
)
from tests.decoding.toys import BOS, EOS, ToyStepper, check_weights, enumerate_all, is_same, plain_beam

LIMIT = 5
EXHAUSTIVE = 3**4 * 4  # with three words, all candidates of the last of five steps
PLAIN = Constraints(bos=BOS, eos=EOS, max_length=LIMIT, forbidden=(BOS,))
ALL = [0, 1, 2, 3]

# the penalty, and the same written down once more without tensors
PENALTIES = [
    (NoPenalty(), lambda total, length: total),
    (AveragePenalty(), lambda total, length: total / length),
    (WuPenalty(), lambda total, length: total / ((5 + length) / 6)),
    (WuPenalty(alpha=0.6), lambda total, length: total / ((5 + length) / 6) ** 0.6),
    (WuPenalty(counts_bos=True), lambda total, length: total / ((5 + length + 1) / 6)),
    (WuPenalty(alpha=-0.5), lambda total, length: total * ((5 + length) / 6) ** 0.5),
]
by_penalty = pytest.mark.parametrize(("penalty", "score"), PENALTIES, ids=[repr(row[0]) for row in PENALTIES])
by_strength = pytest.mark.parametrize("strength", [0.0, 0.4])


@by_penalty
@by_strength
def test_wide_beam_equals_enumeration(penalty, score, strength):
    stepper = ToyStepper.random(1)
    options = {"constraints": PLAIN, "length_penalty": penalty, "eos_penalty": strength}
    found = beam_search(stepper, ALL, beam_size=EXHAUSTIVE, num_return=20, **options)
    for sentence in ALL:
        expected = enumerate_all(stepper, sentence, constraints=PLAIN, limit=LIMIT, score=score, strength=strength)
        assert len(found[sentence]) == 20
        assert all(map(is_same, expected, found[sentence]))
        for hypothesis in found[sentence]:
            check_weights(stepper, sentence, hypothesis)


def test_wide_beam_returns_everything_there_is():
    # 1 + 3 + 9 complete sentences of at most two words and 27 that were cut off
    stepper = ToyStepper.random(2)
    constraints = Constraints(bos=BOS, eos=EOS, max_length=3, forbidden=(BOS,))
    found = beam_search(stepper, ALL, constraints=constraints, beam_size=50, num_return=50)
    for sentence in ALL:
        expected = enumerate_all(stepper, sentence, constraints=constraints, limit=3, score=PENALTIES[0][1])
        assert len(found[sentence]) == 40 == len(expected)
        assert all(map(is_same, expected, found[sentence]))


@by_penalty
@by_strength
@pytest.mark.parametrize("beam_size", [1, 2, 3, 7])
def test_exact_stop_never_changes_a_result(penalty, score, strength, beam_size):
    constraints = Constraints(bos=BOS, eos=EOS, max_length=8, forbidden=(BOS,))
    for seed in range(3):
        stepper = ToyStepper.random(seed)
        num_return = (beam_size + 1) // 2
        options = {"length_penalty": penalty, "eos_penalty": strength, "constraints": constraints}
        found = beam_search(stepper, ALL, beam_size=beam_size, num_return=num_return, **options)
        for sentence in ALL:
            expected = plain_beam(
                stepper,
                sentence,
                constraints=constraints,
                limit=8,
                score=score,
                strength=strength,
                beam_size=beam_size,
            )
            assert len(found[sentence]) == num_return
            assert all(map(is_same, expected, found[sentence]))
            for hypothesis in found[sentence]:
                check_weights(stepper, sentence, hypothesis)


@pytest.mark.parametrize("beam_size", [2, 5])
def test_min_length_and_forbidden_tokens(beam_size):
    stepper = ToyStepper.random(3)
    constraints = Constraints(bos=BOS, eos=EOS, max_length=7, min_length=3, forbidden=(BOS, 4))
    found = beam_search(stepper, ALL, constraints=constraints, beam_size=beam_size, num_return=2)
    for sentence in ALL:
        expected = plain_beam(
            stepper, sentence, constraints=constraints, limit=7, score=PENALTIES[0][1], beam_size=beam_size
        )
        assert all(map(is_same, expected, found[sentence]))
        assert all(len(hypothesis.tokens) >= 3 and 4 not in hypothesis.tokens for hypothesis in found[sentence])


# Not among them: exact search with a length penalty or an EOS penalty. It may go on behind the first end, because a
# later one can have a higher score.
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("penalty", "strength", "stop_rule"),
    [
        (NoPenalty(), 0.0, StopRule.EXACT),
        (NoPenalty(), 0.4, StopRule.BEAM_ENDED),
        (AveragePenalty(), 0.0, StopRule.BEAM_ENDED),
        (WuPenalty(), 0.0, StopRule.BEST_ENDED),
        (WuPenalty(), 0.4, StopRule.BEST_ENDED),
    ],
    ids=str,
)
def test_a_beam_of_one_is_greedy(seed, penalty, strength, stop_rule):
    stepper = ToyStepper.random(seed)
    options = {"constraints": PLAIN, "length_penalty": penalty, "eos_penalty": strength}
    narrow = beam_search(stepper, ALL, beam_size=1, stop_rule=stop_rule, **options)
    for (hypothesis,), expected in zip(narrow, greedy(stepper, ALL, **options), strict=True):
        assert (hypothesis.tokens, hypothesis.is_complete) == (expected.tokens, expected.is_complete)
        assert (hypothesis.log_prob, hypothesis.score) == pytest.approx((expected.log_prob, expected.score))
        assert torch.equal(hypothesis.weights, expected.weights)


@by_penalty
def test_no_beam_beats_the_wide_one(penalty, score):
    for seed in range(4):
        stepper = ToyStepper.random(seed)
        options = {"constraints": PLAIN, "length_penalty": penalty}
        best = beam_search(stepper, ALL, beam_size=EXHAUSTIVE, **options)
        for beam_size in (1, 2, 4, 16):
            for (found,), (bound,) in zip(beam_search(stepper, ALL, beam_size=beam_size, **options), best, strict=True):
                assert bound.is_complete
                assert not found.is_complete or found.score <= bound.score + 1e-12


def two_paths():
    """Either EOS at once (0.6), or word 2 (0.4) and then 2, 2, EOS almost surely: better on average."""
    stepper = ToyStepper.random(num_sentences=1)
    rare = 1e-6
    stepper.log_probs[...] = torch.tensor([rare, 1 - 4 * rare, rare, rare, rare]).log()
    stepper.log_probs[0, 0] = torch.tensor([rare, 0.6, 0.4 - 3 * rare, rare, rare]).log()
    for code in (int("02", 5), int("022", 5)):
        stepper.log_probs[0, code] = torch.tensor([rare, rare, 1 - 4 * rare, rare, rare]).log()
    return stepper


def test_an_ended_hypothesis_can_be_beaten_later():
    stepper = two_paths()
    constraints = Constraints(bos=BOS, eos=EOS, max_length=20)
    options = {"constraints": constraints, "beam_size": 2}
    (average,), *_ = beam_search(stepper, [0], length_penalty=AveragePenalty(), **options)
    assert (average.tokens, average.is_complete) == ((2, 2, 2), True)
    assert average.score == pytest.approx(math.log(0.4) / 4, abs=1e-4)
    (plain,), *_ = beam_search(stepper, [0], **options)
    assert (plain.tokens, plain.log_prob) == ((), pytest.approx(math.log(0.6)))
    early = {**options, "length_penalty": AveragePenalty(), "stop_rule": StopRule.BEST_ENDED}
    assert beam_search(stepper, [0], **early)[0][0].tokens == ()


def test_stop_rules_stop_as_they_say():
    stepper = two_paths()
    options = {"constraints": Constraints(bos=BOS, eos=EOS, max_length=20), "beam_size": 2}

    def num_steps(**more):
        beam_search(stepper, [0], **options, **more)
        return len(stepper.rows_per_step)

    assert num_steps() == 1  # log 0.4 < log 0.6: nothing can beat the end
    assert num_steps(num_return=2) == 4  # the second result comes at step 4, and what is left is far below
    assert num_steps(stop_rule=StopRule.BEST_ENDED) == 1
    assert num_steps(stop_rule=StopRule.BEST_ENDED, num_return=2) > 1
    assert num_steps(stop_rule=StopRule.BEAM_ENDED) > 1  # two ends, though one result would do
    # exact and the average: log 0.4 / 4 is beaten by nothing that costs another 1e-6 and has at most 20 tokens
    assert num_steps(length_penalty=AveragePenalty()) == 4


def test_best_ended_waits_for_the_best_candidate():
    """EOS is second at step 0 and third at step 1, and leads at step 2 only."""
    stepper = ToyStepper.random(num_sentences=1)
    stepper.log_probs[...] = torch.tensor([0.01, 0.1, 0.6, 0.28, 0.01]).log()
    stepper.log_probs[0, 0] = torch.tensor([0.01, 0.3, 0.6, 0.08, 0.01]).log()
    stepper.log_probs[0, int("022", 5)] = torch.tensor([0.01, 0.96, 0.01, 0.01, 0.01]).log()
    options = {"constraints": PLAIN, "beam_size": 3, "stop_rule": StopRule.BEST_ENDED}
    ((best,),) = beam_search(stepper, [0], **options)
    assert (best.tokens, len(stepper.rows_per_step)) == ((2, 2), 3)


def test_sentences_that_ended_are_dropped():
    rare = 0.01
    stepper = ToyStepper.random(num_sentences=3)
    stepper.log_probs[...] = torch.tensor([rare, rare, 1 - 4 * rare, rare, rare]).log()
    for sentence, end in enumerate([1, 3, 2]):
        code = int("0" + "2" * end, 5) % 101
        stepper.log_probs[sentence, code] = torch.tensor([rare, 1 - 4 * rare, rare, rare, rare]).log()
    found = beam_search(stepper, [0, 1, 2], constraints=PLAIN, beam_size=2)
    assert [len(nbest[0].tokens) for nbest in found] == [1, 3, 2]
    # one row each at first, then two; each sentence leaves when its end is found
    assert stepper.rows_per_step == [3, 6, 4, 2]


@pytest.mark.parametrize("stop_rule", StopRule)
@pytest.mark.parametrize("seed", range(3))
def test_a_batch_equals_its_sentences_alone(stop_rule, seed):
    stepper = ToyStepper.random(seed)
    batch = [2, 0, 3, 3, 1]
    growing = Constraints(bos=BOS, eos=EOS, max_length=MaxLength(factor=1.0, offset=2), forbidden=(BOS,))
    options = {
        "constraints": growing,
        "beam_size": 4,
        "num_return": 3,
        "length_penalty": WuPenalty(),
        "eos_penalty": 0.3,
        "stop_rule": stop_rule,
    }
    together = beam_search(stepper, batch, **options)
    for sentence, nbest in zip(batch, together, strict=True):
        alone = beam_search(stepper, [sentence], **options)[0]
        assert nbest == alone
        assert all(torch.equal(one.weights, other.weights) for one, other in zip(nbest, alone, strict=True))


@by_penalty
@pytest.mark.parametrize("stop_rule", StopRule)
def test_results_are_sorted_and_differ(penalty, score, stop_rule):
    stepper = ToyStepper.random(5)
    options = {"constraints": PLAIN, "length_penalty": penalty, "stop_rule": stop_rule}
    for nbest in beam_search(stepper, ALL, beam_size=6, num_return=6, **options):
        keys = [(not hypothesis.is_complete, -hypothesis.score) for hypothesis in nbest]
        assert keys == sorted(keys)
        assert len({(hypothesis.tokens, hypothesis.is_complete) for hypothesis in nbest}) == len(nbest) == 6


def test_unfinished_sentences_only_fill_up():
    stepper = ToyStepper.random(num_sentences=1)
    stepper.log_probs[...] = torch.tensor([0.01, 0.05, 0.9, 0.03, 0.01]).log()
    constraints = Constraints(bos=BOS, eos=EOS, max_length=2)
    found = beam_search(stepper, [0], constraints=constraints, beam_size=3, num_return=3)[0]
    assert [(hypothesis.tokens, hypothesis.is_complete) for hypothesis in found] == [
        ((), True),
        ((2,), True),
        ((2, 2), False),  # far more probable than the two before it, but no sentence
    ]
    assert found[2].score == pytest.approx(2 * math.log(0.9))


def test_no_sentence_ends():
    stepper = ToyStepper.random(0)
    stepper.log_probs[..., EOS] = -torch.inf
    found = beam_search(stepper, ALL, constraints=PLAIN, beam_size=3, num_return=3, length_penalty=AveragePenalty())
    for nbest in found:
        assert [len(hypothesis.tokens) for hypothesis in nbest] == [LIMIT] * 3
        assert not any(hypothesis.is_complete for hypothesis in nbest)
        assert nbest[0].score == pytest.approx(nbest[0].log_prob / LIMIT)


def test_fewer_sentences_than_asked_for():
    stepper = ToyStepper.random(num_sentences=1)
    stepper.log_probs[...] = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0]).log()
    stepper.log_probs[0, 0] = torch.tensor([0.0, 0.5, 0.5, 0.0, 0.0]).log()
    found = beam_search(stepper, [0], constraints=PLAIN, beam_size=4, num_return=4)[0]
    assert sorted(hypothesis.tokens for hypothesis in found) == [(), (2,)]
    assert stepper.rows_per_step == [1, 4]


def test_what_follows_an_impossible_token_is_ignored():
    stepper = ToyStepper.random(num_sentences=1)
    stepper.log_probs[...] = torch.nan
    stepper.log_probs[0, 0] = torch.tensor([0.0, 0.5, 0.5, 0.0, 0.0]).log()
    stepper.log_probs[0, 2] = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0]).log()
    assert len(beam_search(stepper, [0], constraints=PLAIN, beam_size=4, num_return=2)[0]) == 2


def test_empty_batch_and_no_weights():
    stepper = ToyStepper.random(0)
    assert beam_search(stepper, [], constraints=PLAIN, beam_size=3) == []
    stepper.has_weights = False
    assert beam_search(stepper, [0], constraints=PLAIN, beam_size=3)[0][0].weights is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision(dtype):
    stepper = ToyStepper.random(0)
    stepper.log_probs = stepper.log_probs.to(dtype)
    rounded = ToyStepper(stepper.log_probs.double(), stepper.lengths)
    found, expected = (
        beam_search(toy, ALL, constraints=PLAIN, beam_size=4, num_return=2) for toy in (stepper, rounded)
    )
    assert found == expected  # sums are formed in float64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beam_size": 0}, "beam_size must be at least 1, got 0"),
        ({"beam_size": 2, "num_return": 3}, "num_return must lie between 1 and beam_size = 2, got 3"),
        ({"beam_size": 2, "num_return": 0}, "num_return must lie between 1 and beam_size = 2, got 0"),
        ({"beam_size": 2, "eos_penalty": -1.0}, "eos_penalty must be at least 0"),
    ],
)
def test_impossible_settings(arguments, message):
    with pytest.raises(ValueError, match=message):
        beam_search(ToyStepper.random(0), ALL, constraints=PLAIN, **arguments)


def test_all_tokens_forbidden():
    constraints = Constraints(bos=BOS, eos=EOS, max_length=6, min_length=2, forbidden=(0, 2, 3, 4))
    with pytest.raises(ValueError, match="no token may follow in sentence 0 of the batch at step 0"):
        beam_search(ToyStepper.random(0), ALL, constraints=constraints, beam_size=3)


@pytest.mark.parametrize("token", [EOS, 4])
def test_nan_names_the_sentence(token):
    stepper = ToyStepper.random(0)
    stepper.log_probs[2, 0, token] = torch.nan
    with pytest.raises(ValueError, match="sentence 1 of the batch are NaN at step 0"):
        beam_search(stepper, [0, 2, 1], constraints=PLAIN, beam_size=2)


def test_logits_are_recognised():
    stepper = ToyStepper.random(0)
    stepper.log_probs += 5.0
    with pytest.raises(ValueError, match="expected log-probabilities, got .* apply log_softmax"):
        beam_search(stepper, ALL, constraints=PLAIN, beam_size=2)
