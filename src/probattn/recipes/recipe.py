"""What a recipe is to the command line: settings, a training function, a report; and how its YAML files are read."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jsonargparse import ArgumentError, ArgumentParser, Namespace

from probattn.recipes.hints import hint_for, shortened
from probattn.recipes.results import RowResult

CONFIGS = Path(__file__).parent / "configs"


@dataclass(frozen=True)
class Run:
    """One row to be trained.

    Attributes:
        settings: The recipe's dataclass.
        plain: The same as plain data, from which `Recipe.build` makes the settings again; saved with a trained model.
        output: Folder of checkpoints, logs and the trained model.
        show_progress: Whether to show progress bars.
        keeps_model: Whether to save the trained model; not in comparisons of a recipe that keeps results only.
        is_replay: Whether to repeat the update that stopped this run instead of training.
    """

    settings: Any
    plain: Mapping[str, Any]
    output: Path
    show_progress: bool = True
    keeps_model: bool = True
    is_replay: bool = False


@dataclass(frozen=True)
class Recipe:
    """One task of the library.

    Attributes:
        name: Also the folder of its rows in `configs/`.
        settings: Dataclass of one row.
        train: From a run to its result. Goes on where the run stopped.
        write_report: From the recipe's name, results and a folder, to the text that ends a comparison.
        load_model: Opens the folder of a trained model, given its settings; None where models are not kept.
        default_scale: Which file of `configs/<name>/scale/` is used when none is named; None where there are no scales.
        packs_seeds: Whether all seeds of a row share a result file, for many short runs.
        keeps_runs: Whether runs of a comparison have folders with checkpoints or models; short ones leave results only.
        row_home: Recipe in whose folder the rows are, where recipes share them; None for the recipe's own.
    """

    name: str
    settings: type
    train: Callable[[Run], RowResult]
    write_report: Callable[[str, Sequence[RowResult], Path], str]
    load_model: Callable[[Any, Path], Any] | None = None
    default_scale: str | None = None
    packs_seeds: bool = False
    keeps_runs: bool = True
    row_home: str | None = None

    @property
    def rows(self) -> list[str]:
        """Names of the rows, in the order of the folder's `ORDER` file, others after them."""
        folder = CONFIGS / (self.row_home or self.name)
        names = sorted(path.stem for path in self.row_folder(self.default_scale).glob("*.yaml"))
        order_file = folder / "ORDER"
        order = order_file.read_text().split() if order_file.exists() else []
        return [name for name in order if name in names] + [name for name in names if name not in order]

    @property
    def scales(self) -> list[str]:
        """Names of the scales."""
        return sorted(path.stem for path in (CONFIGS / self.name / "scale").glob("*.yaml"))

    def row_folder(self, scale: str | None) -> Path:
        """Where the rows are: a folder with the scale's name where rows differ between scales."""
        home = CONFIGS / (self.row_home or self.name)
        own = home / (scale or "")
        return own if own.is_dir() else home

    def configs(self, row: str, scale: str | None) -> list[Path]:
        """YAML files of a row at a scale; the later one wins.

        Raises:
            SystemExit: If there is no such row or scale; names the nearest.
        """
        scale = self.default_scale if scale is None else scale
        if scale is not None:
            scale = _known(scale, self.scales, "scale", self.name)
        files = [self.row_folder(scale) / f"{_known(row, self.rows, 'row', self.name)}.yaml"]
        if scale is not None:
            files.append(CONFIGS / self.name / "scale" / f"{scale}.yaml")
        return files

    def load(self, configs: Sequence[Path], overrides: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Settings from YAML files with overrides, and the same as plain data, which `load` of a saved model reads.

        Sites and other modules are built with the settings' seed.

        Raises:
            SystemExit: If a key or value is wrong; names it.
            ValueError: If values do not go together, or a class refuses one.
        """
        parser = self._parser()
        words = [word for config in configs for word in ("--config", str(config))]
        words += [f"--{key}={value}" for key, value in overrides.items()]
        try:
            namespace = parser.parse_args(words)
        except ArgumentError as error:
            raise SystemExit(
                f"{', '.join(config.name for config in configs)}: {shortened(str(error))}"
                f"{hint_for(str(error), _names(parser))}"
            ) from error
        namespace.pop("config", None)
        try:
            return self._built(parser, namespace), namespace.as_dict()
        except ValueError as error:  # of a class that was handed a value it refuses
            raise ValueError(f"{', '.join(config.name for config in configs)}: {shortened(str(error))}") from error

    def describe(self, configs: Sequence[Path]) -> str:
        """All settings that YAML files give, defaults included, as YAML."""
        parser = self._parser()
        words = [word for config in configs for word in ("--config", str(config))]
        namespace = parser.parse_args(words)
        namespace.pop("config", None)
        return str(parser.dump(namespace))

    def build(self, plain: Mapping[str, Any]) -> Any:
        """Settings from the plain data that `load` gave.

        Raises:
            ValueError: If the data does not fit this version's settings; says where.
        """
        parser = self._parser()
        try:
            return self._built(parser, parser.parse_object(dict(plain)))
        except ArgumentError as error:
            raise ValueError(f"these are no settings of '{self.name}': {error}") from error

    def _parser(self) -> ArgumentParser:
        parser = ArgumentParser(exit_on_error=False, allow_abbrev=False)
        parser.add_class_arguments(self.settings, None)
        parser.add_argument("--config", action="config")
        return parser

    def _built(self, parser: ArgumentParser, namespace: Namespace) -> Any:
        torch.manual_seed(int(namespace.seed))
        built = parser.instantiate(namespace)
        return self.settings(**{key: value for key, value in vars(built).items() if key != "config"})


def _names(parser: ArgumentParser) -> list[str]:
    return [name for name in parser.get_defaults().keys() if name != "config"]  # noqa: SIM118


def _known(name: str, choices: Sequence[str], kind: str, recipe: str) -> str:
    if name in choices:
        return name
    if not choices:
        raise SystemExit(f"'{recipe}' has no {kind}s, got '{name}'")
    close = difflib.get_close_matches(name, choices, n=1)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    raise SystemExit(f"'{recipe}' has no {kind} '{name}'.{hint} There are: {', '.join(choices)}")
