"""Rows times seeds in parallel processes, with results on disk: what every comparison recipe shares.

Each finished (row, seed) is one JSON file, written atomically. A comparison that was interrupted goes on where it
stopped; a file that was made with other settings is not reused.
"""

import hashlib
import json
import multiprocessing
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from jsonargparse import ArgumentError, ArgumentParser, Namespace
from tqdm import tqdm

from probattn import __version__
from probattn.recipes.report import write_report
from probattn.recipes.results import RowResult

CONFIGS = Path(__file__).parent / "configs"


def rows_of(task: str) -> list[str]:
    """Names of a task's rows, in the order of its `ORDER` file, others after them."""
    folder = CONFIGS / task
    names = sorted(path.stem for path in folder.glob("*.yaml"))
    order_file = folder / "ORDER"
    order = order_file.read_text().split() if order_file.exists() else []
    return [name for name in order if name in names] + [name for name in names if name not in order]


def resolve_config(name: str) -> Path:
    """A path as it is, or `task/row.yaml` inside the package."""
    for candidate in (Path(name), CONFIGS / name, CONFIGS / f"{name}.yaml"):
        if candidate.is_file():
            return candidate
    raise SystemExit(f"no config file '{name}'. Give a path, or one of: {', '.join(_all_configs())}")


def run_recipe(task: str, settings_class: type, train: Callable[..., RowResult], argv: list[str] | None = None) -> None:
    """Command line of a comparison recipe: `train` one row, or `compare` several."""
    parser = ArgumentParser(prog=f"probattn.recipes.{task}", description=f"Train or compare the rows of '{task}'.")
    commands = parser.add_subcommands()
    commands.add_subcommand("train", _train_parser(), help="one row, from a YAML file and overrides")
    commands.add_subcommand("compare", _compare_parser(task), help="several rows and seeds, a table and a report")
    arguments = parser.parse_args(argv)
    if arguments.subcommand == "train":
        _run_train(settings_class, train, arguments.train)
    else:
        _run_compare(task, settings_class, train, arguments.compare)


def _train_parser() -> ArgumentParser:
    parser = ArgumentParser()
    parser.add_argument("--config", required=True, help="YAML file of the row, e.g. recall/marginal")
    parser.add_argument("--output", type=Path, default=None, help="JSON file of the result")
    parser.add_argument("overrides", nargs="*", help="settings, e.g. updates=100 seed=3")
    return parser


def _compare_parser(task: str) -> ArgumentParser:
    parser = ArgumentParser()
    parser.add_argument("--rows", nargs="+", type=str, default=rows_of(task), help="rows to compare; all by default")
    parser.add_argument("--num_seeds", type=int, default=1, help="seeds 0, 1, ... of every row")
    parser.add_argument("--output", type=Path, default=Path("runs") / task, help="folder of results and report")
    parser.add_argument("--workers", type=int, default=2, help="processes, one thread each")
    parser.add_argument("--updates", type=int, default=None, help="updates of every row, for a quick look")
    return parser


def load_settings(settings_class: type, config: Path, overrides: Mapping[str, Any]) -> Any:
    """Settings from a YAML file with overrides; sites and other modules are built with the settings' seed."""
    parser = ArgumentParser(exit_on_error=False, allow_abbrev=False)
    parser.add_class_arguments(settings_class, None)
    parser.add_argument("--config", action="config")
    arguments = ["--config", str(config), *(f"--{key}={value}" for key, value in overrides.items())]
    namespace = parser.parse_args(arguments)
    torch.manual_seed(int(namespace.seed))
    built = parser.instantiate(namespace)
    values = {key: getattr(built, key) for key in vars(built) if key not in ("config",)}
    return settings_class(**values)


