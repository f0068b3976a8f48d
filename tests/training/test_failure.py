"""A run that goes wrong stops before the weights move, and can be repeated."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from probattn.training import Stage, StepOutput, Trainer, TrainerSettings, TrainingFailure, replay_failure
from probattn.training.failure import find_failure
from tests.training.problems import ExactTask, NoisyTask, noisy_stages, weights_of

QUIET: dict[str, Any] = {"tensorboard": False, "save_every": 2}


class Unlucky(NoisyTask):
    """NaN when its own noise is above a threshold: it takes the same batch, weights and noise to see it again."""

    threshold = 1.0
    seen: list[float]

    def step(self, batch: Tensor, stage: Stage, update: int) -> StepOutput:
        output = super().step(batch, stage, update)
        noise = float(torch.randn(())) * float(batch[0, 0].abs()) * float(self.model.encoder.weight[0, 0].abs())  # type: ignore[union-attr, index, operator]
        self.seen = [*getattr(self, "seen", []), noise]
        loss = output.loss * math.nan if noise > self.threshold else output.loss
        return StepOutput(loss, weight=output.weight, logs=output.logs, carry=output.carry)


def test_nan_is_kept_and_reproduced(tmp_path: Path) -> None:
    task, stages = Unlucky(), noisy_stages()[1:]
    with pytest.raises(
        TrainingFailure, match=r"the loss is nan at update \d+ of stage 'second'.*replay_failure\("
    ) as caught:
        Trainer(task, TrainerSettings(**QUIET, accumulate=2), stages=stages, output=tmp_path).run()
    report = json.loads((tmp_path / "failure" / "rank-0.json").read_text())
    assert report["loss"] == "nan"
    assert report["batches"] == [{"shape": [4, 3]}] * 2
    assert report["update"] > 0
    assert report["reproduce"] in str(caught.value)
    last = task.seen[-2:]
    fresh, torch_state = Unlucky(), torch.get_rng_state()
    replay = replay_failure(fresh, tmp_path / "failure", stages=noisy_stages()[1:])
    assert fresh.seen == last, "same weights, same batches, same noise"
    assert [math.isnan(loss) for loss in replay.losses] == [noise > task.threshold for noise in last]
    assert math.isnan(replay.gradient_norm)
    assert fresh.momentum == task.momentum > 0.0, "the task's own state is there too"
    with pytest.raises(ValueError, match="the failure is of stage 'second'; pass the stages of that run"):
        replay_failure(fresh, tmp_path / "failure", stages=[Stage("other", updates=1)])
    assert torch.equal(torch_state, torch.get_rng_state())


def test_weights_are_those_before_the_step(tmp_path: Path) -> None:
    task, healthy = ExactTask(poison_update=3), ExactTask()
    with pytest.raises(TrainingFailure, match="the loss is nan at update 3"):
        Trainer(task, TrainerSettings(**QUIET), stages=[Stage("fit", updates=5)], output=tmp_path / "a").run()
    Trainer(healthy, TrainerSettings(**QUIET), stages=[Stage("fit", updates=3)], output=tmp_path / "b").run()
    assert all(torch.equal(tensor, weights_of(healthy)[name]) for name, tensor in weights_of(task).items())
    assert (tmp_path / "a" / "checkpoints" / "latest").read_text() == "update-000002\n"


def test_gradient_that_is_not_finite(tmp_path: Path) -> None:
    class Steep(ExactTask):
        def step(self, batch: Tensor, stage: Stage, update: int) -> StepOutput:
            weight = next(self.model.parameters())
            return StepOutput((weight - weight.detach()).abs().sum().sqrt())  # 0, with slope infinity times zero

    with pytest.raises(TrainingFailure, match="the norm of the gradient is nan at update 0"):
        Trainer(Steep(), TrainerSettings(**QUIET), stages=[Stage("fit", updates=5)], output=tmp_path).run()


def test_explosion(tmp_path: Path) -> None:
    class Exploding(ExactTask):
        def step(self, batch: Tensor, stage: Stage, update: int) -> StepOutput:
            loss = super().step(batch, stage, update).loss
            return StepOutput(loss * 0.0 + (1.0 if update < 60 else 31.0))

    stages, settings = [Stage("fit", updates=70)], {**QUIET, "save_every": 100}
    Trainer(Exploding(), TrainerSettings(**settings), stages=stages, output=tmp_path / "a").run()
    with pytest.raises(
        TrainingFailure, match="the loss 31 is more than 30 times the median 1 of the last 60 at update 60"
    ):
        run = Trainer(
            Exploding(), TrainerSettings(**settings, explosion_factor=30.0), stages=stages, output=tmp_path / "b"
        )
        run.run()


@pytest.mark.parametrize(
    ("loss", "norm", "recent", "factor", "expected"),
    [
        (1.0, 1.0, [], None, None),
        (math.inf, 1.0, [], None, "the loss is inf"),
        (1.0, math.inf, [], None, "the norm of the gradient is inf"),
        (100.0, 1.0, [1.0] * 49, 2.0, None),  # too early to say
        (100.0, 1.0, [1.0] * 50, 2.0, "the loss 100 is more than 2 times the median 1 of the last 50"),
        (100.0, 1.0, [1.0] * 50, None, None),
        (100.0, 1.0, [-1.0] * 50, 2.0, None),  # a median below zero says nothing about ratios
    ],
)
def test_find_failure(
    loss: float, norm: float, recent: list[float], factor: float | None, expected: str | None
) -> None:
    assert find_failure(loss, norm, recent=recent, factor=factor) == expected
