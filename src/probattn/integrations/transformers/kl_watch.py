"""Whether the KL that a converted model returns reaches the loss that somebody else computes.

With labels a model adds the KL to its own loss. Without them it can only return it, and the caller adds it, as a loop
of one's own does, or loses it, as a Trainer with label smoothing does, which takes the labels away and computes the
loss from the logits. When the output is made, the two look alike. The backward pass tells them apart: gradients come to
the outputs, and to the KL or not. A callback could see the Trainer's settings, but only where somebody has given one.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

__all__ = ["KlWatch"]


@dataclass
class _Pass:
    """Where the gradients of one training pass came.

    Attributes:
        to_outputs: To what the model returned.
        to_kl: To its KL.
    """

    to_outputs: bool = False
    to_kl: bool = False


class KlWatch:
    """Warns once where a training pass was differentiated without its KL.

    Args:
        name: Of the model.
    """

    def __init__(self, name: str):
        self.name = name
        self._last = _Pass()
        self._has_warned = False

    def follow(self, outputs: Mapping[str, Any], kl: Tensor) -> None:
        """Look at the pass before, and watch this one.

        The pass before is complete by now, also where likelihood and KL had a backward pass each.

        Args:
            outputs: Of the model; tensors among them that have a gradient.
            kl: (B) in nats.
        """
        if self._has_warned or not kl.requires_grad:
            return
        if self._last.to_outputs and not self._last.to_kl:
            self._has_warned = True
            warnings.warn(
                f"expected the KL of the attention weights in the loss, but in the last training pass of {self.name} "
                "gradients came to the outputs and none to the KL: without labels there is no outputs.loss to add it "
                "to. Add outputs.kl_cost to the loss that you compute; a Trainer with label_smoothing_factor pops the "
                "labels: set it to 0, or pass compute_loss_func; to train without a KL, convert with prior=None",
                stacklevel=2,
            )
            return
        self._last = now = _Pass()
        for value in outputs.values():
            if isinstance(value, Tensor) and value.requires_grad:
                value.register_hook(partial(_note, now, "to_outputs"))
        kl.register_hook(partial(_note, now, "to_kl"))


def _note(one: _Pass, name: str, gradient: Tensor) -> None:
    setattr(one, name, True)
