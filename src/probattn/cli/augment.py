"""`probattn augment`: a text with generated sentences added to it."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from probattn.cli.command import Command, settings_of
from probattn.cli.models import open_model
from probattn.cli.output import Output, progress_over
from probattn.data.text import read_text
from probattn.kernels.native import settle
from probattn.recipes.provenance import note_commit
from probattn.recipes.recipe import Run
from probattn.recipes.text_cells import fingerprint
from probattn.recipes.text_drawing import Law, draws_words
from probattn.recipes.text_settings import TextSettings
from probattn.recipes.text_vae import RECIPE
from probattn.recipes.text_writer import TextWriter

__all__ = ["COMMAND"]

_DESCRIPTION = """Adds generated sentences to a text, one sentence a line: data augmentation.

probattn augment corpus.txt --times 2 --output more.txt              trains davam-128-places on corpus.txt first
probattn augment corpus.txt --times 1 --row lstm-lm --output more.txt
probattn augment corpus.txt --times 2 --model runs/text_vae/davam-512-seed0 --output more.txt

The output is the text itself and behind it TIMES as many generated lines. A generator that was trained on other
text than yours brings that text's knowledge in, a language model (text_vae/lstm-lm) far more of it than DAVAM;
one that saw yours alone can only mix it anew, which made a language model of captions worse (docs/text.md). One
that is trained here keeps upper and lower case (--set corpus.lowercase=true: all is lower-cased first)."""


_ROW = "davam-128-places"


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("corpus", type=Path, help="one sentence a line, plain or gz")
    parser.add_argument("--times", type=float, default=1.0, help="generated lines for each line of the text")
    parser.add_argument("--output", type=Path, default=None, help="file; the standard output by default")
    parser.add_argument("--model", type=Path, default=None, help="a trained model of text_vae; trained here by default")
    parser.add_argument("--row", default=_ROW, help="what is trained where no model is given")
    parser.add_argument("--set", dest="overrides", nargs="*", type=str, default=[], help="settings as name=value")
    parser.add_argument("--temperature", type=float, default=1.0, help="below 1 nearer to the most probable")
    parser.add_argument("--top_p", type=float, default=1.0, help="only the most probable codes or words")
    parser.add_argument(
        "--word_temperature",
        type=float,
        default=None,
        help="0 for the most probable words given the latents; by default 1, words as the model has them, but "
        "TEMPERATURE where there is no latent, or random codes",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the generated sentences")


def _run(arguments: Namespace) -> None:
    if arguments.times <= 0.0:
        raise ValueError(f"--times must be positive, got {arguments.times}")
    model = arguments.model
    if model is not None and (arguments.row != _ROW or arguments.overrides):
        raise ValueError("--row and --set say what is trained; --model is trained already, so leave them out")
    output = Output(arguments.output)
    lines = read_text(arguments.corpus, max_words=sys.maxsize, on_empty="skip")
    writer = _train(arguments, lines) if model is None else open_model(model, TextWriter, "no text model")
    law = _law(arguments, writer.settings)
    if writer.settings.corpus.lowercase and any(line != line.lower() for line in lines):
        print(
            f"probattn: {arguments.corpus} has upper-case letters, and the generated lines will have none: their model "
            "was trained on lower-cased text (corpus.lowercase=true)",
            file=sys.stderr,
        )
    count = max(1, round(arguments.times * len(lines)))
    with output, progress_over(count, "generated", output) as bar:
        output.put(lines)
        for texts in _drawn(writer, count, law, seed=arguments.seed):
            output.put(texts)
            bar.update(len(texts))


def _drawn(writer: TextWriter, count: int, law: Law, *, seed: int) -> Iterator[list[str]]:
    """Generated lines, some at a time."""
    for drawn in writer.samples(count, law, seed=seed):
        yield [one.text for one in drawn]


def _law(arguments: Namespace, settings: TextSettings) -> Law:
    """How sentences of a row are drawn; an error where that cannot be."""
    asked = arguments.word_temperature
    words = 1.0 if asked is None and not draws_words(settings.latent) else asked
    law = Law(arguments.temperature, arguments.top_p, words)
    law.check(settings)
    return law


def _train(arguments: Namespace, lines: Sequence[str]) -> TextWriter:
    """Train a generator on the text itself; a run that was interrupted goes on, another text or setting starts anew.

    Cases are kept, so that new lines look like those they are added to.
    """
    own = {"corpus.path": str(arguments.corpus), "corpus.lowercase": "false"}
    overrides = {**own, **settings_of(arguments.overrides)}
    settings, plain = RECIPE.load(RECIPE.configs(arguments.row, "files"), overrides)
    _law(arguments, settings)  # an error is told before minutes of training, not behind them
    mark = fingerprint(plain, lines)[:8]
    output = Path("runs") / "augment" / f"{arguments.corpus.name}-{arguments.row}-{mark}"
    note_commit(output)
    settle()
    RECIPE.train(Run(settings, plain, output))
    return open_model(output, TextWriter, "no text model")


COMMAND = Command("a text with generated sentences added to it", _DESCRIPTION, _add_arguments, _run)
