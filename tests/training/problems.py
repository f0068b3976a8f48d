"""Small tasks for the engine: one with everything that a resumed run could lose, one without any noise."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from probattn.core import Linear, RunningMean, ScoreFunction
from probattn.training import Stage, StepOutput, TrainerSettings


class NoisyNet(nn.Module):
    """An encoder with dropout, a decoder, and a buffer that the task moves."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(3, 4)
        self.decoder = nn.Linear(4, 1)
        self.dropout = nn.Dropout(0.2)
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.tanh(self.encoder(inputs))
        return self.decoder(self.dropout(hidden + 0.1 * torch.randn_like(hidden))).squeeze(-1)


@dataclass
class Burst:
    """Two steps of the encoder, then one of everything; the position is what a checkpoint must keep."""

    position: int = 0
    validations: int = 0

    def moves(self) -> Sequence[str]:
        return ("*",) if self.position == 2 else ("encoder.*",)

    def after_update(self, loss: float) -> None:
        self.position = (self.position + 1) % 3

    def after_validation(self, metrics: Mapping[str, float]) -> None:
        self.validations += 1

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position, "validations": self.validations}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position, self.validations = state["position"], state["validations"]


@dataclass
class NoisyTask:
    """Regression whose every number depends on generators of three libraries, buffers, baselines and own state."""

    num_batches: int = 5
    is_streamed: bool = False
    model: nn.Module = field(default_factory=NoisyNet)
    momentum: float = 0.0

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(11)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))

    def batches(self, epoch: int) -> Any:
        order = torch.randperm(self.num_batches)  # from the global generator: the engine seeds it
        generator = torch.Generator().manual_seed(5)
        inputs = torch.randn(self.num_batches, 4, 3, generator=generator)[order]
        return iter(inputs) if self.is_streamed else list(inputs)

    def step(self, batch: Tensor, stage: Stage, update: int) -> StepOutput:
        jitter = random.random() + float(np.random.rand()) + float(np.random.standard_normal())
        baseline = stage.estimators["z"].baseline  # type: ignore[attr-defined]
        residual = self.model(batch) - batch.sum(dim=-1) - 0.01 * jitter - baseline.value - self.model.mean
        likelihood = residual.square().mean() + 0.1 * self.momentum
        kl = stage.weights_at(update)["z"] * sum(p.square().sum() for p in self.model.parameters())
        loss = likelihood + kl
        logs = {"bound": (-loss.detach() * 4, 4.0), "tokens": (float(len(batch)), 1.0)}
        return StepOutput(loss, weight=4.0, logs=logs, parts={"likelihood": likelihood, "kl": kl}, carry=baseline)

    def after_update(self, batch: Tensor, output: StepOutput) -> None:
        output.carry.value.mul_(0.9).add_(0.01 * output.loss)  # type: ignore[attr-defined]
        self.model.mean.mul_(0.9).add_(0.01 * batch.mean())  # type: ignore[operator, union-attr]
        self.momentum = 0.5 * self.momentum + float(output.loss)

    def validate(self) -> dict[str, float]:
        inputs = torch.randn(6, 3)  # the engine seeds evaluation too
        return {"error": float((self.model(inputs) - inputs.sum(dim=-1)).square().mean())}

    def describe_batch(self, batch: Tensor) -> dict[str, Any]:
        return {"shape": list(batch.shape)}

    def state_dict(self) -> dict[str, Any]:
        return {"momentum": self.momentum}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.momentum = state["momentum"]


def noisy_stages(updates: int = 11) -> list[Stage]:
    """A stage in updates with bursts, then one in epochs that freezes the encoder and starts from the best weights."""
    weights = {"z": Linear(0.0, 0.1, steps=10)}
    return [
        Stage(
            "first",
            updates=updates,
            weights=weights,
            estimators={"z": ScoreFunction(1, baseline=RunningMean())},
            update_rule=Burst(),
            learning_rates={"encoder.*": 0.02},
            hand_over="best",
        ),
        Stage(
            "second",
            epochs=4,
            weights=weights,
            estimators={"z": ScoreFunction(1, baseline=RunningMean())},
            trainable=["decoder.*"],
        ),
    ]


def noisy_settings(**changes: Any) -> TrainerSettings:
    """Everything on: warm-up, plateau, early stop, accumulation that does not divide the epoch, odd intervals."""
    values: dict[str, Any] = {
        "seed": 1,
        "learning_rate": 0.05,
        "weight_decay": 0.01,
        "clip_norm": 1.0,
        "lr_schedule": "plateau",
        "warmup_updates": 3,
        "accumulate": 2,
        "select_by": "error",
        "select_mode": "max",  # the first validation stays the best, so rates fall, stages stop early, weights go back
        "early_stop": 5,
        "validate_every": 2,
        "log_every": 3,
        "kl_gradient_every": 2,
        "save_every": 5,
        "explosion_factor": 1000.0,
        "tensorboard": False,
    }
    return TrainerSettings(**{**values, **changes})


@dataclass
class ExactTask:
    """Weighted least squares without noise: batches of any size, in any split, have the same total gradient.

    `poison` is the number of an example that becomes NaN in the given stage update.
    """

    batch_sizes: Sequence[int] = (3, 1, 2, 2, 4)
    poison_update: int | None = None
    model: nn.Module = field(default_factory=lambda: nn.Linear(3, 1))

    def __post_init__(self) -> None:
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.fill_(0.5)

    def batches(self, epoch: int) -> list[Tensor]:
        generator = torch.Generator().manual_seed(epoch)
        examples = torch.randn(sum(self.batch_sizes), 3, generator=generator)
        return list(examples.split(list(self.batch_sizes)))

    def step(self, batch: Tensor, stage: Stage, update: int) -> StepOutput:
        loss = (self.model(batch).squeeze(-1) - batch.sum(dim=-1)).square().mean()
        if update == self.poison_update:
            loss = loss * torch.rand(()).sub(2.0).log()  # log of a negative number
        return StepOutput(loss, weight=len(batch), logs={"examples": (len(batch), 1.0)})

    def validate(self) -> dict[str, float]:
        return {"error": float((next(self.model.parameters()) - 1.0).abs().sum())}

    def describe_batch(self, batch: Tensor) -> dict[str, Any]:
        return {"first": batch[0].tolist()}


def weights_of(task: Any) -> dict[str, Tensor]:
    """A copy of the model's state."""
    return {name: tensor.clone() for name, tensor in task.model.state_dict().items()}
