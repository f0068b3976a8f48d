"""Draws in parts: of some targets for a chunked readout, and of single steps put together."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from probattn.core import Draw, Latent
from probattn.core.bounds import Bound
from probattn.kernels import Credit

__all__ = ["chunk_credit", "stack_steps"]


def chunk_credit(bound: Bound, draw: Draw, mask: Tensor) -> Credit:
    """A bound's credit for chunks of targets, for `latent_cross_entropy`.

    Args:
        bound: Whose derivative is asked for.
        draw: Particles (K, *unit).
        mask: (*unit) bool, False for padded targets, which are not read out; chunks count the others.
    """

    def real(value: Tensor | None) -> Tensor | None:
        return None if value is None else value.detach()[:, mask]

    flat = replace(
        draw,
        value=None,
        index=None,
        log_weight=draw.log_weight.detach()[:, mask],
        log_posterior=real(draw.log_posterior),
        log_prior=real(draw.log_prior),
        score=None,
    )

    def credit(log_lik: Tensor, targets: slice) -> Tensor:
        part = replace(
            flat,
            log_weight=flat.log_weight[:, targets],
            log_posterior=None if flat.log_posterior is None else flat.log_posterior[:, targets],
            log_prior=None if flat.log_prior is None else flat.log_prior[:, targets],
        )
        return bound.credit(part, log_lik)

    return credit


def stack_steps(latents: Sequence[Latent]) -> Latent:
    """The receipts of single steps, unit (B, 1), as one receipt with unit (B, T).

    Raises:
        ValueError: If there are none.
    """
    if not latents:
        raise ValueError("there are no steps to put together")

    def joined(parts: Sequence[Tensor | None], axis: int) -> Tensor | None:
        present = [part for part in parts if part is not None]
        return torch.cat(present, dim=axis) if present else None

    draws = [latent.draw for latent in latents]
    first = draws[0]
    log_weight = torch.cat([draw.log_weight for draw in draws], dim=2)
    draw = replace(
        first,
        value=joined([draw.value for draw in draws], 2),
        index=joined([draw.index for draw in draws], 2),
        log_weight=log_weight,
        log_posterior=joined([draw.log_posterior for draw in draws], 2),
        log_prior=joined([draw.log_prior for draw in draws], 2),
        score=joined([draw.score for draw in draws], 2),
    )
    masks = [latent.mask for latent in latents]
    return replace(
        latents[0],
        draw=draw,
        kl=torch.cat([latent.kl for latent in latents], dim=1),
        kl_terms=joined([latent.kl_terms for latent in latents], 1),
        kl_terms_mask=joined([latent.kl_terms_mask for latent in latents], 1),
        penalties={
            name: torch.cat([latent.penalties[name] for latent in latents], dim=1) for name in latents[0].penalties
        },
        mask=None if any(mask is None for mask in masks) else joined(masks, 1),
    )
