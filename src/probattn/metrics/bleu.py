"""BLEU and chrF of translations, through sacrebleu, with its signature."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["TranslationScore", "bleu", "chrf"]


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


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> TranslationScore:
    """Corpus chrF2 against one reference."""
    _require_pairs(hypotheses, references)
    metric = _sacrebleu().metrics.CHRF()
    result = metric.corpus_score(list(hypotheses), [list(references)])
    return TranslationScore(round(float(result.score), 4), str(metric.get_signature()))


def _require_pairs(hypotheses: Sequence[str], references: Sequence[str]) -> None:
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
