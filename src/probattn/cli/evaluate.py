"""`probattn eval`: a trained model under several ways of predicting."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from probattn.cli.command import Command, refuse_options
from probattn.cli.models import warn_of_unknown
from probattn.cli.output import Output
from probattn.core import Estimator
from probattn.data import alignment_gold
from probattn.data.alignment_gold import AlignedText, read_pharaoh
from probattn.data.parallel import ParallelText, read_parallel
from probattn.loading import load, text_digest
from probattn.recipes.generation_data import load_corpus as load_generation_corpus
from probattn.recipes.generator import Generator
from probattn.recipes.provenance import commit, trained_with
from probattn.recipes.text_data import Split, text_of_file
from probattn.recipes.text_data import load_corpus as load_text_corpus
from probattn.recipes.text_eval import evaluate_model as evaluate_text
from probattn.recipes.text_writer import TextWriter
from probattn.recipes.translation_alignment import require_testable
from probattn.recipes.translation_data import Corpus, load_corpus, lowercased
from probattn.recipes.translation_eval import estimator_by_name, ppl_kind, predictive_metrics, translation_metrics
from probattn.recipes.translator import Translator
from probattn.training.randomness import EVALUATION, seeded

__all__ = ["COMMAND"]

_DESCRIPTION = """Evaluates a trained model: perplexities, BLEU, chrF, entropies; alignment error rates with gold links.

probattn eval runs/translation/marginal-seed0                              on the text it was trained for
probattn eval MODEL --src test.de --tgt test.en [--gold test.align]        on your own text
probattn eval MODEL --test_with soft exact kmax:1 kmax:5                   other ways of predicting, side by side
probattn eval MODEL --gold_set de-en                                       alignments against a published gold set

probattn eval runs/text_vae/davam-128-seed0 --text my.txt                  a text model on your own text

A model that generates text (question_generation, dialogue, pilot_vae) is evaluated on the text it was trained for.

