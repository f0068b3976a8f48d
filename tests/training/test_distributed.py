"""Two ranks on one machine: the same training as one rank with twice the batch, but different noise."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from probattn.training import CheckpointError, Stage, StepOutput, Trainer, TrainerSettings, replay_failure
from tests.training.once import run_once
from tests.training.problems import ExactTask, NoisyTask, noisy_settings, noisy_stages, weights_of
from tests.training.two_ranks import QUIET, DeepTask, MovingTask, deep_stages, run

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.recipe  # it starts three Python processes that import torch


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the two ranks have left their results."""
    return run_once(tmp_path_factory, "ranks", start_two_ranks)


def start_two_ranks(base: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--master_addr=127.0.0.1"]
    command = [*launcher, f"--master_port={free_port()}", "-m", "tests.training.two_ranks", str(base)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def answers(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / f"answer-{rank}.json").read_text()) for rank in range(2)]


def losses(path: Path) -> list[float]:
    lines = [json.loads(line) for line in (path / "log.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["kind"] == "train"]


@pytest.mark.parametrize(
    ("name", "sizes"), [("moving", (4, 4, 4, 4)), ("uneven", (4, 4, 4, 4)), ("accumulated", (4, 6, 6))]
)
def test_two_ranks_equal_one_with_twice_the_batch(
    name: str, sizes: tuple[int, ...], folder: Path, answers: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Also with batches of unequal size, a remainder, parameters that are frozen or never used, and a moved buffer."""
    task = (MovingTask if name == "moving" else DeepTask)(sizes)
    before = weights_of(task)
    run(task, tmp_path, deep_stages(), TrainerSettings(**QUIET))
    assert answers[0][name] == answers[1][name]
    for key, tensor in weights_of(task).items():
        found = torch.tensor(answers[0][name][key])
        assert torch.allclose(found, tensor, rtol=0.0, atol=1e-6), key
        is_idle = key.startswith("unused") or (key == "mean" and name != "moving")
        assert torch.equal(before[key], tensor) == is_idle, "the comparison says something about every parameter"
    assert losses(folder / name) == pytest.approx(losses(tmp_path), abs=1e-6)


def test_ranks_draw_different_noise_and_keep_the_same_weights(answers: list[dict[str, Any]]) -> None:
    first, second = (set(answer["draws"]) for answer in answers)
    assert len(first) > 10
    assert not first & second
    assert answers[0]["whole"] == answers[1]["whole"]


def test_layers_draw_different_noise_from_one_torch_seed(answers: list[dict[str, Any]]) -> None:
    """Launchers give all ranks one seed; weights are the same then, noise must not be."""
    (weight, *output), (other_weight, *other) = (answer["layer"] for answer in answers)
    assert weight == other_weight
    assert all(one != two for one, two in zip(output, other, strict=True))


def test_signal_on_one_rank_stops_both_and_the_resumed_run_is_exact(
    folder: Path, answers: list[dict[str, Any]]
) -> None:
    assert [answer["code"] for answer in answers] == [143, 143]
    for answer in answers:
        assert answer["part"] == answer["whole"]
    assert (folder / "part" / "log.jsonl").read_text() == (folder / "whole" / "log.jsonl").read_text()


def test_failure_on_one_rank_stops_both_and_is_reproduced(folder: Path, answers: list[dict[str, Any]]) -> None:
    assert all("the loss is nan at update 1" in answer["failure"] for answer in answers)
    assert {path.name for path in (folder / "poisoned" / "failure").iterdir()} == {
        "model.safetensors",
        *(f"rank-{rank}.{kind}" for rank in range(2) for kind in ("json", "pt")),
    }
    stages = [Stage("fit", epochs=1)]
    batches = [ExactTask((2, 2, 2, 2)).batches(0)[number].tolist() for number in (2, 3)]
    seen = []

    class Watched(ExactTask):
        def step(self, batch: torch.Tensor, stage: Stage, update: int) -> StepOutput:
            seen.append(batch.tolist())
            return super().step(batch, stage, update)

    for rank in range(2):
        replay_failure(Watched(), folder / "poisoned" / "failure", stages=stages, rank=rank)
    assert seen == batches, "each rank has kept its own batch"


def test_other_number_of_ranks_is_refused(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="ranks: 2 in the checkpoint, 1 now"):
        Trainer(NoisyTask(), noisy_settings(), stages=noisy_stages(), output=folder / "whole").run()
