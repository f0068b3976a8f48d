"""Word alignments of a few test sentences, as plain data for the report."""

from collections.abc import Sequence
from typing import Any

from probattn.data.parallel import split_words
from probattn.recipes.translation_alignment import available_aligners, word_weights
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
            matrix = word_weights(alignment.weights, source_words, target_words)
            example["weights"][aligner.value] = [[round(float(weight), 3) for weight in line] for line in matrix]
    return examples


def _suitable(source: Sequence[str], target: Sequence[str]) -> list[int]:
    rows = [
        row
        for row, (one, other) in enumerate(zip(source, target, strict=True))
        if len(split_words(one)) in WORDS and len(split_words(other)) in WORDS
    ]
    return (rows or list(range(len(source))))[:NUM_EXAMPLES]
