"""Reads out pairs of a target and a position, chunk by chunk: log-likelihoods, credits and gradients.

Hidden states are made inside a chunk and their gradients are taken back to queries and memory there, so that nothing
of size (positions x targets x width) exists. Pairs that need not be read are left out before the products.

Size letters: N targets, S positions, M rows of the memory, R pairs of a chunk, D width, V words.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from probattn.kernels.row_readout import RowReadout, row_readout, rows_per_chunk

__all__ = ["LatentReadout", "Reading", "ReadoutGradients"]


@dataclass(frozen=True)
class ReadoutGradients:
    """Sums over chunks.

    Attributes:
        query: (N, D).
        memory: (M, D).
        weight: (V, D).
        bias: (V), or None where there is none.
    """

    query: Tensor
    memory: Tensor
    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True)
class Reading:
    """What a readout gave.

    Attributes:
        log_lik: (N, S) log-likelihoods; -inf where a pair was not read.
        credit: (N, S) the derivative of the weighted bound with respect to them; zero without gradients.
        gradients: Of the weighted bound, or None where they were not asked for.
    """

    log_lik: Tensor
    credit: Tensor
    gradients: ReadoutGradients | None


@dataclass(frozen=True)
class _Chunk:
    """Pairs (R) of targets and positions; all open pairs of the targets in `span`."""

    span: slice
    targets: Tensor
    positions: Tensor


@dataclass(frozen=True)
class LatentReadout:
    """log softmax(tanh(query + memory) W^T + b)[target] for pairs of targets and positions.

    Attributes:
        query: (N, D).
        memory: (M, D).
        first_row: (N) int64, where the positions of a target begin in the memory.
        log_weight: (N, S) log-weights of the positions; -inf: there is no such position.
        target: (N) int64.
        target_weight: (N) factor of each target; zero: it is not read.
        weight: (V, D).
        bias: (V) or None.
    """

    query: Tensor
    memory: Tensor
    first_row: Tensor
    log_weight: Tensor
    target: Tensor
    target_weight: Tensor
    weight: Tensor
    bias: Tensor | None

    def read(self, *, is_marginal: bool, skip_below: float, keeps_gradients: bool) -> Reading:
        """Read all pairs that matter.

        Args:
            is_marginal: The bound is log sum_s w_s f_s, else sum_s w_s log f_s.
            skip_below: See `latent_readout_loss`.
            keeps_gradients: Form the gradients, too.
        """
        is_open = (self.log_weight > -math.inf) & (self.target_weight != 0).unsqueeze(-1)
        if is_marginal and skip_below > 0.0:
            is_open = is_open & self._may_matter(is_open, skip_below)
        log_lik = torch.full_like(self.log_weight, -math.inf)
        credit = torch.zeros_like(log_lik)
        chunks = self._chunks(is_open)
        readout = self._readout(chunks, has_gradients=keeps_gradients)
        grads = torch.zeros_like(self.query), torch.zeros_like(self.memory)
        for chunk in chunks:
            hidden = self._hidden(chunk)
            log_lik[chunk.targets, chunk.positions] = readout.read(hidden, self.target[chunk.targets])
            if keeps_gradients:
                share = self._share(log_lik, chunk.span, is_marginal=is_marginal)
                factor = self.target_weight[chunk.span].unsqueeze(-1)
                credit[chunk.span] = share * factor
                worth = torch.where(share <= skip_below, 0.0, share * factor)
                worth = worth[chunk.targets - chunk.span.start, chunk.positions]
                self._add(grads, chunk, hidden=hidden, grad=readout.gradients(worth, skip_below=0.0))
        made = ReadoutGradients(*grads, readout.grad_weight, readout.grad_bias) if keeps_gradients else None
        return Reading(log_lik, credit, made)

    def differentiate(self, log_lik: Tensor, grad: Tensor) -> ReadoutGradients:
        """The gradients of sum grad * log_lik, exactly, for a grad (N, S); pairs are read again."""
        chunks = self._chunks((log_lik != -math.inf) & (grad != 0))
        readout = self._readout(chunks, has_gradients=True)
        grads = torch.zeros_like(self.query), torch.zeros_like(self.memory)
        for chunk in chunks:
            hidden = self._hidden(chunk)
            readout.read(hidden, self.target[chunk.targets])
            credit = grad[chunk.targets, chunk.positions]
            self._add(grads, chunk, hidden=hidden, grad=readout.gradients(credit, skip_below=0.0))
        return ReadoutGradients(*grads, readout.grad_weight, readout.grad_bias)

    def _may_matter(self, is_open: Tensor, skip_below: float) -> Tensor:
        """(N, S) False where the posterior of a position is at most `skip_below`, whatever its likelihood.

        The marginal likelihood is at least w f of the position with the largest weight, and no f is above one, so a
        posterior w f / sum w f is at most w over that product.
        """
        largest, best = self.log_weight.masked_fill(~is_open, -math.inf).max(dim=-1)
        # Where even a likelihood of one would skip nothing, the best position need not be read ahead.
        is_asked = is_open & (self.log_weight <= math.log(skip_below) + largest.unsqueeze(-1))
        first = torch.zeros_like(is_open)
        first[is_asked.any(dim=-1)] = True
        first &= is_open & (torch.arange(is_open.shape[-1], device=best.device) == best.unsqueeze(-1))
        log_lik = torch.zeros_like(largest)
        chunks = self._chunks(first)
        readout = self._readout(chunks, has_gradients=False)
        for chunk in chunks:
            log_lik[chunk.targets] = readout.read(self._hidden(chunk), self.target[chunk.targets])
        return self.log_weight > math.log(skip_below) + (largest + log_lik).unsqueeze(-1)

    def _share(self, log_lik: Tensor, span: slice, *, is_marginal: bool) -> Tensor:
        """(n, S) the derivative of a target's bound with respect to its log-likelihoods."""
        if not is_marginal:
            return self.log_weight[span].exp()
        joint = self.log_weight[span] + log_lik[span]
        largest = joint.amax(dim=-1, keepdim=True)
        joint = (joint - largest.masked_fill(largest == -math.inf, 0.0)).exp()
        return joint / joint.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(joint.dtype).tiny)

    def _chunks(self, is_open: Tensor) -> list[_Chunk]:
        """All open pairs (N, S); a chunk has as many whole targets as its rows allow, and one at least."""
        targets, positions = is_open.nonzero(as_tuple=True)
        limit = rows_per_chunk(len(self.weight))
        chunks, first_target, first_pair, last_pair = [], 0, 0, 0
        counts = is_open.sum(dim=-1).tolist()
        for number, count in enumerate([*counts, limit + 1]):
            if last_pair > first_pair and last_pair + count - first_pair > limit:
                pairs = slice(first_pair, last_pair)
                chunks.append(_Chunk(slice(first_target, number), targets[pairs], positions[pairs]))
                first_target, first_pair = number, last_pair
            last_pair += count
        return chunks

    def _readout(self, chunks: list[_Chunk], *, has_gradients: bool) -> RowReadout:
        return row_readout(
            self.weight,
            self.bias,
            max_rows=max((len(chunk.targets) for chunk in chunks), default=0),
            hidden_norm=math.sqrt(self.weight.shape[-1]),  # of a tanh
            has_gradients=has_gradients,
        )

    def _hidden(self, chunk: _Chunk) -> Tensor:
        """(R, D)."""
        return self.query[chunk.targets].add_(self.memory[self.first_row[chunk.targets] + chunk.positions]).tanh_()

    def _add(self, grads: tuple[Tensor, Tensor], chunk: _Chunk, *, hidden: Tensor, grad: Tensor) -> None:
        """Take the gradient (R, D) of hidden states back to queries and memory."""
        before = grad.addcmul_(grad * hidden, hidden, value=-1.0)  # the derivative of tanh is 1 - tanh²
        grads[0].index_add_(0, chunk.targets, before)
        grads[1].index_add_(0, self.first_row[chunk.targets] + chunk.positions, before)
