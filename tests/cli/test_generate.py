"""`probattn generate`: options that a kind of model cannot use are refused before anything is read or drawn."""

import pytest
from jsonargparse import Namespace

from probattn import cli
from probattn.cli import generate
from probattn.recipes.generation_search import Generated
from probattn.recipes.generator import Generator
from probattn.recipes.text_writer import TextWriter


@pytest.mark.parametrize(
    ("kind", "words", "message"),
    [
        (Generator, ["--temperature", "0.5"], "--temperature goes with --from prior"),
        (Generator, ["--length", "3"], "--length goes with --from prior"),
        (Generator, ["--from", "prior"], "needs sources"),
        (Generator, ["--between", "a", "b"], "needs sources"),
        (Generator, ["--steps", "3"], "--steps goes with --between"),
        (TextWriter, ["--from", "prior", "--steps", "3"], "--steps goes with --between"),
        (TextWriter, ["--between", "a", "b", "--from", "prior"], "give one of them"),
        (TextWriter, ["--between", "a", "b", "--seed", "3"], "--seed has no effect on --between"),
        (TextWriter, ["--between", "a", "b", "--input", "x"], "--input has no effect on --between"),
        (TextWriter, ["--from", "prior", "--scores"], "--scores is for texts from sources"),
        (TextWriter, ["--from", "prior", "--draw", "none"], "--draw is for texts from sources"),
        (TextWriter, ["--num_samples", "3"], "--num_samples has no effect on sentences that are written again"),
        (TextWriter, ["--top_p", "0.9"], "--top_p has no effect"),
        (TextWriter, ["--no_scores"], "--scores has no effect"),
        (Generator, ["--beam_size", "0"], "--beam_size must be at least 1, which is greedy, got 0"),
        (Generator, ["--num_samples", "0"], "--num_samples must be at least 1, got 0"),
        (Generator, ["--output", "."], "--output . is a folder; name a file in it"),
    ],
)
def test_options_without_effect_are_refused(
    kind: type, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "load", lambda path: object.__new__(kind))
    with pytest.raises(SystemExit, match=message):
        cli.main(["generate", "MODEL", *words])


def test_distinct_texts_are_in_the_order_drawn() -> None:
    drawn = [Generated(text, -float(number), is_complete=True) for number, text in enumerate(("a", "b", "a", "c"))]
    lines = generate._lines(7, "x", drawn, Namespace(distinct=True, scores=None, format="text"))
    assert lines == ["7 ||| a ||| -0.0000", "7 ||| b ||| -1.0000", "7 ||| c ||| -3.0000"]
