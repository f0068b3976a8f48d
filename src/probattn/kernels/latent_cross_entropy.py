"""Log-likelihoods of many alternatives per target, without ever keeping their logits.

A latent alignment multiplies the readout: K particles times N targets times V words. Here the product is worked
through in chunks of targets. A chunk holds all K particles of its targets, so the derivative of the bound with
respect to each log-likelihood (its *credit*, e.g. the posterior over alignments) is known inside the chunk, the
gradients are formed there, and the (K, n, V) tensor is thrown away. Nothing is computed twice, and memory is that of
one chunk plus the (K, N, D) gradient of the hidden states.

Size letters: K particles, N targets, n targets of a chunk, D width of the hidden states, V words.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Credit", "latent_cross_entropy"]

Credit = Callable[[Tensor, slice], Tensor]
"""From the log-likelihoods (K, n) of a chunk, and which targets it holds, to d bound / d log-likelihood (K, n)."""

# Logits that exist at a time: 8 MB in float32, more where the vocabulary is so large that `_MIN_ROWS` counts.
_CHUNK_LOGITS = 2_000_000
# A product of fewer rows than this leaves the processor waiting for the weight.
_MIN_ROWS = 256
# exp of plus or minus this, and sums of such, are far from the ends of float32.
_SAFE_LOGIT = 60.0
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
    if 0 in hidden.shape[:2]:
        return 0.0 * hidden.float().sum(dim=-1)
    wanted = credit if torch.is_grad_enabled() else None
    with torch.autocast(hidden.device.type, enabled=False):
        result: Tensor = _LatentCrossEntropy.apply(hidden, weight, bias, target, wanted, skip_below)  # type: ignore[no-untyped-call]
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
        readout = _Readout(hidden, weight, bias=bias)
        gradients = _Gradients(hidden, readout, target=target) if credit and any(ctx.needs_input_grad) else None
        log_lik = torch.empty(hidden.shape[:2], dtype=torch.float32, device=hidden.device)
        given = torch.zeros_like(log_lik)
        for targets in _chunks(hidden, weight):
            chunk = readout.chunk(hidden[:, targets], target[targets])
            log_lik[:, targets] = chunk.log_lik
            if gradients is not None and credit is not None:
                given[:, targets] = credit(chunk.log_lik, targets)
                gradients.add(chunk, given[:, targets], targets=targets, skip_below=skip_below)
        if gradients is not None:
            gradients.forget_readout()
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
        ctx.gradients = None  # scaled in place below, so a second backward pass recomputes
        if kept is not None and proportion is not None:
            gradients, scale = kept, proportion
        else:
            readout = _Readout(hidden, weight, bias=bias)
            gradients, scale = _Gradients(hidden, readout, target=target), grad.new_ones(())
            for targets in _chunks(hidden, weight):
                chunk = readout.chunk(hidden[:, targets], target[targets])
                gradients.add(
                    chunk, grad[:, targets], targets=targets, skip_below=0.0
                )  # exact: no credit says what to skip
        return (
            gradients.hidden.mul_(scale).to(hidden.dtype),
            gradients.weight.mul_(scale).to(weight.dtype),
            None if bias is None or gradients.bias is None else gradients.bias.mul_(scale).to(bias.dtype),
            None,
            None,
            None,
        )


@dataclass(frozen=True)
class _Chunk:
    """Some targets, read out.

    Attributes:
        hidden: (K * n, D) in float32.
        unnormalised: (K * n, V) softmax of the logits times `norm`; overwritten by the next chunk.
        norm: (K * n).
        log_lik: (K, n).
    """

    hidden: Tensor
    unnormalised: Tensor
    norm: Tensor
    log_lik: Tensor


class _Readout:
    """The output layer in float32, with one buffer for the logits of all chunks."""

    def __init__(self, hidden: Tensor, weight: Tensor, *, bias: Tensor | None):
        self.weight = weight.detach().float()
        self.bias = None if bias is None else bias.detach().float()
        self._rows = hidden.shape[0] * max(
            (len(range(hidden.shape[1])[part]) for part in _chunks(hidden, weight)), default=0
        )
        self._buffer = self.weight.new_empty(self._rows, weight.shape[0])
        # Cauchy-Schwarz: where no logit can be large, the exponential needs no maximum taken off before. Asking a GPU
        # would make it wait, so there the maximum is always taken off.
        self._is_bounded = (
            hidden.device.type == "cpu" and hidden.numel() > 0 and self._largest_logit(hidden) < _SAFE_LOGIT
        )

    def _largest_logit(self, hidden: Tensor) -> float:
        largest = torch.linalg.vector_norm(hidden.detach().float(), dim=-1).max()
        largest = largest * torch.linalg.vector_norm(self.weight, dim=-1).max()
        return float(largest if self.bias is None else largest + self.bias.abs().max())

    def chunk(self, hidden: Tensor, target: Tensor) -> _Chunk:
        """Read out hidden states (K, n, D) of targets (n); what an earlier chunk held is overwritten."""
        shape = hidden.shape[:2]
        flat = hidden.detach().float().flatten(0, 1)
        logits = self._buffer[: len(flat)]
        if self.bias is None:
            torch.mm(flat, self.weight.T, out=logits)
        else:
            torch.addmm(self.bias, flat, self.weight.T, out=logits)
        picked = logits.gather(-1, target.expand(shape).flatten().unsqueeze(-1)).squeeze(-1)
        if not self._is_bounded:
            largest = logits.amax(dim=-1)
            logits.sub_(largest.unsqueeze(-1))
            picked = picked - largest
        norm = logits.exp_().sum(dim=-1)
        return _Chunk(flat, logits, norm, (picked - norm.log()).view(shape))


class _Gradients:
    """Sums of the gradients of credit * log-likelihood.

    The derivative with respect to the logits is credit * (one-hot - softmax). Neither part is formed: the one-hot part
    picks rows of the weight, and the factors credit / norm go to the narrow side of the two products.
    """

    def __init__(self, hidden: Tensor, readout: _Readout, *, target: Tensor):
        self.readout = readout
        self.target = target
        self.hidden = torch.zeros(hidden.shape, dtype=torch.float32, device=hidden.device)
        self.weight = torch.zeros_like(readout.weight)
        self.bias = None if readout.bias is None else torch.zeros_like(readout.bias)

    def forget_readout(self) -> None:
        """Let go of the logits' buffer; nothing can be added afterwards."""
        del self.readout

    def add(self, chunk: _Chunk, credit: Tensor, *, targets: slice, skip_below: float) -> None:
        """Add a chunk with credits (K, n)."""
        words = self.target[targets]
        hidden, scores, norm, flat_credit = chunk.hidden, chunk.unnormalised, chunk.norm, credit.flatten()
        kept = None
        # A baseline has no credit at all. A GPU is not asked: it would have to wait for the answer.
        if skip_below > 0.0 or (credit.device.type == "cpu" and not bool(credit.all())):
            kept = (flat_credit.abs() > skip_below).nonzero().squeeze(-1)  # rows worth a gradient
            hidden, scores, norm, flat_credit = hidden[kept], scores[kept], norm[kept], flat_credit[kept]
            credit = torch.where(credit.abs() > skip_below, credit, 0.0)
        share = (flat_credit / norm).unsqueeze(-1)
        grad_hidden = (scores @ self.readout.weight).mul_(-share)
        if kept is not None:
            grad_hidden = torch.zeros_like(chunk.hidden).index_copy_(0, kept, grad_hidden)
        of_targets = credit.unsqueeze(-1) * self.readout.weight[words]
        self.hidden[:, targets] = grad_hidden.view(of_targets.shape).add_(of_targets)
        self.weight.addmm_(scores.T, hidden * share, alpha=-1.0)
        self.weight.index_add_(0, words, (credit.unsqueeze(-1) * chunk.hidden.view(of_targets.shape)).sum(dim=0))
        if self.bias is not None:
            self.bias.addmv_(scores.T, share.squeeze(-1), alpha=-1.0)
            self.bias.index_add_(0, words, credit.sum(dim=0))


def _chunks(hidden: Tensor, weight: Tensor) -> list[slice]:
    particles, targets = hidden.shape[:2]
    size = max(1, _CHUNK_LOGITS // max(1, particles * weight.shape[0]), -(-_MIN_ROWS // max(1, particles)))
    return [slice(start, min(start + size, targets)) for start in range(0, targets, size)]


def _proportion(grad: Tensor, credit: Tensor) -> Tensor | None:
    """The factor s with grad = s * credit, or None where there is none."""
    norm = credit.square().sum()
    scale = (grad * credit).sum() / norm.clamp(min=torch.finfo(norm.dtype).tiny)
    distance = (grad - scale * credit).abs().max()
    return scale if bool(distance <= _PROPORTION_TOLERANCE * grad.abs().max()) else None
