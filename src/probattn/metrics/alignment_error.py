"""Alignment error rate against sure and possible gold links (Och and Ney 2003)."""

from collections.abc import Iterable, Set

import torch
from torch import Tensor

__all__ = ["alignment_error_rate", "links_from_weights"]

Links = Set[tuple[int, int]]


def alignment_error_rate(sentences: Iterable[tuple[Links, Links, Links]]) -> float:
    """1 - (|A & S| + |A & P|) / (|A| + |S|) over a corpus; possible links include the sure ones.

    Args:
        sentences: (predicted, sure, possible) links of each sentence.

    Returns:
        A number between 0 and 1; 0 is perfect.

    Raises:
        ValueError: If there is neither a predicted nor a sure link.

    Example:
        >>> round(alignment_error_rate([({(0, 0), (1, 1)}, {(0, 0)}, {(2, 1)})]), 3)
        0.333
    """
    found = total = 0
    for predicted, sure, possible in sentences:
        found += len(predicted & sure) + len(predicted & (possible | sure))
        total += len(predicted) + len(sure)
    if total == 0:
        raise ValueError("the alignment error rate needs at least one predicted or sure link")
    return 1.0 - found / total


def links_from_weights(
    weights: Tensor, source_words: Iterable[int], target_words: Iterable[int], *, threshold: float | None = None
) -> set[tuple[int, int]]:
    """Links (source word, target word) from attention weights over subwords.

    Args:
        weights: (T, S) of one sentence pair, subword by subword.
        source_words: (S) word of each source subword; a negative number for none (EOS).
        target_words: (T) word of each target subword; a negative number for none.
        threshold: None: each target subword links to its largest weight. Else all weights of at least this.

    Example:
        >>> weights = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
        >>> sorted(links_from_weights(weights, [0, 1], [0, 0]))
        [(0, 0), (1, 0)]
    """
    sources, targets = list(source_words), list(target_words)
    if weights.shape != (len(targets), len(sources)):
        raise ValueError(
            f"expected weights of shape ({len(targets)}, {len(sources)}) for these words, got {tuple(weights.shape)}"
        )
    if weights.numel() == 0:
        return set()
    if threshold is None:
        chosen = torch.zeros_like(weights, dtype=torch.bool)
        chosen.scatter_(1, weights.argmax(dim=1, keepdim=True), True)
    else:
        chosen = weights >= threshold
    pairs = ((sources[s], targets[t]) for t, s in chosen.nonzero().tolist())
    return {(source, target) for source, target in pairs if source >= 0 and target >= 0}
