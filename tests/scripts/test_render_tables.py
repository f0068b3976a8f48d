"""The tables in the docs are what the results say."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_generated_pages_are_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "render_tables.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("render_tables", ROOT / "scripts" / "render_tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_text_generation_has_a_page_for_each_corpus_and_for_the_sweep(script: ModuleType, tmp_path: Path) -> None:
    names = {f"generation_{name}.md" for name in ("question_generation", "dialogue", "pilot_vae", "gamma")}
    empty = script.generation(tmp_path)
    assert {path.name for path in empty} == names and all(page.startswith("No results of") for page in empty.values())
    facts = {"corpus": "squad", "epochs": 1, "updates": 2, "draws": 10}
    for value, place in ((0.1, "question_generation"), (1.0, "question_generation/gamma/1")):
        result = {
            "row": "ved-vattn-h",
            "source": "",
            "seed": 0,
            "facts": {**facts, "kl_weights": {"code": 1.0, "attention": value}},
            "metrics": {"sample_bleu4": 5.0, "entropy": 2.0},
            "curves": {"entropy": [[2, 1.0]]},
        }
        (tmp_path / place).mkdir(parents=True)
        stored = tmp_path / place / "ved-vattn-h-seed0.json"
        stored.write_text(json.dumps({"fingerprint": "x", "result": result}))
    full = {path.name: page for path, page in script.generation(tmp_path).items()}
    assert full.keys() == names | {"generation_question_generation.svg", "generation_gamma.svg"}
    assert "assets/generation_gamma.svg" in full["generation_gamma.md"]


def test_bounds_have_a_page_for_each_text(script: ModuleType, tmp_path: Path) -> None:
    empty = script.text_bounds(tmp_path)
    assert empty.keys() == {"text_bounds", "text_bounds_ptb"}
    assert all(page.startswith("No results of davam-short-joint") for page in empty.values())
    for place, row in (("text_ptb", "lstm-lm"), ("text_bounds_ptb", "davam-short-joint")):
        result = {"row": row, "source": "", "seed": 0, "facts": {"updates": 9}, "metrics": {"counted_ppl": 7.25}}
        (tmp_path / place).mkdir()
        (tmp_path / place / f"{row}-seed0.json").write_text(json.dumps({"fingerprint": "x", "result": result}))
    full = script.text_bounds(tmp_path)
    assert full["text_bounds"] == empty["text_bounds"]
    assert "| lstm-lm" in full["text_bounds_ptb"] and "waits for davam-short-control" in full["text_bounds_ptb"]
