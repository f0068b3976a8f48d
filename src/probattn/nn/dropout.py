"""Dropout that costs little on a CPU, and switches for all dropout of a model."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

__all__ = ["Dropout", "dropping", "drops", "evaluating"]

_LEVELS = 2**16  # of a random 16-bit number


class Dropout(nn.Module):
    """The law of `torch.nn.Dropout` with 16 random bits an element instead of a random float.

    Where the mask is a large part of a step, as on graphs, this is several times faster on a CPU. `p` is rounded to a
    multiple of 2**-16, and kept elements are divided by exactly what is kept. Other devices use torch's own.

    Args:
        p: Share of elements that become zero while training.
    """

    def __init__(self, p: float = 0.5):
        super().__init__()
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"a dropout rate lies between 0 and 1, got {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """X with elements dropped in training mode, else X itself."""
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return nn.functional.dropout(x, self.p)
        num_dropped = round(self.p * _LEVELS)
        if num_dropped == _LEVELS:
            return x * 0.0
        # Scaled after the product: as a number of its own in half precision the scale would be off by up to 0.2%.
        return (x * keep_mask(x.shape, num_dropped).to(x.dtype)).mul_(_LEVELS / (_LEVELS - num_dropped))

    def extra_repr(self) -> str:
        """For printing."""
        return f"p={self.p}"


def keep_mask(shape: torch.Size, num_dropped: int) -> Tensor:
    """Bool mask from torch's generator; False with probability `num_dropped` / 2**16."""
    count = shape.numel()
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)  # all 64 bits are random
    bits = words.view(torch.int16)[:count]
    return (bits >= num_dropped - _LEVELS // 2).view(shape)


@contextmanager
def dropping(model: nn.Module, enabled: bool = True) -> Iterator[None]:
    """Switch the dropout modules of a model on or off inside a `with` block, whatever `train()` and `eval()` say.

    Reaches modules (ours and torch's), not dropout inside recurrent layers or multi-head attention.

    With `sampling` or an estimator this separates two sources of uncertainty: dropout masks and attention noise.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5)).eval()
        >>> with dropping(model):
        ...     is_random = not torch.equal(model(torch.ones(9, 2)), model(torch.ones(9, 2)))
        >>> is_random, model[1].training
        (True, False)
    """
    modules = [module for module in model.modules() if isinstance(module, Dropout | nn.modules.dropout._DropoutNd)]
    before = [module.training for module in modules]
    for module in modules:
        module.training = enabled
    try:
        yield
    finally:
        for module, was_training in zip(modules, before, strict=True):
            module.training = was_training


@contextmanager
def evaluating(model: nn.Module, *, dropout: bool = False) -> Iterator[None]:
    """Every module in evaluation mode inside a `with` block, except those that drop if `dropout` is True.

    Unlike `dropping` it reaches dropout that modules apply themselves, as multi-head attention, recurrent layers and
    the attention of pretrained models do: a module of which `drops` is true is in training mode as a whole.
    Normalisation keeps its running statistics. The modes are set and restored without calling `train`.

    Example:
        >>> model = nn.Sequential(nn.LSTM(2, 8, num_layers=2, dropout=0.5), nn.BatchNorm1d(8))
        >>> with evaluating(model, dropout=True):
        ...     [module.training for module in model]
        [True, False]
    """
    before = [(module, module.training) for module in model.modules()]
    for module, _ in before:
        module.training = dropout and drops(module)
    try:
        yield
    finally:
        for module, was_training in before:
            module.training = was_training


def drops(module: nn.Module) -> bool:
    """Whether a module applies dropout in training mode, judged by names.

    Its class or one of its attributes has "drop" in its name, and the rate there is positive. Rates that are written
    into `forward` are not found.
    """
    rates = [(name, value) for name, value in vars(module).items() if _is_rate(value)]
    if "drop" in type(module).__name__.lower():
        return any(rate > 0.0 for _, rate in rates)
    named = [child for name, child in module.named_children() if "drop" in name.lower()]
    return any("drop" in name.lower() and rate > 0.0 for name, rate in rates) or any(
        drops(inner) for child in named for inner in child.modules()
    )


def _is_rate(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
