"""A generating model on batches of text."""

from collections.abc import Mapping
from dataclasses import replace

import torch

from probattn.core import Estimator, Evaluation, Latent, Mean
from probattn.data.batches import TranslationBatch
from probattn.models import Ved


def run(
    model: Ved, batch: TranslationBatch, estimators: Mapping[str, Estimator], *, attends: bool = True
) -> Evaluation:
    """The model's evaluation of a batch in output ids."""
    moved = batch.to(model.device)
    return model(
        moved.source,
        moved.source_mask,
        target_in=moved.target_in,
        target_out=moved.target_out,
        target_mask=moved.target_mask,
        estimators=estimators,
        attends=attends,
    )


def at_mean(model: Ved) -> dict[str, Estimator]:
    """The paper's MAP inference: every site at its plug-in value."""
    return {name: Mean() for name in model.sites}


def with_last_kl(evaluation: Evaluation) -> Evaluation:
    """The same evaluation with the KL of step sites at the last real step alone, as the paper's released code has it.

    What a bound makes of it is no bound: for the loss of comparison rows only.
    """
    if evaluation.mask is None:
        raise ValueError("which step is the last one is known from the evaluation's mask, which is absent")
    is_real = evaluation.mask
    is_last = is_real & (is_real.long().cumsum(dim=1) == is_real.sum(dim=1, keepdim=True))

    def shortened(latent: Latent) -> Latent:
        return latent if latent.unit == "example" else replace(latent, kl=torch.where(is_last, latent.kl, 0.0))

    return replace(evaluation, latents=tuple(shortened(latent) for latent in evaluation.latents))
