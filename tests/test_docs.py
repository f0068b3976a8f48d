"""The Python code blocks of README.md and docs/ run; the blocks of one file share a namespace.

A block that must not run has `<!--- skip: next -->` above it, with the reason in the text.
"""

import doctest
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

ROOT = Path(__file__).resolve().parents[1]
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
SNIPPETS = Sybil(parsers=[PythonCodeBlockParser(doctest_optionflags=FLAGS), SkipParser()])


def run_snippets(path: Path) -> int:
    """Runs the examples of one file in order and returns how many there are."""
    examples = list(SNIPPETS.parse(path).examples())
    for example in examples:
        try:
            example.evaluate()
        except Exception as error:
            error.add_note(f"in the code block at {path.name}:{example.line}")
            raise
    return len(examples)


def pages() -> list[str]:
    found = [path for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")] if path.is_file()]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


@pytest.mark.parametrize("page", pages())
def test_snippets_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # what a snippet writes must not land in the repository
    run_snippets(ROOT / page)


def test_blocks_share_a_namespace(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\ntext\n```python\n>>> x + 1\n2\n```\n")
    assert run_snippets(page) == 2


@pytest.mark.parametrize("block", ["1 / 0", ">>> 1 + 1\n3"])
def test_a_wrong_block_fails(tmp_path: Path, block: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```python\n{block}\n```\n")
    with pytest.raises(Exception, match="division by zero|Expected"):
        run_snippets(page)
