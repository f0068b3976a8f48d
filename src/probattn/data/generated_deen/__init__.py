"""A generated German-English corpus with gold word alignments, for demos and tests of translation."""

from .corpus import GeneratedDeEn, SentencePair, write_files

__all__ = ["GeneratedDeEn", "SentencePair", "write_files"]
