"""What a wrong name of a setting was probably meant to be."""

import difflib
import re
from collections.abc import Sequence

__all__ = ["hint_for"]

_UNKNOWN = (
    re.compile(r"unrecognized arguments: --(?P<name>[\w.]+)"),
    re.compile(r"Option '(?P<name>[\w.]+)' is not accepted"),
    re.compile(r"Group '(?P<group>[\w.]+)' does not accept option '(?P<name>[\w.]+)'"),
)
"""How the parser of settings says that it does not know a name."""
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
    found = next((match for pattern in _UNKNOWN if (match := pattern.search(message))), None)
    if found is None:
        return ""
    parts = found.groupdict()
    name = ".".join(part for part in (parts.get("group"), parts["name"]) if part)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.8) or _same_end(name, known)
    return f"\nDid you mean {' or '.join(repr(one) for one in near[:_MOST])}?" if near else ""


def _same_end(name: str, known: Sequence[str]) -> list[str]:
    """Names of other sections that end alike: the right setting in the wrong place."""
    ends = [one.rpartition(".")[2] for one in known]
    close = difflib.get_close_matches(name.rpartition(".")[2], ends, n=1, cutoff=0.8)
    return [one for one, end in zip(known, ends, strict=True) if end in close]
