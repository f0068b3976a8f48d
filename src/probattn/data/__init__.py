"""Corpora and generated tasks, one file each; parallel text from files to batches.

Each of the modules `multi30k`, `iwslt14`, `wmt10k` and `alignment_gold` has a function `load`.
"""

from probattn.data import alignment_gold, iwslt14, multi30k, wmt10k
from probattn.data.alignment_gold import AlignedText, format_pharaoh, read_naacl, read_pharaoh
from probattn.data.batches import EncodedText, SourceBatch, TranslationBatch, decoding_batches, restore_order
from probattn.data.bpe import BOS, EOS, PAD, UNK, EncodedWords, Tokenizer, train_bpe
from probattn.data.buckets import TokenBuckets
from probattn.data.output_vocabulary import OutputVocabulary, target_types
from probattn.data.parallel import BadLine, ParallelText, read_lines, read_parallel, read_separated, split_words
from probattn.data.recall import RecallBatch, RecallTask

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "AlignedText",
    "BadLine",
    "EncodedText",
    "EncodedWords",
    "OutputVocabulary",
    "ParallelText",
    "RecallBatch",
    "RecallTask",
    "SourceBatch",
    "TokenBuckets",
    "Tokenizer",
    "TranslationBatch",
    "alignment_gold",
    "decoding_batches",
    "format_pharaoh",
    "iwslt14",
    "multi30k",
    "read_lines",
    "read_naacl",
    "read_parallel",
    "read_pharaoh",
    "read_separated",
    "restore_order",
    "split_words",
    "target_types",
    "train_bpe",
    "wmt10k",
]
