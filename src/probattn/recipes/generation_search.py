"""Text from sources: at the mean of every site, or from draws."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from tqdm import tqdm

from probattn.core import Estimator
from probattn.data.batches import SourceBatch, decoding_batches, restore_order
from probattn.data.bpe import BOS, EOS, PAD, UNK
from probattn.data.subwords import Subwords
from probattn.decoding import Constraints, beam_search, greedy
from probattn.models import Ved
from probattn.models.ved_stepper import VedStepper

_MAX_ROWS = 512
"""Rows that are decoded together, samples of one source counted."""


@dataclass(frozen=True)
class Generated:
    """One text.

    Attributes:
        text: Words with spaces between them.
        log_prob: Of the text given the draws it was made from, in nats.
        is_complete: Whether it ended by itself.
    """

    text: str
    log_prob: float
    is_complete: bool


@torch.no_grad()
def generate(
    model: Ved,
    words: Subwords,
    source: Sequence[Sequence[int]],
    *,
    estimators: Mapping[str, Estimator],
    num_samples: int = 1,
    beam_size: int = 1,
    max_length: int = 20,
    show_progress: bool = False,
) -> list[list[Generated]]:
    """The most probable text given each of several draws, for each source; none for an empty source.

    Args:
        model: In evaluation mode.
        words: The model's.
        source: Ids of each source.
        estimators: One per site; with `Mean()` everywhere all samples are equal.
        num_samples: Draws of each source.
        beam_size: 1 is greedy.
        max_length: Words of a text, end of sentence included.
        show_progress: Whether to show a progress bar.
    """
    if num_samples < 1 or beam_size < 1:
        raise ValueError(f"num_samples and beam_size must be at least 1, got {num_samples} and {beam_size}")
    most = max(1, _MAX_ROWS // beam_size)
    if num_samples > most:  # in turns, so that memory does not grow with the number of samples
        counts = [most] * (num_samples // most) + [num_samples % most] * (num_samples % most > 0)
        further = partial(generate, model, words, source, estimators=estimators, beam_size=beam_size)
        turns = [further(num_samples=count, max_length=max_length, show_progress=show_progress) for count in counts]
        return [[text for part in of_source for text in part] for of_source in zip(*turns, strict=True)]
    stepper = VedStepper(model, estimators)
    constraints = Constraints(bos=BOS, eos=EOS, max_length=max_length, forbidden=(PAD, BOS, UNK))
    rows = max(1, _MAX_ROWS // (num_samples * beam_size))
    batches = decoding_batches(source, max_sentences=rows)
    found: list[list[list[Generated]]] = []
    for batch in tqdm(batches, desc="generating", disable=not show_progress):
        repeated = _repeated(batch, num_samples)
        if beam_size == 1:
            best = greedy(stepper, repeated, constraints=constraints)
        else:
            best = [one[0] for one in beam_search(stepper, repeated, constraints=constraints, beam_size=beam_size)]
        texts = [Generated(words.decode(one.tokens), one.log_prob, one.is_complete) for one in best]
        found.append([texts[start : start + num_samples] for start in range(0, len(texts), num_samples)])
    return restore_order(batches, found, num_rows=len(source), empty=[])


def _repeated(batch: SourceBatch, count: int) -> SourceBatch:
    """Each source `count` times, one after another."""
    return replace(
        batch,
        source=batch.source.repeat_interleave(count, dim=0),
        source_mask=batch.source_mask.repeat_interleave(count, dim=0),
        index=batch.index.repeat_interleave(count),
    )
