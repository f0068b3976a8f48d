"""Jobs in processes: what finished is kept when others fail, are killed or interrupted."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from probattn.recipes.job_pool import run_jobs


class Strange(Exception):
    """Cannot be made again from its text alone, as it has to be in another process."""

    def __init__(self, first: str, second: str):
        super().__init__(first + second)


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.05)


def work(kind: str, folder: Path) -> str:
    """A job of each kind; notes that it was begun."""
    with (folder / kind).open("a") as file:
        file.write("begun\n")
    if kind == "fails":
        raise ValueError("no such thing")
    if kind == "exits":
        wait_for(folder / "slow")
        raise SystemExit("the time was up")
    if kind == "interrupted":
        wait_for(folder / "slow")
        raise KeyboardInterrupt
    if kind == "strange":
        raise Strange("some", "thing")
    if kind == "killed" or (kind == "killed once" and (folder / kind).read_text().count("begun") == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "slow":  # it is not done before another one has ended
        while not any((folder / other).exists() for other in ("interrupted", "exits", "first")):
            time.sleep(0.05)
        time.sleep(2.0)
    return f"{kind} is done"


def outcomes(kinds: list[str], folder: Path, *, workers: int = 1) -> dict[str, Any]:
    found: dict[str, Any] = {}
    jobs = [(kind, folder) for kind in kinds]
    run_jobs(work, jobs, lambda place, outcome: found.update({kinds[place]: outcome}), workers=workers, title="jobs")
    return found


def test_a_job_that_fails_or_is_killed_does_not_touch_the_others(tmp_path: Path, capfd: Any) -> None:
    kinds = ["fails", "strange", "killed", "killed once", "first", "second"]
    found = outcomes(kinds, tmp_path, workers=2)
    assert str(found["fails"]) == "no such thing"
    assert str(found["strange"]) == "Strange: something" and (tmp_path / "strange").read_text() == "begun\n"
    assert "its process was lost 2 times" in str(found["killed"])
    assert [found[kind] for kind in kinds[3:]] == ["killed once is done", "first is done", "second is done"]
    assert "its job is tried again" in capfd.readouterr().err


@pytest.mark.parametrize(("kind", "error"), [("interrupted", KeyboardInterrupt), ("exits", SystemExit)])
def test_an_interruption_begins_nothing_and_loses_nothing(tmp_path: Path, kind: str, error: type) -> None:
    found: dict[int, Any] = {}
    jobs = [(one, tmp_path) for one in (kind, "slow", "never begun")]
    with pytest.raises(error):
        run_jobs(work, jobs, lambda place, outcome: found.update({place: outcome}), workers=2, title="jobs")
    assert found == {1: "slow is done"}
    assert not (tmp_path / "never begun").exists()


def test_an_error_of_who_keeps_results_loses_none_of_the_others(tmp_path: Path) -> None:
    found: list[str] = []

    def keep(place: int, outcome: Any) -> None:
        if place == 0:
            wait_for(tmp_path / "slow")
            raise OSError("the disk is full")
        found.append(outcome)

    with pytest.raises(OSError, match="the disk is full"):
        run_jobs(work, [(kind, tmp_path) for kind in ("first", "slow", "third")], keep, workers=2, title="jobs")
    assert found == ["slow is done"] and not (tmp_path / "third").exists()


def test_no_jobs_and_no_workers() -> None:
    run_jobs(work, [], lambda place, outcome: None, workers=2, title="jobs")
    with pytest.raises(ValueError, match="expected at least one worker, got 0"):
        run_jobs(work, [], lambda place, outcome: None, workers=0, title="jobs")
