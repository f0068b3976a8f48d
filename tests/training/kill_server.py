"""Trains, is killed with SIGKILL at chosen moments, resumes; a process of its own that forks for every attempt.

    python -m tests.training.kill_server FOLDER < chains.json

A chain is a list of moments; a moment is a share of all Python calls of an uninterrupted run, or the n-th call of a
function. After the last moment of a chain the run is finished. The answer, as JSON: what each attempt ended with, and
what the folder holds in the end.
"""

import hashlib
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

import accelerate  # noqa: F401  (imported once, before the forks)
import torch

from probattn.training import Trainer
from tests.training.problems import NoisyTask, noisy_settings, noisy_stages


def count_calls(stop_at: float, name: str | None, report: Path | None) -> None:
    """Kill this process at the n-th call (of the function `name`), or write the number of calls at the end."""
    calls = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        if event not in ("call", "c_call"):
            return
        if name is None or name == (argument.__name__ if event == "c_call" else frame.f_code.co_name):
            calls += 1
            if calls >= stop_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(profile)
    train(sys.argv[1] if report is None else str(report.parent))
    sys.setprofile(None)
    if report is not None:
        report.write_text(str(calls))


def train(folder: str) -> None:
    Trainer(NoisyTask(is_streamed=folder.endswith("1")), noisy_settings(), stages=noisy_stages(), output=folder).run()


def attempt(folder: Path, stop_at: float = float("inf"), name: str | None = None, report: Path | None = None) -> str:
    """One forked run; how it ended."""
    child = os.fork()
    if child == 0:
        try:
            sys.argv[1] = str(folder)
            count_calls(stop_at, name, report)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return "finished" if status == 0 else "error"


def contents(folder: Path) -> dict[str, str]:
    """Digests of what must not depend on interruptions."""
    last = folder / "checkpoints" / (folder / "checkpoints" / "latest").read_text().strip()
    saved = torch.load(last / "training.pt", weights_only=True)
    return {
        "weights": hashlib.sha256((last / "model.safetensors").read_bytes()).hexdigest(),
        "log": (folder / "log.jsonl").read_text(),
        "last": last.name,
        "checkpoints": " ".join(sorted(path.name for path in (folder / "checkpoints").iterdir())),
        "noise": hashlib.sha256(bytes(saved["ranks"][0]["random"]["torch"].tolist())).hexdigest(),
    }


def main() -> None:
    torch.set_num_threads(1)
    base = Path(sys.argv[1])
    train(str(base / "warm-up-0"))  # imports and caches, once for all forks
    answer: dict[str, Any] = {"chains": []}
    for kind in ("0", "1"):  # batches as a list, batches as a stream
        folder = base / f"reference-{kind}"
        folder.mkdir()
        ended = attempt(folder, report=folder / "calls")
        answer[f"reference-{kind}"] = {"ended": ended, **contents(folder)}
    for number, chain in enumerate(json.load(sys.stdin)):
        kind = number % 2
        folder = base / f"chain-{number}-{kind}"
        total = int((base / f"reference-{kind}" / "calls").read_text())
        ended = []
        for moment in chain:
            if isinstance(moment, list):
                ended.append(attempt(folder, moment[1], moment[0]))
            else:
                ended.append(attempt(folder, moment * total))
        ended.append(attempt(folder))
        answer["chains"].append({"kind": kind, "ended": ended, **contents(folder)})
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