--test_with gives the K-max curve, and the paper's two cross-tests: a soft model tested with kmax, a latent one tested
soft. Everything is printed as JSON, one object a way of predicting."""


_OF_TRANSLATION = ("src", "tgt", "gold", "gold_set", "test_with")
"""Options that only translation models have."""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="folder of a run or of a trained model")
    parser.add_argument("--split", choices=["valid", "test"], default=None, help="of the text it was trained for; test")
    parser.add_argument("--src", type=Path, default=None, help="source side of another text")
    parser.add_argument("--tgt", type=Path, default=None, help="target side of another text")
    for name, what in (("on_empty", "an empty side"), ("on_long", "more than 1,000 words on a side")):
        text = f"what to do with pairs of --src and --tgt with {what} (default: %(default)s)"
        parser.add_argument(f"--{name}", choices=["error", "skip"], default="error", help=text)
    parser.add_argument("--text", type=Path, default=None, help="another text, for text models")
    parser.add_argument("--gold", type=Path, default=None, help="its gold links in Pharaoh format")
    parser.add_argument("--gold_set", choices=list(alignment_gold.NUM_PAIRS), default=None, help="published gold links")
    parser.add_argument(
        "--test_with", nargs="*", type=str, default=[], help="soft, exact, kmax:K; as the row was tested by default"
    )
    parser.add_argument("--output", type=Path, default=None, help="JSON file, besides the standard output")


def _run(arguments: Namespace) -> None:
    _ = Output(arguments.output)  # refuses at once what cannot be written
    model = load(arguments.model)
    if isinstance(model, Generator):
        _run_generator(model, arguments)
        return
    if isinstance(model, TextWriter):
        _run_writer(model, arguments)
        return
    refuse_options(arguments, {"text": None}, "is for text models; translation models take --src and --tgt")
    translator = model
    if not isinstance(translator, Translator):
        raise ValueError(
            "eval takes models that translate, generate or write text, and "
            f"{arguments.model} holds a {type(model).__name__}; what was measured after training is in its result.json"
        )
    if arguments.test_with and (arguments.gold or arguments.gold_set):
        raise ValueError(
            "links come from the prior and the inference network, however words are predicted: leave out --test_with "
            "to compare them with gold links, and --gold or --gold_set to try ways of predicting"
        )
    ways = {name: estimator_by_name(name) for name in arguments.test_with}
    for way in ways.values():
        require_testable(translator.model, way)
    corpus, split = _text(translator, arguments)
    results = (
        {name: _short(translator, corpus, split, way) for name, way in ways.items()}
        if ways
        else {"own": dict(translator.evaluate(corpus, split=split))}
    )
    _put(arguments, translator.settings.row, translator.settings.seed, corpus.texts[split].name, results)


def _run_generator(generator: Generator, arguments: Namespace) -> None:
    """A model that generates text: all its metrics on the text it was trained for."""
    _refuse(arguments, (*_OF_TRANSLATION, "text"), generator)
    split = arguments.split or "test"
    corpus = load_generation_corpus(generator.settings.corpus, generator.words)
    _warn_of_other_text(arguments, corpus.digest)
    results = {"own": generator.evaluate(corpus, split=split)}
    _put(arguments, generator.settings.row, generator.settings.seed, corpus.texts[split].name, results)


def _run_writer(writer: TextWriter, arguments: Namespace) -> None:
    """A text model: all its metrics, on the text it was trained for or on another one."""
    _refuse(arguments, _OF_TRANSLATION, writer)
    settings = writer.settings
    split: Split = arguments.split or "test"
    if arguments.text is None:
        if settings.corpus.name == "files" and settings.corpus.path is None:
            raise ValueError(f"{arguments.model} was trained on files, whose names it does not keep; give --text FILE")
        corpus = load_text_corpus(settings.corpus, writer.tokenizer)
        _warn_of_other_text(arguments, corpus.digest)
    else:
        refuse_options(arguments, {"split": None}, "is of the text it was trained for; --text is another one")
        corpus = text_of_file(arguments.text, settings.corpus, writer.tokenizer)
        so = "its perplexities say little: all of them are one word to it"
        warn_of_unknown(*writer.count_unknown(corpus.texts[split]), what=str(arguments.text), so=so)
    results = {"own": evaluate_text(writer, corpus, split=split)}
    _put(arguments, settings.row, settings.seed, corpus.encoded[split].name, results)


def _refuse(arguments: Namespace, names: Sequence[str], model: object) -> None:
    given = [name for name in names if arguments[name]]
    if given:
        raise ValueError(f"--{given[0]} is for other models, {arguments.model} holds a {type(model).__name__}")


def _put(arguments: Namespace, row: str, seed: int, text_name: str, results: Mapping[str, Any]) -> None:
    record = {
        "model": str(arguments.model),
        "row": row,
        "seed": seed,
        "commit": commit(),
        "trained_with": trained_with(arguments.model),
        "text": text_name,
        "results": results,
    }
    text = json.dumps(record, indent=1)
    if arguments.output is not None:
        with Output(arguments.output) as output:
            output.put([text])
    print(text)


def _text(translator: Translator, arguments: Namespace) -> tuple[Corpus, str]:
    """The text to evaluate on, and its split."""
    given = [name for name in ("src", "tgt") if arguments[name] is not None]
    if not given and "skip" in (arguments.on_empty, arguments.on_long):
        raise ValueError("--on_empty and --on_long are about pairs of --src and --tgt, which are not given")
    if len(given) == 1 or (arguments.gold is not None and not given):
        raise ValueError("another text needs both --src and --tgt; --gold belongs to them")
    if arguments.split is not None and (given or arguments.gold_set is not None):
        raise ValueError("--split is of the text that the model was trained for; another text has none")
    if given and arguments.gold_set is not None:
        raise ValueError("give either --src and --tgt, or --gold_set, not both")
    if given:
        if arguments.gold is not None and "skip" in (arguments.on_empty, arguments.on_long):
            raise ValueError("--gold has a line for every pair: none can be skipped; remove it from all three files")
        text = read_parallel(arguments.src, arguments.tgt, on_empty=arguments.on_empty, on_long=arguments.on_long)
        gold = None if arguments.gold is None else read_pharaoh(arguments.gold, text)
        return _corpus(translator, text, gold), "test"
    if arguments.gold_set is not None:
        aligned = alignment_gold.load(arguments.gold_set)
        return _corpus(translator, aligned.text, aligned), "test"
    try:
        corpus = load_corpus(translator.settings.corpus, translator.subwords)
    except FileNotFoundError as error:
        message = f"{error} The model was trained on that text; name another one with --src and --tgt."
        raise ValueError(message) from error
    _warn_of_other_text(arguments, corpus.digest)
    return corpus, arguments.split or "test"


def _warn_of_other_text(arguments: Namespace, digest: str) -> None:
    """Say so where the text to train on is not what it was: what is held out of it now may have been trained on."""
    if text_digest(arguments.model) not in (None, digest):
        print(
            f"probattn: the text that {arguments.model} was trained on has changed since, so that lines which are held "
            "out now may be lines that it has seen; its numbers on the text as it was are in result.json of its run",
            file=sys.stderr,
        )


def _corpus(translator: Translator, text: ParallelText, gold: AlignedText | None) -> Corpus:
    links = None if gold is None else list(zip(gold.sure, gold.possible, strict=True))
    cased = lowercased(text) if translator.settings.corpus.lowercase else text
    return Corpus({"test": cased}, {"test": translator.encode(text)}, translator.subwords, links)


def _short(translator: Translator, corpus: Corpus, split: str, estimator: Estimator) -> dict[str, Any]:
    print(f"testing with {estimator!r} ...", file=sys.stderr)
    model, decoding = translator.model, translator.settings.decoding
    with seeded(EVALUATION, 0):
        return {
            "ppl_kind": ppl_kind(estimator),
            **predictive_metrics(model, corpus, split, estimator=estimator),
            **translation_metrics(model, corpus, split, estimator=estimator, decoding=decoding),
        }


COMMAND = Command("evaluate a trained model", _DESCRIPTION, _add_arguments, _run)
