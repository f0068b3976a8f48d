"""BLEU and chrF of translations and other generated text, through sacrebleu, with its signature.

Every BLEU here has sacrebleu's smoothing `exp`: the first order without a match counts as half a match, the next one as
a quarter, and so on. On a corpus with a match of every order it changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["TranslationScore", "bleu", "bleu_by_order", "chrf", "mean_bleu_by_order"]

_MAX_ORDER = 4


@dataclass(frozen=True)
class TranslationScore:
    """A corpus score.

    Attributes:
        score: 0 to 100.
        signature: What sacrebleu needs to say for the number to be compared.
    """

    score: float
    signature: str


def bleu(hypotheses: Sequence[str], references: Sequence[str], *, is_tokenised: bool = True) -> TranslationScore:
    """Corpus BLEU-4 against one reference.

    Args:
        hypotheses: One line per sentence.
        references: The same number of lines.
        is_tokenised: True: words are what spaces separate (the tokenised corpora). False: sacrebleu's 13a tokeniser.

    Example:
        >>> bleu(["the cat sat on the mat ."], ["the cat sat on the mat ."]).score
        100.0
    """
    _require_pairs(hypotheses, references)
    metric = _sacrebleu().metrics.BLEU(tokenize="none" if is_tokenised else "13a", force=True)
    result = metric.corpus_score(list(hypotheses), [list(references)])
    return TranslationScore(round(float(result.score), 4), str(metric.get_signature()))


def bleu_by_order(hypotheses: Sequence[str], references: Sequence[str]) -> dict[int, TranslationScore]:
    """Corpus BLEU-1 to BLEU-4 against one reference, on text whose words are what spaces separate.

    BLEU-n is the geometric mean of the precisions of 1-grams to n-grams, equally weighted, times the brevity penalty;
    BLEU-4 is `bleu`. The released code of Bahuleyan et al. uses NLTK, without smoothing, and weighs the three
    precisions of BLEU-3 by .34, .33 and .33.

    Args:
        hypotheses: One line per sentence; an empty one matches nothing and counts in the brevity penalty.
        references: The same number of lines.

    Returns:
        From n to the score; 0 if no hypothesis has n words. To sacrebleu's signature, which does not name it, the
        order is appended.

    Raises:
        ValueError: If there are not as many hypotheses as references, or none.

    Example:
        >>> scores = bleu_by_order(["what is a dog ?"], ["what is the dog ?"])
        >>> {order: round(one.score, 1) for order, one in scores.items()}
        {1: 80.0, 2: 63.2, 3: 40.5, 4: 30.2}
    """
    _require_pairs(hypotheses, references)
    metric = _sacrebleu().metrics.BLEU(tokenize="none", force=True, max_ngram_order=_MAX_ORDER)
    scores = scores_by_order(metric, hypotheses, [references])
    signature = metric.get_signature()
    return {n: TranslationScore(round(score, 4), f"{signature}|order:{n}") for n, score in enumerate(scores, start=1)}


def mean_bleu_by_order(samples: Sequence[Sequence[str]], references: Sequence[str]) -> dict[int, TranslationScore]:
    """Mean over sample numbers of `bleu_by_order`, as in Bahuleyan et al., Sec. 4.1, where 10 samples are drawn.

    The first samples of all sources are one corpus, the second ones another, and so on.

    Args:
        samples: For each source its samples, equally many for all.
        references: One line per source.

    Returns:
        From n to the mean score; the number of samples is appended to the signature.

    Raises:
        ValueError: If there are not as many sources as references, or sources have different numbers of samples.

    Example:
        >>> scores = mean_bleu_by_order([["a cat", "a dog"], ["who ?", "who ?"]], ["a dog", "who ?"])
        >>> scores[1].score  # 75 for the first samples, 100 for the second ones
        87.5
        >>> scores[1].signature.endswith("|order:1|samples:2")
        True
    """
    _require_pairs(samples, references)
    counts = {len(of_source) for of_source in samples}
    if len(counts) != 1 or counts == {0} or any(isinstance(of_source, str) for of_source in samples):
        raise ValueError(
            f"expected for every source a list of samples, equally many and at least one, got {_describe(samples)}; a "
            "single output per source goes to bleu_by_order"
        )
    corpora = [bleu_by_order(corpus, references) for corpus in zip(*samples, strict=True)]
    suffix = f"|samples:{len(corpora)}"
    return {
        n: TranslationScore(round(sum(one[n].score for one in corpora) / len(corpora), 4), first.signature + suffix)
        for n, first in corpora[0].items()
    }


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> TranslationScore:
    """Corpus chrF2 against one reference."""
    _require_pairs(hypotheses, references)
    metric = _sacrebleu().metrics.CHRF()
    result = metric.corpus_score(list(hypotheses), [list(references)])
    return TranslationScore(round(float(result.score), 4), str(metric.get_signature()))


def scores_by_order(metric: Any, hypotheses: Sequence[str], references: Sequence[Sequence[str | None]]) -> list[float]:
    """BLEU-1 to BLEU-4 from the n-grams counted once: those of lower orders are among them.

    Args:
        metric: sacrebleu's BLEU.
        hypotheses: One line per sentence.
        references: Lists of lines, as many lists as a sentence has references; None where it has fewer.
    """
    result = metric.corpus_score(list(hypotheses), [list(lines) for lines in references])
    return [
        float(
            metric.compute_bleu(
                result.counts[:n],
                result.totals[:n],
                result.sys_len,
                result.ref_len,
                smooth_method=metric.smooth_method,
                max_ngram_order=n,
            ).score
        )
        for n in range(1, _MAX_ORDER + 1)
    ]


def _describe(samples: Sequence[Sequence[str]]) -> str:
    if any(isinstance(of_source, str) for of_source in samples):
        return "a string in place of a list"
    return "lists of " + ", ".join(str(count) for count in sorted({len(of_source) for of_source in samples}))


def _require_pairs(hypotheses: Sequence[object], references: Sequence[str]) -> None:
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise ValueError(
            "expected lists of texts, got a string, whose letters would be scored as texts; wrap a single one in a list"
        )
    if len(hypotheses) != len(references) or not hypotheses:
        raise ValueError(
            f"expected as many hypotheses as references and at least one, got {len(hypotheses)} and {len(references)}"
        )


def _sacrebleu() -> Any:
    try:
        import sacrebleu.metrics
    except ImportError as error:
        raise ImportError("BLEU and chrF need sacrebleu; install it with: pip install 'probattn[eval]'") from error
    return sacrebleu
