"""Fine-tuning of one model: AdamW, a linear schedule, and what the KL does meanwhile."""

import math
import statistics
from typing import Any

import torch
from torch import Tensor, nn

from probattn.core.checks import NonFiniteError
from probattn.integrations.transformers import set_kl_step
from probattn.recipes.glue_batches import Encoded
from probattn.recipes.glue_settings import GlueSettings
from probattn.training.row_gradients import RowGradients, square_sum

__all__ = ["GlueTraining"]

_EPOCHS = 1000  # at most, so that no two pairs of seed and epoch have the same order


class GlueTraining:
    """Trains a model for all of its epochs.

    Args:
        settings: Of the row.
        model: With its initial weights.
        train: What is learnt from.
    """

    def __init__(self, settings: GlueSettings, model: nn.Module, *, train: Encoded):
        self.settings, self.model, self.train = settings, model, train
        rates = settings.optimiser
        self.has_noise = settings.attention.family is not None
        self.has_kl = settings.attention.prior is not None
        self.num_updates = rates.epochs * math.ceil(len(train) / rates.batch_size)
        # Fused: one pass over weights and moments; else the optimiser is a twelfth of an update on short sentences.
        self.optimizer = torch.optim.AdamW(_groups(model, rates.weight_decay), lr=rates.learning_rate, fused=True)
        self.rows = RowGradients(model)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self._rate)
        self.curve: list[tuple[int, float]] = []
        self.kl: list[float] = []  # nats per attention weight
        self.gradients: list[float] = []
        self.step = 0
        self.diverged_at: int | None = None

    def run_epoch(self, epoch: int) -> None:
        """One pass over the training set; the order is a function of seed and epoch."""
        self.model.train()
        seed = _EPOCHS * self.settings.seed + epoch
        for places in self.train.shuffled(self.settings.optimiser.batch_size, seed=seed):
            if self.diverged_at is None:
                self.update(places)

    def update(self, places: list[int]) -> None:
        """One step.

        Raises:
            ValueError: If loss or gradient is not finite, unless such a row is to stop.
        """
        if self.has_noise:
            set_kl_step(self.model, self.step)
        inputs = {**self.train.batch(places), **self.train.labels(places)}
        is_half = self.settings.optimiser.precision == "bf16"
        try:
            with torch.autocast(inputs["input_ids"].device.type, torch.bfloat16, enabled=is_half):
                outputs = self.model(**inputs)
        except NonFiniteError as error:  # the library looks at its scores and KLs
            self._diverge(str(error), error)
            return
        loss: Tensor = outputs.loss
        if self.has_kl:
            weight = float(self.settings.attention.kl_weight(self.step))
            self.kl.append(float(outputs.kl_cost.detach()) / weight if weight else math.nan)
            if self.step % self.settings.evaluation.gradient_every == 0 and math.isfinite(float(loss.detach())):
                self.gradients.append(self._kl_gradient(outputs))
        if self.step % 10 == 0:
            self.curve.append((self.step, float(outputs.get("task_loss", loss).detach())))
        self.optimizer.zero_grad()
        loss.backward()
        self.rows.collect()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.optimiser.max_norm)
        if not (math.isfinite(float(loss.detach())) and math.isfinite(float(norm))):
            self._diverge(f"loss {float(loss.detach())} and gradient norm {float(norm)}")
            return
        self.optimizer.step()
        self.schedule.step()
        self.step += 1

    def metrics(self) -> dict[str, float]:
        """Updates, the KL in nats per attention weight at both ends, and its gradient over the likelihood's."""
        numbers: dict[str, float] = {"updates": self.step}
        if self.kl:
            numbers |= {"kl_first": self.kl[0], "kl_last": statistics.fmean(self.kl[-10:])}
        if self.gradients:
            numbers |= {"kl_gradient": statistics.median(self.gradients), "kl_gradient_max": max(self.gradients)}
        if self.diverged_at is not None:
            numbers["diverged_at"] = self.diverged_at
        return numbers

    def _rate(self, step: int) -> float:
        warm_up = self.settings.optimiser.warm_up * self.num_updates
        if step < warm_up:
            return (step + 1) / (warm_up + 1)
        return max(0.0, (self.num_updates - step) / max(1.0, self.num_updates - warm_up))

    def _kl_gradient(self, outputs: Any) -> float:
        """Norm of the weighted KL's gradient over the likelihood's, on the parameters that both reach."""
        shared = [one for name, one in self.model.named_parameters() if ".stochastic." not in name]
        parts = [
            torch.autograd.grad(part, shared, retain_graph=True, allow_unused=True)
            for part in (outputs.kl_cost, outputs.task_loss)
        ]
        pairs = [(cost, lik) for cost, lik in zip(*parts, strict=True) if cost is not None and lik is not None]
        norms = [math.sqrt(sum(square_sum(one) for one in grads)) for grads in zip(*pairs, strict=True)]
        return norms[0] / norms[1] if norms and norms[1] > 0.0 else math.inf

    def _diverge(self, what: str, cause: Exception | None = None) -> None:
        if self.settings.optimiser.on_divergence == "raise":
            raise ValueError(
                f"{self.settings.row}, seed {self.settings.seed}: {what} in update {self.step}. Use the anchor "
                "'softmax', or a smaller learning rate or KL weight"
            ) from cause
        self.diverged_at = self.step


def _groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    matrices = [one for one in model.parameters() if one.dim() > 1]
    vectors = [one for one in model.parameters() if one.dim() <= 1]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
