"""WMT 10k: a sample of WMT English-German that OpenNMT ships as its demonstration corpus.

Source: https://github.com/OpenNMT/OpenNMT-py, folder `data`. The training lines are of the kinds that
WMT trains on (parliament, web, news), the validation lines are news (the file opens like newstest2012). Tokenised,
cased, with escapes (`&quot;`, `&apos;`). The source file is English; either direction can be read. There is no test
file.

| split | lines | pairs | words en | words de |
|---|---|---|---|---|
| train | 10,000 | 9,999 | 225,063 | 213,986 |
| valid | 3,000 | 3,000 | 72,088 | 71,666 |

Line 5 of the English training file is empty; that pair is left out and counted (`ParallelText.num_empty`);
the words are those of the other pairs.
Terms: WMT's training data are free for research; the sources have their own terms. Ask before you redistribute
anything.
"""

from probattn.data.parallel import BadLine, ParallelText
from probattn.data.sources import Corpus, CorpusFile, load_pair, require_choice

__all__ = ["CORPUS", "NUM_PAIRS", "load"]

CORPUS = Corpus(
    name="WMT 10k (OpenNMT's demonstration corpus)",
    homepage="https://github.com/OpenNMT/OpenNMT-py",
    terms="research, as WMT's training data",
)

NUM_PAIRS = {"train": 9_999, "valid": 3_000}
"""Pairs of each split."""

SIDES = {"en": "src", "de": "tgt"}
STEMS = {"train": "train", "valid": "val"}
ADDRESS = "https://raw.githubusercontent.com/OpenNMT/OpenNMT-py/master/data"

# SHA-256 of the unpacked files.
SHA256 = {
    "src-train.txt": "a4deafe1eb225d98f196ad87e90eec8494a729690c06e0186ee9d2793667a0d2",
    "src-val.txt": "a32a3554fb6c1073b7ed8e0e43828e88ff35d2292e13b42503b479f43c69c782",
    "tgt-train.txt": "fe1f824a189baa650eec46269e66eef07f7304ba7572598ebbe61c55eeff7d01",
    "tgt-val.txt": "df700a3ffe2b4309af3bdaba9c6385b5e6fe647ac408e36759a136eef43959ed",
}


def load(split: str, *, source: str = "de", target: str = "en", may_download: bool = False) -> ParallelText:
    """One split of WMT 10k.

    Args:
        split: "train" or "valid".
        source: Language of the source side, "de" or "en".
        target: Language of the target side.
        may_download: Whether to fetch missing files from GitHub.

    Raises:
        FileNotFoundError: The files are not on this machine; the message lists the ways to get them.
        ValueError: An unknown split or language, or a file that is not the published one.
    """
    require_choice("split", split, NUM_PAIRS)
    for language in (source, target):
        require_choice("language", language, SIDES)
    if source == target:
        raise ValueError(f"source and target are both {source!r}; choose two of {', '.join(SIDES)}")
    return load_pair(
        _file(split, source),
        _file(split, target),
        name=f"WMT10k {source}-{target} {split}",
        num_pairs=NUM_PAIRS[split],
        on_empty=BadLine.SKIP,
        may_download=may_download,
    )


def _file(split: str, language: str) -> CorpusFile:
    name = f"{SIDES[language]}-{STEMS[split]}.txt"
    return CorpusFile(CORPUS, f"opennmt_ende10k/{name}", sha256=SHA256[name], url=f"{ADDRESS}/{name}")
