"""What the tests of all corpora share."""

from probattn.data import ParallelText, split_words


def num_words(lines: tuple[str, ...]) -> int:
    return sum(len(split_words(line)) for line in lines)


def sizes(text: ParallelText) -> tuple[int, int, int]:
    """Pairs, source words, target words."""
    return len(text), num_words(text.source), num_words(text.target)
