"""IWSLT 2014 German-English: the validation and test files of Deng et al. (2018), transcripts of TED talks.

Source: https://github.com/harvardnlp/var-attn, folder `data/iwslt14-de-en`: the files that fairseq's
`prepare-iwslt14.sh` makes, lower-cased and tokenised (`tok`), and the same in 14,000 joint BPE merges (`bpe`, where
`@@` marks a piece that goes on). The training file (about 160,000 pairs) is not published there, so what can be
trained is small: the first 6,500 pairs of the validation file, with its last 782 for validation. The lines of that
file were taken from the talks in order, so both parts are contiguous and share at most one talk.

| split | pairs | words de | words en |
|---|---|---|---|
| train (first 6,500 of paper_valid) | 6,500 | 126,676 | 133,756 |
| valid (last 782 of paper_valid) | 782 | 15,292 | 16,234 |
| paper_valid | 7,282 | 141,968 | 149,990 |
| test | 6,750 | 125,738 | 131,141 |

Quotation marks and apostrophes are escaped (`&quot;`, `&apos;`), as in the paper's evaluation.
Terms: TED talks are under CC BY-NC-ND; the IWSLT data are for research. Ask before you redistribute anything.
"""

from probattn.data.parallel import ParallelText
from probattn.data.sources import Corpus, CorpusFile, load_pair, require_choice

__all__ = ["CORPUS", "NUM_PAIRS", "load"]

CORPUS = Corpus(
    name="IWSLT14 de-en, validation and test",
    homepage="https://github.com/harvardnlp/var-attn",
    terms="research; TED talks are under CC BY-NC-ND",
)

NUM_TRAIN = 6_500
NUM_PAIRS = {"train": NUM_TRAIN, "valid": 782, "paper_valid": 7_282, "test": 6_750}
"""Pairs of each split."""

LANGUAGES = ("de", "en")
ENDINGS = {"tok": "", "bpe": ".bpe"}
ADDRESS = (
    "https://raw.githubusercontent.com/harvardnlp/var-attn/153defbc3408e80ce991b764aced32631b20c8e0/data/iwslt14-de-en"
)

# SHA-256 of the unpacked files.
SHA256 = {
    "test.de.bpe": "2a1fc9d5c366d585067e1b37a3b6ed2f268ecf1f88a08eccf906c3320c136f9a",
    "test.de": "b899a137e81dc3e3c34f5a2cf16c09880ab33b8d22252483ff9c049b2a34e203",
    "test.en.bpe": "6b1448fc20b9c8b680c100b49772372d6299a089f68fb82e0a1c2515a3825439",
    "test.en": "1685cc2a0c169051b66957d7f56056341161dc4617a849b649e84cdac5b73e24",
    "valid.de.bpe": "9db44573c5ec5503e12530ea7995af95adc355a29f631f3d9b837ec52bcb4ea6",
    "valid.de": "b09d2ab5797dbf31f67313cc0df74850819556733f5871ceed5ef85ee796845d",
    "valid.en.bpe": "53079823d757df4ad49972e2216794ab81f4c594cbffabc597655d23b7542237",
    "valid.en": "c685db703558e94a2ca9a22c4947e5f34edb946895d7fec571b1854c900a18d6",
}


def load(
    split: str, *, source: str = "de", target: str = "en", version: str = "tok", may_download: bool = False
) -> ParallelText:
    """One split of the IWSLT14 validation and test files.

    Args:
        split: "train" and "valid" (the two parts of the paper's validation file), "paper_valid" (the whole of it) or
            "test".
        source: Language of the source side, "de" or "en".
        target: Language of the target side.
        version: "tok", tokenised, or "bpe", the pieces of the paper.
        may_download: Whether to fetch missing files from GitHub.

    Raises:
        FileNotFoundError: The files are not on this machine; the message lists the ways to get them.
        ValueError: An unknown split, language or version, or a file that is not the published one.
    """
    require_choice("split", split, NUM_PAIRS)
    require_choice("version", version, ENDINGS)
    for language in (source, target):
        require_choice("language", language, LANGUAGES)
    if source == target:
        raise ValueError(f"source and target are both {source!r}; choose two of {', '.join(LANGUAGES)}")
    stem = "test" if split == "test" else "valid"
    whole = load_pair(
        _file(stem, source, version=version),
        _file(stem, target, version=version),
        name=f"IWSLT14 {version} {source}-{target} {split}",
        num_pairs=NUM_PAIRS["test" if split == "test" else "paper_valid"],
        may_download=may_download,
    )
    parts = {"train": (0, NUM_TRAIN), "valid": (NUM_TRAIN, len(whole))}
    return whole.rows(*parts[split]) if split in parts else whole


def _file(stem: str, language: str, *, version: str) -> CorpusFile:
    name = f"{stem}.{language}{ENDINGS[version]}"
    return CorpusFile(CORPUS, f"iwslt14_deen_valid_test/{name}", sha256=SHA256[name], url=f"{ADDRESS}/{name}")
