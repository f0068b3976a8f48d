"""A run that is killed at any moment and resumed ends as one that was never interrupted."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from probattn.training import Trainer, TrainerSettings, TrainingInterrupted
from tests.training.once import run_once
from tests.training.problems import ExactTask, NoisyTask, noisy_settings, noisy_stages, weights_of

ROOT = Path(__file__).resolve().parents[2]

# Moments that random ones might miss: (function, how many calls of it). Every chain ends with an undisturbed attempt.
CHAINS: dict[str, list[Any]] = {
    "before the first checkpoint": [["replace", 1]],
    "in a forward pass": [["step", 9]],
    "in a backward pass": [["backward", 22]],
    "after the optimiser, before the buffers": [["after_update", 17]],
    "in a validation": [["validate", 4]],
    "in a validation, twice": [["validate", 3], ["validate", 1]],
    "between stages": [["next_stage", 1]],
    "handing over the best weights": [["load_model", 1]],
    "opening the second stage": [["set_trainable", 2]],
    "before the weights are on the disk": [["save_model", 5]],
    "before the manifest": [["write_json", 8]],
    "before the rename": [["replace", 9]],
    "after the rename, before the pointers": [["write_pointer", 7]],
    "while an old checkpoint is deleted": [["rmtree", 14], ["unlink", 3]],
    "while the log is cut": [["fsync", 60], ["truncate", 1], ["restore", 1]],
    "in the last save": [["write_pointer", 15]],
    "after the end": [["_asdict_inner", 10**9]],
}
SEEDS = range(12)
LAST = 22  # the second stage has 12 updates, and stops one update early


def random_chain(seed: int) -> list[float]:
    """One to three moments, as shares of all calls of an uninterrupted run."""
    generator = random.Random(seed)
    return [generator.random() ** 1.5 for _ in range(generator.randint(1, 3))]


ALL_CHAINS = {**CHAINS, **{f"random {seed}": random_chain(seed) for seed in SEEDS}}


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the process that is killed again and again reports."""
    folder = run_once(tmp_path_factory, "killed", kill_again_and_again)
    return dict(json.loads((folder / "answer.json").read_text()))


def kill_again_and_again(folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.kill_server", str(folder)],
        input=json.dumps(list(ALL_CHAINS.values())),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (folder / "answer.json").write_text(json.dumps({**json.loads(done.stdout), "stderr": done.stderr}))


def test_reference_runs_finish(answer: dict[str, Any]) -> None:
    for kind in ("reference-0", "reference-1"):
        assert answer[kind]["ended"] == "finished"
        assert answer[kind]["last"] == f"update-{LAST:06d}"
    assert answer["reference-0"]["weights"] == answer["reference-1"]["weights"], "a stream and a list are the same data"


@pytest.mark.parametrize("number", range(len(ALL_CHAINS)), ids=list(ALL_CHAINS))
def test_killed_run_ends_alike(number: int, answer: dict[str, Any]) -> None:
    chain, name = answer["chains"][number], list(ALL_CHAINS)[number]
    *attempts, last = chain["ended"]
    assert last == "finished", answer["stderr"]
    assert "error" not in attempts, answer["stderr"]
    if name in CHAINS and name != "after the end":
        assert attempts[0] == "SIGKILL", "the moment never came; choose an earlier one"
    reference = answer[f"reference-{chain['kind']}"]
    for part in ("log", "weights", "noise", "last", "checkpoints"):
        assert chain[part] == reference[part], part


def test_random_moments_do_kill(answer: dict[str, Any]) -> None:
    ends = [end for chain in answer["chains"][len(CHAINS) :] for end in chain["ended"][:-1]]
    assert ends.count("SIGKILL") >= len(SEEDS)


class Signalling(NoisyTask):
    """Sends itself a signal in the given step."""

    number: int = signal.SIGINT
    at: int = -1

    def step(self, batch: torch.Tensor, stage: Any, update: int) -> Any:
        if stage.name == "first" and update == self.at:
            self.at = -1
            os.kill(os.getpid(), self.number)
        return super().step(batch, stage, update)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_saves_and_says_how_to_resume(number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, task = NoisyTask(), Signalling()
    Trainer(whole, noisy_settings(), stages=noisy_stages(), output=tmp_path / "whole").run()
    task.number, task.at = number, 6
    handler = signal.getsignal(number)
    with pytest.raises(TrainingInterrupted) as caught:
        Trainer(task, noisy_settings(), stages=noisy_stages(), output=tmp_path / "part").run()
    assert caught.value.code == 128 + number
    assert signal.getsignal(number) is handler
    assert "Run the same command again to resume" in capsys.readouterr().err
    assert (tmp_path / "part" / "checkpoints" / "latest").read_text() == "update-000007\n"
    resumed = NoisyTask()
    Trainer(resumed, noisy_settings(), stages=noisy_stages(), output=tmp_path / "part").run()
    for name, tensor in weights_of(whole).items():
        assert torch.equal(tensor, weights_of(resumed)[name]), name
    assert (tmp_path / "part" / "log.jsonl").read_text() == (tmp_path / "whole" / "log.jsonl").read_text()


def test_max_seconds_stops_and_the_next_run_continues(tmp_path: Path) -> None:
    whole, settings = NoisyTask(), noisy_settings(max_seconds=1e-9)
    Trainer(whole, noisy_settings(), stages=noisy_stages(), output=tmp_path / "whole").run()
    for number in range(1, LAST + 1):
        task = NoisyTask()
        result = Trainer(task, settings, stages=noisy_stages(), output=tmp_path / "parts").run()
        assert (result.updates, result.is_finished) == (number, number == LAST)
    assert (tmp_path / "parts" / "log.jsonl").read_text() == (tmp_path / "whole" / "log.jsonl").read_text()
    for name, tensor in weights_of(whole).items():
        assert torch.equal(tensor, weights_of(task)[name]), name


def test_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    settings = TrainerSettings(tensorboard=False)
    stages = noisy_stages()[1:]
    first = Trainer(NoisyTask(), settings, stages=stages, output=tmp_path).run()
    task = NoisyTask()
    task.step = None  # type: ignore[assignment, method-assign]
    second = Trainer(task, settings, stages=stages, output=tmp_path).run()
    assert first == second


def test_validation_does_not_change_training(tmp_path: Path) -> None:
    """Evaluation has a stream of its own: how often it runs leaves weights and noise alone."""
    ends = []
    for every in (1, 7, None):
        task = NoisyTask()
        settings = TrainerSettings(validate_every=every, tensorboard=False)  # type: ignore[arg-type]
        Trainer(task, settings, stages=noisy_stages()[1:], output=tmp_path / str(every)).run()
        ends.append(weights_of(task))
    for name, tensor in ends[0].items():
        assert all(torch.equal(tensor, end[name]) for end in ends), name


def test_deleted_log_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = TrainerSettings(log_every=1, max_seconds=1e-9, tensorboard=False)
    stages = noisy_stages()[1:]
    Trainer(NoisyTask(), settings, stages=stages, output=tmp_path).run()
    (tmp_path / "log.jsonl").unlink()
    Trainer(NoisyTask(), settings, stages=stages, output=tmp_path).run()
    assert "shorter than the checkpoint says" in capsys.readouterr().err


def test_exact_task_is_what_it_says() -> None:
    task = ExactTask()
    assert [len(batch) for batch in task.batches(0)] == list(task.batch_sizes)
