"""Pages of text generation: figures, verdicts, samples and the sweep, from results in a folder."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from probattn.recipes import generation_sweep
from probattn.recipes.generation_claims import sweep_claims
from probattn.recipes.generation_pages import curve_panels, escaped, generation_page, sweep_page
from probattn.recipes.generation_sweep import of_value, swept
from probattn.recipes.results import RowResult


def made_up(row: str, seed: int = 0, *, gamma: float = 0.1, shift: float = 0.0) -> RowResult:
    """A result with every kind of content; numbers are of no model."""
    metrics = {"map_bleu4": 5.0, "sample_bleu4": 5.0 - shift, "sample_bleu2": 14.0}
    metrics["entropy"] = 2.2 + shift + (1.0 + 2.0 * shift) * seed / 100.0  # no two rows differ by the same in all seeds
    metrics |= {"dist1": 0.13 + shift, "dist2": 0.2 + shift, "kl_code": 2.0, "active_units": 4.0}
    curves = {
        name: [(164 * epoch, 1.0 / epoch + shift) for epoch in range(1, 13)]
        for name in ("sample_bleu2", "sample_bleu4", "entropy", "dist1", "kl_code")
    }
    source = "the `` best '' |case| of *all* ."
    return RowResult(
        row=row,
        source="",
        seed=seed,
        facts={"corpus": "squad", "epochs": 12, "updates": 1968, "draws": 10, "kl_weights": {"attention": gamma}},
        metrics=metrics,
        curves=curves,
        examples=[{"source": source, "reference": "who ?", "texts": ["who ?", "`` what", "who ?"]}] * 4,
    )


def test_a_page_has_verdicts_figures_and_samples() -> None:
    rows = {"ved-dattn": 0.0, "ved-vattn-h": 0.1, "ved-dattn-released": 0.05}
    results = [made_up(row, seed, shift=shift) for row, shift in rows.items() for seed in (0, 1)]
    page, plots = generation_page("question_generation", results, scale="squad")
    assert re.search(r"entropy of ved-vattn-h above ved-dattn +\| +2.306 \| 2.205 \| +holds", page)
    assert "sample BLEU-4 of ved-vattn-h at most 0.3 below ved-dattn" in page
    assert "released - eq. 8" in page and "No site has collapsed" in page
    assert list(plots) == ["generation_question_generation"] and "assets/generation_question_generation.svg" in page
    assert page.count("**Samples.**") == 3 and "who ? (x2)<br>&#96;&#96; what" in page
    lines = [*page.splitlines(), ""]
    for start in (n for n, line in enumerate(lines) if line.startswith("|-")):  # every table is one
        columns = lines[start].count("|")
        for line in lines[start + 1 : lines.index("", start)]:
            assert line.count("|") == columns
    assert generation_page("dialogue", [], scale="cornell") == ("No results of dialogue yet.\n", {})


def test_curves_are_over_epochs() -> None:
    panels = curve_panels([made_up("ved-dattn")])
    assert [panel.y for panel in panels][:2] == ["BLEU-2 of samples", "BLEU-4 of samples"]
    assert [x for x, _ in panels[0].curves["ved-dattn"]] == list(range(1, 13))
    assert [panel.has_log_values for panel in panels] == [False] * 4 + [True]


def test_the_sweep_takes_the_row_itself_from_the_folder_above(tmp_path: Path) -> None:
    home = tmp_path / "question_generation"

    def put(folder: Path, result: RowResult) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ved-vattn-h-seed0.json").write_text(json.dumps({"fingerprint": "x", "result": asdict(result)}))

    put(home, made_up("ved-vattn-h"))
    assert swept(home / "gamma") == {}
    assert sweep_page("ved-vattn-h", swept(home / "gamma"), None) == ("No results of the sweep yet.\n", {})
    put(home / "gamma" / "0.01", made_up("ved-vattn-h", gamma=0.01, shift=-0.1))
    put(home / "gamma" / "1", made_up("ved-vattn-h", gamma=1.0, shift=0.2))
    found = swept(home / "gamma")
    assert sorted(found) == [0.01, 0.1, 1.0]
    page, plots = sweep_page("ved-vattn-h", found, made_up("ved-dattn"))
    assert [line.split("|")[1].strip() for line in page.splitlines() if "| γ_a" in line][:3] == [
        "γ_a = 0.01",
        "γ_a = 0.1",
        "γ_a = 1",
    ]
    assert list(plots) == ["generation_gamma"]
    verdicts = {line[0]: line[-1] for line in sweep_claims(found, made_up("ved-dattn"))[1]}
    assert verdicts["sample BLEU-4 at gamma_a = 0.01 above 1"] == "sign as claimed (one seed)"
    assert verdicts["entropy at gamma_a = 0.01 above soft attention"] == "opposite sign (one seed)"
    assert not any("soft" in text for text, *_ in sweep_claims(found, None)[1])


def test_what_the_folder_above_has_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, trained = tmp_path / "question_generation", []

    def instead(comparison: generation_sweep.Comparison, *, workers: int) -> str:
        value = float(comparison.output.name)
        trained.append(value)
        result = made_up("ved-vattn-h", gamma=value)
        comparison.store.add(result, {"fingerprint": comparison.fingerprint("ved-vattn-h")})
        return ""

    monkeypatch.setattr(generation_sweep, "compare", instead)
    own = of_value(0.1, scale="squad", output=home / "gamma")
    row = generation_sweep.RECIPE.name, "ved-vattn-h"
    plain = generation_sweep.Comparison(generation_sweep.RECIPE, [row[1]], 1, "squad", {}, home)
    assert own.fingerprint("ved-vattn-h") == plain.fingerprint("ved-vattn-h")
    plain.store.add(made_up("ved-vattn-h"), {"fingerprint": plain.fingerprint("ved-vattn-h")})
    generation_sweep.main("squad", home / "gamma", workers=2)
    assert sorted(trained) == [0.001, 0.01, 1.0]
    assert "gamma_a = 0.1" in (home / "gamma" / "table.md").read_text()


def test_tokenised_text_opens_no_markdown() -> None:
    assert escaped("`` a | b_c *d* <e>") == "&#96;&#96; a &#124; b&#95;c &#42;d&#42; &lt;e>"
