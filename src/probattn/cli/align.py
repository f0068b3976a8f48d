"""`probattn align`: word alignments of a parallel text."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from probattn.cli.command import Command
from probattn.cli.models import open_translator
from probattn.cli.output import Output, progress_over
from probattn.data.alignment_gold import format_pharaoh, read_pharaoh
from probattn.data.parallel import ParallelText, read_lines, split_words
from probattn.metrics import alignment_error_rate
from probattn.recipes.translation_alignment import Aligner, Links, available_aligners, word_weights
from probattn.recipes.translator import Alignment, Translator

__all__ = ["COMMAND"]

_DESCRIPTION = """Writes word alignments of a parallel text in Pharaoh format: one line a pair, "0-0 1-2" for links
between source word and target word, counted from 0.

probattn align runs/translation/variational-enum-seed0 --src text.de --tgt text.en > text.align
probattn align MODEL --src text.de --tgt text.en --aligner prior        without looking at the target word
probattn align MODEL --src text.de --tgt text.en --gold text.gold       the alignment error rate too, on stderr
probattn align MODEL --src text.de --tgt text.en --format json          weights between words, one object a line

--aligner: "posterior" is the inference network's (variational rows), "exact" weighs the prior by how well each position
explains the target word, "prior" is what decoding sees. By default the first of these that the model has is used."""


_BLOCK = 512
"""Most pairs between two writings."""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="folder of a run or of a trained model")
    parser.add_argument("--src", type=Path, required=True, help="source side, plain or gz")
    parser.add_argument("--tgt", type=Path, required=True, help="target side")
    parser.add_argument("--output", type=Path, default=None, help="file; the standard output by default")
    parser.add_argument("--aligner", choices=[one.value for one in Aligner], default=None, help="which distribution")
    parser.add_argument("--threshold", type=float, default=None, help="all words of at least this weight")
    parser.add_argument("--format", choices=["pharaoh", "json"], default="pharaoh", help="json has word weights too")
    parser.add_argument("--max_words", type=int, default=1000, help="longer lines are refused: memory grows with them")
    parser.add_argument("--gold", type=Path, default=None, help="gold links in Pharaoh format, 1p2 for possible ones")


def _run(arguments: Namespace) -> None:
    if arguments.threshold is not None and not 0.0 < arguments.threshold <= 1.0:
        raise ValueError(f"--threshold is a weight, above 0 and at most 1, got {arguments.threshold:g}")
    output = Output(arguments.output)
    translator = open_translator(arguments.model)
    source, target = read_lines(arguments.src), read_lines(arguments.tgt)
    if len(source) != len(target):
        raise ValueError(
            f"{arguments.src} has {len(source):,} lines and {arguments.tgt} has {len(target):,}; line i of one file "
            "must translate line i of the other"
        )
    text = ParallelText(source, target, name=str(arguments.src))
    gold = None if arguments.gold is None else read_pharaoh(arguments.gold, text)
    _require_short(text, [row for row in range(len(text)) if _is_pair(text, row)], arguments.max_words)
    aligner = arguments.aligner or available_aligners(translator.model)[0]
    print(f"aligning by the {aligner}", file=sys.stderr)
    links: list[Links] = []
    with output, progress_over(len(text), "pairs", output) as bar:
        for start in range(0, len(text), _BLOCK):
            rows = range(start, min(start + _BLOCK, len(text)))
            found = _aligned(translator, text, rows, aligner=aligner, threshold=arguments.threshold)
            links += [frozenset() if one is None else one.links for one in found]
            if arguments.format == "json":
                output.put(_record(translator, text, row, one) for row, one in zip(rows, found, strict=True))
            else:
                output.put(format_pharaoh(one) for one in links[start:])
            bar.update(len(rows))
    if gold is not None:
        rate = alignment_error_rate(zip(links, gold.sure, gold.possible, strict=True))
        print(f"alignment error rate: {rate:.4f}", file=sys.stderr)


def _is_pair(text: ParallelText, row: int) -> bool:
    """Whether both sides have a word; else there are no links."""
    return bool(split_words(text.source[row]) and split_words(text.target[row]))


def _aligned(
    translator: Translator, text: ParallelText, rows: Sequence[int], *, aligner: str, threshold: float | None
) -> list[Alignment | None]:
    """Alignments of some rows, None for those with an empty side."""
    pairs = [row for row in rows if _is_pair(text, row)]
    if not pairs:
        return [None] * len(rows)
    found = translator.align(
        [text.source[row] for row in pairs], [text.target[row] for row in pairs], aligner=aligner, threshold=threshold
    )
    by_row = dict(zip(pairs, found, strict=True))
    return [by_row.get(row) for row in rows]


def _between_words(translator: Translator, alignment: Alignment, source: str, target: str) -> list[list[float]]:
    """Weights between words, (target words, source words)."""
    tokenizer = translator.subwords.tokenizer
    text = translator.encode(ParallelText((source,), (target,), name="one pair"))
    matrix = word_weights(alignment.weights, tokenizer.word_index(text.source[0]), tokenizer.word_index(text.target[0]))
    return [[round(float(weight), 4) for weight in line] for line in matrix]


def _record(translator: Translator, text: ParallelText, row: int, alignment: Alignment | None) -> str:
    source, target = text.source[row], text.target[row]
    content = {
        "line": row,
        "source": split_words(source),
        "target": split_words(target),
        "alignment": "" if alignment is None else format_pharaoh(alignment.links),
        "weights": [] if alignment is None else _between_words(translator, alignment, source, target),
    }
    return json.dumps(content, ensure_ascii=False)


def _require_short(text: ParallelText, rows: Sequence[int], max_words: int) -> None:
    for row in rows:
        count = max(len(split_words(text.source[row])), len(split_words(text.target[row])))
        if count > max_words:
            raise ValueError(
                f"line {row + 1} has {count:,} words, more than --max_words {max_words:,}; split it, or raise that"
            )


COMMAND = Command("word alignments of a parallel text", _DESCRIPTION, _add_arguments, _run)
