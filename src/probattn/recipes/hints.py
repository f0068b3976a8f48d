"""What is wrong with a setting, in a line, and what its name was probably meant to be."""

import difflib
import importlib
import inspect
import re
from collections.abc import Sequence

import probattn

__all__ = ["hint_for", "shortened"]

_UNKNOWN = (
    re.compile(r"unrecognized arguments: --(?P<name>[\w.]+)"),
    re.compile(r"Option '(?P<name>[\w.]+)' is not accepted"),
    re.compile(r"Group '(?P<group>[\w.]+)' does not accept option '(?P<name>[\w.]+)'"),
)
"""How the parser of settings says that it does not know a name."""
_CLASS = re.compile(r"module 'probattn' has no attribute '(?P<name>\w+)'")
_OPTION_OF_CLASS = re.compile(r"class_path '(?P<path>[\w.]+)':\s+Option '(?P<name>\w+)' is not accepted")
_KEY = re.compile(r"Parser key \"(?P<name>[\w.]+)\"")
_NO_REASON = ("Subtypes:", "Errors:", "Given value", "Does not validate", "- Expected a <class 'NoneType'>")
"""Lines of a nested message that say nothing of what is wrong."""
_MOST = 3
"""Names that are suggested at most."""


def hint_for(message: str, known: Sequence[str]) -> str:
    r"""A second line for a message that refuses a setting's name; empty where nothing is near, or nothing was refused.

    Args:
        message: Of the parser.
        known: All names, those inside of sections with dots.

    Example:
        >>> hint_for("unrecognized arguments: --learning_rate=0.1", ["epochs", "trainer.learning_rate"])
        "\nDid you mean 'trainer.learning_rate'?"
    """
    unknown_class = _CLASS.search(message)
    if unknown_class is not None:
        close = difflib.get_close_matches(unknown_class["name"], probattn.__all__, n=1)
        return f"\nDid you mean 'probattn.{close[0]}'?" if close else ""
    of_class = _OPTION_OF_CLASS.search(message)
    if of_class is not None:
        return _options_of(of_class["path"], of_class["name"])
    found = next((match for pattern in _UNKNOWN if (match := pattern.search(message))), None)
    if found is None:
        return ""
    parts = found.groupdict()
    name = ".".join(part for part in (parts.get("group"), parts["name"]) if part)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.8) or _same_end(name, known)
    return f"\nDid you mean {' or '.join(repr(one) for one in near[:_MOST])}?" if near else ""


def _options_of(path: str, name: str) -> str:
    """What a class takes, and which of it was probably meant; it was imported before its options were looked at."""
    module, _, kind = path.rpartition(".")
    known = list(inspect.signature(getattr(importlib.import_module(module), kind)).parameters)
    close = difflib.get_close_matches(name, known, n=1)
    meant = f"Did you mean '{close[0]}'? " if close else ""
    return f"\n{meant}{kind} takes {', '.join(known) or 'no options'}"


def shortened(message: str) -> str:
    r"""The innermost reason of the parser's message with the setting it is about; other messages as they are.

    A setting that may be one of several classes, each with settings of its own, has a message as deep as they are.

    Example:
        >>> nested = 'Parser key "weights":\n  Does not validate\n    - Problem:\n        Parser key "k":\n'
        >>> shortened(nested + "          Expected a number\n  Given value: abc")
        'weights.k: Expected a number'
    """
    lines = message.splitlines()
    reasons = [line for line in lines if line.strip() and not line.strip().startswith(_NO_REASON)]
    if "Does not validate" not in message or not reasons:
        return message
    deepest = max(map(_depth, reasons))
    reason = [line for line in reasons if _depth(line) == deepest]
    keys: list[str] = []
    limit = deepest
    for line in reversed(lines[: lines.index(reason[0])]):
        found = _KEY.search(line)
        if found is not None and _depth(line) < limit:
            keys.insert(0, found["name"])
            limit = _depth(line)
    where = f"{'.'.join(keys)}: " if keys else ""
    return where + ", or ".join(line.strip().removeprefix("- ") for line in reason)


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" -"))


def _same_end(name: str, known: Sequence[str]) -> list[str]:
    """Names of other sections that end alike: the right setting in the wrong place."""
    ends = [one.rpartition(".")[2] for one in known]
    close = difflib.get_close_matches(name.rpartition(".")[2], ends, n=1, cutoff=0.8)
    return [one for one, end in zip(known, ends, strict=True) if end in close]
