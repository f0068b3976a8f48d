"""Words of a command line: settings as name=value and as dotted options."""

from pathlib import Path

import pytest

from probattn import cli
from probattn.cli.command import gathered, settings_behind_set, settings_first

FILES = ["--data.src", "my.de", "--data.tgt=my.en"]


def test_dotted_options_are_settings() -> None:
    assert settings_first(["translation/soft", *FILES, "--scale", "files", "seed=1"]) == [
        *("translation/soft", "seed=1", "corpus.src=my.de", "corpus.tgt=my.en", "--scale", "files")
    ]
    assert settings_behind_set(["translation", *FILES, "--rows", "soft"]) == [
        *("translation", "--rows", "soft", "--set", "corpus.src=my.de", "corpus.tgt=my.en")
    ]
    assert settings_behind_set(["translation", "--rows", "soft"]) == ["translation", "--rows", "soft"]
    with pytest.raises(SystemExit, match=r"--data.src needs a value"):
        settings_first(["translation/soft", "--data.src"])


def test_train_and_compare_take_them(tmp_path: Path) -> None:
    absent = ["--data.src", str(tmp_path / "absent.de"), "--data.tgt", str(tmp_path / "absent.en")]
    with pytest.raises(SystemExit, match=r"absent\.de does not exist"):
        cli.main(["train", "translation/soft", *absent, "--scale", "files", "--output", str(tmp_path / "run")])
    with pytest.raises(SystemExit, match=r"corpus\.train_size must be at least 1"):
        cli.main(["compare", "translation", "--rows", "soft", "--corpus.train_size=0", "--output", str(tmp_path)])


def test_a_recipe_without_a_row_is_helped_on(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["ls", "translation"])
    listed = capsys.readouterr().out
    assert "  soft " in listed and "scales: demo" in listed and "recall" not in listed
    with pytest.raises(SystemExit, match=r"expected RECIPE/ROW, got 'translation'. Its rows are: soft, marginal"):
        cli.main(["train", "translation"])
    with pytest.raises(SystemExit, match=r"expected RECIPE/ROW, got 'transltion/soft'. Did you mean 'translation'\?"):
        cli.main(["train", "transltion/soft"])


def test_train_wants_a_row_and_no_settings(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["train"])
    said = capsys.readouterr().err
    assert "row" in said and "overrides" not in said.rsplit("error:", 1)[-1]


def test_repeated_options_add_up() -> None:
    words = ["recall", "--set", "updates=5", "--set=learning_rate=0.1", "--memory.size", "3"]
    assert settings_behind_set(gathered(words)) == [
        *("recall", "--set", "memory.size=3", "updates=5", "learning_rate=0.1")
    ]
    assert gathered(["m", "--test_with", "soft", "--split", "valid", "--test_with", "exact"]) == [
        *("m", "--test_with", "soft", "exact", "--split", "valid")
    ]
    with pytest.raises(SystemExit, match=r"updates"):
        cli.main(["compare", "recall", "--rows", "soft", "--set", "updates=x", "--set", "batch_size=4"])
