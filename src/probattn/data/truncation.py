"""Cutting parallel text to a number of words, as the models of Bahuleyan et al. (2018) read and write it."""

from dataclasses import replace

from probattn.data.parallel import ParallelText, split_words

__all__ = ["truncated"]


def truncated(text: ParallelText, *, source: int = 30, target: int = 20) -> ParallelText:
    """The same pairs, each side cut after so many words; white space between words becomes one space.

    The released code of Bahuleyan et al. (2018) cuts at 30 and 20. Cut training and validation text. Of a test set cut
    the source alone (`target` as large as you like), or the score is one against references that nobody wrote.

    Args:
        text: Any pairs.
        source: Most words of the source side.
        target: Most words of the target side.

    Raises:
        ValueError: A limit below 1.

    Example:
        >>> truncated(ParallelText(("a b c d",), ("x y z",), "toy"), source=2, target=5)
        ParallelText(source=('a b',), target=('x y z',), name='toy', num_empty=0, num_long=0)
    """
    for side, limit in (("source", source), ("target", target)):
        if limit < 1:
            raise ValueError(f"{side} must keep at least 1 word, got {limit}; a pair with an empty side has no use")
    return replace(
        text,
        source=tuple(" ".join(split_words(line)[:source]) for line in text.source),
        target=tuple(" ".join(split_words(line)[:target]) for line in text.target),
    )
