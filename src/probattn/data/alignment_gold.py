"""Gold word alignments: which words of a sentence pair translate each other, as people marked them.

A link (i, j) joins source word i and target word j, counted from 0. Sure links are those that annotators insist on;
possible ones may be there or not, and every sure link is possible (Och and Ney, 2003).

| name | pairs | sure | possible only | source |
|---|---|---|---|---|
| de-en | 100 | 1,232 | 0 | Europarl; E. Bicici, The Regression Model of Machine Translation, 2011 |
| en-fr | 447 | 4,038 | 13,400 | Hansards; Och and Ney, in the form of awesome-align (Dou and Neubig, 2021) |
| ro-en | 248 | 6,198 | 0 | Mihalcea and Pedersen, 2003, in the form of awesome-align |
| ja-en | 582 | 13,562 | 0 | Kyoto Free Translation Task, in the form of awesome-align |
| zh-en | 450 | 11,238 | 178 | TsinghuaAligner, in the form of awesome-align |

The de-en file has one link that cannot be (line 776: word 16 of an English sentence of 13); it is left out and counted.
Terms: research; each set has its own. Ask before you redistribute anything.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from probattn.data.parallel import BadLine, ParallelText, read_lines, read_parallel, read_separated, split_words
from probattn.data.sources import Corpus, CorpusFile, locate, require_choice

__all__ = ["NUM_PAIRS", "AlignedText", "Links", "format_pharaoh", "load", "read_naacl", "read_pharaoh"]

Links = frozenset[tuple[int, int]]
"""Links of one sentence pair: (source word, target word), counted from 0."""

NUM_PAIRS = {"de-en": 100, "en-fr": 447, "ro-en": 248, "ja-en": 582, "zh-en": 450}
"""Sentence pairs of each set."""

EUROPARL = Corpus(
    name="Europarl de-en gold alignments",
    homepage="Ergun Bicici's German-English Parallel Corpus for Word Alignment (2014)",
    terms="research, with citation of Bicici (2011)",
)
AWESOME = Corpus(
    name="awesome-align gold alignments",
    homepage="https://github.com/neulab/awesome-align",
    terms="research; each set has its own",
)
EUROPARL_FOLDER = "word_alignment_gold/europarl-deen-bicici"
AWESOME_FOLDER = "word_alignment_gold/awesome-align"
AWESOME_ADDRESS = "https://raw.githubusercontent.com/neulab/awesome-align/master/examples"

# SHA-256 of the unpacked files.
SHA256 = {
    "test.de": "c39fe34bd6e55af0db2926e56518ab40cede2a04f463d124d9a188e5d588ba18",
    "test.en": "6be3bcab7cdc10cdfd7aed47e0a6b3f6452335179712db889b1453efcf5d0ceb",
    "de-en.ref.wa": "c96727255e6605765e5cecb67d28b60f7a7be36ddf9e9902415dee835f3fd1ed",
    "enfr.gold": "0a11b51cba8a92a7608fb00884cb3cf50fe0fcc4e4aa92d70624fd11451c4ddd",
    "enfr.src-tgt": "19d56c3de3634ab8420d553df4d9dfd849502b18225f1599382e98a6de9cfc72",
    "jaen.gold": "05cace5aad9ee118dca8f73d9a98434c80fa5d6531e83a2b27b16057b583afa6",
    "jaen.src-tgt": "64471c1189a30979966078c1172e264558d2aefb376553f7fb1a629d585f5a18",
    "roen.gold": "12c3ae50f32817ce27edbd272c90b91ac8156823505d25ecd34266804ed65b10",
    "roen.src-tgt": "e3ae360038e44813c27ebd470e359bf2d2a2a10e4697129060b3cbafbd2742a7",
    "zhen.gold": "39e4de909481013653a9bf2b3b0520d9b75c728eff4ff769bd8d11f9cc703a5d",
    "zhen.src-tgt": "2a35fb66ad1631587cd00fbd11255dd9a8f4c11413b90aaa10f20d7f1a1cd9a9",
}


@dataclass(frozen=True)
class AlignedText:
    """Parallel text with gold alignments.

    Attributes:
        text: The sentences; words are what stands between spaces and tabs.
        sure: Sure links of each pair.
        possible: Possible links of each pair, the sure ones included.
        num_dropped: Links that were left out because they name a word that the sentence does not have.
    """

    text: ParallelText
    sure: tuple[Links, ...]
    possible: tuple[Links, ...]
    num_dropped: int = 0

    def __len__(self) -> int:
        return len(self.text)


def read_pharaoh(
    path: str | Path, text: ParallelText, *, first_index: int = 0, on_bad_link: BadLine | str = BadLine.ERROR
) -> AlignedText:
    """Read alignments in Pharaoh format: one line a sentence pair, `3-1` for a sure link, `3p1` for a possible one.

    Args:
        path: The file; an empty line is a pair without links.
        text: The sentences that it aligns.
        first_index: Number of the first word: 0 in Pharaoh's own files, 1 in the `.gold` files of awesome-align.
        on_bad_link: What to do with a link that names a word that the sentence does not have.

    Raises:
        ValueError: A link is malformed or names a word that the sentence does not have, or the numbers of lines differ.
    """
    lines = read_lines(path)
    if len(lines) != len(text):
        raise ValueError(f"{path} has {len(lines):,} lines, but {text.name} has {len(text):,} sentence pairs")
    found: list[_Link] = []
    for row, line in enumerate(lines):
        for link in split_words(line):
            match = re.fullmatch(r"(\d+)([-p])(\d+)", link, flags=re.ASCII)
            if match is None:
                raise ValueError(f"{path}, line {row + 1}: {link!r} is no link; expected `3-1` or `3p1`")
            words = (int(match[1]), int(match[3]))
            found.append(_Link(row, words, is_sure=match[2] == "-", place=f"{path}, line {row + 1}"))
    return _collect(found, text, first_index=first_index, on_bad_link=BadLine(on_bad_link))


def read_naacl(
    path: str | Path, text: ParallelText, *, first_index: int = 1, on_bad_link: BadLine | str = BadLine.ERROR
) -> AlignedText:
    """Read alignments in the format of the NAACL 2003 shared task: `sentence source target S` or `... P` in each line.

    Sentences are counted from 1. A line without the last letter is a sure link.

    Args:
        path: The file.
        text: The sentences that it aligns.
        first_index: Number of the first word: 1 in the shared task, 0 in Bicici's Europarl file.
        on_bad_link: As for `read_pharaoh`.

    Raises:
        ValueError: A line is malformed, or names a sentence or a word that does not exist.
    """
    found: list[_Link] = []
    for number, line in enumerate(read_lines(path), 1):
        match = re.fullmatch(r"\s*(\d+)\s+(\d+)\s+(\d+)(?:\s+([SP]))?\s*", line, flags=re.ASCII)
        if match is None:
            raise ValueError(f"{path}, line {number}: {line!r} is no link; expected `sentence source target S` or `P`")
        row = int(match[1]) - 1
        if not 0 <= row < len(text):
            message = f"{path}, line {number}: sentence {row + 1} does not exist"
            raise ValueError(f"{message}; {text.name} has sentences 1 to {len(text):,}")
        words = (int(match[2]), int(match[3]))
        found.append(_Link(row, words, is_sure=match[4] != "P", place=f"{path}, line {number}"))
    return _collect(found, text, first_index=first_index, on_bad_link=BadLine(on_bad_link))


def format_pharaoh(links: Iterable[tuple[int, int]], *, possible: Iterable[tuple[int, int]] = ()) -> str:
    """Links in Pharaoh format, sorted, as `read_pharaoh` reads them.

    Args:
        links: Sure ones, or those of a model.
        possible: Links that may be there or not; those that are also sure are written as sure.

    Example:
        >>> format_pharaoh({(1, 0), (0, 2)}, possible={(0, 0), (0, 2)})
        '0p0 0-2 1-0'
    """
    sure = frozenset(links)
    return " ".join(
        f"{source}{'-' if (source, target) in sure else 'p'}{target}" for source, target in sorted(sure.union(possible))
    )


def load(name: str, *, may_download: bool = False) -> AlignedText:
    """One of the gold sets of the table above.

    Args:
        name: "de-en", "en-fr", "ro-en", "ja-en" or "zh-en".
        may_download: Whether to fetch missing files; no address is known for "de-en".

    Raises:
        FileNotFoundError: The files are not on this machine; the message lists the ways to get them.
        ValueError: An unknown name, or a file that is not the published one.
    """
    require_choice("gold set", name, NUM_PAIRS)
    if name == "de-en":
        files = [CorpusFile(EUROPARL, f"{EUROPARL_FOLDER}/{part}", sha256=SHA256[part]) for part in list(SHA256)[:3]]
        source, target, gold = (locate(file, may_download=may_download) for file in files)
        text = read_parallel(source, target, name="gold de-en")
        return read_naacl(gold, text, first_index=0, on_bad_link=BadLine.SKIP)
    sentences, gold = (
        locate(_awesome_file(f"{name.replace('-', '')}.{ending}"), may_download=may_download)
        for ending in ("src-tgt", "gold")
    )
    return read_pharaoh(gold, read_separated(sentences, name=f"gold {name}"), first_index=1)


@dataclass(frozen=True)
class _Link:
    row: int
    words: tuple[int, int]
    is_sure: bool
    place: str


def _collect(found: Iterable[_Link], text: ParallelText, *, first_index: int, on_bad_link: BadLine) -> AlignedText:
    """Links by sentence, from 0, after a check against the sentences' lengths."""
    sure: list[set[tuple[int, int]]] = [set() for _ in range(len(text))]
    possible: list[set[tuple[int, int]]] = [set() for _ in range(len(text))]
    lengths = [
        (len(split_words(source)), len(split_words(target)))
        for source, target in zip(text.source, text.target, strict=True)
    ]
    num_dropped = 0
    for link in found:
        pair = (link.words[0] - first_index, link.words[1] - first_index)
        outside = [not 0 <= word < length for word, length in zip(pair, lengths[link.row], strict=True)]
        if any(outside) and on_bad_link is BadLine.ERROR:
            side = outside.index(True)
            raise ValueError(
                f"{link.place}: {('source', 'target')[side]} word {link.words[side]} does not exist; the sentence has "
                f"{lengths[link.row][side]} words, counted from {first_index}. Is first_index right?"
            )
        if any(outside):
            num_dropped += 1
            continue
        possible[link.row].add(pair)
        if link.is_sure:
            sure[link.row].add(pair)
    return AlignedText(text, tuple(map(frozenset, sure)), tuple(map(frozenset, possible)), num_dropped)


def _awesome_file(name: str) -> CorpusFile:
    return CorpusFile(AWESOME, f"{AWESOME_FOLDER}/{name}", sha256=SHA256[name], url=f"{AWESOME_ADDRESS}/{name}")
