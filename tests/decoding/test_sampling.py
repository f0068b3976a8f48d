"""Samples against exact probabilities of all sentences, and what they may not depend on."""

import math
from collections import Counter

import numpy as np
import pytest
import scipy.stats
import torch

from probattn.decoding import Constraints, sample, truncate_law
from probattn.decoding.sampling import _invert
from tests.decoding.toys import BOS, EOS, NUM_TOKENS, ToyStepper, check_weights, sequence_probabilities

FREE = Constraints(bos=BOS, eos=EOS, max_length=4)
ALL = [0, 1, 2, 3]
NUM_SAMPLES = 4000

LAWS = [
    {},
    {"temperature": 0.6},
    {"temperature": 1.7},
    {"top_k": 2},
    {"top_p": 0.7},
    {"temperature": 1.5, "top_k": 4, "top_p": 0.8},
]


def plain_law(log_probs, *, temperature=1.0, top_k=NUM_TOKENS, top_p=1.0, forbidden=()):
    """Probabilities of one row, token by token."""
    masses = [0.0 if token in forbidden else math.exp(value / temperature) for token, value in enumerate(log_probs)]
    order = sorted(range(len(masses)), key=lambda token: -masses[token])[:top_k]
    total, kept, mass = sum(masses[token] for token in order), [], 0.0
    for token in order:
        if mass / total < top_p:
            kept.append(token)
        mass += masses[token]
    total = sum(masses[token] for token in kept)
    return [masses[token] / total if token in kept else 0.0 for token in range(len(masses))]


def p_value(counts, probabilities, num_samples):
    """Chi-square test; rare sentences are put together."""
    assert sum(counts.values()) == num_samples
    assert set(counts) <= set(probabilities), "a sentence of probability zero was drawn"
    observed, expected, rare = [], [], [0, 0.0]
    for key, probability in probabilities.items():
        if probability * num_samples >= 8:
            observed.append(counts[key])
            expected.append(probability * num_samples)
        else:
            rare = [rare[0] + counts[key], rare[1] + probability * num_samples]
    if rare[1] > 0:
        observed.append(rare[0])
        expected.append(rare[1])
    return scipy.stats.chisquare(np.array(observed), np.array(expected)).pvalue


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_sentences_follow_their_exact_probabilities(law):
    stepper = ToyStepper.random(1, num_sentences=2)
    found = sample(stepper, [0, 1], constraints=FREE, num_samples=NUM_SAMPLES, seed=11, **law)
    for sentence, hypotheses in enumerate(found):
        exact = sequence_probabilities(stepper, sentence, limit=4, truncate=lambda row: plain_law(row, **law))
        probabilities = dict(exact)
        assert sum(probabilities.values()) == pytest.approx(1.0)
        counts = Counter((hypothesis.tokens, hypothesis.is_complete) for hypothesis in hypotheses)
        assert p_value(counts, probabilities, NUM_SAMPLES) > 1e-3
        for hypothesis in hypotheses[:50]:
            assert math.exp(hypothesis.score) == pytest.approx(probabilities[hypothesis.tokens, hypothesis.is_complete])


def test_the_test_sees_a_wrong_law():
    stepper = ToyStepper.random(1, num_sentences=1)
    found = sample(stepper, [0], constraints=FREE, num_samples=NUM_SAMPLES, seed=11, temperature=1.1)[0]
    counts = Counter((hypothesis.tokens, hypothesis.is_complete) for hypothesis in found)
    probabilities = dict(sequence_probabilities(stepper, 0, limit=4, truncate=plain_law))
    assert p_value(counts, probabilities, NUM_SAMPLES) < 1e-3


def test_forbidden_tokens_are_renormalised_and_ends_delayed():
    stepper = ToyStepper.random(2, num_sentences=1)
    constraints = Constraints(bos=BOS, eos=EOS, max_length=2, min_length=1, forbidden=(BOS, 3))
    found = sample(stepper, [0], constraints=constraints, num_samples=NUM_SAMPLES, seed=5)[0]
    first, exact = plain_law(stepper.law(0, ()), forbidden=(BOS, 3, EOS)), {}
    for word in (2, 4):
        for token, probability in enumerate(plain_law(stepper.law(0, (word,)), forbidden=(BOS, 3))):
            key = ((word,), True) if token == EOS else ((word, token), False)
            exact[key] = first[word] * probability
    exact = {key: probability for key, probability in exact.items() if probability > 0}
    counts = Counter((hypothesis.tokens, hypothesis.is_complete) for hypothesis in found)
    assert p_value(counts, exact, NUM_SAMPLES) > 1e-3


def test_log_prob_is_the_models():
    stepper = ToyStepper.random(3)
    for sentence, hypotheses in enumerate(sample(stepper, ALL, constraints=FREE, num_samples=5, seed=1, top_k=3)):
        for hypothesis in hypotheses:
            path = hypothesis.tokens + (EOS,) * hypothesis.is_complete
            total = sum(stepper.law(sentence, path[:n])[token] for n, token in enumerate(path))
            assert hypothesis.log_prob == pytest.approx(total)
            assert hypothesis.score >= hypothesis.log_prob - 1e-12
            check_weights(stepper, sentence, hypothesis)


