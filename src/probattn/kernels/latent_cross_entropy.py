"""Log-likelihoods of many alternatives per target, without ever keeping their logits.

A latent alignment multiplies the readout: K particles times N targets times V words. Here the product is worked
through in chunks of targets. A chunk holds all K particles of its targets, so the derivative of the bound with
respect to each log-likelihood (its *credit*, e.g. the posterior over alignments) is known inside the chunk, the
gradients are formed there, and the (K, n, V) tensor is thrown away. Nothing is computed twice, and memory is that of
one chunk plus the (K, N, D) gradient of the hidden states.

Size letters: K particles, N targets, n targets of a chunk, D width of the hidden states, V words.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["Credit", "latent_cross_entropy"]

Credit = Callable[[Tensor, slice], Tensor]
"""From the log-likelihoods (K, n) of a chunk, and which targets it holds, to d bound / d log-likelihood (K, n)."""

# Logits that exist at a time: 16 MB in float32.
_CHUNK_LOGITS = 4_000_000
# Gradients from above must be a multiple of the credit up to this share of the largest one, else they are recomputed.
_PROPORTION_TOLERANCE = 1e-4


def latent_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    *,
    bias: Tensor | None,
    target: Tensor,
    credit: Credit | None = None,
    skip_below: float = 0.0,
) -> Tensor:
    """Log-probability of each target under each particle: log softmax(hidden W^T + b)[target].

    Differentiable with respect to hidden, weight and bias. With a credit, gradients are formed in the forward pass
    and only scaled in the backward pass; if what comes from above is not a multiple of the credit, they are
    recomputed, so the gradient is right in any case. Logits and their normaliser are float32 also under autocast:
    half precision puts the score gradient off by tens of percent.

    Args:
        hidden: (K, N, D).
        weight: (V, D).
        bias: (V) or None.
        target: (N) int64.
        credit: What the bound will ask for; None: recompute the logits in the backward pass.
        skip_below: Leave particles out of the backward pass whose credit is at most this. The gradient then misses at
            most `skip_below` times the number of particles left out times the largest gradient of a log-likelihood; 0
            is exact.

    Returns:
        (K, N) log-likelihoods.

    Example:
        >>> hidden, weight = torch.ones(2, 3, 4), torch.zeros(5, 4)
        >>> latent_cross_entropy(hidden, weight, bias=None, target=torch.tensor([0, 1, 2])).exp()[0]
        tensor([0.2000, 0.2000, 0.2000])
    """
    if hidden.dim() != 3 or target.shape != hidden.shape[1:2] or weight.shape[-1] != hidden.shape[-1]:
        raise ValueError(
            "expected hidden (K, N, D), weight (V, D) and target (N,), got "
            f"{tuple(hidden.shape)}, {tuple(weight.shape)} and {tuple(target.shape)}"
        )
    result: Tensor = _LatentCrossEntropy.apply(hidden, weight, bias, target, credit, skip_below)  # type: ignore[no-untyped-call]
    return result


class _LatentCrossEntropy(torch.autograd.Function):
    """See `latent_cross_entropy`."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        credit: Credit | None,
        skip_below: float,
    ) -> Tensor:
        """Chunk by chunk; keeps gradients instead of logits where there is a credit."""
        gradients = _Gradients(hidden, weight, bias=bias) if credit is not None and any(ctx.needs_input_grad) else None
        log_lik = torch.empty(hidden.shape[:2], dtype=torch.float32, device=hidden.device)
        given = torch.zeros_like(log_lik)
        for targets in _chunks(hidden, weight):
            logits, log_norm = _logits(hidden[:, targets], weight, bias)
            log_lik[:, targets] = _picked(logits, target[targets]) - log_norm
            if gradients is not None and credit is not None:
                given[:, targets] = credit(log_lik[:, targets], targets)
                gradients.add(
                    logits, log_norm, given[:, targets], target=target, targets=targets, skip_below=skip_below
                )
            del logits
        ctx.skip_below = skip_below
        ctx.gradients = gradients
        ctx.save_for_backward(hidden, weight, bias, target, given)
        return log_lik

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the kept gradients, or recompute."""
        hidden, weight, bias, target, given = ctx.saved_tensors
        kept: _Gradients | None = ctx.gradients
        proportion = None if kept is None else _proportion(grad, given)
        if kept is not None and proportion is not None:
            gradients, scale = kept, proportion
        else:
            gradients, scale = _Gradients(hidden, weight, bias=bias), grad.new_ones(())
            for targets in _chunks(hidden, weight):
                logits, log_norm = _logits(hidden[:, targets], weight, bias)
                gradients.add(logits, log_norm, grad[:, targets], target=target, targets=targets, skip_below=0.0)
        return (
            (gradients.hidden * scale).to(hidden.dtype),
            (gradients.weight * scale).to(weight.dtype),
            None if bias is None or gradients.bias is None else (gradients.bias * scale).to(bias.dtype),
            None,
            None,
            None,
        )


class _Gradients:
    """Sums of the gradients of credit * log-likelihood."""

    def __init__(self, hidden: Tensor, weight: Tensor, *, bias: Tensor | None):
        self.source = hidden.detach()
        self.readout = weight.detach().float()
        self.hidden = torch.zeros(hidden.shape, dtype=torch.float32, device=hidden.device)
        self.weight = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device)
        self.bias = None if bias is None else torch.zeros(bias.shape, dtype=torch.float32, device=bias.device)

    def add(
        self,
        logits: Tensor,
        log_norm: Tensor,
        credit: Tensor,
        *,
        target: Tensor,
        targets: slice,
        skip_below: float,
    ) -> None:
        """Add a chunk. Overwrites `logits`."""
        hidden = self.source[:, targets].float()
        words = target[targets].expand(hidden.shape[:2])
        if skip_below > 0.0:
            kept = (credit.abs() > skip_below).nonzero(as_tuple=True)  # rows worth a gradient
            logits, log_norm, credit, words, hidden = (
                logits[kept],
                log_norm[kept],
                credit[kept],
                words[kept],
                hidden[kept],
            )
        else:
            kept = None
            logits, hidden = logits.flatten(0, 1), hidden.flatten(0, 1)
            log_norm, credit, words = log_norm.flatten(), credit.flatten(), words.flatten()
        # d (credit * log-likelihood) / d logits = credit * (one-hot - softmax)
        logits.sub_(log_norm.unsqueeze(-1)).exp_().mul_(-credit.unsqueeze(-1))
        logits.scatter_add_(-1, words.unsqueeze(-1), credit.unsqueeze(-1))
        grad_hidden = logits @ self.readout
        if kept is None:
            self.hidden[:, targets] = grad_hidden.view(self.hidden[:, targets].shape)
        else:
            chunk = torch.zeros_like(self.hidden[:, targets])
            chunk[kept] = grad_hidden
            self.hidden[:, targets] = chunk
        self.weight.addmm_(logits.T, hidden)
        if self.bias is not None:
            self.bias.add_(logits.sum(dim=0))


def _chunks(hidden: Tensor, weight: Tensor) -> list[slice]:
    particles, targets = hidden.shape[:2]
    size = max(1, _CHUNK_LOGITS // max(1, particles * weight.shape[0]))
    return [slice(start, min(start + size, targets)) for start in range(0, targets, size)]


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """(K, n, V) logits and (K, n) their normaliser, in float32."""
    with torch.autocast(hidden.device.type, enabled=False):
        logits = torch.nn.functional.linear(
            hidden.detach().float(), weight.detach().float(), None if bias is None else bias.detach().float()
        )
    return logits, torch.logsumexp(logits, dim=-1)


def _picked(logits: Tensor, target: Tensor) -> Tensor:
    words = target.expand(logits.shape[:2]).unsqueeze(-1)
    return logits.gather(-1, words).squeeze(-1)


def _proportion(grad: Tensor, credit: Tensor) -> Tensor | None:
    """The factor s with grad = s * credit, or None where there is none."""
    norm = credit.square().sum()
    scale = (grad * credit).sum() / norm.clamp(min=torch.finfo(norm.dtype).tiny)
    distance = (grad - scale * credit).abs().max()
    return scale if bool(distance <= _PROPORTION_TOLERANCE * grad.abs().max()) else None
