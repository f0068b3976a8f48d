"""`probattn generate`: diverse texts for each source."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from jsonargparse import ActionYesNo, ArgumentParser, Namespace

from probattn.cli.command import Command, refuse_options
from probattn.cli.models import InputBlocks, open_model, warn_of_unknown
from probattn.cli.output import Output, progress_over
from probattn.core import fold_seed
from probattn.loading import load
from probattn.recipes.generation_search import Generated
from probattn.recipes.generator import Generator
from probattn.recipes.text_drawing import Law
from probattn.recipes.text_writer import TextWriter

__all__ = ["COMMAND"]

_DESCRIPTION = """Generates texts for each source, one a line, tokenised as in training; an empty line stays empty.

probattn generate runs/question_generation/ved-vattn-h-seed0 < sentences.txt        five questions a sentence
probattn generate MODEL --input sentences.txt --num_samples 10 --no_scores          without log-probabilities
probattn generate MODEL --input sentences.txt --draw code                           attention at its mean
probattn generate MODEL --input sentences.txt --draw attention                      the code at its mean
probattn generate MODEL --input sentences.txt --draw none                           one text a line: MAP inference
probattn generate MODEL --input sentences.txt --distinct --format json              one JSON object a source
probattn generate runs/text_vae/davam-512-seed0 --from prior --num_samples 20       sentences from scratch
probattn generate runs/text_vae/davam-512-seed0 --from prior --length 12 --top_p 0.9
probattn generate runs/text_vae/davam-512-seed0 --from prior --word_temperature 1    words are drawn too
probattn generate runs/text_vae/davam-512-seed0 --input sentences.txt               each sentence again
probattn generate runs/text_vae/davam-512-seed0 --between "a man sleeps ." "two dogs run ." --steps 5

