"""Early stopping, and the two rules by which a checkpoint is chosen; both are kept in one run.

- "gat": the last epoch whose validation loss and accuracy were both at least as good as any before (the rule of GAT's
  code).
- "loss": the epoch with the lowest validation loss.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor, nn

__all__ = ["RULES", "Checkpoint", "Rule", "Selection"]

Rule = Literal["gat", "loss"]
RULES: tuple[Rule, ...] = ("gat", "loss")


@dataclass(frozen=True)
class Checkpoint:
    """Weights of one epoch.

    Attributes:
        epoch: Counted from 0.
        weights: The model's state.
        loss: Mean validation NLL.
        accuracy: On the validation nodes.
    """

    epoch: int
    weights: Mapping[str, Tensor]
    loss: float
    accuracy: float


@dataclass
class Selection:
    """Sees every validation.

    Attributes:
        patience: Epochs without a better loss or accuracy (ties count as better, as in GAT's code) before the end.
        best: What each rule has chosen so far.
        lowest_loss: Of all epochs.
        highest_accuracy: Of all epochs.
        idle: Epochs since one of them improved.
    """

    patience: int
    best: dict[Rule, Checkpoint] = field(default_factory=dict)
    lowest_loss: float = float("inf")
    highest_accuracy: float = 0.0
    idle: int = 0

    def see(self, epoch: int, model: nn.Module, *, loss: float, accuracy: float) -> bool:
        """Take note of an epoch; returns whether training should stop."""
        if math.isnan(loss):
            raise ValueError(f"the validation loss is NaN in epoch {epoch}; use a smaller learning rate or KL weight")
        has_loss, has_accuracy = loss <= self.lowest_loss, accuracy >= self.highest_accuracy
        chosen: list[Rule] = []
        if loss < self.lowest_loss or not self.best:
            chosen.append("loss")
        if has_loss and has_accuracy:
            chosen.append("gat")
        if chosen:
            weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
            self.best |= dict.fromkeys(chosen, Checkpoint(epoch, weights, loss, accuracy))
        self.lowest_loss, self.highest_accuracy = min(loss, self.lowest_loss), max(accuracy, self.highest_accuracy)
        self.idle = 0 if has_loss or has_accuracy else self.idle + 1
        return self.idle >= self.patience
