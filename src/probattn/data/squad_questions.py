"""Sentence and question: question generation on SQuAD as Du et al. (2017) set it up, as far as it can be had.

A source is the sentence of a Wikipedia paragraph that holds an answer, a target the question that somebody asked about
it. Du et al. cut SQuAD v1.1 by articles and publish the text files; those of their training half are not in that
repository. So one trains on their *test* file and on 4,285 questions of SQuAD's training set that Stanford's course
CS224N ships with paragraphs (`val.*`), and evaluates on their *dev* file, which is SQuAD's own dev set:

| split | what | pairs | words source | words target | types source | types target |
|---|---|---|---|---|---|---|
| train | first 38 articles of Du's test (10,822), then the 4,285 | 15,107 | 491,783 | 172,354 | 25,035 | 12,952 |
| valid | last 6 articles of Du's test | 1,055 | 32,766 | 12,059 | 4,345 | 2,274 |
| test | Du's dev, 48 articles | 10,570 | 358,015 | 120,795 | 21,377 | 10,934 |

`valid` is rows 10,822 to 11,876 (from 0) of Du's test file, which is in the order of its 44 articles: "Architecture" to
"Plymouth". The 4,285 have 875 paragraphs without titles; none of them is among the 2,430 paragraphs of Du's test, and
their subjects (Kathmandu, Eisenhower, mosaics ...) are articles of Du's training half. So no two splits share a
paragraph or a source sentence, nor, as far as one can tell without titles, an article; `train` and `test` share one
question. A sentence has several questions: the 15,107 have 8,969 different sources, and 64 pairs repeat others. Of the
words of `test`, 8.8 % (source) and 6.4 % (target) do not occur in `train`. The 4,285 are like Du's files: a source has
32.4 words on average (Du's test 32.5), a question 10.8 (11.6). Nothing is cut here: see `truncated`.

Du's files are lower-cased and tokenised by CoreNLP (`-lrb-`, `` `` ``, `--`); where an answer crosses the border of two
sentences, the source is both. The 4,285 are tokenised by another tool: `du_style` rewrites its tokens in CoreNLP's way,
and `sentence_of` finds the sentence. Words with a slash and some abbreviations may still differ.
Terms: SQuAD is under CC BY-SA 4.0.
"""

import re
from collections.abc import Sequence

from probattn.data.parallel import ParallelText, read_lines, split_words
from probattn.data.sources import Corpus, CorpusFile, load_pair, locate, require_choice

__all__ = ["CORPUS", "NUM_PAIRS", "du_style", "load", "sentence_of"]

CORPUS = Corpus(
    name="SQuAD questions",
    homepage="https://github.com/xinyadu/nqg",
    terms="CC BY-SA 4.0",
    twin="probattn.data.generated_questions",
)

NUM_PAIRS = {"train": 15_107, "valid": 1_055, "test": 10_570}
"""Pairs of each split."""

NUM_DU = {"test": 11_877, "dev": 10_570}
NUM_TRAIN_DU = 10_822  # rows of Du's test file before its last six articles
ADDRESS = "https://raw.githubusercontent.com/xinyadu/nqg/master/data/processed"

# SHA-256 of the unpacked files.
SHA256 = {
    "nqg/src-dev.txt": "d540a569619c0bd68b46f9eb3d59351206bcdd1d15eeed8dc5a4fd4815a0d872",
    "nqg/src-test.txt": "5714e36b9f3ef884f4e109e876f4e507d61f58a1241b4fb0403866dfdeef315d",
    "nqg/tgt-dev.txt": "68e293bd31cd223ac95ed3090726c8b83041f99984961bbc4164250dac304782",
    "nqg/tgt-test.txt": "e75710df557c2432925c8f2ca17e9b490235ce3c647c857fceaea6c401203a76",
    "cs224n-val/val.context": "3083765503c795dd56cb5976b3d3f45adc0351619f197d3598aaa5e853f98be4",
    "cs224n-val/val.question": "2d503307d5dcc06ff313a89e3c3e1363513998b26f464a5326fe10dc8de44f66",
    "cs224n-val/val.span": "58dde149681d22856fccf85cc89b4c8c2e364e7f181fda8a468673e500888108",
}

NAMES = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-", "“": "``", "”": "''"}
CHARACTERS = str.maketrans({"’": "'", "‘": "`", "…": "...", "£": "#", "€": "$"})
CLITICS = ("'s", "'m", "'d", "'re", "'ve", "'ll", "'t", "'em")
ENDS, CLOSERS = (".", "?", "!"), (")", "]", "”")
ABBREVIATIONS = ("al", "no", "vol", "ca", "approx", "e.g", "i.e")  # the other tool sets their full stop apart


def load(split: str, *, may_download: bool = False) -> ParallelText:
    """One split of the sentence-question pairs.

    Args:
        split: "train", "valid" or "test" (Du's dev file).
        may_download: Whether to fetch Du's files from GitHub; no address of the 4,285 is known.

    Raises:
        FileNotFoundError: The files are not on this machine; the message lists the ways to get them.
        ValueError: An unknown split, or a file that is not the published one.
    """
    require_choice("split", split, NUM_PAIRS)
    stem = "dev" if split == "test" else "test"
    whole = load_pair(
        _file(f"nqg/src-{stem}.txt"),
        _file(f"nqg/tgt-{stem}.txt"),
        name=f"SQuAD questions {split}",
        num_pairs=NUM_DU[stem],
        may_download=may_download,
    )
    # Du's lines end with a space.
    text = ParallelText(tuple(map(str.strip, whole.source)), tuple(map(str.strip, whole.target)), whole.name)
    if split == "test":
        return text
    if split == "valid":
        return text.rows(NUM_TRAIN_DU, len(text))
    more = _with_paragraphs(may_download=may_download)
    return ParallelText(text.source[:NUM_TRAIN_DU] + more.source, text.target[:NUM_TRAIN_DU] + more.target, text.name)


