"""Verdicts of captioning, from numbers that are made up."""

from dataclasses import replace
from pathlib import Path

from probattn.recipes.captioning_claims import captioning_page, claims_table, pointing_table
from probattn.recipes.captioning_report import write_report
from probattn.recipes.results import RowResult

FACTS = {"corpus": "scenes", "epochs": 1, "updates": 2}


def made(row: str, bleu: list[float], *, mass: float | None = None, ppl: float = 10.0) -> list[RowResult]:
    found = []
    for seed, one in enumerate(bleu):
        attention = (
            {} if mass is None else {name: mass + 0.001 * seed * mass for name in ("attention_mass", "attention_hits")}
        )
        metrics = {"greedy_bleu4": one, "ppl": ppl + 0.01 * one, **attention}
        found.append(RowResult(row=row, source="test", seed=seed, facts=FACTS, metrics=metrics))
    return found


def test_the_papers_claims_have_verdicts() -> None:
    results = [
        *made("soft", [18.0, 18.1, 17.9]),
        *made("wc", [17.0, 17.2, 16.9], ppl=9.0),
        *made("hard", [16.0, 16.3, 15.8]),
        *made("wc-acting", [18.1, 17.9, 18.0]),
    ]
    found = {line[1]: line[2::3] for line in claims_table(results)[1]}
    assert found["wc minus soft, greedy_bleu4"] == ["+0.60", "the other way round"]
    assert found["hard minus soft, greedy_bleu4"] == ["-5.70", "as in the paper"]
    assert found["wc-acting minus soft, greedy_bleu4"] == ["-", "no difference seen"]
    assert found["wc minus soft, ppl"] == ["-", "lower"]
    assert "lc minus soft, greedy_bleu4" not in found
    page = captioning_page("flickr8k", results)
    assert "**The paper's claims, and ours**" in page and "points at what a word speaks of" not in page
    assert "claims" not in captioning_page("scenes", results)
    assert "claims" not in captioning_page("flickr8k", [one for one in results if one.seed == 0])


def test_attention_that_points_at_what_a_word_speaks_of(tmp_path: Path) -> None:
    results = [*made("soft", [18.0, 18.1, 17.9], mass=0.5), *made("wc", [17.0, 17.2, 16.9], mass=0.04)]
    assert [(line[0], line[1], line[4]) for line in pointing_table(results)[1]] == [("wc", "soft", "less")]
    assert "**Which attention points at what a word speaks of?**" in captioning_page("scenes", results)
    assert "4.0 (against 50.1)" in write_report("captioning", results, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "Which attention points at what a word speaks of?" in page
    assert "Verdicts" not in page and "(32.2)" not in page  # scenes are not the paper's pictures
    photographs = [replace(one, facts={**FACTS, "corpus": "files"}) for one in results]
    assert "the other way round" in write_report("captioning", photographs, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "Verdicts" in page and "(32.2)" in page
