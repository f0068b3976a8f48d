"""Lets mkdocstrings read the heading `Example:`, which the Google style has in the plural only.

Without this an example is set as running text, where its prompts become quotations and its lists become links.
"""

import re
from typing import Any

import griffe

__all__ = ["SingularExample"]


class SingularExample(griffe.Extension):
    """Renames the heading in every docstring before it is parsed."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
