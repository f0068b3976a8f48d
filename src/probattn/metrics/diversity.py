"""How different generated texts are, and how often a text repeats itself.

Words are what spaces separate. Functions that take `samples` want for each source the list of its samples, work on one
source at a time and average over sources, as Bahuleyan et al. 2018 do (Sec. 4.1, with 10 samples a source). Functions
that take `texts` want one list, such as sentences generated from a prior. All numbers fall or rise with the number of
samples and their length: compare at equal numbers.

An empty text has no n-grams. Where there is none at all, entropy, distinct shares and repetition are 0 and count in the
average, so that a model gains nothing by falling silent.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from probattn.metrics.bleu import TranslationScore
from probattn.metrics.optional import import_for_eval

__all__ = [
    "corpus_distinct",
    "corpus_unigram_entropy",
    "distinct",
    "distinct_of_joined",
    "repetition",
    "self_bleu",
    "unigram_entropy",
]

Ngram = tuple[str, ...]


def unigram_entropy(samples: Sequence[Sequence[str]]) -> float:
    """Entropy -Σ_w p(w) log p(w) of the words in a source's samples, in nats, averaged over sources.

    Bahuleyan et al. 2018, Sec. 4.1; that p is counted over the samples of one source is what their released code does.

    Args:
        samples: For each source its samples.

    Returns:
        At least 0, at most the log of the number of words in a source's samples.

    Raises:
        ValueError: If there is no source, a source has no samples, or a string stands in place of a list.

    Example:
        >>> round(unigram_entropy([["a b", "a c"], ["d", "d"]]), 4)  # 1.0397 and 0
        0.5199
    """
    _require_sources(samples)
    return _mean(corpus_unigram_entropy(of_source) for of_source in samples)


def corpus_unigram_entropy(texts: Sequence[str]) -> float:
    """Entropy of the words of all texts together, in nats: how much of a vocabulary is used, and how evenly.

    Args:
        texts: Any texts.

    Example:
        >>> round(corpus_unigram_entropy(["a b", "a c"]), 4)
        1.0397
    """
    _require_texts(texts)
    counts = Counter(_ngrams(texts, 1))
    total = counts.total()
    return sum(count / total * math.log(total / count) for count in counts.values())


def distinct(samples: Sequence[Sequence[str]], order: int) -> float:
    """Dist-n: distinct n-grams over all n-grams in a source's samples, averaged over sources.

    The percentage of distinct unigrams or bigrams of Bahuleyan et al. 2018, Sec. 4.1, as a share. n-grams do not cross
    from one sample to the next; their released code lets them, see `distinct_of_joined`.

    Args:
        samples: For each source its samples.
        order: n, at least 1.

    Returns:
        Between 0 and 1; 1 if no n-gram occurs twice. K equal samples without inner repetitions have 1 / K.

    Raises:
        ValueError: If `samples` are not lists of texts, or `order` is below 1.

    Example:
        >>> distinct([["a b c", "a b d"], ["e f", "e f"]], 2)  # 3 of 4 and 1 of 2
        0.625
    """
    _require_sources(samples)
    return _mean(corpus_distinct(of_source, order) for of_source in samples)


def corpus_distinct(texts: Sequence[str], order: int) -> float:
    """Distinct n-grams over all n-grams of all texts together (as in Li et al. 2016, who divide by words).

    It falls with the number of texts, since a language has only so many n-grams.

    Args:
        texts: Any texts.
        order: n, at least 1.

    Example:
        >>> corpus_distinct(["a b c", "a b d"], 2)
        0.75
    """
    _require_texts(texts)
    _require_order(order)
    counts = Counter(_ngrams(texts, order))
    return _share(len(counts), counts.total())


def distinct_of_joined(samples: Sequence[Sequence[str]], order: int) -> float:
    """Dist-n as the released code of Bahuleyan et al. 2018 computes it, for comparison with their tables.

    The samples of a source are joined into one text, so n-grams cross from one sample to the next, and the number of
    distinct ones is divided by the number of *words*. For n = 1 it equals `distinct`.

    Args:
        samples: For each source its samples.
        order: n, at least 1.

    Example:
        >>> round(distinct_of_joined([["a b c", "a b d"]], 2), 4)  # ab, bc, ca, bd over 6 words
        0.6667
    """
    _require_sources(samples)
    _require_order(order)
    shares = []
    for of_source in samples:
        joined = " ".join(of_source)
        shares.append(_share(len(set(_ngrams([joined], order))), len(joined.split())))
    return _mean(shares)


def self_bleu(samples: Sequence[Sequence[str]]) -> TranslationScore:
    """Sentence BLEU-4 of each sample against the other samples of its source, averaged (Zhu et al. 2018); 100 is worst.

    The other samples are references of one sentence BLEU by sacrebleu, with smoothing `exp` and effective order (a text
    of three words is judged by three orders). The mean is taken over the samples of a source, then over sources. A
    sample that equals another one has 100, also if both are empty; an empty one among others has 0.

    Args:
        samples: For each source its samples, equally many for all and at least 2: more references mean a higher score.

    Returns:
        0 to 100, with sacrebleu's signature, whose `nrefs` is the number of other samples.

    Raises:
        ValueError: If sources have different numbers of samples, or fewer than 2.

    Example:
        >>> self_bleu([["who is it ?", "who is it ?"], ["a b", "c d"]]).score
        50.0
    """
    _require_sources(samples)
    sizes = sorted({len(of_source) for of_source in samples})
    if len(sizes) > 1 or sizes[0] < 2:
        raise ValueError(
            f"self_bleu needs the same number of samples for every source, at least 2, got {', '.join(map(str, sizes))}"
        )
    metric = import_for_eval("sacrebleu.metrics").BLEU(tokenize="none", force=True, effective_order=True)
    metric.sentence_score("", [""] * (sizes[0] - 1))  # by which it knows how many references its signature names
    scores: list[float] = []
    for of_source in samples:
        counts = Counter(" ".join(sample.split()) for sample in of_source)
        for number, sample in enumerate(of_source):
            if counts[" ".join(sample.split())] > 1:  # most samples of a timid model, for which nothing is computed
                scores.append(100.0)  # sacrebleu gives two empty texts 0, as if they differed
            else:
                others = [*of_source[:number], *of_source[number + 1 :]]
                scores.append(float(metric.sentence_score(sample, others).score))
    return TranslationScore(round(_mean(scores), 4), str(metric.get_signature()))


def repetition(texts: Sequence[str], order: int) -> float:
    """Share of a text's n-grams that occurred in the same text before, averaged over texts.

    1 - distinct n-grams / n-grams inside one text: seq-rep-n of Welleck et al. 2020. A text with fewer than n words
    repeats nothing.

    Args:
        texts: Any texts.
        order: n, at least 1.

    Returns:
        Between 0 and 1; near 1 for a text that goes round in a circle.

    Raises:
        ValueError: If `texts` is empty or a string, or `order` is below 1.

    Example:
        >>> repetition(["a b a b a b", "a b c"], 2)  # ab ba ab ba ab: 3 of 5; none
        0.3
    """
    _require_texts(texts)
    _require_order(order)
    shares = []
    for text in texts:
        counts = Counter(_ngrams([text], order))
        shares.append(_share(counts.total() - len(counts), counts.total()))
    return _mean(shares)


def _ngrams(texts: Iterable[str], order: int) -> Iterable[Ngram]:
    for text in texts:
        words = text.split()
        yield from zip(*(words[start:] for start in range(order)), strict=False)


def _share(part: int, whole: int) -> float:
    return part / whole if whole > 0 else 0.0


def _mean(numbers: Iterable[float]) -> float:
    kept = list(numbers)
    return math.fsum(kept) / len(kept)


def _require_order(order: int) -> None:
    if order < 1:
        raise ValueError(f"expected n-grams of order 1 or more, got {order}")


def _require_texts(texts: Sequence[str]) -> None:
    if isinstance(texts, str) or not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError(
            f"expected a list of texts, at least one, got {_describe(texts)}; wrap a single text in a list, and join "
            "the lists of several sources"
        )


def _require_sources(samples: Sequence[Sequence[str]]) -> None:
    if isinstance(samples, str) or not samples or any(isinstance(item, str) or not item for item in samples):
        raise ValueError(
            f"expected for every source a list of at least one sample, got {_describe(samples)}; a single output per "
            "source goes into a list of its own, and texts without sources to the functions called corpus_..."
        )


def _describe(items: Sequence[object]) -> str:
    if isinstance(items, str):
        return "a string"
    if not items:
        return "nothing"
    kinds = {"an empty list" if not item and not isinstance(item, str) else type(item).__name__ for item in items}
    return "a list of " + ", ".join(sorted(kinds))
