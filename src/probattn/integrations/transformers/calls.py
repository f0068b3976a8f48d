"""The way from attention deep inside a model to the model's own `forward`, where the KL enters the loss.

An open call belongs to its thread. A `ContextVar` cannot be read in compiled code, so a call that is itself being
compiled stands on a list instead, and code that is compiled alone, inside a call that is not, leaves the graph to look.

Size letters: B examples, H heads, T queries.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from torch import Tensor

__all__ = ["ForwardCall", "Receipt", "current_call", "open_call"]


@dataclass(frozen=True)
class Receipt:
    """What one visit to a site hands to the call.

    Attributes:
        kl: (B, H, T) in nats, zero for padded queries as far as the site can tell.
        num_weights: (B, H, T) keys that each query may see; zero for the same queries.
        is_decoder: Whether the queries are those of the decoder in an encoder-decoder model.
        is_cut_off: Whether the KL brings no gradient although the prior wants one, or because gradients were off.
    """

    kl: Tensor
    num_weights: Tensor
    is_decoder: bool
    is_cut_off: bool

    def per_example(self, decoder_queries: Tensor | None) -> tuple[Tensor, Tensor]:
        """KL and number of weights, each (B).

        Args:
            decoder_queries: (B, T) False for padded positions of the target, whose KL does not count.
        """
        kl, num_weights = self.kl, self.num_weights
        if self.is_decoder and decoder_queries is not None and decoder_queries.shape == (kl.shape[0], kl.shape[2]):
            hidden = ~decoder_queries.unsqueeze(1)  # (B, 1, T)
            kl, num_weights = kl.masked_fill(hidden, 0.0), num_weights.masked_fill(hidden, 0.0)
        return kl.sum(dim=(1, 2)), num_weights.sum(dim=(1, 2))


@dataclass
class ForwardCall:
    """One call of a converted model, while it runs.

    Attributes:
        needs_weights: Whether the caller asked for attention weights.
        num_past: Positions that a cache holds already; every step of generation then has noise of its own.
        receipts: Of the visits so far.
        visits: How often each site was visited; one module may serve many layers (ALBERT).
        switches: In a pass that is repeated, whether each site drew in the first one, and its seed.
        seeds: Those that were drawn, by site and visit; a pass that is repeated takes them again.
    """

    needs_weights: bool = False
    num_past: int = 0
    receipts: list[Receipt] = field(default_factory=list)
    visits: dict[str, int] = field(default_factory=dict)
    switches: dict[str, tuple[bool, Tensor | None]] = field(default_factory=dict)
    seeds: dict[tuple[str, int], Tensor] = field(default_factory=dict)

    def count_visit(self, name: str) -> int:
        """The number of this visit to a site, from 0."""
        number = self.visits.get(name, 0)
        self.visits[name] = number + 1
        return number

    def totals(self, decoder_queries: Tensor | None, num_examples: int | None) -> tuple[Tensor, Tensor]:
        """KL and number of weights of all visits, each (B).

        Args:
            decoder_queries: See `Receipt.per_example`.
            num_examples: B. An example may be cut into several rows that stand side by side in the batch of attention:
                windows of an image, answers to choose from. None: there is one visit at least where it is not.

        Raises:
            ValueError: If visits had batches that do not fit together.
        """
        pairs = [receipt.per_example(decoder_queries) for receipt in self.receipts]
        rows = min(kl.shape[0] for kl, _ in pairs) if num_examples is None else num_examples
        if any(kl.shape[0] % max(1, rows) for kl, _ in pairs):
            sizes = sorted({kl.shape[0] for kl, _ in pairs})
            raise ValueError(
                f"attention ran on batches of {sizes} rows for {rows} examples, so a KL per example cannot be formed; "
                "convert the parts of the model one by one, e.g. make_stochastic(model.vision_model)"
            )
        kl = torch.stack([kl.view(rows, -1).sum(dim=1) for kl, _ in pairs]).sum(dim=0)
        return kl, torch.stack([number.view(rows, -1).sum(dim=1) for _, number in pairs]).sum(dim=0)


_running: ContextVar[ForwardCall | None] = ContextVar("probattn_forward_call", default=None)
_traced: list[ForwardCall] = []


@contextmanager
def open_call(call: ForwardCall) -> Iterator[None]:
    """The call lasts as long as this block."""
    if torch.compiler.is_compiling():
        _traced.append(call)
        try:
            yield
        finally:
            _traced.pop()
    else:
        token = _running.set(call)
        try:
            yield
        finally:
            _running.reset(token)


def current_call() -> ForwardCall | None:
    """The innermost open call; None where a part of a model is called by itself."""
    if torch.compiler.is_compiling():
        return _traced[-1] if _traced else _running_call()
    return _running.get()


@torch.compiler.disable(  # type: ignore[untyped-decorator]
    reason="compile the converted model as a whole, not a part of it"
)
def _running_call() -> ForwardCall | None:
    return _running.get()
