"""What a command of the command line is."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from jsonargparse import ArgumentParser, DefaultHelpFormatter, Namespace

__all__ = ["RECIPES", "Command", "HelpFormatter", "settings_of"]

RECIPES = ("recall", "translation")
"""Recipes that can be trained."""


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
    """

    summary: str
    description: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], None]

    def parser(self, name: str) -> ArgumentParser:
        """A parser of the command's own words."""
        parser = ArgumentParser(prog=f"probattn {name}", description=self.description, formatter_class=HelpFormatter)
        self.add_arguments(parser)
        return parser


def settings_of(words: list[str]) -> dict[str, str]:
    """Settings given as name=value."""
    wrong = [word for word in words if "=" not in word]
    if wrong:
        raise SystemExit(f"settings are given as name=value, got {wrong}")
    return dict(word.split("=", 1) for word in words)
