"""One chunk of a chunked readout: rows of hidden states in, log-likelihoods out, then gradients for given credits.

Back ends with one interface: plain torch, and C++ on the CPU in float32 (see `native`), with factors of products in
float32 or in bfloat16. All keep the exponentiated logits of the last chunk in one buffer, and all add up the gradients
of weight and bias over chunks.

Size letters: R rows, D width of the hidden states, V words.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from probattn.kernels import native

__all__ = [
    "HalfRows",
    "NativeRows",
    "RowReadout",
    "TorchRows",
    "has_half_products",
    "proportion",
    "row_readout",
    "rows_per_chunk",
]

# Logits that exist at a time: 8 MB in float32, more where the vocabulary is so large that `_MIN_ROWS` counts.
_CHUNK_LOGITS = 2_000_000
# A product of fewer rows than this leaves the processor waiting for the weight.
_MIN_ROWS = 256
# exp of plus or minus this, and sums of such, are far from the ends of float32.
_SAFE_LOGIT = 60.0
# Rows of `HalfRows` are filled up to a multiple of this.
_ROW_BLOCK = 16
# Gradients from above must be a multiple of the credit up to this share of the largest one, else they are recomputed.
_PROPORTION_TOLERANCE = 1e-4


class RowReadout(Protocol):
    """An output layer that reads a chunk of rows and then gives its gradients.

    Attributes:
        grad_weight: (V, D) sum over the chunks that `gradients` was called for; (0, D) where it will not be called.
        grad_bias: (V) the same; None where there is no bias.
    """

    grad_weight: Tensor
    grad_bias: Tensor | None

    def read(self, hidden: Tensor, target: Tensor) -> Tensor:
        """Log-likelihoods (R) of targets (R) int64 under hidden states (R, D); forgets the chunk before."""
        ...

    def gradients(self, credit: Tensor, *, skip_below: float) -> Tensor:
        """The gradient (R, D) of sum credit * log-likelihood with respect to the last chunk's hidden states.

        Rows whose credit (R) is at most `skip_below` in size are left out, here and in the sums of weight and bias.
        """
        ...


def has_half_products() -> bool:
    """Whether the C++ back end is active, and takes products of bfloat16 factors on this processor.

    Not on processors with tile registers (AMX), on some of which bfloat16 through oneDNN ends the process, unless
    ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 is set before the start.
    """
    return native.is_active() and bool(torch.ops.probattn_native.has_half_products())


def row_readout(
    weight: Tensor,
    bias: Tensor | None,
    *,
    max_rows: int,
    hidden_norm: float | None,
    has_gradients: bool,
    may_halve: bool = False,
) -> RowReadout:
    """The back end for an output layer: C++ where it is active, on the CPU in float32; else torch.

    Args:
        weight: (V, D) float32 or float64.
        bias: (V) or None.
        max_rows: Of a chunk.
        hidden_norm: No row of hidden states is longer than this; None: not known.
        has_gradients: Whether `gradients` will be called.
        may_halve: Whether factors of products may be rounded to bfloat16 where that is faster.
    """
    if weight.is_cpu and weight.dtype == torch.float32 and native.is_active():
        if may_halve and weight.shape[1] % 2 == 0 and weight.numel() > 0 and has_half_products():
            return HalfRows(weight, bias, max_rows=max_rows, has_gradients=has_gradients)
        return NativeRows(weight, bias, max_rows=max_rows, has_gradients=has_gradients)
    return TorchRows(weight, bias, max_rows=max_rows, hidden_norm=hidden_norm, has_gradients=has_gradients)


def rows_per_chunk(vocabulary: int) -> int:
    """How many rows are read together."""
    return max(_MIN_ROWS, _CHUNK_LOGITS // max(1, vocabulary))


class NativeRows:
    """See `RowReadout`. In C++, tile by tile of the vocabulary, with the same bits for any number of threads.

    Args:
        weight: (V, D) float32 on the CPU.
        bias: (V) or None.
        max_rows: Of a chunk.
        has_gradients: Whether `gradients` will be called.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, max_rows: int, has_gradients: bool):
        self.weight = weight.contiguous()
        self.bias = None if bias is None else bias.contiguous()
        self.grad_weight, self.grad_bias = _zeros(self.weight, self.bias, has_gradients)
        self.scores = self.weight.new_empty(max_rows * len(weight))
        self.chunk: tuple[Tensor, Tensor, Tensor] | None = None

    def read(self, hidden: Tensor, target: Tensor) -> Tensor:
        """See `RowReadout`."""
        hidden, target = hidden.contiguous(), target.contiguous()
        log_lik: Tensor
        log_lik, factors = torch.ops.probattn_native.readout_rows(hidden, self.weight, self.bias, target, self.scores)
        self.chunk = (hidden, target, factors)
        return log_lik

    def gradients(self, credit: Tensor, *, skip_below: float) -> Tensor:
        """See `RowReadout`."""
        operator = torch.ops.probattn_native.readout_rows_gradients
        return _native_gradients(operator, self.weight, self, credit, skip_below)