def _run_train(settings_class: type, train: Callable[..., RowResult], arguments: Namespace) -> None:
    wrong = [item for item in arguments.overrides if "=" not in item]
    if wrong:
        raise SystemExit(f"settings are given as name=value, got {wrong}")
    overrides = dict(item.split("=", 1) for item in arguments.overrides)
    try:
        settings = load_settings(settings_class, resolve_config(arguments.config), overrides)
    except ArgumentError as error:
        raise SystemExit(f"{arguments.config}: {error}") from error
    result = train(settings)
    text = json.dumps(asdict(result), indent=1)
    if arguments.output is not None:
        _write_atomically(arguments.output, text)
    print(text)


def _run_compare(task: str, settings_class: type, train: Callable[..., RowResult], arguments: Namespace) -> None:
    unknown = [row for row in arguments.rows if row not in rows_of(task)]
    if unknown:
        raise SystemExit(f"unknown rows {unknown}; '{task}' has {rows_of(task)}")
    overrides = {} if arguments.updates is None else {"updates": arguments.updates}
    jobs = [(row, seed) for seed in range(arguments.num_seeds) for row in arguments.rows]
    results, waiting = _finished(task, jobs, overrides, arguments.output)
    if results:
        print(f"{len(results)} of {len(jobs)} results were there already in {arguments.output}")
    # fork would copy torch's thread pools, which then hang
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=max(1, arguments.workers), mp_context=context) as pool:
        running = {pool.submit(_run_job, task, settings_class, train, *job, overrides): job for job in waiting}
        for future in tqdm(as_completed(running), total=len(running), desc="rows", file=sys.stderr):
            row, seed = running[future]
            result = future.result()
            results[row, seed] = result
            _write_result(task, result, overrides, arguments.output)
    ordered = [results[job] for job in jobs]
    print(write_report(task, ordered, arguments.output))


def _run_job(
    task: str, settings_class: type, train: Callable[..., RowResult], row: str, seed: int, overrides: Mapping[str, Any]
) -> RowResult:
    torch.set_num_threads(1)
    settings = load_settings(settings_class, CONFIGS / task / f"{row}.yaml", {**overrides, "seed": seed})
    return train(settings, show_progress=False)


def _finished(
    task: str, jobs: Sequence[tuple[str, int]], overrides: Mapping[str, Any], output: Path
) -> tuple[dict[tuple[str, int], RowResult], list[tuple[str, int]]]:
    """Results that are on disk already with the same settings, and the jobs that are left."""
    done: dict[tuple[str, int], RowResult] = {}
    for row, seed in jobs:
        path = output / f"{row}-seed{seed}.json"
        try:
            stored = json.loads(path.read_text())
        except FileNotFoundError:
            continue
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            print(f"{path} is not a result file ({error}); the row is run again", file=sys.stderr)
            continue
        if stored.get("fingerprint") == _fingerprint(task, row, overrides):
            done[row, seed] = RowResult(**stored["result"])
    return done, [job for job in jobs if job not in done]


def _write_result(task: str, result: RowResult, overrides: Mapping[str, Any], output: Path) -> None:
    record = {
        "fingerprint": _fingerprint(task, result.row, overrides),
        "command": f"python -m probattn.recipes.{task} compare --rows {result.row}",
        "overrides": dict(overrides),
        "version": __version__,
        "commit": _commit(),
        "torch": torch.__version__.split("+")[0],
        "machine": f"{platform.machine()}, 1 thread",
        "result": asdict(result),
    }
    _write_atomically(output / f"{result.row}-seed{result.seed}.json", json.dumps(record, indent=1) + "\n")


def _fingerprint(task: str, row: str, overrides: Mapping[str, Any]) -> str:
    text = (CONFIGS / task / f"{row}.yaml").read_text() + json.dumps(dict(overrides), sort_keys=True) + __version__
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _write_atomically(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    partial.replace(path)


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def _all_configs() -> list[str]:
    return [
        f"{folder.name}/{row}"
        for folder in sorted(CONFIGS.iterdir())
        if folder.is_dir()
        for row in rows_of(folder.name)
    ]
