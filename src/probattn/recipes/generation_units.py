"""Latent units of a generating model that move with the text: of its code, and of its attention vector."""

from collections.abc import Collection

import torch
from torch import Tensor

from probattn.core import Given
from probattn.data.batches import EncodedText
from probattn.data.subwords import Subwords
from probattn.distributions import DiagonalGaussian
from probattn.metrics import active_units
from probattn.models import Ved
from probattn.recipes.generation_run import at_mean
from probattn.recipes.translation_run import batches_of
from probattn.training.randomness import EVALUATION, seeded

__all__ = ["NUM_ATTENDED", "attention_offsets", "code_posteriors", "count_active_units"]

NUM_ATTENDED = 200
"""Pairs, the first ones, at whose steps the attention's units are looked at."""


def count_active_units(model: Ved, text: EncodedText, words: Subwords, *, sites: Collection[str]) -> dict[str, int]:
    """How many units are active, by site; sites whose draws are no Gaussian vectors have none to count.

    A unit of the code is active where its posterior mean moves from source to source (Burda et al. 2016). The prior of
    the attention vector may move with the source itself, so there it is the distance of the two means that counts: its
    variance over sentences and steps, in the prior's unit variances. No generator is moved.

    Args:
        model: In evaluation mode.
        text: At least two pairs.
        words: The model's.
        sites: Names of those that are random.
    """
    found = {}
    with seeded(EVALUATION, 0):
        if "code" in sites:
            found["code"] = active_units(code_posteriors(model, text, words)[0])
        offsets = attention_offsets(model, text, words) if "attention" in sites else None
        if offsets is not None:
            found["attention"] = active_units(offsets)
    return found


@torch.no_grad()
def code_posteriors(model: Ved, text: EncodedText, words: Subwords) -> tuple[Tensor, Tensor]:
    """Mean and log-variance (N, Z) of z for every source, in the order of the batches."""
    found = []
    for batch in batches_of(text, words):
        moved = batch.to(model.device)
        posterior = model.code_posterior(moved.source, moved.source_mask)
        if not isinstance(posterior, DiagonalGaussian):
            raise ValueError(f"active units are counted for Gaussian codes, this one is a {type(posterior).__name__}")
        found.append((posterior.mean, posterior.log_variance))
    means, log_variances = zip(*found, strict=True)
    return torch.cat(means), torch.cat(log_variances)


@torch.no_grad()
def attention_offsets(model: Ved, text: EncodedText, words: Subwords) -> Tensor | None:
    """(steps, C) posterior mean minus prior mean of the attention vector at the real steps of the first pairs.

    Everything else is at its mean. None where the attention vector has no site with a Gaussian prior.
    """
    site = None if model.attention is None else model.attention.context
    if site is None or site.prior is None:
        return None
    part = EncodedText(text.source[:NUM_ATTENDED], text.target[:NUM_ATTENDED], text.name)
    estimators, found = at_mean(model), []
    for batch in batches_of(part, words):
        moved = batch.to(model.device)
        source = model.encode(moved.source, moved.source_mask, estimators)
        vectors = model.decode(source, moved.target_in, estimators=estimators)[1][0].draw.value
        if vectors is None:
            return None
        prior = site.prior(Given(memory=source.memory, context=vectors[0]))
        if not isinstance(prior, DiagonalGaussian):
            return None
        found.append((vectors[0] - prior.mean)[moved.target_mask])
    return torch.cat(found)