class HalfRows:
    """See `RowReadout`. In C++, with factors of products rounded to bfloat16; sums, logits and gradients are float32.

    Args:
        weight: (V, D) float32 on the CPU, D even.
        bias: (V) or None.
        max_rows: Of a chunk.
        has_gradients: Whether `gradients` will be called.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, max_rows: int, has_gradients: bool):
        weight = weight.contiguous()
        self.weight = weight.bfloat16()
        self.bias = None if bias is None else bias.contiguous()
        self.grad_weight, self.grad_bias = _zeros(weight, bias, has_gradients)
        # (D, V or V + 1): products are summed over pairs of words
        transposed = self.weight.T[:, : len(weight) if has_gradients else 0]
        self._transposed = nn.functional.pad(transposed, (0, transposed.shape[1] % 2)).contiguous()
        self.scores = weight.new_empty(-(-max_rows // _ROW_BLOCK) * _ROW_BLOCK * len(weight))
        self.chunk: tuple[Tensor, Tensor, Tensor] | None = None

    def read(self, hidden: Tensor, target: Tensor) -> Tensor:
        """See `RowReadout`."""
        hidden, target = hidden.contiguous(), target.contiguous()
        log_lik: Tensor
        log_lik, factors = torch.ops.probattn_native.readout_rows_half(
            hidden, self.weight, self.bias, target, self.scores
        )
        self.chunk = (hidden, target, factors)
        return log_lik

    def gradients(self, credit: Tensor, *, skip_below: float) -> Tensor:
        """See `RowReadout`."""
        operator = torch.ops.probattn_native.readout_rows_half_gradients
        return _native_gradients(operator, self._transposed, self, credit, skip_below)


class TorchRows:
    """See `RowReadout`. In torch, on any device.

    The derivative with respect to the logits is credit * (one-hot - softmax). Neither part is formed: the one-hot part
    picks rows of the weight, and the factors credit / norm go to the narrow side of the two products.

    Args:
        weight: (V, D) float32 or float64.
        bias: (V) or None.
        max_rows: Of a chunk.
        hidden_norm: No row of hidden states is longer than this; None: not known.
        has_gradients: Whether `gradients` will be called.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, *, max_rows: int, hidden_norm: float | None, has_gradients: bool
    ):
        self.weight = weight
        self.bias = bias
        self.grad_weight, self.grad_bias = _zeros(weight, bias, has_gradients)
        self._buffer = weight.new_empty(max_rows, len(weight))
        # Cauchy-Schwarz: where no logit can be large, the exponential needs no maximum taken off before. Asking a GPU
        # would make it wait, so there the maximum is always taken off.
        self._is_bounded = weight.is_cpu and hidden_norm is not None and self._largest_logit(hidden_norm) < _SAFE_LOGIT
        self._chunk: tuple[Tensor, Tensor, Tensor] | None = None

    def _largest_logit(self, hidden_norm: float) -> float:
        if len(self.weight) == 0:
            return 0.0
        largest = hidden_norm * float(torch.linalg.vector_norm(self.weight, dim=-1).max())
        return largest if self.bias is None else largest + float(self.bias.abs().max())

    def read(self, hidden: Tensor, target: Tensor) -> Tensor:
        """See `RowReadout`."""
        logits = self._buffer[: len(hidden)]
        if self.bias is None:
            torch.mm(hidden, self.weight.T, out=logits)
        else:
            torch.addmm(self.bias, hidden, self.weight.T, out=logits)
        picked = logits.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        if not self._is_bounded:
            largest = logits.amax(dim=-1)
            logits.sub_(largest.unsqueeze(-1))
            picked = picked - largest
        norm = logits.exp_().sum(dim=-1)
        self._chunk = (hidden, target, norm)
        return picked - norm.log()

    def gradients(self, credit: Tensor, *, skip_below: float) -> Tensor:
        """See `RowReadout`."""
        all_hidden, target, norm = _last(self._chunk)
        hidden, scores = all_hidden, self._buffer[: len(all_hidden)]
        kept = None
        # A baseline has no credit at all. A GPU is not asked: it would have to wait for the answer.
        if skip_below > 0.0 or (credit.is_cpu and not bool(credit.all())):
            kept = (~(credit.abs() <= skip_below)).nonzero().squeeze(-1)  # rows worth a gradient, and any NaN
            hidden, scores, norm, credit, target = (one[kept] for one in (hidden, scores, norm, credit, target))
        share = (credit / norm).unsqueeze(-1)
        grad_hidden = (scores @ self.weight).mul_(-share)
        grad_hidden.addcmul_(credit.unsqueeze(-1), self.weight[target])
        self.grad_weight.addmm_(scores.T, hidden * share, alpha=-1.0)
        self.grad_weight.index_add_(0, target, credit.unsqueeze(-1) * hidden)
        if self.grad_bias is not None:
            self.grad_bias.addmv_(scores.T, share.squeeze(-1), alpha=-1.0)
            self.grad_bias.index_add_(0, target, credit)
        return grad_hidden if kept is None else torch.zeros_like(all_hidden).index_copy_(0, kept, grad_hidden)