def test_without_truncation_score_and_log_prob_agree():
    for hypotheses in sample(ToyStepper.random(3), ALL, constraints=FREE, num_samples=5, seed=1):
        for hypothesis in hypotheses:
            assert hypothesis.score == pytest.approx(hypothesis.log_prob)


def draw(stepper, batch, **options):
    return sample(stepper, batch, **{"constraints": FREE, "num_samples": 6, "seed": 3, **options})


def test_a_seed_gives_the_same_samples_again():
    stepper = ToyStepper.random(4)
    torch.manual_seed(1)
    first = draw(stepper, ALL)
    torch.manual_seed(2)
    assert draw(stepper, ALL) == first
    assert draw(stepper, ALL, seed=4) != first


def test_a_batch_equals_its_sentences_alone():
    stepper = ToyStepper.random(4)
    ids = [17, 4, 2**32 - 1, 0]
    together = draw(stepper, ALL, sentence_ids=ids)
    for sentence, number in enumerate(ids):
        alone = draw(stepper, [sentence], sentence_ids=[number])[0]
        assert together[sentence] == alone
        for one, other in zip(together[sentence], alone, strict=True):
            assert torch.equal(one.weights, other.weights)
    shuffled = draw(stepper, [3, 1], sentence_ids=[0, 4])
    assert shuffled == [together[3], together[1]]


def test_positions_are_the_default_ids():
    stepper = ToyStepper.random(4)
    assert draw(stepper, ALL) == draw(stepper, ALL, sentence_ids=ALL)
    assert draw(stepper, [1]) != draw(stepper, ALL)[1:2]


def test_the_same_sentence_under_two_ids_gives_other_samples():
    first, second, third = draw(ToyStepper.random(4), [2, 2, 2], sentence_ids=[5, 6, 5])
    assert first != second
    assert first == third


def test_more_samples_leave_the_first_ones_alone():
    stepper = ToyStepper.random(4)
    few, many = draw(stepper, ALL), draw(stepper, ALL, num_samples=9)
    assert [nbest[:6] for nbest in many] == few


def test_a_later_limit_leaves_complete_samples_alone():
    stepper = ToyStepper.random(4)
    longer = draw(stepper, ALL, constraints=Constraints(bos=BOS, eos=EOS, max_length=9))
    for short, long in zip(draw(stepper, ALL), longer, strict=True):
        for one, other in zip(short, long, strict=True):
            assert one == other if one.is_complete else one.tokens == other.tokens[:4]


def test_steps_and_samples_are_independent():
    # a model without memory: tokens of one sample, and of neighbouring samples, must not be correlated
    stepper = ToyStepper.random(num_sentences=1)
    stepper.log_probs[...] = torch.tensor([0.0, 0.0, 0.5, 0.5, 0.0]).log()
    constraints = Constraints(bos=BOS, eos=EOS, max_length=3)
    found = sample(stepper, [0], constraints=constraints, num_samples=NUM_SAMPLES, seed=0)[0]
    signs = torch.tensor([hypothesis.tokens for hypothesis in found]).double() * 2 - 5  # (N, 3), -1 or 1
    products = [signs[:, 0] * signs[:, 1], signs[:, 1] * signs[:, 2], signs[1:, 0] * signs[:-1, 0], signs[:, 0]]
    for product in products:
        assert abs(float(product.mean())) * math.sqrt(len(product)) < 3.5


def test_samples_that_ended_are_dropped():
    stepper = ToyStepper.random(4)
    found = draw(stepper, ALL)
    lengths = [len(hypothesis.tokens) + hypothesis.is_complete for nbest in found for hypothesis in nbest]
    assert stepper.rows_per_step == [sum(length > step for length in lengths) for step in range(max(lengths))]


def test_a_low_temperature_is_greedy_and_top_1_too():
    stepper = ToyStepper.random(6)
    for hypotheses in [*draw(stepper, ALL, temperature=1e-320), *draw(stepper, ALL, top_k=1)]:
        assert len(set(hypotheses)) == 1
        assert hypotheses[0].score == 0.0


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_truncate_law_row_by_row(law):
    log_probs = torch.randn(20, 9).log_softmax(-1)
    found = truncate_law(log_probs, **law)
    assert found.dtype == torch.float32
    assert truncate_law(log_probs.bfloat16(), **law).dtype == torch.float32
    expected = [plain_law(row, **{"top_k": 9, **law}) for row in log_probs.tolist()]
    torch.testing.assert_close(found.exp(), torch.tensor(expected))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_temperature_below_the_precision_is_the_limit(dtype):
    log_probs = torch.tensor([[0.2, 0.5, 0.3]], dtype=dtype).log()
    assert truncate_law(log_probs, temperature=1e-320).exp().tolist() == [[0.0, 1.0, 0.0]]


