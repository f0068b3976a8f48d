"""`probattn augment`: a text with generated sentences added to it."""

from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from probattn.cli.command import Command, settings_of
from probattn.cli.models import open_model, put_lines
from probattn.data.text import read_text
from probattn.kernels.native import settle
from probattn.recipes.provenance import note_commit
from probattn.recipes.recipe import Run
from probattn.recipes.text_cells import fingerprint
from probattn.recipes.text_vae import RECIPE
from probattn.recipes.text_writer import TextWriter

__all__ = ["COMMAND"]

_DESCRIPTION = """Adds generated sentences to a text, one sentence a line: data augmentation.

probattn augment corpus.txt --times 2 --output more.txt              trains davam-128 on corpus.txt first
probattn augment corpus.txt --times 1 --row lstm-lm --output more.txt
probattn augment corpus.txt --times 2 --model runs/text_vae/davam-512-seed0 --output more.txt

The output is the text itself and behind it TIMES as many generated lines. A generator that was trained on other
text than yours brings that text's knowledge in; one that saw yours alone can only mix it anew."""


_ROW = "davam-128"
_MOST_ROUNDS, _NEXT_SEED = 20, 1_000_003  # of drawing texts again that have no word


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("corpus", type=Path, help="one sentence a line, plain or gz")
    parser.add_argument("--times", type=float, default=1.0, help="generated lines for each line of the text")
    parser.add_argument("--output", type=Path, default=None, help="file; the standard output by default")
    parser.add_argument("--model", type=Path, default=None, help="a trained model of text_vae; trained here by default")
    parser.add_argument("--row", default=_ROW, help="what is trained where no model is given")
    parser.add_argument("--set", dest="overrides", nargs="*", type=str, default=[], help="settings as name=value")
    parser.add_argument("--temperature", type=float, default=1.0, help="below 1 nearer to the most probable")
    parser.add_argument("--top_p", type=float, default=1.0, help="only the most probable codes or words")
    parser.add_argument("--seed", type=int, default=0, help="of the generated sentences")


def _run(arguments: Namespace) -> None:
    if arguments.times <= 0.0:
        raise ValueError(f"--times must be positive, got {arguments.times}")
    model = arguments.model
    if model is not None and (arguments.row != _ROW or arguments.overrides):
        raise ValueError("--row and --set say what is trained; --model is trained already, so leave them out")
    lines = read_text(arguments.corpus, on_empty="skip")
    writer = _train(arguments, lines) if model is None else open_model(model, TextWriter, "no text model")
    count = max(1, round(arguments.times * len(lines)))
    put_lines([*lines, *_drawn(writer, count, arguments)], arguments.output)


def _drawn(writer: TextWriter, count: int, arguments: Namespace) -> list[str]:
    """Generated lines; texts without a word are drawn again.

    Raises:
        ValueError: If the model writes hardly anything else.
    """
    found: list[str] = []
    for again in range(_MOST_ROUNDS):
        law = {"temperature": arguments.temperature, "top_p": arguments.top_p}
        drawn = writer.sample(count - len(found), seed=arguments.seed + again * _NEXT_SEED, **law)
        found += [one.text for one in drawn if one.text.strip()]
        if len(found) == count:
            return found
    raise ValueError(f"of {_MOST_ROUNDS} times {count} texts {len(found)} have a word: train the model for longer")


def _train(arguments: Namespace, lines: Sequence[str]) -> TextWriter:
    """Train a generator on the text itself; a run that was interrupted goes on, another text or setting starts anew."""
    overrides = {"corpus.path": str(arguments.corpus), **settings_of(arguments.overrides)}
    settings, plain = RECIPE.load(RECIPE.configs(arguments.row, "files"), overrides)
    mark = fingerprint(plain, lines)[:8]
    output = Path("runs") / "augment" / f"{arguments.corpus.name}-{arguments.row}-{mark}"
    note_commit(output)
    settle()
    RECIPE.train(Run(settings, plain, output))
    return open_model(output, TextWriter, "no text model")


COMMAND = Command("a text with generated sentences added to it", _DESCRIPTION, _add_arguments, _run)
