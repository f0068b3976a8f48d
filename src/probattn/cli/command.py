"""What a command of the command line is."""

import argparse
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from jsonargparse import ArgumentParser, DefaultHelpFormatter, Namespace

__all__ = [
    "RECIPES",
    "Command",
    "HelpFormatter",
    "did_you_mean",
    "gathered",
    "refuse_options",
    "settings_behind_set",
    "settings_first",
    "settings_of",
    "split_dotted",
]

RECIPES = (
    "recall",
    "translation",
    "gat",
    "glue",
    "question_generation",
    "dialogue",
    "pilot_vae",
    "text_vae",
    "vqa",
    "captioning",
)
"""Recipes that can be trained."""

_LISTS = frozenset({"--set", "--rows", "--config", "--test_with", "--lengths", "--names"})
"""Options that take several values."""
_NAMES_FOLLOW = (["--output"], ["--scale"])
"""Options whose value may look like a setting."""
_SETTING = re.compile(r"[A-Za-z_][\w.]*=")
_DOTTED = re.compile(r"--([A-Za-z_]\w*\.[\w.]+)(?:=(.*))?", re.DOTALL)
_ROW = re.compile(rf"({'|'.join(RECIPES)})/")


class HelpFormatter(argparse.RawDescriptionHelpFormatter, DefaultHelpFormatter):
    """Keeps the lines of a description, which hold examples."""


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        summary: One line for the list of commands.
        description: What `--help` says above the options, with examples.
        add_arguments: Adds the options to a parser.
        run: Does the work.
        arrange: Puts the words behind the command's name into the order that the parser wants.
    """

    summary: str
    description: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], None]
    arrange: Callable[[list[str]], list[str]] = list

    def parser(self, name: str) -> ArgumentParser:
        """A parser of the command's own words."""
        parser = ArgumentParser(prog=f"probattn {name}", description=self.description, formatter_class=HelpFormatter)
        self.add_arguments(parser)
        return parser


def gathered(words: list[str]) -> list[str]:
    """The same words with the values of an option that takes several behind its first occurrence.

    argparse would keep the last occurrence alone.

    Example:
        >>> gathered(["gat", "--set", "epochs=2", "--scale", "cora", "--set=seed=1", "--rows", "gat"])
        ['gat', '--set', 'epochs=2', 'seed=1', '--scale', 'cora', '--rows', 'gat']
    """
    found: list[list[str]] = [[]]
    places: dict[str, list[str]] = {}
    for word in words:
        name, has_value, value = word.partition("=")
        if name in _LISTS:
            if name in places:
                found.append(places[name])
            else:
                found.append([name])
                places[name] = found[-1]
            found[-1] += [value] if has_value else []
        elif word.startswith("--"):
            found.append([word])
        else:
            found[-1].append(word)
    unique = {id(group): group for group in found}  # a group that was come back to stays where it began
    return [word for group in unique.values() for word in group]


def settings_first(words: list[str]) -> list[str]:
    """The same words with RECIPE/ROW and then the name=value ones in front, wherever they stood.

    argparse takes positional words in one stretch, so it would refuse those behind an option.

    Example:
        >>> settings_first(["--scale", "demo", "translation/soft", "--output", "run", "seed=1"])
        ['translation/soft', 'seed=1', '--scale', 'demo', '--output', 'run']
        >>> settings_first(["translation/soft", "--output", "rate=3"])
        ['translation/soft', '--output', 'rate=3']
    """
    words, dotted = split_dotted(words)
    is_setting = [
        bool(_SETTING.match(word)) and words[place - 1 : place] not in _NAMES_FOLLOW for place, word in enumerate(words)
    ]
    settings = [*(word for word, is_one in zip(words, is_setting, strict=True) if is_one), *dotted]
    others = [word for word, is_one in zip(words, is_setting, strict=True) if not is_one]
    free = [
        place for place, word in enumerate(others) if _ROW.match(word) and not _is_option(others[place - 1 : place])
    ]
    row = [others.pop(free[0])] if free else others[:1]
    return [*row, *settings, *(others if free else others[1:])]


def settings_behind_set(words: list[str]) -> list[str]:
    """The same words with dotted options as settings behind --set.

    Example:
        >>> settings_behind_set(["translation", "--corpus.src", "my.de", "--set", "epochs=2"])
        ['translation', '--set', 'corpus.src=my.de', 'epochs=2']
    """
    others, settings = split_dotted(words)
    if not settings:
        return others
    others = others if "--set" in others else [*others, "--set"]
    place = others.index("--set") + 1
    return [*others[:place], *settings, *others[place:]]


def split_dotted(words: list[str]) -> tuple[list[str], list[str]]:
    """Words without options that have a dot in their names, and those as settings; `data.` is read as `corpus.`.

    Example:
        >>> split_dotted(["--data.src", "my.de", "--corpus.tgt=my.en", "--scale", "files"])
        (['--scale', 'files'], ['corpus.src=my.de', 'corpus.tgt=my.en'])
    """
    others: list[str] = []
    settings: list[str] = []
    rest = iter(words)
    for word in rest:
        match = _DOTTED.fullmatch(word)
        if match is None:
            others.append(word)
            continue
        name = re.sub(r"^data\.", "corpus.", match[1])
        value = match[2] if match[2] is not None else next(rest, None)
        if value is None:
            raise SystemExit(f"{word} needs a value: {word} VALUE, or {name}=VALUE")
        settings.append(f"{name}={value}")
    return others, settings


def _is_option(words: list[str]) -> bool:
    return bool(words) and words[0].startswith("--") and "=" not in words[0]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message that refuses a name: the nearest known one, if any, and all of them.

    Example:
        >>> did_you_mean("trian", ["ls", "train"])
        "Did you mean 'train'? There are: ls, train"
    """
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1)
    return (f"Did you mean {near[0]!r}? " if near else "") + f"There are: {', '.join(names)}"


def refuse_options(arguments: Namespace, defaults: Mapping[str, object], reason: str) -> None:
    """No option is accepted and ignored.

    Args:
        arguments: What was given.
        defaults: Values of the options that would be without effect, where they were not given.
        reason: Why, as the end of the message.

    Raises:
        ValueError: If one of them was given.
    """
    given = [name for name, default in defaults.items() if arguments[name] != default]
    if given:
        raise ValueError(f"--{given[0]} {reason}")


def settings_of(words: list[str]) -> dict[str, str]:
    """Settings given as name=value."""
    wrong = [word for word in words if "=" not in word]
    if wrong:
        raise SystemExit(f"settings are given as name=value, got {wrong}")
    return dict(word.split("=", 1) for word in words)
