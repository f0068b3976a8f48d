"""Make the notebook of a page of the docs: its text and code as cells, run once, with what they print and draw.

python scripts/make_notebook.py            # writes notebooks/*.ipynb, and the pictures of the pages
python scripts/make_notebook.py --check    # fails where a notebook has not the text and code of its page

The page is what is edited. Lines of it that show a stored picture are left out of the notebook, which draws its own. No
Jupyter is needed.
"""

import ast
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = {ROOT / "docs" / "unsure-sentences.md": ROOT / "notebooks" / "unsure-sentences.ipynb"}
ASSETS = ROOT / "docs" / "assets"
_BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_PICTURE = re.compile(r"^!\[.*\]\(assets/(.*\.svg)\)\n", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\.md[^)]*\)")


def cells(text: str) -> Iterator[dict[str, Any]]:
    """The cells of a page, without results; links to other pages become their words."""
    parts = _BLOCK.split(_PICTURE.sub("", text))
    for number, part in enumerate(parts):
        source = part.strip("\n") if number % 2 else _LINK.sub(r"\1", part).strip("\n")
        if not source:
            continue
        cell: dict[str, Any] = {"id": f"cell-{number}", "metadata": {}, "source": source.splitlines(keepends=True)}
        if number % 2:
            yield {"cell_type": "code", "execution_count": None, **cell, "outputs": []}
        else:
            yield {"cell_type": "markdown", **cell}


def notebook(text: str) -> dict[str, Any]:
    """A notebook of format 4 with the cells of a page."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": list(cells(text)), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def run(made: dict[str, Any]) -> list[str]:
    """Run the code cells of a notebook in order, in one namespace, and put their results in; returns the pictures."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    pictures: list[str] = []
    code = [cell for cell in made["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code, start=1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            last = _execute("".join(cell["source"]), namespace)
        cell["execution_count"] = number
        lines = printed.getvalue().splitlines(keepends=True)
        cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": lines}] if lines else []
        if hasattr(last, "_repr_svg_"):
            pictures.append(last._repr_svg_())
            # one line: thousands of short ones would take more room than the picture
            shown = {"image/svg+xml": [" ".join(pictures[-1].split())], "text/plain": ["<picture>"]}
            result = {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": shown}
            cell["outputs"].append(result)
    return pictures


def stale() -> list[str]:
    """Names of notebooks that have not the text and code of their pages."""
    found = []
    for page, path in PAGES.items():
        expected = [(cell["cell_type"], cell["source"]) for cell in cells(page.read_text(encoding="utf-8"))]
        stored = json.loads(path.read_text(encoding="utf-8"))["cells"] if path.exists() else []
        if [(cell["cell_type"], cell["source"]) for cell in stored] != expected:
            found.append(path.name)
    return found


def main() -> None:
    """Write or check all notebooks."""
    if "--check" in sys.argv[1:]:
        if found := stale():
            raise SystemExit(f"not what their pages say: {found}; run python scripts/make_notebook.py")
        return
    for page, path in PAGES.items():
        text = page.read_text(encoding="utf-8")
        made = notebook(text)
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            pictures = run(made)
        names = _PICTURE.findall(text)
        if len(names) != len(pictures):
            raise SystemExit(f"{page.name} shows {len(names)} pictures, its code draws {len(pictures)}")
        for name, picture in zip(names, pictures, strict=True):
            (ASSETS / name).write_text(picture, encoding="utf-8")
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _execute(source: str, namespace: dict[str, Any]) -> Any:
    """Run a cell; the value of its last expression, as a notebook shows it."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), namespace)
    return None if last is None else eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
