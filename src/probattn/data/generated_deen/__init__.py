"""A generated German-English corpus with gold word alignments, for demos and tests of translation.

Real words, a grammar with agreement on both sides, verb-second and verb-final clauses, separable verbs, compounds, and
many words that can only be translated in their context (Bank, sie, macht ... auf). The sentences are grammatical; their
meaning is often odd. Of the training split with seed 0, 20,000 pairs:

| | German | English |
|---|---|---|
| words in a sentence, mean (4 to 25) | 11.0 | 11.1 |
| word types | 4,838 | 2,571 |

89 % of the pairs have crossing links; a pair has 10.9 sure links and 0.9 that are only possible; 1,372 German types
have more than one English word; one source sentence in 1,200 was drawn twice and left out. Of 1,000 test pairs, 0.3 %
of the German words are not in the training pairs. It takes about 10 seconds of one core.

What it leaves out: the genitive, the subjunctive, reported speech, da-compounds (darauf, damit), stress by word order.
"""

from .corpus import GeneratedDeEn, SentencePair, write_files

__all__ = ["GeneratedDeEn", "SentencePair", "write_files"]
