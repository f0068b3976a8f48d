"""What generated corpora with many right answers share: pairs with their references, and how splits are kept apart."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

from probattn.data.generated_deen.partition import SHARES, SPLITS, Split
from probattn.data.parallel import ParallelText
from probattn.data.sources import require_choice

__all__ = ["SPLITS", "Example", "Examples", "Split", "collect", "split_of_text"]

Example = tuple[str, str, tuple[str, ...]]
"""Source, the target that was drawn, all targets that could have been drawn."""


@dataclass(frozen=True)
class Examples:
    """Pairs and, for each of them, every right answer.

    Attributes:
        text: The pairs.
        references: For each pair all targets that would have been right, the drawn one included.
    """

    text: ParallelText
    references: tuple[tuple[str, ...], ...]


def split_of_text(text: str) -> Split:
    """The split of a sentence: a hash of the set of its words, so that it does not depend on their order.

    Example:
        >>> split_of_text("last week , anna sang .") == split_of_text("anna sang last week .")
        True
    """
    digest = blake2b(" ".join(sorted(set(text.split()) - {","})).encode(), digest_size=4).digest()
    return SHARES[int.from_bytes(digest, "big") % len(SHARES)]


def collect(candidates: Iterator[Example], split: Split, *, size: int, name: str) -> Examples:
    """The first `size` examples of a split.

    Args:
        candidates: Examples without end, of all splits; repeated pairs are passed over.
        split: "train", "valid" or "test".
        size: How many.
        name: Of the corpus.

    Raises:
        ValueError: An unknown split, or a size below 1.
    """
    require_choice("split", split, SPLITS)
    if size < 1:
        raise ValueError(f"size must be at least 1, got {size}; ask for as many pairs as you want to read")
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for source, target, references in candidates:
        if split_of_text(source) == split:
            found.setdefault((source, target), references)
        if len(found) == size:
            break
    text = ParallelText(tuple(pair[0] for pair in found), tuple(pair[1] for pair in found), f"{name} {split}")
    return Examples(text, tuple(found.values()))
