"""Jobs in processes: what finished is kept when others fail, are killed or interrupted."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from probattn.recipes.job_pool import run_jobs


def work(kind: str, folder: Path) -> str:
    """A job of each kind; notes that it was begun."""
    with (folder / kind).open("a") as file:
        file.write("begun\n")
    if kind == "fails":
        raise ValueError("no such thing")
    if kind == "exits":
        raise SystemExit("the time was up")
    if kind == "interrupted":
        while not (folder / "slow").exists():  # so that another one runs when this one ends
            time.sleep(0.05)
        raise KeyboardInterrupt
    if kind == "killed" or (kind == "killed once" and (folder / kind).read_text().count("begun") == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "slow":
        time.sleep(2.0)
    return f"{kind} is done"


def outcomes(kinds: list[str], folder: Path, *, workers: int = 1) -> dict[str, Any]:
    found: dict[str, Any] = {}
    jobs = [(kind, folder) for kind in kinds]
    run_jobs(work, jobs, lambda place, outcome: found.update({kinds[place]: outcome}), workers=workers, title="jobs")
    return found


def test_a_job_that_fails_or_is_killed_does_not_touch_the_others(tmp_path: Path, capfd: Any) -> None:
    kinds = ["fails", "killed", "killed once", "first", "second"]
    found = outcomes(kinds, tmp_path, workers=2)
    assert str(found["fails"]) == "no such thing"
    assert "its process was lost 2 times" in str(found["killed"])
    assert [found[kind] for kind in kinds[2:]] == ["killed once is done", "first is done", "second is done"]
    assert "its job is tried again" in capfd.readouterr().err


@pytest.mark.parametrize(("kind", "error"), [("interrupted", KeyboardInterrupt), ("exits", SystemExit)])
def test_an_interruption_begins_nothing_and_loses_nothing(tmp_path: Path, kind: str, error: type) -> None:
    found: dict[int, Any] = {}
    jobs = [(one, tmp_path) for one in (kind, "slow", "never begun")]
    with pytest.raises(error):
        run_jobs(work, jobs, lambda place, outcome: found.update({place: outcome}), workers=2, title="jobs")
    # "slow" ran beside it, or was not begun yet: then it is not there either
    assert found == ({1: "slow is done"} if (tmp_path / "slow").exists() else {})
    assert not (tmp_path / "never begun").exists()


def test_an_error_of_who_keeps_results_loses_none_of_the_others(tmp_path: Path) -> None:
    found: list[str] = []

    def keep(place: int, outcome: Any) -> None:
        if place == 0:
            while not (tmp_path / "slow").exists():
                time.sleep(0.05)
            raise OSError("the disk is full")
        found.append(outcome)

    with pytest.raises(OSError, match="the disk is full"):
        run_jobs(work, [(kind, tmp_path) for kind in ("first", "slow", "third")], keep, workers=2, title="jobs")
    assert found == ["slow is done"] and not (tmp_path / "third").exists()


def test_no_jobs() -> None:
    run_jobs(work, [], lambda place, outcome: None, workers=2, title="jobs")