A line of the output is: number of the source ||| text ||| log-probability given the draws."""

_OF_PRIOR: Mapping[str, object] = {"length": None, "temperature": 1.0, "top_p": 1.0, "word_temperature": None}
"""Options, with their defaults, of texts from a prior;"""
_OF_SOURCE: Mapping[str, object] = {"input": None, "draw": "all", "beam_size": None, "scores": None}
"""of texts from sources;"""
_OF_DRAWS: Mapping[str, object] = {"num_samples": 5, "seed": 0, "distinct": False, "format": "text"}
"""and of several texts at once."""
_OF_DRAWS_ALONE = {name: _OF_DRAWS[name] for name in ("num_samples", "seed", "distinct")}
_OF_WAY: Mapping[str, object] = {"steps": 5}
"""Of the way between two sentences."""
_BLOCK = 256
"""Most sources between two writings."""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="folder of a run or of a trained model")
    parser.add_argument("--input", type=Path, default=None, help="text, plain or gz; the standard input by default")
    parser.add_argument("--output", type=Path, default=None, help="file; the standard output by default")
    parser.add_argument(
        "--from",
        dest="origin",
        choices=["source", "prior"],
        default="source",
        help="prior: no sources are read, latents come from the prior of a text model",
    )
    parser.add_argument(
        "--num_samples",
        type=int,
        default=_OF_DRAWS["num_samples"],
        help="texts of a source, each from draws of its own",
    )
    parser.add_argument(
        "--between", nargs=2, type=str, default=None, help="two sentences; a text model writes those on the way"
    )
    parser.add_argument("--steps", type=int, default=_OF_WAY["steps"], help="between: sentences, both ends included")
    parser.add_argument("--length", type=int, default=None, help="prior: words of a text; as in training by default")
    parser.add_argument("--temperature", type=float, default=1.0, help="prior: below 1 nearer to the most probable")
    parser.add_argument("--top_p", type=float, default=1.0, help="prior: only the most probable codes or words")
    parser.add_argument(
        "--word_temperature",
        type=float,
        default=None,
        help="prior: 0 for the most probable words given the latents, 1 for words drawn as the model has them; by "
        "default 0, but TEMPERATURE where there is no latent, or random codes",
    )
    parser.add_argument(
        "--draw",
        choices=["all", "code", "attention", "none"],
        default="all",
        help="what is random; the rest is at its mean",
    )
    parser.add_argument("--beam_size", type=int, default=None, help="of the search given a draw; 1 is greedy")
    parser.add_argument("--seed", type=int, default=0, help="of the draws; the same --input gives the same texts")
    parser.add_argument(
        "--scores",
        action=ActionYesNo(no_prefix="no_"),
        default=None,
        help="give the log-probability of each text from a source, as is done by default, or leave it out",
    )
    parser.add_argument("--distinct", action="store_true", help="leave out texts that a source has already")
    parser.add_argument("--format", choices=["text", "json"], default="text", help="of the output")


def _run(arguments: Namespace) -> None:
    if arguments.num_samples < 1:
        raise ValueError(f"--num_samples must be at least 1, got {arguments.num_samples}")
    if arguments.beam_size is not None and arguments.beam_size < 1:
        raise ValueError(f"--beam_size must be at least 1, which is greedy, got {arguments.beam_size}")
    output = Output(arguments.output)
    model = load(arguments.model)
    if isinstance(model, TextWriter):
        _run_writer(model, arguments, output)
        return
    if arguments.origin == "prior" or arguments.between is not None:
        raise ValueError(
            f"{arguments.model} needs sources; --from prior and --between are for models of the recipe text_vae"
        )
    refuse_options(arguments, _OF_WAY, "goes with --between")
    refuse_options(
        arguments, _OF_PRIOR, "goes with --from prior; texts from sources are the most probable given a draw"
    )
    generator = open_model(arguments.model, Generator, "no model that generates text from draws")
    draw = {"all": None, "none": ()}.get(arguments.draw, (arguments.draw,))
    is_random = bool(generator.sites if draw is None else draw)
    if not is_random:
        refuse_options(
            arguments, _OF_DRAWS_ALONE, "has no effect where nothing is drawn: there is one text for each source"
        )
    has_warned = False
    blocks = InputBlocks(arguments.input, _BLOCK)
    with output, progress_over(blocks.total, "sources", output) as bar:
        for start, sources in blocks:
            has_warned = has_warned or _warn_of_unknown(*generator.count_unknown(sources))
            found = generator.generate(
                sources,
                num_samples=arguments.num_samples if is_random else 1,
                draw=draw,
                beam_size=arguments.beam_size,
                seed=int(fold_seed(torch.tensor(arguments.seed), start)) if start else arguments.seed,
            )
            lines = (_lines(start + i, sources[i], texts, arguments) for i, texts in enumerate(found))
            output.put(line for some in lines for line in some)
            bar.update(len(sources))


def _warn_of_unknown(unknown: int, total: int) -> bool:
    return warn_of_unknown(unknown, total, what="these sources", so="its texts say little of them")


def _run_writer(writer: TextWriter, arguments: Namespace, output: Output) -> None:
    """A text model: sentences from scratch, those on the way between two, or those of the input again."""
    if arguments.between is not None:
        _run_between(writer, arguments, output)
        return
    refuse_options(arguments, _OF_WAY, "goes with --between")
    if arguments.origin == "prior":
        _run_prior(writer, arguments, output)
        return
    without_effect = {**_OF_PRIOR, **_OF_SOURCE, **_OF_DRAWS}
    del without_effect["input"]
    refuse_options(arguments, without_effect, "has no effect on sentences that are written again, one for each")
    has_warned = False
    blocks = InputBlocks(arguments.input, _BLOCK)
    with output, progress_over(blocks.total, "sentences", output) as bar:
        for _, sources in blocks:
            has_warned = has_warned or _warn_of_unknown(*writer.count_unknown(sources))
            again = iter(writer.reconstruct([source for source in sources if source.strip()]))
            output.put(next(again) if source.strip() else "" for source in sources)
            bar.update(len(sources))


def _run_prior(writer: TextWriter, arguments: Namespace, output: Output) -> None:
    """Sentences from scratch."""
    refuse_options(arguments, _OF_SOURCE, "is for texts from sources, not for those from the prior")
    written: set[str] = set()
    with output, progress_over(arguments.num_samples, "texts", output) as bar:
        for drawn in writer.samples(
            arguments.num_samples,
            Law(arguments.temperature, arguments.top_p, arguments.word_temperature),
            length=arguments.length,
            seed=arguments.seed,
        ):
            bar.update(len(drawn))
            texts = [one.text for one in drawn]
            if arguments.distinct:
                texts = [text for text in dict.fromkeys(texts) if text not in written]
                written.update(texts)
            output.put(_as_written(texts, arguments))


def _run_between(writer: TextWriter, arguments: Namespace, output: Output) -> None:
    """Sentences on the way from one to another."""
    if arguments.origin == "prior":
        raise ValueError("--from prior and --between are two things; give one of them")
    without_effect = {**_OF_PRIOR, **_OF_SOURCE, **_OF_DRAWS}
    del without_effect["format"]
    refuse_options(arguments, without_effect, "has no effect on --between, which mixes the latents of two sentences")
    with output:
        output.put(_as_written(writer.interpolate(*arguments.between, steps=arguments.steps), arguments))


def _as_written(texts: Sequence[str], arguments: Namespace) -> list[str]:
    is_json = arguments.format == "json"
    return [json.dumps({"text": text}, ensure_ascii=False) if is_json else text for text in texts]


def _lines(number: int, source: str, texts: Sequence[Generated], arguments: Namespace) -> list[str]:
    if arguments.distinct:
        first: dict[str, Generated] = {}
        for one in texts:
            first.setdefault(one.text, one)
        texts = list(first.values())
    shows_scores = arguments.scores is not False
    if arguments.format == "json":
        samples = [{"text": one.text, **({"log_prob": one.log_prob} if shows_scores else {})} for one in texts]
        return [json.dumps({"line": number, "source": source, "samples": samples}, ensure_ascii=False)]
    if not texts:
        return [str(number) + " |||"]
    scores = [f" ||| {one.log_prob:.4f}" if shows_scores else "" for one in texts]
    return [f"{number} ||| {one.text}{score}" for one, score in zip(texts, scores, strict=True)]


COMMAND = Command("diverse texts for each source", _DESCRIPTION, _add_arguments, _run)