def sentence_of(words: Sequence[str], first: int, last: int) -> tuple[int, int]:
    """The sentence that holds a span, or all sentences it touches: (start, stop) as in `words[start:stop]`.

    A sentence ends with `.`, `?` or `!` and the brackets and quotation mark that close behind it, unless a word in
    small letters or another punctuation mark follows, or the full stop belongs to an abbreviation.

    Args:
        words: Of a paragraph, cased; quotation marks are `"`.
        first: Position of the first word of the span.
        last: Position of the last one.

    Example:
        >>> words = 'He left ( why ? ) at six . " Go . " she said . It rained .'.split()
        >>> [words[slice(*sentence_of(words, place, place))] for place in (1, 16)]
        [['He', 'left', '(', 'why', '?', ')', 'at', 'six', '.'], ['It', 'rained', '.']]
    """
    if not 0 <= first <= last < len(words):
        raise ValueError(f"the span {first} to {last} is not in a paragraph of {len(words)} words; check both files")
    borders = [0, *_ends(words), len(words)]
    start = max(border for border in borders if border <= first)
    return start, min(border for border in borders if border > last)


def du_style(words: Sequence[str]) -> list[list[str]]:
    """For each word of a paragraph or a question the words that Du's files would have there.

    Brackets and quotation marks get their names from the Penn Treebank, dashes become `--` and stand alone, a quotation
    mark leaves the word it sticks to, letters are small.

    Args:
        words: Of a *whole* paragraph or question, because every second `"` closes.

    Example:
        >>> [word for group in du_style('( Rome ’ s " 1942–43 " )'.split()) for word in group]
        ['-lrb-', 'rome', "'s", '``', '1942', '--', '43', "''", '-rrb-']
    """
    groups: list[list[str]] = []
    is_open = False
    for place, word in enumerate(words):
        follows = words[place + 1] if place + 1 < len(words) else ""
        before = words[place - 1] if place else ""
        if word == '"':
            groups.append(["''" if is_open else "``"])
            is_open = not is_open
        elif word in NAMES:
            groups.append([NAMES[word]])
        elif word == "s" and before == "’":
            groups[-1:] = [[], ["'s"]]
        elif re.fullmatch(r"(\w\.)+\w", word) and follows == "." and not word[0].isdigit():
            groups.append([f"{word.lower()}."])  # e.g . is e.g.
        elif word == "." and re.fullmatch(r"([^\W\d]\.)+\w", before) and _goes_on(words, place):
            groups.append([])
        else:
            groups.append(_plain(word))
    return groups


def _plain(word: str) -> list[str]:
    text = word.lower().translate(CHARACTERS)
    if len(text) > 1 and text[0] in "'`" and text[1].isalpha() and text not in CLITICS:
        return ["`", *_plain(text[1:])]
    text = re.sub(r"[–—―]+", " -- ", re.sub(r"^([#$])(?=\d)", r"\1 ", text))
    return split_words(text)


def _ends(words: Sequence[str]) -> list[int]:
    """Where sentences end: the position behind each last word."""
    found: list[int] = []
    is_open = False
    for place, word in enumerate(words):
        is_open ^= word == '"'
        if word not in ENDS or _goes_on(words, place, is_open=is_open):
            continue
        found.append(_behind_closers(words, place, is_open=is_open))
    return found


def _behind_closers(words: Sequence[str], place: int, *, is_open: bool) -> int:
    behind = place + 1
    while behind < len(words) and (words[behind] in CLOSERS or (words[behind] == '"' and is_open)):
        is_open = is_open and words[behind] != '"'
        behind += 1
    return behind


def _goes_on(words: Sequence[str], place: int, *, is_open: bool = False) -> bool:
    """Whether the sentence goes on behind the full stop, question or exclamation mark at a place."""
    if place and words[place] == "." and words[place - 1].lower() in ABBREVIATIONS:
        return True
    behind = _behind_closers(words, place, is_open=is_open)
    if behind == len(words):
        return False
    follows = words[behind]
    return not (follows[0].isupper() or follows[0].isdigit() or follows in ('"', "“", "(", "[", "'", "`"))


def _with_paragraphs(*, may_download: bool) -> ParallelText:
    """The 4,285 questions, each with the sentence of its paragraph that holds the answer."""
    kinds = ("context", "question", "span")
    paths = [locate(_file(f"cs224n-val/val.{kind}"), may_download=may_download) for kind in kinds]
    source: list[str] = []
    target: list[str] = []
    rewritten: dict[str, list[list[str]]] = {}  # a paragraph has five questions on average
    for paragraph, question, span in zip(*map(read_lines, paths), strict=True):
        words = split_words(paragraph)
        first, last = (int(number) for number in span.split())
        start, stop = sentence_of(words, first, max(first, last))  # one span ends before it starts
        if paragraph not in rewritten:
            rewritten[paragraph] = du_style(words)
        source.append(_join(rewritten[paragraph][start:stop]))
        target.append(_join(du_style(split_words(question))))
    return ParallelText(tuple(source), tuple(target), "SQuAD questions with paragraphs")


def _join(groups: Sequence[Sequence[str]]) -> str:
    return " ".join(word for group in groups for word in group)


def _file(name: str) -> CorpusFile:
    url = f"{ADDRESS}/{name.removeprefix('nqg/')}" if name.startswith("nqg/") else None
    return CorpusFile(CORPUS, f"squad/{name}", sha256=SHA256[name], url=url)
