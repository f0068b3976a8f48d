"""Translations by beam search or drawn word by word, with the alignments behind them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm import tqdm

from probattn.core import Estimator
from probattn.data.batches import decoding_batches, restore_order
from probattn.data.bpe import BOS, EOS, PAD, UNK
from probattn.data.subwords import Subwords
from probattn.decoding import Constraints, Hypothesis, MaxLength, StopRule, WuPenalty, beam_search, sample
from probattn.metrics import links_from_weights
from probattn.models.seq2seq import Seq2Seq
from probattn.models.seq2seq_stepper import Seq2SeqStepper

_CONSTRAINTS = Constraints(bos=BOS, eos=EOS, max_length=MaxLength(factor=1.5, offset=10), forbidden=(PAD, BOS, UNK))


@dataclass(frozen=True)
class DecodingSettings:
    """How translations are searched for."""

    beam_size: int = 5
    """Hypotheses of a sentence; 1 is greedy."""
    length_penalty: float = 1.0
    """Exponent of Wu et al.'s penalty ((5 + length) / 6); 0 for none."""
    eos_penalty: float = 0.0
    """Deng et al.'s code uses an undocumented 3.0."""
    max_sentences: int = 32
    """Sentences that are decoded together."""

    def __post_init__(self) -> None:
        for name in ("beam_size", "max_sentences"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


@dataclass(frozen=True)
class SamplingSettings:
    """How translations are drawn, word by word."""

    num_samples: int = 1
    """Translations of a sentence."""
    temperature: float = 1.0
    """Below 1 nearer to the most probable words."""
    top_p: float | None = None
    """Only the most probable words that have this probability together; null for all."""
    seed: int = 0
    """The same seed gives the same translations."""
    max_sentences: int = 32
    """Sentences that are drawn together; no translation depends on it unless the attention is drawn too."""


@dataclass(frozen=True)
class Translation:
    """One translation of one sentence.

    Attributes:
        text: Words with spaces between them.
        log_prob: Of the sentence under the model, in nats.
        score: What translations were ranked by: log_prob over the length penalty. Of one that was drawn, its
            log-probability under the law that was drawn from.
        weights: (T, S) expected attention weights, subword by subword.
        links: (source word, target word), from the largest weight of each target subword.
    """

    text: str
    log_prob: float
    score: float
    weights: Tensor
    links: frozenset[tuple[int, int]]


@torch.no_grad()
def search(
    model: Seq2Seq,
    subwords: Subwords,
    source: Sequence[Sequence[int]],
    *,
    estimator: Estimator,
    settings: DecodingSettings,
    num_best: int = 1,
    show_progress: bool = False,
) -> list[list[Translation]]:
    """The best translations of each source sentence, best first; none of an empty sentence.

    Args:
        model: In evaluation mode.
        subwords: The model's.
        source: Ids of each sentence.
        estimator: How the next word is predicted.
        settings: Of the search.
        num_best: Translations of a sentence, at most the beam size.
        show_progress: Whether to show a progress bar.
    """
    if num_best > settings.beam_size:
        raise ValueError(
            f"a beam of {settings.beam_size} gives at most {settings.beam_size} translations, not {num_best}; "
            "raise the beam size"
        )
    stepper = Seq2SeqStepper(model, estimator)
    batches = decoding_batches(source, max_sentences=settings.max_sentences)
    found: list[list[list[Translation]]] = []
    for batch in tqdm(batches, desc="translating", disable=not show_progress):
        results = beam_search(
            stepper,
            batch,
            constraints=_CONSTRAINTS,
            beam_size=settings.beam_size,
            num_return=num_best,
            length_penalty=WuPenalty(settings.length_penalty),
            eos_penalty=settings.eos_penalty,
            stop_rule=StopRule.BEST_ENDED if settings.beam_size == 1 else StopRule.EXACT,
        )
        found.append(_translations(subwords, source, batch.index.tolist(), results))
    return restore_order(batches, found, num_rows=len(source), empty=[])


@torch.no_grad()
def draw(
    model: Seq2Seq,
    subwords: Subwords,
    source: Sequence[Sequence[int]],
    *,
    estimator: Estimator,
    settings: SamplingSettings,
    first: int = 0,
) -> list[list[Translation]]:
    """Translations of each source sentence in the order drawn; none of an empty sentence.

    Args:
        model: In evaluation mode.
        subwords: The model's.
        source: Ids of each sentence.
        estimator: How the next word is predicted.
        settings: How many, and from which law.
        first: Number of the first sentence in its text: a sentence's words are drawn by its number, whatever its
            block; weights, where the estimator draws them, are drawn by batches.
    """
    stepper = Seq2SeqStepper(model, estimator)
    batches = decoding_batches(source, max_sentences=settings.max_sentences)
    found: list[list[list[Translation]]] = []
    for batch in batches:
        rows = batch.index.tolist()
        results = sample(
            stepper,
            batch,
            constraints=_CONSTRAINTS,
            num_samples=settings.num_samples,
            temperature=settings.temperature,
            top_p=settings.top_p,
            seed=settings.seed,
            sentence_ids=[first + row for row in rows],
        )
        found.append(_translations(subwords, source, rows, results))
    return restore_order(batches, found, num_rows=len(source), empty=[])


def _translations(
    subwords: Subwords,
    source: Sequence[Sequence[int]],
    rows: Sequence[int],
    results: Sequence[Sequence[Hypothesis]],
) -> list[list[Translation]]:
    return [
        [_translation(subwords, source[row], hypothesis) for hypothesis in found]
        for row, found in zip(rows, results, strict=True)
    ]


def _translation(subwords: Subwords, source: Sequence[int], hypothesis: Hypothesis) -> Translation:
    if hypothesis.weights is None:
        raise ValueError("the stepper kept no attention weights")
    links = links_from_weights(
        hypothesis.weights, subwords.tokenizer.word_index(source), subwords.word_index(hypothesis.tokens)
    )
    return Translation(
        text=subwords.decode(hypothesis.tokens),
        log_prob=hypothesis.log_prob,
        score=hypothesis.score,
        weights=hypothesis.weights,
        links=frozenset(links),
    )
