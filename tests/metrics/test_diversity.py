"""Diversity of generated texts: examples by hand, sacrebleu as a second opinion, properties, what is refused."""

import math
from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import sacrebleu.metrics

from probattn.metrics import (
    corpus_distinct,
    corpus_unigram_entropy,
    distinct,
    distinct_of_joined,
    repetition,
    self_bleu,
    unigram_entropy,
)

TEXT = st.lists(st.sampled_from("abcd"), max_size=7).map(" ".join)
SAMPLES = st.lists(st.lists(TEXT, min_size=3, max_size=3), min_size=1, max_size=4)
OF_SOURCES: dict[str, Callable[[Any], float]] = {
    "unigram_entropy": unigram_entropy,
    "distinct": lambda samples: distinct(samples, 1),
    "distinct_of_joined": lambda samples: distinct_of_joined(samples, 2),
    "self_bleu": lambda samples: self_bleu(samples).score,
}
OF_TEXTS: dict[str, Callable[[Any], float]] = {
    "corpus_unigram_entropy": corpus_unigram_entropy,
    "corpus_distinct": lambda texts: corpus_distinct(texts, 2),
    "repetition": lambda texts: repetition(texts, 2),
}


# By hand


def test_entropy_is_taken_per_source_and_averaged() -> None:
    # a 2, b 1, c 1 of 4 words; one word only
    assert unigram_entropy([["a b", "a c"], ["d", "d"]]) == pytest.approx(1.5 * math.log(2.0) / 2)
    assert corpus_unigram_entropy(["a b", "a c", "d", "d"]) == pytest.approx(math.log(3.0) / 3 * 2 + math.log(6.0) / 3)


def test_distinct_is_taken_per_source_and_averaged() -> None:
    samples = [["a b c", "a b d"], ["a b", "a b"]]
    assert distinct(samples, 1) == pytest.approx((4 / 6 + 2 / 4) / 2)
    assert distinct(samples, 2) == pytest.approx((3 / 4 + 1 / 2) / 2)
    assert corpus_distinct([text for of_source in samples for text in of_source], 2) == pytest.approx(3 / 6)


def test_distinct_as_released_crosses_samples_and_divides_by_words() -> None:
    # a b c a b d: ab, bc, ca, bd of 6 words; a b a b: ab, ba of 4
    assert distinct_of_joined([["a b c", "a b d"], ["a b", "a b"]], 2) == pytest.approx((4 / 6 + 2 / 4) / 2)


def test_self_bleu_by_hand() -> None:
    # "a b c" against "a b d": 2 of 3, 1 of 2, then half of 1; effective order 3
    one = 100.0 * (2 / 3 * 1 / 2 * 1 / 2) ** (1 / 3)
    assert self_bleu([["a b c", "a b d"]]).score == pytest.approx(one, abs=1e-3)


def test_repetition_by_hand() -> None:
    assert repetition(["a b a b a b", "a b c"], 2) == pytest.approx((3 / 5 + 0) / 2)
    assert repetition(["a a a a"], 1) == pytest.approx(3 / 4)
    assert repetition(["a b c a b c a"], 4) == pytest.approx(1 / 4)


# Empty texts


@pytest.mark.parametrize("name", ["unigram_entropy", "distinct", "distinct_of_joined"])
def test_silence_counts_as_no_diversity(name: str) -> None:
    function = OF_SOURCES[name]
    assert function([["", ""]]) == 0.0
    assert function([["a b c", "d e f"], ["", "  "]]) == pytest.approx(function([["a b c", "d e f"]]) / 2)


@pytest.mark.parametrize("function", OF_TEXTS.values(), ids=list(OF_TEXTS))
def test_texts_without_ngrams(function: Callable[[Any], float]) -> None:
    assert function([""]) == 0.0


def test_empty_texts_add_nothing_to_a_source_that_speaks() -> None:
    assert unigram_entropy([["a b", ""]]) == unigram_entropy([["a b"]])
    assert distinct([["a b a", ""]], 2) == distinct([["a b a"]], 2)


def test_self_bleu_of_empty_texts() -> None:
    assert self_bleu([["", "  "]]).score == 100.0
    assert self_bleu([["", "a b"]]).score == 0.0
    assert self_bleu([["", "", "a b c d"]]).score == pytest.approx(200 / 3, abs=1e-3)


