"""From the logits of windows to a distribution over answers.

A window gives start and end of an answer independent probabilities over all of its tokens, [CLS] and the question
included: what falls on these says that the answer is elsewhere. A span from token i to token j of the passage has

    p(i, j) = max_windows p_start(i) p_end(j) / Z,    i ≤ j < i + L,

where Z makes the spans that may be given sum to one. So a window that believes to hold no answer counts little, and a
span that two windows hold counts once, as the one has it that believes in it more. Of several draws the mean of p is
taken.

Sizes: K draws, C tokens of a passage, L tokens of the longest answer, T tokens of a window, N questions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from probattn.metrics.uncertainty import mutual_information, predictive_entropy, top_two
from probattn.recipes.glue_windows import MAX_ANSWER, Window

__all__ = ["SpanPrediction", "answer", "span_probabilities"]


@dataclass(frozen=True)
class SpanPrediction:
    """The answer to one question.

    Attributes:
        span: First and last token of the passage.
        confidence: Its probability, mean over draws.
        gold: Probability of all right answers together; None where none can be given.
        entropy: Of the mean over draws, in nats.
        mutual_information: Of answer and draw, in nats.
        top_two: (K, 2) probabilities in each draw of the two most probable spans.
    """

    span: tuple[int, int]
    confidence: float
    gold: float | None
    entropy: float
    mutual_information: float
    top_two: Tensor


def span_probabilities(logits: Sequence[Tensor], windows: Sequence[Window], *, max_answer: int = MAX_ANSWER) -> Tensor:
    """Probabilities of all spans of a passage.

    Args:
        logits: For each window (K, T, 2), of start and end; without padding.
        windows: Where they are.
        max_answer: L.

    Returns:
        (K, C, L) float64; [k, i, l] is the span of l + 1 tokens that begins with token i.
    """
    num_tokens = max(window.start + window.size for window in windows)
    parts = []
    for logit, window in zip(logits, windows, strict=True):
        log_probs = logit.double().log_softmax(dim=1)[:, window.lead : window.lead + window.size]  # (K, size, 2)
        start, end = log_probs.unbind(dim=-1)
        ends = functional.pad(end, (0, max_answer - 1), value=-torch.inf).unfold(1, max_answer, 1)  # (K, size, L)
        parts.append(start.unsqueeze(-1) + ends)
    largest = torch.stack([part.amax(dim=(1, 2)) for part in parts]).amax(dim=0).reshape(-1, 1, 1)
    table = parts[0].new_zeros(len(parts[0]), num_tokens, max_answer)
    for part, window in zip(parts, windows, strict=True):
        held = table[:, window.start : window.start + window.size]
        torch.maximum(held, (part - largest).exp(), out=held)
    return table / table.sum(dim=(1, 2), keepdim=True)


def answer(
    logits: Sequence[Tensor], windows: Sequence[Window], golds: Sequence[tuple[int, int]]
) -> SpanPrediction:  # fmt: skip
    """The most probable answer to a question.

    Args:
        logits: For each window (K, T, 2), of start and end; without padding.
        windows: Where they are.
        golds: Right answers that can be given.
    """
    table = span_probabilities(logits, windows)
    probs = table.flatten(1)  # (K, C L)
    mean = probs.mean(dim=0)
    first, more = divmod(int(mean.argmax()), table.shape[-1])
    right = [mean[start * table.shape[-1] + stop - start] for start, stop in golds]
    return SpanPrediction(
        span=(first, first + more),
        confidence=float(mean.max()),
        gold=float(torch.stack(right).sum()) if right else None,
        entropy=float(predictive_entropy(probs.unsqueeze(1))),
        mutual_information=float(mutual_information(probs.unsqueeze(1))),
        top_two=top_two(probs.unsqueeze(1)).squeeze(1),
    )
