"""Libraries of the extra `eval`, imported when a metric asks for them."""

import importlib
from typing import Any

__all__ = ["import_for_eval"]


def import_for_eval(module: str) -> Any:
    """The module of this dotted name.

    Raises:
        ImportError: If its package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f"this metric needs {package}; install it with: pip install 'probattn[eval]'") from error
