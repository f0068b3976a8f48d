"""Captions of pictures: greedy, by beam search, or sampled."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from tqdm import tqdm

from probattn.core import Estimator, Mean
from probattn.data.bpe import BOS, EOS, PAD, UNK, Tokenizer
from probattn.data.caption_batches import picture_batches
from probattn.data.image_features import ImageFeatures
from probattn.decoding import AveragePenalty, Constraints, Hypothesis, beam_search, greedy, sample
from probattn.models.captioner import Captioner
from probattn.models.captioner_stepper import CaptionerStepper
from probattn.recipes.captioning_settings import DecodingSettings

_MAX_ROWS = 500
"""Rows that are decoded together, beams and samples counted."""


@dataclass(frozen=True)
class Caption:
    """One caption.

    Attributes:
        text: Words with spaces between them.
        words: The same, one by one.
        log_prob: In nats.
        is_complete: Whether it ended by itself.
        weights: (words, regions) expected attention weights.
    """

    text: str
    words: tuple[str, ...]
    log_prob: float
    is_complete: bool
    weights: Tensor = field(compare=False, repr=False)


@torch.no_grad()
def find_captions(
    model: Captioner,
    features: ImageFeatures,
    rows: Sequence[int],
    *,
    tokenizer: Tokenizer,
    decoding: DecodingSettings,
    beam_size: int = 1,
    estimator: Estimator | None = None,
    show_progress: bool = False,
) -> list[list[Caption]]:
    """The best captions of each picture, best first: one by greedy search, `beam_size` by beam search.

    Args:
        model: In evaluation mode.
        features: Of pictures.
        rows: Which of them.
        tokenizer: The model's words.
        decoding: Most words of a caption.
        beam_size: 1 is greedy. Beams are ranked by mean log-probability of a word.
        estimator: Of the weights; plug-in weights by default.
        show_progress: Whether to show a progress bar.
    """
    stepper = CaptionerStepper(model, Mean() if estimator is None else estimator)
    constraints = _constraints(decoding)
    found: list[list[Caption]] = []
    batches = picture_batches(features, rows, max_rows=max(1, _MAX_ROWS // beam_size))
    for batch in tqdm(batches, desc="captions", disable=not show_progress):
        if beam_size == 1:
            best = [[one] for one in greedy(stepper, batch, constraints=constraints)]
        else:
            best = beam_search(
                stepper,
                batch,
                constraints=constraints,
                beam_size=beam_size,
                num_return=beam_size,
                length_penalty=AveragePenalty(),
            )
        found += [[_caption(one, tokenizer) for one in of_picture] for of_picture in best]
    return found


@torch.no_grad()
def sample_captions(
    model: Captioner,
    features: ImageFeatures,
    rows: Sequence[int],
    *,
    tokenizer: Tokenizer,
    decoding: DecodingSettings,
    estimator: Estimator,
    seed: int = 0,
) -> list[list[Caption]]:
    """`decoding.num_samples` captions of each picture, words and weights drawn.

    Args:
        model: In evaluation mode.
        features: Of pictures.
        rows: Which of them.
        tokenizer: The model's words.
        decoding: How many captions, and their length.
        estimator: Of the weights.
        seed: Of the words; the noise of weights is torch's.
    """
    stepper = CaptionerStepper(model, estimator)
    count, size = decoding.num_samples, max(1, _MAX_ROWS // decoding.num_samples)
    found: list[list[Caption]] = []
    for number, batch in enumerate(picture_batches(features, rows, max_rows=size)):
        drawn = sample(
            stepper,
            batch,
            constraints=_constraints(decoding),
            num_samples=count,
            seed=seed,
            sentence_ids=list(rows[number * size : number * size + len(batch.features)]),
        )
        found += [[_caption(one, tokenizer) for one in of_picture] for of_picture in drawn]
    return found


def _constraints(decoding: DecodingSettings) -> Constraints:
    return Constraints(bos=BOS, eos=EOS, max_length=decoding.max_length, min_length=1, forbidden=(PAD, BOS, UNK))


def _caption(found: Hypothesis, tokenizer: Tokenizer) -> Caption:
    words = tuple(tokenizer.decode([token]) for token in found.tokens)
    weights = torch.zeros(0, 0) if found.weights is None else found.weights
    return Caption(" ".join(words), words, found.log_prob, found.is_complete, weights)
