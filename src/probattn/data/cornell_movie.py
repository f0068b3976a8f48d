"""Cornell movie dialogues: what one character says, and what the other replies (Danescu-Niculescu-Mizil and Lee, 2011).

The file has 201,352 pairs of neighbouring utterances in about the order of the corpus, film by film. The reply of one
pair is often the prompt of the next, and a random split would put half of a conversation into the training set. So the
splits are contiguous blocks of rows, and the rows between them belong to none:

| split | rows | pairs | words prompt | words reply | types prompt | types reply |
|---|---|---|---|---|---|---|
| train | 0 to 187,351 | 187,352 | 2,492,491 | 2,581,462 | 43,440 | 43,925 |
| valid | 189,352 to 194,351 | 5,000 | 74,755 | 79,352 | 5,624 | 5,746 |
| test | 196,352 to 201,351 | 5,000 | 71,076 | 75,212 | 6,208 | 6,256 |

A gap has 2,000 rows, about six films: with 1,000 rows, 51 training pairs have an utterance of eight words or more in
common with valid or test, with 2,000 three have. Some films are in the corpus in two drafts far apart, but none of
those near the end. Short replies ("What?", "Yes.") are in all splits; no pair is in two.

Text is lower-cased, without the tags `<u>`, `<i>`, `<b>`; words and punctuation marks are apart, and so are n't and 's
(`simple_words`). An utterance has 13.5 words on average and up to 685. Neither side has more than 20 words in 124,857
training pairs; the first 20,000 of these have 8.1 words a side and 11,687 word types. See `load` for such subsets.
Reading the training split takes about 20 seconds.
Terms: for research; the corpus' authors ask to be cited and told of results.
"""

import re

from probattn.data.parallel import ParallelText, read_lines, split_words
from probattn.data.sources import Corpus, CorpusFile, locate, require_choice

__all__ = ["CORPUS", "NUM_PAIRS", "load", "simple_words"]

CORPUS = Corpus(
    name="Cornell movie dialogues",
    homepage="https://www.cs.cornell.edu/~cristian/Cornell_Movie-Dialogs_Corpus.html",
    terms="research; the authors ask to be cited",
    twin="probattn.data.generated_dialogue",
)

NUM_PAIRS = {"train": 187_352, "valid": 5_000, "test": 5_000}
"""Pairs of each split."""

NUM_ROWS = 201_352
GAP = 2_000
NUM_HELD_OUT = 5_000
ROWS = {
    "train": (0, NUM_ROWS - 2 * (NUM_HELD_OUT + GAP)),
    "valid": (NUM_ROWS - 2 * NUM_HELD_OUT - GAP, NUM_ROWS - NUM_HELD_OUT - GAP),
    "test": (NUM_ROWS - NUM_HELD_OUT, NUM_ROWS),
}

# One prompt and one reply a line, a tab between them. SHA-256 of the unpacked file; the authors publish a zip of other
# files, from which it was made, so there is no address of this one.
PAIRS_SHA256 = "d3f5f552304290975c61d909614213510756453ee4478a70b429e6526ec65082"
PAIRS = CorpusFile(CORPUS, "cornell_movie/pairs.tsv", sha256=PAIRS_SHA256)

# Curly quotation marks, some of them read in a wrong encoding (UTF-8 as Windows-1252).
REPAIRS = (
    ("â€™", "'"),
    ("â€˜", "'"),
    ("â€œ", '"'),
    ("â€", "--"),
    ("’", "'"),
    ("‘", "'"),
    ("“", '"'),
    ("”", '"'),
    ("…", "..."),
)
ENDINGS = r"n't|'(?:s|m|d|re|ve|ll)"
WORD = re.compile(rf"(?:{ENDINGS})(?!\w)|\d+(?:[.,:]\d+)*(?!\w)|\w+(?:[-']\w+)*|\.\.\.|--|[^\w\s]")


def load(
    split: str, *, num_pairs: int | None = None, max_words: int | None = None, may_download: bool = False
) -> ParallelText:
    """One split of the prompt-reply pairs.

    A subset is stated by two numbers: of the pairs in which neither side has more than `max_words` words, the first
    `num_pairs`, in the order of the file. They are read from the first films alone.

    Args:
        split: "train", "valid" or "test".
        num_pairs: How many; all by default.
        max_words: Longest side, punctuation counted; any by default. Longer pairs are counted in `num_long`.
        may_download: As for `locate`; no address of the file is known.

    Raises:
        FileNotFoundError: The file is not on this machine; the message lists the ways to get it.
        ValueError: An unknown split, a limit below 1, fewer pairs than wanted, or a file that is not the known one.
    """
    require_choice("split", split, NUM_PAIRS)
    for name, limit in (("num_pairs", num_pairs), ("max_words", max_words)):
        if limit is not None and limit < 1:
            raise ValueError(f"{name} must be at least 1, got {limit}; leave it out for all pairs")
    kept: list[tuple[str, str]] = []
    num_empty = num_long = 0
    for row in read_lines(locate(PAIRS, may_download=may_download))[slice(*ROWS[split])]:
        prompt, reply = (simple_words(side) for side in row.split("\t"))
        if not prompt or not reply:
            num_empty += 1
        elif max_words is not None and max(len(prompt), len(reply)) > max_words:
            num_long += 1
        else:
            kept.append((" ".join(prompt), " ".join(reply)))
        if len(kept) == num_pairs:
            break
    if num_pairs is not None and len(kept) < num_pairs:
        raise ValueError(f"{split} has {len(kept):,} such pairs, {num_pairs:,} were asked for; ask for fewer or longer")
    source, target = zip(*kept, strict=True) if kept else ((), ())
    return ParallelText(source, target, f"Cornell movie {split}", num_empty=num_empty, num_long=num_long)


def simple_words(line: str) -> list[str]:
    """Lower-cased words and punctuation marks of a line of English.

    Dots in a row are `...`, dashes are `--`; n't, 's, 'm, 'd, 're, 've and 'll stand alone, as in the Penn Treebank and
    in GloVe's vocabulary. Hyphens and other apostrophes within a word stay.

    Example:
        >>> simple_words("No, you <u>can't</u> --- it's 10:30, y'all, semi-dark....")
        ['no', ',', 'you', 'ca', "n't", '--', 'it', "'s", '10:30', ',', "y'all", ',', 'semi-dark', '...']
    """
    text = re.sub(r"</?[a-z]>", "", line.lower())
    for old, new in REPAIRS:
        text = text.replace(old, new)
    text = re.sub(r"\.{2,}", " ... ", re.sub(r"[–—]|--+", " -- ", text))
    text = re.sub(rf"(?<=\w)({ENDINGS})(?!\w)", r" \1 ", text)
    return WORD.findall(" ".join(split_words(text)))
