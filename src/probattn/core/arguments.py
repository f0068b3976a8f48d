"""Checks of arguments that are names: a misspelt one would else be taken for one of the others."""

import difflib
from collections.abc import Iterable

__all__ = ["require_choice"]


def require_choice(kind: str, value: str, choices: Iterable[str]) -> None:
    """Raise a ValueError that lists the choices, and the one that was probably meant, unless `value` is among them.

    Example:
        >>> require_choice("split", "tets", ["train", "test"])
        Traceback (most recent call last):
        ValueError: split 'tets' is unknown; did you mean 'test'? Choose from train, test
    """
    names = list(choices)
    if value in names:
        return
    similar = difflib.get_close_matches(str(value), names, n=1)
    meant = f"did you mean {similar[0]!r}? " if similar else ""
    raise ValueError(f"{kind} {value!r} is unknown; {meant}Choose from {', '.join(names)}")
