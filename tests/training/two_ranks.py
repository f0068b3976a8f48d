"""What two ranks do; started by torchrun from `test_distributed.py`, results as JSON from every rank."""

import json
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from probattn import MultiheadAttention, Weibull
from probattn.training import Stage, StepOutput, Trainer, TrainerSettings, TrainingFailure, TrainingInterrupted
from tests.training.problems import ExactTask, NoisyTask, noisy_settings, noisy_stages

RANK = int(os.environ.get("RANK", 0))
QUIET: dict[str, Any] = {"tensorboard": False, "log_every": 1}


class Deep(nn.Module):
    """Two layers, one that is never used, and a running mean."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.unused = nn.Linear(3, 3), nn.Linear(3, 1), nn.Linear(2, 2)
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(inputs))) + self.mean


class DeepTask(ExactTask):
    """The exact task on the deep model."""

    def __init__(self, batch_sizes: tuple[int, ...]) -> None:
        torch.manual_seed(7)
        super().__init__(batch_sizes, model=Deep())


class MovingTask(DeepTask):
    """With a running mean of the inputs, to which ranks must contribute alike."""

    def after_update(self, batch: Tensor, output: StepOutput) -> None:
        self.model.mean.mul_(0.9).add_(0.1 * batch.mean())  # type: ignore[union-attr, operator]


class Nosy(NoisyTask):
    """Notes the noise that its rank draws."""

    draws: list[float]

    def step(self, batch: Tensor, stage: Stage, update: int) -> StepOutput:
        self.draws = [*getattr(self, "draws", []), float(torch.randn(()))]
        return super().step(batch, stage, update)


class Called(Nosy):
    """One rank alone hears a signal."""

    def step(self, batch: Tensor, stage: Stage, update: int) -> StepOutput:
        if RANK == 1 and stage.name == "first" and update == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return super().step(batch, stage, update)


class Poisoned(ExactTask):
    """One rank alone has a bad batch."""

    def step(self, batch: Tensor, stage: Stage, update: int) -> StepOutput:
        output = super().step(batch, stage, update)
        is_bad = RANK == 1 and update == 1
        return StepOutput(output.loss * (float("nan") if is_bad else 1.0), weight=output.weight)


def state(task: Any) -> dict[str, Any]:
    return {name: tensor.tolist() for name, tensor in task.model.state_dict().items()}


def deep_stages() -> list[Stage]:
    return [Stage("first", epochs=1, trainable=["first.*", "unused.*"]), Stage("both", epochs=2)]


def run(task: Any, folder: Path, stages: list[Stage], settings: TrainerSettings) -> Any:
    return Trainer(task, settings, stages=stages, output=folder).run()


def outside_the_engine() -> list[float]:
    """What a layer of ours gives in a loop of one's own, which seeds all ranks alike."""
    torch.manual_seed(3)
    layer, inputs = MultiheadAttention(4, 2, family=Weibull(5.0)), torch.randn(3, 1, 4)
    output, _ = layer(inputs, inputs, inputs)
    return [layer.in_proj_weight.sum().item(), *output.flatten().tolist()]


def main(base: Path) -> None:
    answer: dict[str, Any] = {}
    tasks = {
        "moving": (MovingTask((2, 2, 2, 2, 2, 2, 4)), 1),
        "uneven": (DeepTask((1, 3, 3, 1, 2, 2, 4)), 1),
        "accumulated": (DeepTask((1, 1, 1, 1, 1, 1, 2, 2, 4, 2)), 2),
    }
    for name, (task, accumulate) in tasks.items():
        run(task, base / name, deep_stages(), TrainerSettings(**QUIET, accumulate=accumulate))
        answer[name] = state(task)
    whole = Nosy()
    run(whole, base / "whole", noisy_stages(), noisy_settings())
    answer["whole"], answer["draws"] = state(whole), whole.draws
    try:
        run(Called(), base / "part", noisy_stages(), noisy_settings())
    except TrainingInterrupted as stop:
        answer["code"] = stop.code
    part = Nosy()
    run(part, base / "part", noisy_stages(), noisy_settings())
    answer["part"] = state(part)
    try:
        run(Poisoned((2, 2, 2, 2)), base / "poisoned", [Stage("fit", epochs=1)], TrainerSettings(**QUIET))
    except TrainingFailure as failure:
        answer["failure"] = str(failure)
    answer["layer"] = outside_the_engine()
    (base / f"answer-{RANK}.json").write_text(json.dumps(answer))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