def proportion(grad: Tensor, credit: Tensor) -> Tensor | None:
    """The factor s with grad = s * credit, or None where there is none."""
    if credit.numel() == 0:
        return grad.new_ones(())
    # At the largest credit, not by a sum: that would depend on the number of threads in its last bits.
    at = credit.abs().argmax()
    largest = credit.flatten()[at]
    scale = torch.where(largest == 0, 0.0, grad.flatten()[at] / largest)
    distance = (grad - scale * credit).abs().max()
    return scale if bool(distance <= _PROPORTION_TOLERANCE * grad.abs().max()) else None


def _native_gradients(
    operator: Callable[..., Tensor], weight: Tensor, readout: NativeRows | HalfRows, credit: Tensor, skip_below: float
) -> Tensor:
    """Those of the hidden states of the last chunk, by an operator that takes the weight in a form of its own."""
    hidden, target, factors = _last(readout.chunk)
    grads = readout.grad_weight, readout.grad_bias
    return operator(hidden, weight, target, readout.scores, factors, credit.float().contiguous(), skip_below, *grads)


def _zeros(weight: Tensor, bias: Tensor | None, has_gradients: bool) -> tuple[Tensor, Tensor | None]:
    rows = slice(None) if has_gradients else slice(0)
    return torch.zeros_like(weight[rows]), None if bias is None else torch.zeros_like(bias[rows])


def _last(chunk: tuple[Tensor, Tensor, Tensor] | None) -> tuple[Tensor, Tensor, Tensor]:
    if chunk is None:
        raise RuntimeError("there is no chunk to differentiate; call `read` first")
    return chunk
