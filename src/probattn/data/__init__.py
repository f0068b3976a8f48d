"""Corpora and generated tasks, one file each; parallel text and single sentences from files to batches.

Each of the modules `multi30k`, `iwslt14`, `wmt10k`, `squad_answers`, `squad_questions`, `cornell_movie`, `captions`,
`flickr8k`, `ptb`, `text_vae_corpora` and `alignment_gold` has a function `load`.
"""

from probattn.data import (
    alignment_gold,
    captions,
    cornell_movie,
    flickr8k,
    iwslt14,
    multi30k,
    ptb,
    squad_answers,
    squad_questions,
    text_vae_corpora,
    wmt10k,
)
from probattn.data.alignment_gold import AlignedText, format_pharaoh, read_naacl, read_pharaoh
from probattn.data.batches import EncodedText, SourceBatch, TranslationBatch, decoding_batches, restore_order
from probattn.data.bpe import BOS, EOS, PAD, UNK, EncodedWords, Tokenizer, train_bpe
from probattn.data.buckets import TokenBuckets
from probattn.data.generated_dialogue import GeneratedDialogue
from probattn.data.generated_examples import Examples
from probattn.data.generated_questions import GeneratedQuestions
from probattn.data.generated_text import GeneratedText
from probattn.data.glove import GloveRows, glove_rows
from probattn.data.output_vocabulary import OutputVocabulary, target_types
from probattn.data.parallel import BadLine, ParallelText, read_lines, read_parallel, read_separated, split_words
from probattn.data.recall import RecallBatch, RecallTask
from probattn.data.text import EncodedSentences, TextBatch, TextSplits, read_text, split_text
from probattn.data.truncation import truncated
from probattn.data.words import train_words, vocabulary_words

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "AlignedText",
    "BadLine",
    "EncodedSentences",
    "EncodedText",
    "EncodedWords",
    "Examples",
    "GeneratedDialogue",
    "GeneratedQuestions",
    "GeneratedText",
    "GloveRows",
    "OutputVocabulary",
    "ParallelText",
    "RecallBatch",
    "RecallTask",
    "SourceBatch",
    "TextBatch",
    "TextSplits",
    "TokenBuckets",
    "Tokenizer",
    "TranslationBatch",
    "alignment_gold",
    "captions",
    "cornell_movie",
    "decoding_batches",
    "flickr8k",
    "format_pharaoh",
    "glove_rows",
    "iwslt14",
    "multi30k",
    "ptb",
    "read_lines",
    "read_naacl",
    "read_parallel",
    "read_pharaoh",
    "read_separated",
    "read_text",
    "restore_order",
    "split_text",
    "split_words",
    "squad_answers",
    "squad_questions",
    "target_types",
    "text_vae_corpora",
    "train_bpe",
    "train_words",
    "truncated",
    "vocabulary_words",
    "wmt10k",
]
