"""Finished results on disk: one JSON file per row and seed, or one per row with a line for every seed."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from probattn.recipes.results import RowResult

__all__ = ["ResultStore", "paths_in", "read_results", "unused_name", "without_paths", "write_atomically"]


@dataclass(frozen=True)
class ResultStore:
    """The results of one folder. Files are whole or not there; a damaged one counts as absent and is said so.

    Attributes:
        folder: Where the files are.
        packs_seeds: Whether all seeds of a row share a file, for recipes with many short runs.
    """

    folder: Path
    packs_seeds: bool = False

    def path(self, row: str, seed: int) -> Path:
        """The file of a result."""
        return self.folder / (f"{row}.json" if self.packs_seeds else f"{row}-seed{seed}.json")

    def find(self, row: str, seed: int, fingerprint: str) -> RowResult | None:
        """The result of a row and seed with these settings; None where there is none."""
        for record in self._records(self.path(row, seed)):
            if record.get("fingerprint") == fingerprint and record["result"]["seed"] == seed:
                return RowResult(**record["result"])
        return None

    def add(self, result: RowResult, about: Mapping[str, Any]) -> None:
        """Write a result with what is known about its making.

        One of the same row, seed and settings is replaced; a file of other settings is kept under another name.
        """
        path, record = self.path(result.row, result.seed), {**about, "result": asdict(result)}
        known = self._records(path)
        others = [other for other in known if other["fingerprint"] == about["fingerprint"]]
        if len(others) < len(known):
            aside = unused_name(path.with_name(f"{path.stem}-{known[0]['fingerprint']}.json.old"))
            print(f"{path} held results with other settings; they are now in {aside}", file=sys.stderr)
            write_atomically(aside, path.read_text())
        if not self.packs_seeds:
            write_atomically(path, json.dumps(record, indent=1) + "\n")
            return
        others = [other for other in others if other["result"]["seed"] != result.seed]
        records = sorted([*others, record], key=lambda one: int(one["result"]["seed"]))
        write_atomically(path, "[\n" + ",\n".join(json.dumps(one) for one in records) + "\n]\n")

    def _records(self, path: Path) -> list[dict[str, Any]]:
        try:
            content = json.loads(path.read_text())
        except FileNotFoundError:
            return []
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            print(f"{path} is not a result file ({error}); the row is run again", file=sys.stderr)
            return []
        return content if isinstance(content, list) else [content]


def read_results(paths: Sequence[Path]) -> list[RowResult]:
    """All results of some files of either kind, in the order of files and seeds.

    Raises:
        ValueError: If the seeds of a row were run with different settings.
    """
    contents = [json.loads(path.read_text()) for path in paths]
    records = [record for content in contents for record in (content if isinstance(content, list) else [content])]
    fingerprints: dict[str, str] = {}
    for record in records:
        row = record["result"]["row"]
        if fingerprints.setdefault(row, record["fingerprint"]) != record["fingerprint"]:
            raise ValueError(f"the seeds of row '{row}' were run with different settings; run the comparison again")
    return [RowResult(**record["result"]) for record in records]


def write_atomically(path: Path, text: str) -> None:
    """Write a file that is whole or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():  # a device or a pipe, which must not be replaced
        with path.open("w", encoding="utf-8") as stream:
            stream.write(text)
        return
    path = path.resolve()  # what a link leads to, not the link
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def unused_name(path: Path) -> Path:
    """The path, or, where something is there already, with the first free number behind it.

    Example:
        >>> unused_name(Path("/")).as_posix()
        '/-2'
    """
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.parent / f"{path.name}-{number}"
    return free


def paths_in(plain: Any) -> list[Path]:
    """All paths in plain data."""
    if isinstance(plain, Mapping):
        return [path for value in plain.values() for path in paths_in(value)]
    return [plain] if isinstance(plain, Path) else []


def without_paths(value: Any) -> Any:
    """The same plain data with paths as text, for JSON; absolute, so that they hold from any folder."""
    if isinstance(value, Mapping):
        return {key: without_paths(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(item) for item in value]
    return str(value.absolute()) if isinstance(value, Path) else value
