"""Word alignments of a few test sentences, as plain data for the report.

Size letters: T target subwords, S source subwords.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from probattn.data.parallel import split_words
from probattn.recipes.translation_alignment import available_aligners
from probattn.recipes.translation_data import Corpus
from probattn.recipes.translator import Translator

NUM_EXAMPLES = 3
WORDS = range(6, 12)
"""How long the sentences of a picture are."""


def alignment_examples(translator: Translator, corpus: Corpus) -> list[dict[str, Any]]:
    """The same test sentences for every row, each with word-by-word weights of everything the model can align by.

    Returns:
        For each sentence: source and target words, the model's "translation", "weights" as {aligner: rows of target
        words}, and gold links where they are known.
    """
    text = corpus.texts["test"]
    rows = _suitable(text.source, text.target)
    translations = translator.translate([text.source[row] for row in rows])
    examples: list[dict[str, Any]] = [
        {
            "source": split_words(text.source[row]),
            "target": split_words(text.target[row]),
            "translation": best[0].text,
            "weights": {},
            "gold": [] if corpus.gold is None else sorted(corpus.gold[row][0]),
        }
        for row, best in zip(rows, translations, strict=True)
    ]
    tokenizer = corpus.subwords.tokenizer
    for aligner in available_aligners(translator.model):
        found = translator.align(
            [text.source[row] for row in rows], [text.target[row] for row in rows], aligner=aligner
        )
        for row, example, alignment in zip(rows, examples, found, strict=True):
            source_words = tokenizer.word_index(corpus.encoded["test"].source[row])
            target_words = tokenizer.word_index(corpus.encoded["test"].target[row])
            matrix = _word_weights(alignment.weights[: len(target_words)], source_words, target_words)
            example["weights"][aligner.value] = [[round(float(weight), 3) for weight in line] for line in matrix]
    return examples


def _suitable(source: Sequence[str], target: Sequence[str]) -> list[int]:
    rows = [
        row
        for row, (one, other) in enumerate(zip(source, target, strict=True))
        if len(split_words(one)) in WORDS and len(split_words(other)) in WORDS
    ]
    return (rows or list(range(len(source))))[:NUM_EXAMPLES]


def _word_weights(weights: Tensor, source_words: Sequence[int], target_words: Sequence[int]) -> Tensor:
    """(target words, source words): summed over the subwords of a source word, averaged over those of a target word."""
    to_source = torch.nn.functional.one_hot(torch.tensor(source_words)).to(weights.dtype)  # (S, source words)
    to_target = torch.nn.functional.one_hot(torch.tensor(target_words)).to(weights.dtype)  # (T, target words)
    return (to_target / to_target.sum(dim=0)).T @ weights @ to_source
