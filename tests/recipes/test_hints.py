"""Wrong names of settings: the right one is suggested, inside of sections too."""

from pathlib import Path

import pytest

from probattn.recipes import recall
from probattn.recipes.hints import hint_for, shortened
from probattn.recipes.translation import RECIPE


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("epohcs", "epochs"),
        ("corpus.scr", "corpus.src"),
        ("trainer.learnin_rate", "trainer.learning_rate"),
        ("learning_rate", "trainer.learning_rate"),
        ("data.tgt", "corpus.tgt"),
    ],
)
def test_words_of_the_command_line(name: str, suggestion: str) -> None:
    with pytest.raises(SystemExit, match=f"{name}.*\nDid you mean '{suggestion}'"):
        RECIPE.load(RECIPE.configs("soft", None), {name: "1"})


@pytest.mark.parametrize(
    ("content", "suggestion"), [("epohcs: 3", "epochs"), ("corpus: {scr: my.de}", "corpus.src"), ("moon: 1", None)]
)
def test_keys_of_a_file(content: str, suggestion: str | None, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(content)
    with pytest.raises(SystemExit, match=r"mine\.yaml") as caught:
        RECIPE.load([*RECIPE.configs("soft", None), tmp_path / "mine.yaml"], {})
    assert ("Did you mean" in str(caught.value)) is (suggestion is not None)
    assert suggestion is None or f"'{suggestion}'" in str(caught.value)


def test_a_wrong_value_is_no_wrong_name() -> None:
    assert hint_for('Parser key "epochs":\n  Expected an int', ["epochs", "epoch"]) == ""


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("family", "probattn.Lognormall", "no attribute 'Lognormall'\nDid you mean 'probattn.Lognormal'?"),
        ("family.init_args.sigmma", "3", "Option 'sigmma' is not accepted"),
        ("family.init_args.concentration", "abc", "Expected a <class 'float'>, or Expected a dot import path"),
    ],
)
def test_a_class_inside_of_classes_has_its_reason_alone(setting: str, value: str, message: str) -> None:
    place = f"weights.init_args.posterior.init_args.{setting}"
    with pytest.raises(SystemExit) as caught:
        recall.RECIPE.load(recall.RECIPE.configs("bayesian-no-kl", None), {place: value})
    assert message in str(caught.value) and "Union" not in str(caught.value)
    assert str(caught.value).startswith("bayesian-no-kl.yaml: weights.posterior.family")


def test_other_messages_stay_as_they_are() -> None:
    assert shortened('Parser key "epochs":\n  Expected an int') == 'Parser key "epochs":\n  Expected an int'


def test_a_value_that_a_nested_class_refuses_is_one_line() -> None:
    wrong = {"weights.init_args.posterior.init_args.family.init_args.concentration": -3}
    with pytest.raises(ValueError, match="concentration") as caught:
        recall.RECIPE.load(recall.RECIPE.configs("bayesian-wc", None), wrong)
    assert str(caught.value) == "bayesian-wc.yaml: Weibull(concentration) must be positive and finite, got -3.0"


@pytest.mark.parametrize(
    ("option", "answer"),
    [
        ("familly", "Did you mean 'family'? FromScores takes family"),
        ("family.init_args.concentartion", "Did you mean 'concentration'? Weibull takes concentration, anchor"),
        ("family.init_args.moon", "Weibull takes concentration, anchor"),
    ],
)
def test_options_of_a_nested_class(option: str, answer: str) -> None:
    wrong = {f"weights.init_args.posterior.init_args.{option}": 3}
    with pytest.raises(SystemExit) as caught:
        recall.RECIPE.load(recall.RECIPE.configs("bayesian-wc", None), wrong)
    assert str(caught.value).splitlines()[-1] == answer and len(str(caught.value).splitlines()) == 2
