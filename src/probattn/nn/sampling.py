"""The sampling switch: whether modules with random attention draw, independent of `train()` and `eval()`."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from probattn.core.noise import fold_seed

__all__ = ["Switchable", "sampling", "set_sampling"]


class Switchable(nn.Module):
    """A module that the sampling switch reaches.

    Attributes:
        is_sampling: Whether it draws; otherwise it uses the plug-in weights.
        sampling_seed: () int64 that every call uses, or None to draw one per call from torch's generator.
    """

    is_sampling: bool
    sampling_seed: Tensor | None

    def init_switch(self) -> None:
        """Start in the state "draws, with fresh seeds"; to be called by constructors."""
        self.is_sampling = True
        self.register_buffer("sampling_seed", None, persistent=False)


def set_sampling(model: nn.Module, enabled: bool, *, seed: int | None = None) -> None:
    """Switch random attention on or off in a model, for good.

    Args:
        model: Any module that contains modules with random attention.
        enabled: True: draw. False: plug-in weights, as soft attention.
        seed: Fix the noise: every call of a module then uses the same draw, a function of this seed and of the
            module's place in the model. None: fresh noise on every call, governed by `torch.manual_seed`.

    Raises:
        ValueError: If nothing in the model can be switched.
    """
    modules = _switchable(model)
    for number, module in enumerate(modules):
        module.is_sampling = enabled
        device = next((p.device for p in module.parameters()), torch.device("cpu"))
        module.sampling_seed = None if seed is None else fold_seed(torch.tensor(seed, device=device), number)


@contextmanager
def sampling(model: nn.Module, enabled: bool = True, *, seed: int | None = None) -> Iterator[None]:
    """`set_sampling` inside a `with` block; the state before it is restored afterwards.

    Example:
        >>> import probattn
        >>> attention = probattn.MultiheadAttention(8, 2, family=probattn.Weibull(1.0)).eval()
        >>> x = torch.ones(3, 1, 8)
        >>> with sampling(attention, False):
        ...     a, b = attention(x, x, x)[0], attention(x, x, x)[0]
        >>> bool(torch.equal(a, b))
        True
    """
    modules = _switchable(model)
    before = [(module.is_sampling, module.sampling_seed) for module in modules]
    set_sampling(model, enabled, seed=seed)
    try:
        yield
    finally:
        for module, (is_sampling, sampling_seed) in zip(modules, before, strict=True):
            module.is_sampling, module.sampling_seed = is_sampling, sampling_seed


def _switchable(model: nn.Module) -> list[Switchable]:
    modules = [module for module in model.modules() if isinstance(module, Switchable)]
    if not modules:
        raise ValueError(
            f"{type(model).__name__} has no random attention to switch; build it with "
            "probattn.MultiheadAttention(family=...), or convert it with probattn.make_stochastic(model)"
        )
    return modules
