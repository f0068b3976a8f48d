"""The notebooks are what their pages say, and run."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_notebook", ROOT / "scripts" / "make_notebook.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_notebooks_have_the_text_and_code_of_their_pages(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert script.stale() == []
    monkeypatch.setattr(sys, "argv", ["make_notebook.py", "--check"])
    script.main()
    page = next(iter(script.PAGES))
    changed = {page.with_name("glue.md"): script.PAGES[page]}
    monkeypatch.setattr(script, "PAGES", changed)
    with pytest.raises(SystemExit, match="not what their pages say"):
        script.main()


@pytest.mark.recipe
@pytest.mark.parametrize("name", ["unsure-sentences.ipynb"])
def test_notebooks_run_and_draw(name: str, script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", reason="needs the extra probattn[transformers]")
    monkeypatch.chdir(tmp_path)
    made = json.loads((ROOT / "notebooks" / name).read_text(encoding="utf-8"))
    stored = [cell["outputs"] for cell in made["cells"] if cell["cell_type"] == "code"]
    assert sum(len(outputs) for outputs in stored) > 5  # it is kept with its results
    pictures = script.run(made)
    assert len(pictures) == 4
    assert all(picture.startswith("<svg") for picture in pictures)


def test_a_page_becomes_cells(script: ModuleType) -> None:
    text = "# Title\n\nSee [this](glue.md).\n\n```python\nx = 2\nprint(x)\n```\n\n![alt](assets/a.svg)\n\nEnd.\n"
    made = script.notebook(text)
    assert [cell["cell_type"] for cell in made["cells"]] == ["markdown", "code", "markdown"]
    assert made["cells"][0]["source"] == ["# Title\n", "\n", "See this."]
    assert made["cells"][2]["source"] == ["End."]
    script.run(made)
    assert made["cells"][1]["outputs"] == [{"output_type": "stream", "name": "stdout", "text": ["2\n"]}]


def test_a_wrong_cell_fails(script: ModuleType) -> None:
    with pytest.raises(ZeroDivisionError):
        script.run(script.notebook("```python\n1 / 0\n```\n"))
