"""What memories and random choices of codes are measured by, and what the length of a memory costs."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from probattn.core import ImportanceWeighted, Mean, Pathwise
from probattn.data.text import EncodedSentences
from probattn.distributions import CodeChoice
from probattn.metrics import iw_ppl
from probattn.recipes.text_network import TextModel
from probattn.recipes.text_settings import SITE, SamplingSettings

_MAX_ROWS = 200
"""Draws of one sentence that are worked on at once."""


def length_nats(counts: Sequence[int], text: EncodedSentences) -> float:
    """Nats that it takes to tell the number of words of each sentence, summed over a text.

    A memory with one latent per word shows the decoder where the sentence ends; whoever generates must draw the length
    first, so a bound must pay for it. Lengths have the frequencies of training plus one; longer ones share one more
    count, halved with every further word.

    Args:
        counts: How many training sentences have 1, 2, ... words.
        text: What is evaluated.
    """
    total = math.log(sum(counts) + len(counts) + 1)
    nats = 0.0
    for words in (max(1, len(ids)) for ids in text.sentences):
        if words <= len(counts):
            nats += total - math.log(counts[words - 1] + 1)
        else:
            nats += total + (words - len(counts)) * math.log(2.0)
    return nats


def spaced_sentences(text: EncodedSentences, count: int) -> EncodedSentences:
    """So many sentences from all over a text: neighbours in a file are alike."""
    count = min(count, len(text))
    rows = [number * len(text) // count for number in range(count)]
    return EncodedSentences(tuple(text.sentences[row] for row in rows), text.name)


@torch.no_grad()
def sentence_bound(model: TextModel, text: EncodedSentences, row: int, *, draws: int) -> float:
    """Importance-weighted bound on the log-likelihood of one sentence, in nats: log 1/K sum_k p(x, z_k) / q(z_k | x).

    The memory feeds the recurrence, so the K draws are K copies of the sentence.

    Args:
        model: Its latent is a memory, of Gaussians or of a random choice of codes.
        text: Where the sentence is.
        row: Which one.
        draws: K.
    """
    parts: list[Tensor] = []
    for start in range(0, draws, _MAX_ROWS):
        batch = text.batch([row] * min(_MAX_ROWS, draws - start)).to(model.device)
        evaluation = model(
            batch.words,
            batch.words_mask,
            target_in=batch.target_in,
            target_out=batch.target_out,
            target_mask=batch.target_mask,
            estimators={SITE: Pathwise()},
        )
        parts.append(ImportanceWeighted()(evaluation).bound)
    return float(torch.cat(parts).logsumexp(dim=0)) - math.log(draws)


def memory_iw_ppl(
    model: TextModel, text: EncodedSentences, sampling: SamplingSettings, *, counts: Sequence[int] | None
) -> float:
    """Importance-weighted perplexity of some sentences of a text; arguments as for `code_metrics`."""
    few = spaced_sentences(text, sampling.num_weighted)
    nats = sum(sentence_bound(model, few, row, draws=sampling.num_importance) for row in range(len(few)))
    if counts is not None:
        nats -= length_nats(counts, few)
    return iw_ppl(nats, sum(few.target_lengths))


@torch.no_grad()
def mean_choice(model: TextModel, text: EncodedSentences) -> tuple[Tensor, float]:
    """Probability of each code (C) on average over all positions, and the mean entropy of a choice in nats."""
    if model.latent is None:
        raise ValueError("expected a model with a latent, got a language model")
    total: Tensor | float = 0.0
    entropy, count = 0.0, 0
    for start in range(0, len(text), 64):
        batch = text.batch(range(start, min(start + 64, len(text)))).to(model.device)
        read = model.encode(batch.words, batch.words_mask, {SITE: Mean()})
        if read.encoding is None:
            raise ValueError("expected a model with an encoder, got one without")
        choice = model.latent.posterior(read.encoding, mask=read.mask)
        if not isinstance(choice, CodeChoice):
            raise ValueError(f"expected a random choice of codes, got {type(choice).__name__}")
        total = total + choice.log_probs[read.mask].double().exp().sum(dim=0)
        entropy += float(choice.entropy().sum())
        count += int(read.mask.sum())
    return torch.as_tensor(total) / count, entropy / count


def code_metrics(
    model: TextModel, text: EncodedSentences, sampling: SamplingSettings, *, counts: Sequence[int] | None
) -> dict[str, float]:
    """Importance-weighted perplexity, and how codes are used.

    Args:
        model: Its latent is a random choice of codes.
        text: The test split.
        sampling: How many draws, of how many sentences.
        counts: Lengths of training sentences, to pay for the length of the memory; None where that is fixed.
    """
    average, entropy = mean_choice(model, text)
    if len(average) == 1:  # all draws are the same, and the first has all their weight
        sampling = replace(sampling, num_importance=1)
    return {
        "codes_used": float((average > 0.1 / len(average)).sum()),
        "code_perplexity": float(torch.special.entr(average).sum().exp()),
        "choice_entropy": entropy,
        "iw_ppl": memory_iw_ppl(model, text, sampling, counts=counts),
    }
