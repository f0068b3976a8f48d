"""Multi30k: descriptions of Flickr images in English, German and French (Elliott et al., 2016 and 2017).

The German and French sentences are translations of the English ones by professionals (task 1 of the WMT shared tasks
on multimodal translation). Source: https://github.com/multi30k/dataset, folder `data/task1`.

| split | file | pairs | words de | words en | words fr |
|---|---|---|---|---|---|
| train | train | 29,000 | 360,706 | 377,534 | 409,845 |
| valid | val | 1,014 | 12,828 | 13,308 | 14,381 |
| test | test_2016_flickr | 1,000 | 12,103 | 12,968 | 13,988 |

Words are those of the version `tok`: lower-cased, with normalised punctuation, tokenised by the corpus' authors.
Terms: the captions derive from Flickr30k, which is for non-commercial research and education; the repository names no
licence, so ask before you redistribute anything.
"""

from probattn.data.parallel import ParallelText
from probattn.data.sources import Corpus, CorpusFile, load_pair, require_choice

__all__ = ["CORPUS", "NUM_PAIRS", "load"]

CORPUS = Corpus(
    name="Multi30k",
    homepage="https://github.com/multi30k/dataset",
    terms="non-commercial research and education, after Flickr30k",
)

NUM_PAIRS = {"train": 29_000, "valid": 1_014, "test": 1_000}
"""Pairs of each split."""

LANGUAGES = ("de", "en", "fr")
STEMS = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
ENDINGS = {"tok": ".lc.norm.tok", "raw": ""}
ADDRESS = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1"

# SHA-256 of the unpacked files. The repository keeps `raw` packed and `tok` plain.
SHA256 = {
    "raw/test_2016_flickr.de": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
    "raw/test_2016_flickr.en": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
    "raw/test_2016_flickr.fr": "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6",
    "raw/train.de": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
    "raw/train.en": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
    "raw/train.fr": "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d",
    "raw/val.de": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
    "raw/val.en": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
    "raw/val.fr": "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc",
    "tok/test_2016_flickr.lc.norm.tok.de": "c6a33d39d48f9f510de147651316cd9d918e09ad0219df734a2f16b6baccacc4",
    "tok/test_2016_flickr.lc.norm.tok.en": "5b7f32627cf99eced828311b955dae9800bb52bc8b91cf8b6526829e605b29d2",
    "tok/test_2016_flickr.lc.norm.tok.fr": "1463bd5960f9bfe098ec3cd752d3df0c49c84dc646fb518964a29232658cd836",
    "tok/train.lc.norm.tok.de": "cb5a23529b65ec2061f1dc446192a9c37382b63cc75f81a0be59d34894b3a505",
    "tok/train.lc.norm.tok.en": "08925f8e0572bcd5a006702fc5fe20e2d77c6917d4eebd576fc20de6693c2119",
    "tok/train.lc.norm.tok.fr": "8fa41bb718412bcb7c5dfa58603842810a01543eae86a51279f9886b901266e1",
    "tok/val.lc.norm.tok.de": "97232bd273eceb7207f689527386a97e4be2616b18ada47576bdaf96c8ae1f00",
    "tok/val.lc.norm.tok.en": "46573ce391ae227f1c72f873392436a20ef18e0a6d518098cfbd70b77c8572ec",
    "tok/val.lc.norm.tok.fr": "b303e301aa21fe7822a846b2b3fb2d5a1121ec807cd5b1d006fb7b2b5507168a",
}


def load(
    split: str, *, source: str = "de", target: str = "en", version: str = "tok", may_download: bool = False
) -> ParallelText:
    """One split of Multi30k.

    Args:
        split: "train", "valid" or "test" (test_2016_flickr).
        source: Language of the source side: "de", "en" or "fr".
        target: Language of the target side.
        version: "tok", lower-cased and tokenised, or "raw", as the translators wrote it.
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
    return load_pair(
        _file(split, source, version=version),
        _file(split, target, version=version),
        name=f"Multi30k {version} {source}-{target} {split}",
        num_pairs=NUM_PAIRS[split],
        may_download=may_download,
    )


def _file(split: str, language: str, *, version: str) -> CorpusFile:
    name = f"{version}/{STEMS[split]}{ENDINGS[version]}.{language}"
    packing = ".gz" if version == "raw" else ""
    return CorpusFile(CORPUS, f"multi30k/{name}", sha256=SHA256[name], url=f"{ADDRESS}/{name}{packing}")
