"""Greedy decoding against a loop over single sentences."""

import pytest
import torch

from probattn.core import Mean
from probattn.decoding import AveragePenalty, Constraints, MaxLength, WuPenalty, greedy
from tests.decoding.toys import BOS, EOS, ToyStepper, allowed, check_weights, eos_cost

PLAIN = Constraints(bos=BOS, eos=EOS, max_length=6, forbidden=(BOS,))
ALL = [0, 1, 2, 3]
ENDS = [0, 2, 2, 4]  # words of each sentence of `stepper_that_ends`


def plain_greedy(stepper, sentence, *, constraints=PLAIN, limit=6, strength=0.0):
    """(tokens, log-probability, with penalty, is complete)."""
    tokens, log_prob = (), 0.0
    while len(tokens) < limit:
        law = stepper.law(sentence, tokens)
        cost = eos_cost(strength, int(stepper.lengths[sentence]), len(tokens))
        _, best = max((law[token] - cost * (token == EOS), token) for token in allowed(constraints, len(tokens)))
        log_prob += law[best]
        if best == EOS:
            return tokens, log_prob, log_prob - cost, True
        tokens = (*tokens, best)
    return tokens, log_prob, log_prob, False


def stepper_that_ends(ends=ENDS):
    """Sentence s has ends[s] words 2 and then EOS."""
    stepper = ToyStepper.random()
    stepper.log_probs[...] = torch.tensor([0.02, 0.02, 0.92, 0.02, 0.02]).log()
    for sentence, end in enumerate(ends):
        code = int("0" + "2" * end, 5) % stepper.log_probs.shape[1]
        stepper.log_probs[sentence, code] = torch.tensor([0.02, 0.92, 0.02, 0.02, 0.02]).log()
    return stepper


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("strength", [0.0, 0.5])
@pytest.mark.parametrize("min_length", [0, 3])
def test_equals_a_loop(seed, strength, min_length):
    stepper = ToyStepper.random(seed)
    constraints = Constraints(bos=BOS, eos=EOS, max_length=6, min_length=min_length, forbidden=(BOS, 3))
    hypotheses = greedy(stepper, ALL, constraints=constraints, eos_penalty=strength)
    for sentence, hypothesis in zip(ALL, hypotheses, strict=True):
        expected = plain_greedy(stepper, sentence, constraints=constraints, strength=strength)
        assert (hypothesis.tokens, hypothesis.is_complete) == (expected[0], expected[3])
        assert (hypothesis.log_prob, hypothesis.score) == pytest.approx(expected[1:3])
        check_weights(stepper, sentence, hypothesis)


def test_length_penalty_divides_the_score_only():
    stepper = stepper_that_ends()
    plain = greedy(stepper, ALL, constraints=PLAIN)
    averaged = greedy(stepper, ALL, constraints=PLAIN, length_penalty=AveragePenalty())
    for hypothesis, before in zip(averaged, plain, strict=True):
        assert hypothesis.tokens == before.tokens
        assert hypothesis.score == pytest.approx(before.log_prob / (len(before.tokens) + 1))
    short = greedy(stepper, [3], constraints=Constraints(bos=BOS, eos=EOS, max_length=2), length_penalty=WuPenalty())[0]
    assert not short.is_complete
    assert short.score == pytest.approx(short.log_prob / (7 / 6))  # two words, no EOS


def test_rows_that_ended_are_dropped():
    stepper = stepper_that_ends()
    hypotheses = greedy(stepper, ALL, constraints=PLAIN)
    assert [len(hypothesis.tokens) for hypothesis in hypotheses] == ENDS
    assert stepper.rows_per_step == [4, 3, 3, 1, 1]


def test_maximal_length_by_sentence():
    stepper = stepper_that_ends([99] * 4)
    stepper.lengths = torch.tensor([3, 5, 4, 3])
    constraints = Constraints(bos=BOS, eos=EOS, max_length=MaxLength(factor=2.0, offset=0))
    hypotheses = greedy(stepper, ALL, constraints=constraints)
    assert [len(hypothesis.tokens) for hypothesis in hypotheses] == [6, 10, 8, 6]
    assert not any(hypothesis.is_complete for hypothesis in hypotheses)


def test_eos_may_be_the_last_allowed_token():
    hypothesis = greedy(stepper_that_ends(), [1], constraints=Constraints(bos=BOS, eos=EOS, max_length=3))[0]
    assert (hypothesis.tokens, hypothesis.is_complete) == ((2, 2), True)


@pytest.mark.parametrize("seed", range(4))
def test_a_batch_equals_its_sentences_alone(seed):
    stepper = ToyStepper.random(seed)
    batch = [2, 0, 3, 3, 1]
    together = greedy(stepper, batch, constraints=PLAIN, eos_penalty=0.3)
    for sentence, hypothesis in zip(batch, together, strict=True):
        alone = greedy(stepper, [sentence], constraints=PLAIN, eos_penalty=0.3)[0]
        assert hypothesis == alone
        assert torch.equal(hypothesis.weights, alone.weights)


def test_empty_batch_and_no_weights():
    stepper = stepper_that_ends()
    assert greedy(stepper, [], constraints=PLAIN) == []
    stepper.has_weights = False
    assert greedy(stepper, [0], constraints=PLAIN)[0].weights is None


def test_estimators_reach_the_stepper():
    stepper = stepper_that_ends()
    greedy(stepper, [0], constraints=PLAIN, estimators={"alignment": Mean()})
    assert stepper.estimators == {"alignment": Mean()}
    greedy(stepper, [0], constraints=PLAIN)
    assert stepper.estimators == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision(dtype):
    stepper = stepper_that_ends()
    stepper.log_probs = stepper.log_probs.to(dtype)
    assert [len(hypothesis.tokens) for hypothesis in greedy(stepper, ALL, constraints=PLAIN)] == ENDS


def test_nan_names_the_sentence():
    stepper = stepper_that_ends()
    stepper.log_probs[3, int("022", 5), 4] = torch.nan
    with pytest.raises(ValueError, match="sentence 2 of the batch are NaN at step 2"):
        greedy(stepper, [0, 0, 3], constraints=PLAIN)


def test_logits_are_recognised():
    stepper = stepper_that_ends()
    stepper.log_probs += 5.0
    with pytest.raises(ValueError, match="expected log-probabilities, got .* apply log_softmax"):
        greedy(stepper, ALL, constraints=PLAIN)


def test_all_tokens_forbidden():
    constraints = Constraints(bos=BOS, eos=EOS, max_length=6, min_length=2, forbidden=(0, 2, 3, 4))
    with pytest.raises(ValueError, match="no token may follow in sentence 0 of the batch at step 0"):
        greedy(stepper_that_ends(), ALL, constraints=constraints)


def test_wrong_shapes():
    class Flat(ToyStepper):
        def step(self, state, tokens):
            log_probs, state = super().step(state, tokens)
            return log_probs[:1], state

    class Thin(ToyStepper):
        def weights(self, state):
            return state.weights[:1]

    toy = stepper_that_ends()
    with pytest.raises(ValueError, match=r"a step of 4 rows must return \(4, V\), got \(1, 5\)"):
        greedy(Flat(toy.log_probs, toy.lengths), ALL, constraints=PLAIN)
    with pytest.raises(ValueError, match=r"weights of 4 rows must have shape \(4, S\), got \(1, "):
        greedy(Thin(toy.log_probs, toy.lengths), ALL, constraints=PLAIN)
