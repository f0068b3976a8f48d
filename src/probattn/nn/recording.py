"""Receipts from models that cannot return them: torch's transformer layers and other people's code.

A recorder is a side channel, so it has limits. Under data parallelism and inside `torch.compile` return the receipts
(`forward_with_latents`) or add the KL to the loss inside the model.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from probattn.core.records import Latent

__all__ = ["LatentRecord", "is_recomputing", "is_recording", "note_latent", "record_latents"]

_active: list["LatentRecord"] = []


class LatentRecord:
    """The receipts of the forward passes inside a `record_latents` block, in the order of the calls.

    Each call of each module has its own slot. A forward pass that runs again because activation checkpointing
    recomputes it during the backward pass does not add a receipt, so a KL cannot count twice. Passes of other threads
    than the one that opened the block are not recorded.
    """

    def __init__(self, names: dict[nn.Module, str]):
        self._names = names
        self._thread = threading.get_ident()
        self._slots: list[tuple[str, Latent]] = []

    @property
    def latents(self) -> list[Latent]:
        """All receipts."""
        return [latent for _, latent in self._slots]

    @property
    def names(self) -> list[str]:
        """The module of each receipt, by its name in the model that was given to `record_latents`."""
        return [name for name, _ in self._slots]

    def kl(self) -> Tensor:
        """(B) KL in nats per example, summed over modules, heads and queries; a graph is one example.

        Raises:
            ValueError: If nothing was recorded, or calls had different numbers of examples.
        """
        if not self._slots:
            raise ValueError(
                "no receipt was recorded: did the forward pass of a stochastic module run inside the block?"
            )
        num_examples = max(_num_examples(latent) for latent in self.latents)
        kls = [_kl_per_example(latent, num_examples) for latent in self.latents]
        sizes = sorted({len(kl) for kl in kls})
        if len(sizes) > 1:
            raise ValueError(
                f"expected calls with one number of examples, got calls with {sizes}, e.g. batches of different sizes "
                "or beams; open a block for each pass, or add up `kl` of each of record.latents"
            )
        return torch.stack(kls).sum(dim=0)

    @property
    def is_here(self) -> bool:
        """Whether this is the thread that opened the block; a compiler, which cannot ask, takes it for granted."""
        return torch.compiler.is_compiling() or threading.get_ident() == self._thread

    def add(self, module: nn.Module, latent: Latent) -> None:
        """Store the receipt of one call."""
        self._slots.append((self._names.get(module, type(module).__name__), latent))


@contextmanager
def record_latents(model: nn.Module | None = None) -> Iterator[LatentRecord]:
    """Collect the receipts of all stochastic modules that run inside the block.

    Args:
        model: Where to look up module names; without it the class name stands in.

    Example:
        >>> import probattn
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
        >>> prior = probattn.KeyPrior(4, probattn.GammaPrior(rate=1.0))
        >>> layer.self_attn = probattn.MultiheadAttention(
        ...     8, 2, batch_first=True, family=probattn.Weibull(10.0), prior=prior
        ... )
        >>> with record_latents(layer) as record:
        ...     _ = layer(torch.ones(3, 5, 8))
        >>> record.kl().shape, record.names
        (torch.Size([3]), ['self_attn'])
    """
    names = {} if model is None else {module: name for name, module in model.named_modules()}
    record = LatentRecord(names)
    _active.append(record)
    try:
        yield record
    finally:
        _active.remove(record)


def is_recording() -> bool:
    """Whether a recorder is open, so that modules may skip what only a receipt needs."""
    # Autograd repeats a checkpointed pass in a thread of its own, which must take the way of the first one.
    return bool(_active) and any(record.is_here or is_recomputing() for record in tuple(_active))


def note_latent(module: nn.Module, latent: Latent) -> None:
    """Hand a receipt to every open recorder; modules call this once per forward pass."""
    if not _active or is_recomputing():
        return
    for record in tuple(_active):  # other threads open and close theirs meanwhile
        if record.is_here:
            record.add(module, latent)


def _num_examples(latent: Latent) -> int:
    if latent.example is None:
        return latent.kl.shape[0]
    return int(latent.example.max()) + 1 if latent.example.numel() else 1


def _kl_per_example(latent: Latent, num_examples: int) -> Tensor:
    """(B) from (*unit), whose first axis is the example unless the receipt says which example a row belongs to."""
    per_row = latent.kl.flatten(1).sum(dim=-1) if latent.kl.dim() > 1 else latent.kl
    if latent.example is None:
        return per_row
    return per_row.new_zeros(num_examples).index_add(0, latent.example, per_row)


def is_recomputing() -> bool:
    """Whether this forward pass runs inside a backward pass, i.e. activation checkpointing recomputes it."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._current_graph_task_id() != -1