def test_self_bleu_computes_nothing_for_samples_that_are_there_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    compute = sacrebleu.metrics.BLEU.sentence_score

    def counted(metric: Any, text: str, others: list[str]) -> Any:
        asked.append(text)
        return compute(metric, text, others)

    monkeypatch.setattr(sacrebleu.metrics.BLEU, "sentence_score", counted)
    found = self_bleu([["who is it ?"] * 9 + ["who is he ?"], ["a  b"] * 5 + ["a b"] * 5])
    assert [text for text in asked if text] == ["who is he ?"]
    assert 95.0 < found.score < 100.0 and "nrefs:9" in found.signature
    assert "nrefs:2" in self_bleu([["a b", "a b", "a b"]]).signature


# Properties


@pytest.mark.parametrize("copies", [2, 5])
def test_equal_samples(copies: int) -> None:
    samples = [["what is a dog ?"] * copies]
    assert unigram_entropy(samples) == pytest.approx(math.log(5.0))
    assert distinct(samples, 1) == distinct(samples, 2) == 1 / copies
    assert self_bleu(samples).score == 100.0


@hypothesis.given(samples=SAMPLES)
@hypothesis.settings(deadline=None)
def test_ranges_and_order_of_samples(samples: list[list[str]]) -> None:
    shuffled = [of_source[::-1] for of_source in samples][::-1]
    words = max(sum(len(text.split()) for text in of_source) for of_source in samples)
    ceilings = {"unigram_entropy": math.log(max(words, 1)), "self_bleu": 100.0}
    for name, function in OF_SOURCES.items():
        value = function(samples)
        assert 0.0 <= value <= ceilings.get(name, 1.0) + 1e-12
        if name != "distinct_of_joined":  # joined texts depend on who follows whom
            assert function(shuffled) == pytest.approx(value, abs=1e-3)
    assert distinct_of_joined(samples, 1) == pytest.approx(distinct(samples, 1))


@hypothesis.given(samples=SAMPLES)
@hypothesis.settings(deadline=None)
def test_self_bleu_is_the_mean_of_sacrebleu(samples: list[list[str]]) -> None:
    metric = sacrebleu.metrics.BLEU(tokenize="none", force=True, effective_order=True)
    scores = []
    for of_source in samples:
        for number, text in enumerate(of_source):
            others = [other for place, other in enumerate(of_source) if place != number]
            score = metric.sentence_score(text, others).score
            scores.append(100.0 if not text and "" in others else score)
    result = self_bleu(samples)
    assert result.score == pytest.approx(sum(scores) / len(scores), abs=1e-4)
    assert result.signature == str(metric.get_signature())
    assert "nrefs:2" in result.signature and "smooth:exp" in result.signature


@hypothesis.given(text=TEXT, order=st.integers(1, 4))
def test_repetition_and_distinct_of_one_text_are_complements(text: str, order: int) -> None:
    has_ngrams = len(text.split()) >= order
    assert repetition([text], order) + corpus_distinct([text], order) == pytest.approx(1.0 if has_ngrams else 0.0)


# What is refused


@pytest.mark.parametrize("function", OF_SOURCES.values(), ids=list(OF_SOURCES))
@pytest.mark.parametrize(
    ("samples", "came"),
    [
        ([], "got nothing"),
        ("a b", "got a string"),
        (["a b", "c d"], "got a list of str; a single output per source goes into a list of its own"),
        ([["a b", "c"], []], "got a list of an empty list, list"),
    ],
)
def test_bad_sources(function: Callable[[Any], float], samples: Any, came: str) -> None:
    with pytest.raises(ValueError, match=f"expected for every source a list of at least one sample, {came}"):
        function(samples)


@pytest.mark.parametrize("function", OF_TEXTS.values(), ids=list(OF_TEXTS))
@pytest.mark.parametrize(
    ("texts", "came"), [([], "nothing"), ("a b", "a string; wrap a single text"), ([["a"], ["b"]], "a list of list")]
)
def test_bad_texts(function: Callable[[Any], float], texts: Any, came: str) -> None:
    with pytest.raises(ValueError, match=f"expected a list of texts, at least one, got {came}"):
        function(texts)


@pytest.mark.parametrize("function", [distinct, distinct_of_joined])
def test_bad_order(function: Callable[[list[list[str]], int], float]) -> None:
    with pytest.raises(ValueError, match="n-grams of order 1 or more, got 0"):
        function([["a"]], 0)
    with pytest.raises(ValueError, match="n-grams of order 1 or more, got -1"):
        repetition(["a"], -1)


@pytest.mark.parametrize(("samples", "got"), [([["a"]], "got 1"), ([["a", "b"], ["a", "b", "c"]], "got 2, 3")])
def test_self_bleu_needs_equally_many_samples(samples: list[list[str]], got: str) -> None:
    with pytest.raises(ValueError, match=f"same number of samples for every source, at least 2, {got}"):
        self_bleu(samples)
