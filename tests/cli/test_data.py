"""`probattn data`: what is written is all that a corpus has, and no option is ignored."""

from pathlib import Path

import pytest

from probattn import cli
from probattn.cli import data
from probattn.data.alignment_gold import AlignedText, read_pharaoh
from probattn.data.parallel import ParallelText, read_parallel


def test_gold_links_are_written_with_their_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = ParallelText(("der hund", "ja"), ("the dog", "yes yes"), name="gold xx")
    sure = (frozenset({(0, 0)}), frozenset({(0, 1)}))
    gold = AlignedText(text, sure, (sure[0] | {(1, 1)}, sure[1]))
    entry = ("gold word alignments", ("xx",), lambda name, may_download=False: gold)
    monkeypatch.setattr(data, "_LOADERS", {"gold-links": entry})
    cli.main(["data", "gold-links", "--output", str(tmp_path)])
    again = read_parallel(tmp_path / "gold-links.xx.source", tmp_path / "gold-links.xx.target")
    read = read_pharaoh(tmp_path / "gold-links.xx.align", again)
    assert read.text.source == text.source and (read.sure, read.possible) == (gold.sure, gold.possible)


def test_generated_pairs_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["data", "generated", "--size", "20", "--show", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("generated")] == [f"generated {name}" for name in data._SPLITS]
    assert sum(line.startswith("  ") for line in lines) == 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--show", "2"], "--show needs the name of a corpus"),
        (["multi30k", "--size", "20"], "--size is for the generated corpus"),
        (["multi30k", "--seed", "0"], "--seed is for the generated corpus"),
        (["generated", "--download"], "--download is for stored corpora"),
        (["generated"], "--output FOLDER"),
    ],
)
def test_options_without_effect_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        cli.main(["data", *words])
