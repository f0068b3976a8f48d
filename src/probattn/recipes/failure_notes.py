"""What went wrong in a folder of results, kept beside them, so that nobody takes a failed row for one left out."""

import json
from collections.abc import Mapping
from pathlib import Path

from probattn.recipes.storage import write_atomically

__all__ = ["FAILURES_FILE", "note_failures"]

FAILURES_FILE = "failures.json"
"""Messages by row and seed; not there where nothing failed."""
_HEADING = "Failed, so not in the table:"


def note_failures(output: Path, failures: Mapping[tuple[str, int], Exception]) -> None:
    """Write the failures of a folder, in place of those before, and say at the end of its `table.md` what failed.

    Args:
        output: The folder.
        failures: By row and seed.
    """
    path, table = output / FAILURES_FILE, output / "table.md"
    if not failures:
        path.unlink(missing_ok=True)
        return
    text = table.read_text(encoding="utf-8").split(_HEADING)[0].rstrip("\n") if table.exists() else ""
    messages = {f"{row}, seed {seed}": str(error) for (row, seed), error in failures.items()}
    write_atomically(path, json.dumps(messages, indent=1) + "\n")
    lines = [f"- {name}: {message.splitlines()[0] if message else 'no message'}" for name, message in messages.items()]
    write_atomically(table, "\n".join([text, "", _HEADING, "", *lines]).lstrip() + "\n")
