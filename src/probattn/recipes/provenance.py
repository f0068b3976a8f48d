"""Which code made a result: the commit that runs now, and every commit that a run was trained with."""

import subprocess
from functools import cache
from pathlib import Path

__all__ = ["commit", "note_commit", "trained_with"]

_FILE = "commits"
_UNKNOWN = "unrecorded"  # of checkpoints that are older than this file


@cache  # of the code in memory: what is committed while a process runs is not what it runs
def commit() -> str:
    """The commit of the code that runs, as it was when the process first asked.

    With "-dirty" where files of the package differ from it; "unknown" without git, and where the package is
    installed: a repository around the environment is not ours.
    """
    folder = str(Path(__file__).parent.parent)

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=False)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    found = git("rev-parse", "--short", "HEAD")
    if found is None or git("ls-files", "--error-unmatch", "--", __file__) is None:
        return "unknown"
    return f"{found}-dirty" if git("status", "--porcelain", "--", folder) else found


def note_commit(run: Path) -> None:
    """Add the code that runs to the list in a run's folder, unless it is the last one there."""
    known = trained_with(run)
    if not known and any((run / "checkpoints").glob("update-*")):
        known = [_UNKNOWN]
    if known[-1:] != [commit()]:
        run.mkdir(parents=True, exist_ok=True)
        (run / _FILE).write_text("\n".join([*known, commit()]) + "\n")


def trained_with(run: Path) -> list[str]:
    """Commits of a run, first to last; several where it was resumed with other code.

    Args:
        run: Its folder, or that of its model.
    """
    path = (run.absolute().parent if run.absolute().name == "model" else run) / _FILE
    return path.read_text().split() if path.exists() else []