def test_top_p_keeps_the_smallest_set_that_reaches_the_mass():
    log_probs = torch.tensor([[0.0625, 0.5, 0.25, 0.1875]], dtype=torch.float64).log()
    for top_p, size in [(1e-9, 1), (0.5, 1), (0.51, 2), (0.75, 2), (0.76, 3), (1.0, 4)]:
        assert int((truncate_law(log_probs, top_p=top_p) > -torch.inf).sum()) == size


def test_top_k_keeps_k_tokens_under_ties():
    assert int((truncate_law(torch.zeros(1, 8), top_k=3) > -torch.inf).sum()) == 3
    assert int((truncate_law(torch.zeros(1, 8), top_k=99) > -torch.inf).sum()) == 8


@pytest.mark.parametrize("unit", [2.0**-53, 0.3, 1 - 2.0**-53])
def test_inversion_never_picks_an_impossible_token(unit):
    law = torch.tensor([[0.0, 0.3, 0.0, 0.7, 0.0]], dtype=torch.float64).log()
    token = int(_invert(law, torch.tensor([unit], dtype=torch.float64)))
    assert token == (1 if unit < 0.3 else 3)


def test_inversion_stays_inside_for_totals_that_are_not_quite_one():
    law = torch.randn(20_000, 7, dtype=torch.float64)
    law[:, -1] = -torch.inf
    law = law.log_softmax(-1) + 1e-15 * torch.randn(20_000, 1, dtype=torch.float64)
    totals = law.exp().sum(-1)
    assert (totals < 1).any() and (totals > 1).any()
    last = _invert(law, torch.full((20_000,), 1 - 2.0**-53, dtype=torch.float64))
    assert bool((last <= 5).all())


def test_empty_batch():
    assert draw(ToyStepper.random(0), []) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision(dtype):
    stepper = ToyStepper.random(0)
    stepper.log_probs = stepper.log_probs.to(dtype)
    rounded = ToyStepper(stepper.log_probs.double(), stepper.lengths)
    for nbest, expected in zip(draw(stepper, ALL), draw(rounded, ALL), strict=True):
        assert [hypothesis.tokens for hypothesis in nbest] == [hypothesis.tokens for hypothesis in expected]
        assert [hypothesis.score for hypothesis in nbest] == pytest.approx([item.score for item in expected], abs=1e-2)


@pytest.mark.parametrize("top_p", [0.01, 0.5, 0.9, 0.999])
def test_top_p_of_wide_rows_equals_a_full_sort(top_p):
    # flat and peaked rows together: for some of them many more tokens are needed than are looked at first
    spread = torch.tensor([[0.0], [0.1], [1.0], [3.0], [9.0], [30.0]])
    log_probs = (torch.randn(6, 500, dtype=torch.float64) * spread).log_softmax(-1)
    log_probs[0] = torch.arange(500).mul(-1e-3).log_softmax(-1)
    expected = [plain_law(row, top_k=500, top_p=top_p) for row in log_probs.tolist()]
    found = truncate_law(log_probs, top_p=top_p)
    torch.testing.assert_close(found.exp(), torch.tensor(expected, dtype=torch.float64))
    alone = torch.cat([truncate_law(row.unsqueeze(0), top_p=top_p) for row in log_probs])
    assert torch.equal(found, alone)


def test_top_p_keeps_ties_together():
    log_probs = torch.tensor([[0.4, 0.2, 0.2, 0.2]]).log()
    assert (truncate_law(log_probs, top_p=0.5) > -torch.inf).tolist() == [[True] * 4]
    assert (truncate_law(log_probs, top_p=0.3) > -torch.inf).tolist() == [[True, False, False, False]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_samples": 0}, "num_samples must be at least 1, got 0"),
        ({"temperature": 0.0}, r"temperature must be above 0 and finite, got 0.0; the limit 0 is greedy"),
        ({"temperature": float("nan")}, "temperature must be above 0"),
        ({"top_k": 0}, "top_k must be at least 1 or None, got 0"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, or None, got 0.0"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1, or None, got 1.5"),
        ({"sentence_ids": [1, 2]}, "expected 4 sentence_ids, one for each sentence, got 2"),
        ({"sentence_ids": [1, 2, -1, 3]}, "sentence_ids must lie between 0 and 4294967295"),
        (
            {"constraints": Constraints(bos=BOS, eos=EOS, max_length=3, min_length=1, forbidden=(0, 2, 3, 4))},
            "no token may follow in sentence 0 of the batch at step 0",
        ),
    ],
)
def test_impossible_settings(arguments, message):
    with pytest.raises(ValueError, match=message):
        draw(ToyStepper.random(0), ALL, **arguments)


def test_nan_names_the_sentence():
    stepper = ToyStepper.random(0)
    stepper.log_probs[2, 0, 4] = torch.nan
    with pytest.raises(ValueError, match="sentence 1 of the batch are NaN at step 0"):
        draw(stepper, [0, 2, 1])
