"""Settings that came later than results: at their defaults they change nothing, so those results stay valid."""

import dataclasses
from typing import Any

__all__ = ["added", "without_added"]

_MARK = "added later"


def added(default: Any) -> Any:
    """A dataclass field whose default is what was done before there was a choice."""
    return dataclasses.field(default=default, metadata={_MARK: True})


def without_added(settings: Any, plain: dict[str, Any]) -> dict[str, Any]:
    """Plain data of settings, without the added fields that have their defaults.

    Args:
        settings: A dataclass instance.
        plain: The same as plain data.

    Example:
        >>> @dataclasses.dataclass
        ... class Network:
        ...     width: int = 4
        ...     layers: int = added(1)
        >>> without_added(Network(), {"width": 4, "layers": 1})
        {'width': 4}
        >>> without_added(Network(layers=2), {"width": 4, "layers": 2})
        {'width': 4, 'layers': 2}
    """
    kept = dict(plain)
    for one in dataclasses.fields(settings):
        value = getattr(settings, one.name)
        if one.metadata.get(_MARK) and value == one.default:
            kept.pop(one.name, None)
        else:
            kept |= {one.name: _reduced(value, plain[one.name])} if one.name in plain else {}
    return kept


def _reduced(value: Any, plain: Any) -> Any:
    if dataclasses.is_dataclass(value) and isinstance(plain, dict):
        return without_added(value, plain)
    if isinstance(value, list | tuple) and isinstance(plain, list | tuple) and len(value) == len(plain):
        return [_reduced(*both) for both in zip(value, plain, strict=True)]
    return plain
