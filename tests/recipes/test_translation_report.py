"""The report of a comparison: what it says of every row, in tables that fit a page."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from probattn.recipes.report import Column
from probattn.recipes.results import RowResult, Summary
from probattn.recipes.translation_report import write_report


def result(row: str, seed: int, *, ppl: float, elbo_ppl: float) -> RowResult:
    examples = [
        {
            "source": ["ein", "Hund"],
            "target": ["a", "dog"],
            "translation": "a <dog>",
            "weights": {"prior": [[0.9, 0.1], [0.2, 0.8]]},
            "gold": [[0, 0], [1, 1]],
        }
    ]
    metrics = {"ppl": ppl, "elbo_ppl": elbo_ppl, "bleu": 30.0 + seed, "chrf": 50.0, "entropy": 1.0, "aer": 0.2}
    metrics |= {"kl_per_token": 0.1, "parameters": 5e5, "train_seconds": 60.0 + 50.0 * seed}
    facts = {
        "bound": "Elbo",
        "train_estimator": {"weights": f"Estimator of {row}"},
        "test_estimator": "Enumerate()",
        "ppl_kind": "exact",
        "kl_reduction": "sum",
        "corpus": "generated",
        "updates": 570,
        "epochs": 5,
        "signature": "nrefs:1",
    }
    curve = [(100, 20.0), (200, ppl)]
    return RowResult(
        row=row, source=f"Source of {row}", seed=seed, facts=facts, metrics=metrics, curve=curve, examples=examples
    )


@pytest.fixture
def page(tmp_path: Path) -> tuple[str, str]:
    results = [result("soft", seed, ppl=6.0 + 0.1 * seed, elbo_ppl=6.0) for seed in range(2)]
    results += [result("marginal", seed, ppl=5.2 + 0.1 * seed, elbo_ppl=3e21) for seed in range(2)]
    text = write_report("translation", results, tmp_path)
    return text, (tmp_path / "report.html").read_text()


def test_tables_fit_a_terminal_and_a_page(page: tuple[str, str]) -> None:
    text, html = page
    assert max(len(line) for line in text.splitlines() if line.startswith("|")) <= 140
    assert text.count("| marginal ") == 2  # likelihood, then alignment
    assert "3e+21" not in html and "&gt; 1,000,000" in html and "> 1,000,000" in text
    widths = [len(re.findall("<th>", head)) for head in re.findall("<thead>(.*?)</thead>", html)]
    assert max(widths) <= 9


def test_the_report_says_what_rows_are_and_what_the_papers_claim(page: tuple[str, str]) -> None:
    _, html = page
    headings = re.findall("<h2>(.*?)</h2>", html)
    assert headings[:3] == ["Likelihood and translation", "Alignment and cost", "The papers&#x27; claims"]
    assert "What the rows are" in headings
    assert "perplexity of marginal below soft&#x27;s" in html and "x 0.87, inside 0.86 to 0.90" in html
    for row in ("soft", "marginal"):
        assert f"Estimator of {row}" in html and f"Source of {row}" in html
    assert "seeds 0, 1." in html and "a &lt;dog&gt;" in html


def test_one_row_has_no_claims(tmp_path: Path) -> None:
    write_report("translation", [result("soft", 0, ppl=6.0, elbo_ppl=6.0)], tmp_path)
    html = (tmp_path / "report.html").read_text()
    assert "claims" not in html and "seed 0." in html


def test_large_values_and_spreads_are_readable() -> None:
    column = Column("x", "x", ceiling=100.0)
    assert [column.cell(one) for one in (None, Summary(100.0, 0.0, 1), Summary(101.0, 0.0, 1))] == ["-", "100", "> 100"]
    assert str(Summary(311.0, 187.0, count=3)) == "311 ± 187"
    assert str(Summary(61.5, 9.4, count=3)) == "61.5 ± 9"


def test_a_run_that_was_never_validated_has_a_report(tmp_path: Path) -> None:
    never = replace(result("soft", 0, ppl=6.0, elbo_ppl=6.0), curve=[])
    write_report("translation", [never], tmp_path)
    assert "Validation perplexity" not in (tmp_path / "report.html").read_text()
