"""Scores of captions against several references: BLEU-1 to 4 (sacrebleu), CIDEr, ROUGE-L and METEOR (pycocoevalcap).

Text is lower-cased words with spaces between them and no punctuation, on both sides: what the usual scoring's tokeniser
would make of it. METEOR runs a Java program, so it is a function of its own.
"""

import contextlib
import importlib
import io
import shutil
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from probattn.metrics.bleu import TranslationScore, scores_by_order
from probattn.metrics.optional import import_for_eval

__all__ = ["attention_hits", "caption_bleu", "caption_meteor", "caption_scores", "has_caption_scores"]


def caption_bleu(captions: Sequence[str], references: Sequence[Sequence[str]]) -> dict[int, TranslationScore]:
    """Corpus BLEU-1 to BLEU-4 against several references a picture.

    The brevity penalty takes the reference whose length is closest, picture by picture.

    Args:
        captions: One for each picture.
        references: For each picture one caption or more.

    Returns:
        From n to the score, 0 to 100; the order is appended to sacrebleu's signature.

    Raises:
        ValueError: If there are not as many captions as pictures, or a picture has no reference.

    Example:
        >>> scores = caption_bleu(["a dog runs fast"], [["a dog runs", "the dog runs fast"]])
        >>> round(scores[1].score, 1), round(scores[2].score, 1)
        (100.0, 100.0)
    """
    _require_references(captions, references)
    metric = import_for_eval("sacrebleu.metrics").BLEU(tokenize="none", force=True)
    streams = list(zip_longest(*references))  # one list for each number of a reference, None where there are fewer
    scores = scores_by_order(metric, captions, streams)
    signature = metric.get_signature()
    return {n: TranslationScore(round(score, 4), f"{signature}|order:{n}") for n, score in enumerate(scores, start=1)}


def has_caption_scores() -> bool:
    """Whether pycocoevalcap is installed."""
    try:
        _library("pycocoevalcap.cider.cider")
    except ImportError:
        return False
    return True


def caption_scores(captions: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """CIDEr and ROUGE-L times 100, as captioning papers print them.

    CIDEr weighs words by how rare they are among the references of all pictures, so it needs several.

    Raises:
        ImportError: If pycocoevalcap is not installed.
        ValueError: As for `caption_bleu`.
    """
    _require_references(captions, references)
    gold = {number: list(lines) for number, lines in enumerate(references)}
    found = {number: [caption] for number, caption in enumerate(captions)}
    scorers = {
        "cider": _library("pycocoevalcap.cider.cider").Cider(),
        "rouge_l": _library("pycocoevalcap.rouge.rouge").Rouge(),
    }
    with _quiet():
        return {name: 100.0 * float(scorer.compute_score(gold, found)[0]) for name, scorer in scorers.items()}


def caption_meteor(captions: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """METEOR 1.5 times 100; starts Java, which reads its tables of paraphrases first.

    Raises:
        ImportError: If pycocoevalcap is not installed.
        FileNotFoundError: If there is no Java.
        ValueError: As for `caption_bleu`.
    """
    _require_references(captions, references)
    module = _library("pycocoevalcap.meteor.meteor")
    if shutil.which("java") is None:
        raise FileNotFoundError("METEOR is a Java program, and there is no `java` on this machine; leave it out")
    scorer = module.Meteor()
    process = scorer.meteor_p
    try:
        gold = {number: list(lines) for number, lines in enumerate(references)}
        return 100.0 * float(scorer.compute_score(gold, {n: [text] for n, text in enumerate(captions)})[0])
    finally:
        process.kill()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        process.wait()


def attention_hits(weights: Tensor, gold: Sequence[Sequence[int]]) -> tuple[float, int, int]:
    """How well the attention of words points at what they speak of.

    Args:
        weights: (T, R) of each word.
        gold: For each of the first words the right regions; words without any are not counted.

    Returns:
        Sum of the weights on right regions, number of words whose largest weight is on one, number of words counted.

    Example:
        >>> attention_hits(torch.tensor([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]]), [[0], [], [0]])
        (1.0, 1, 2)
    """
    mass, hits, words = 0.0, 0, 0
    for row, right in zip(weights, gold, strict=False):
        if right:
            mass += float(row[torch.tensor(right)].sum())
            hits += int(int(row.argmax()) in right)
            words += 1
    return mass, hits, words


def _library(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError("this metric needs pycocoevalcap; install it with: pip install 'probattn[vision]'") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what the scorers print."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def _require_references(captions: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    if isinstance(captions, str):
        raise ValueError("expected a list of captions, got a string; wrap a single caption in a list")
    if len(captions) != len(references) or not captions:
        raise ValueError(
            f"expected a caption for each picture and at least one, got {len(captions)} for {len(references)} pictures"
        )
    without = [number for number, lines in enumerate(references) if not lines or isinstance(lines, str)]
    if without:
        raise ValueError(f"expected a list of references for each picture, got none for number {without[0]}")
