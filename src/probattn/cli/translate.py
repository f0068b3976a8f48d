"""`probattn translate`: a text, line by line."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from jsonargparse import ArgumentParser, Namespace

from probattn.cli.command import Command, refuse_options
from probattn.cli.models import InputBlocks, open_translator, warn_of_unknown
from probattn.cli.output import Output, progress_over
from probattn.core import Estimator
from probattn.data.alignment_gold import format_pharaoh
from probattn.data.parallel import split_words
from probattn.recipes.translation_alignment import require_testable
from probattn.recipes.translation_eval import estimator_by_name
from probattn.recipes.translation_search import SamplingSettings, Translation
from probattn.recipes.translator import Translator

__all__ = ["COMMAND"]

_DESCRIPTION = """Translates a text, one sentence a line; an empty line stays empty. Text is tokenised as in training.

probattn translate runs/translation/soft-seed0 < text.de > text.en
probattn translate MODEL --input text.de --beam_size 10 --num_best 5    n-best list
probattn translate MODEL --input text.de --scores --alignments          fields separated by |||
probattn translate MODEL --input text.de --test_with kmax:5             mix over the five best alignments only
probattn translate MODEL --input text.de --format json                  one JSON object a line
probattn translate MODEL --input text.de --num_samples 5 --scores       drawn word by word, not searched for

With several fields a line is: number ||| translation ||| score log-probability ||| alignment (Pharaoh format)."""


_OF_SEARCH: Mapping[str, object] = {"num_best": 1, "beam_size": None, "length_penalty": None, "eos_penalty": None}
"""Options of the search, with their defaults;"""
_OF_DRAWS: Mapping[str, object] = {"temperature": 1.0, "top_p": None, "seed": 0}
"""and of draws."""
_BLOCK = 128
"""Most sentences between two writings."""

_EMPTY = Translation(text="", log_prob=0.0, score=0.0, weights=torch.zeros(0, 0), links=frozenset())
"""Of an empty line."""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="folder of a run or of a trained model")
    parser.add_argument("--input", type=Path, default=None, help="text, plain or gz; the standard input by default")
    parser.add_argument("--output", type=Path, default=None, help="file; the standard output by default")
    parser.add_argument("--beam_size", type=int, default=None, help="hypotheses of a sentence; 1 is greedy")
    parser.add_argument(
        "--num_best", type=int, default=1, help="translations of a sentence; the beam is at least as wide"
    )
    parser.add_argument("--length_penalty", type=float, default=None, help="exponent of Wu et al.'s penalty")
    parser.add_argument("--eos_penalty", type=float, default=None, help="of ending early; Deng et al.'s code has 3")
    parser.add_argument("--num_samples", type=int, default=None, help="draw so many translations instead of a search")
    parser.add_argument("--temperature", type=float, default=1.0, help="of draws; below 1 nearer to the most probable")
    parser.add_argument("--top_p", type=float, default=None, help="of draws; only the most probable words")
    parser.add_argument("--seed", type=int, default=0, help="of draws")
    parser.add_argument("--test_with", default=None, help="soft, exact or kmax:K; as the row was tested by default")
    parser.add_argument("--scores", action="store_true", help="give score and log-probability too")
    parser.add_argument("--alignments", action="store_true", help="give word alignments too")
    parser.add_argument("--max_words", type=int, default=1000, help="longer lines are refused: time grows with them")
    parser.add_argument("--format", choices=["text", "json"], default="text", help="of the output")


def _run(arguments: Namespace) -> None:
    if arguments.num_best < 1:
        raise ValueError(f"--num_best must be at least 1, got {arguments.num_best}")
    if arguments.num_samples is None:
        refuse_options(arguments, _OF_DRAWS, "goes with --num_samples, which draws instead of searching")
    else:
        refuse_options(arguments, _OF_SEARCH, "is for the search, --num_samples draws instead")
    output = Output(arguments.output)
    translator = open_translator(arguments.model)
    estimator = None if arguments.test_with is None else estimator_by_name(arguments.test_with)
    if estimator is not None:
        require_testable(translator.model, estimator)
    blocks, has_warned = InputBlocks(arguments.input, _BLOCK), False
    with output, progress_over(blocks.total, "sentences", output) as bar:
        for start, sentences in blocks:
            _require_short(sentences, start, arguments.max_words)
            has_warned = has_warned or _warn_of_unknown(translator, sentences)
            found = _found(translator, sentences, start, estimator, arguments)
            output.put(line for number, best in enumerate(found, start) for line in _lines(number, best, arguments))
            bar.update(len(sentences))


def _warn_of_unknown(translator: Translator, sentences: Sequence[str]) -> bool:
    return warn_of_unknown(
        *translator.count_unknown(sentences), what="these sentences", so="its translations say little of them"
    )


def _found(
    translator: Translator, sentences: Sequence[str], start: int, estimator: Estimator | None, arguments: Namespace
) -> list[list[Translation]]:
    """Translations of a block of sentences, by search or by draws."""
    if arguments.num_samples is not None:
        names = ("num_samples", *_OF_DRAWS)
        settings = SamplingSettings(**{name: arguments[name] for name in names})
        return translator.sample(sentences, settings, estimator=estimator, first=start)
    given = {name: arguments[name] for name in ("beam_size", "length_penalty", "eos_penalty")}
    changes = {name: value for name, value in given.items() if value is not None}
    decoding = replace(translator.settings.decoding, **changes)
    if "beam_size" not in changes and arguments.num_best > decoding.beam_size:
        decoding = replace(decoding, beam_size=arguments.num_best)
    return translator.translate(sentences, num_best=arguments.num_best, estimator=estimator, decoding=decoding)


def _require_short(sentences: Sequence[str], start: int, max_words: int) -> None:
    for number, sentence in enumerate(sentences, start + 1):
        count = len(split_words(sentence))
        if count > max_words:
            raise ValueError(
                f"line {number} has {count:,} words, more than --max_words {max_words:,}; is it one sentence? "
                "Split it, or raise --max_words"
            )


def _lines(number: int, best: Sequence[Translation], arguments: Namespace) -> list[str]:
    found = best or [_EMPTY]
    if arguments.format == "json":
        return [json.dumps(_record(number, one), ensure_ascii=False) for one in found]
    has_fields = arguments.num_best > 1 or arguments.num_samples or arguments.scores or arguments.alignments
    return [_fields(number, one, arguments) for one in found] if has_fields else [found[0].text]


def _fields(number: int, translation: Translation, arguments: Namespace) -> str:
    fields = [str(number), translation.text]
    fields += [f"{translation.score:.4f} {translation.log_prob:.4f}"] if arguments.scores else []
    fields += [format_pharaoh(translation.links)] if arguments.alignments else []
    return " ||| ".join(fields)


def _record(number: int, translation: Translation) -> dict[str, object]:
    return {
        "line": number,
        "translation": translation.text,
        "score": translation.score,
        "log_prob": translation.log_prob,
        "alignment": format_pharaoh(translation.links),
    }


COMMAND = Command("translate a text line by line", _DESCRIPTION, _add_arguments, _run)
