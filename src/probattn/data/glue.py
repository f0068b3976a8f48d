"""GLUE: sentence tasks for pretrained models (Wang et al., 2019), with splits that have labels throughout.

| name | what is asked | train | valid | test | test is |
|---|---|---|---|---|---|
| mrpc | are two sentences paraphrases | 3,668 | 408 | 1,725 | the corpus' own test set |
| cola | is a sentence grammatical | 7,696 | 855 | 1,043 | GLUE's dev set, in and out of domain |
| rte | does the first sentence entail the second | 2,127 | 363 | 277 | GLUE's dev set |
| stsb | how alike are two sentences, 0 to 5 | 5,749 | 1,500 | 1,379 | the corpus' own test set |
| sst2 | is a sentence of a review positive | 60,614 | 6,735 | 872 | GLUE's dev set |

The labels of GLUE's own test sets are secret, so a labelled set takes their place; `valid` is part of the training set
where the corpus has none (mrpc, cola: the same random examples for everyone). Folders and files are those of the
table `FILES`. Further tasks are read as GLUE distributes them, `glue/<folder>/train.tsv` and `dev.tsv`, from the data
folder, without a check of their content: mnli, qnli, qqp, wnli. Their test is `dev`, their `valid` a part of `train`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from probattn.data.parallel import read_content
from probattn.data.sentences import Sentences, SentenceTask, generated_task, held_out
from probattn.data.sources import PACKINGS, Corpus, CorpusFile, data_folder, locate, require_choice

__all__ = ["CORPUS", "FILES", "TASKS", "Columns", "load", "read_table"]

CORPUS = Corpus(
    name="GLUE",
    homepage="https://gluebenchmark.com",
    terms="research; each corpus has its own terms, MRPC's forbid passing it on",
    twin="probattn.data.sentences.generated_task",
)


@dataclass(frozen=True)
class Columns:
    """Where in a line of a table sentences and target stand.

    Attributes:
        first: Column of the sentence.
        second: Column of its partner; None for single sentences.
        target: Column of the target.
        labels: What the classes are called; empty where targets are scores.
        has_header: Whether the first line names the columns.
        skips_broken: Whether lines with too few columns are left out; QQP as GLUE distributes it has some.
    """

    first: int
    second: int | None
    target: int
    labels: tuple[str, ...] = ("0", "1")
    has_header: bool = True
    skips_broken: bool = False


@dataclass(frozen=True)
class _Task:
    metric: str
    columns: Columns
    num_valid: int = 0
    """Training examples that are held out for validation; 0 where there is a file."""
    folder: str = ""
    """Of a task without published checksums."""


_ENTAILMENT = ("not_entailment", "entailment")
_SPEC: Mapping[str, _Task] = {
    "mrpc": _Task("accuracy", Columns(3, 4, 0), num_valid=408),
    "cola": _Task("matthews", Columns(3, None, 1, has_header=False), num_valid=855),
    "rte": _Task("accuracy", Columns(1, 2, 3, labels=_ENTAILMENT)),
    "stsb": _Task("pearson", Columns(5, 6, 4, labels=(), has_header=False)),
    "sst2": _Task("accuracy", Columns(0, None, 1)),
    "mnli": _Task("accuracy", Columns(8, 9, -1, labels=("contradiction", "entailment", "neutral")), 10_000, "MNLI"),
    "qnli": _Task("accuracy", Columns(1, 2, 3, labels=_ENTAILMENT), 5_000, "QNLI"),
    "qqp": _Task("accuracy", Columns(3, 4, 5, skips_broken=True), 10_000, "QQP"),
    "wnli": _Task("accuracy", Columns(1, 2, 3), 60, "WNLI"),
}
TASKS = tuple(_SPEC)
"""Names of the tasks."""

_SENTEVAL = "https://dl.fbaipublicfiles.com/senteval/senteval_data"  # where GLUE's own script takes MRPC from


def _file(path: str, sha256: str, url: str | None = None) -> CorpusFile:
    return CorpusFile(CORPUS, f"glue/{path}", sha256=sha256, url=url)


FILES: Mapping[str, Mapping[str, tuple[CorpusFile, ...]]] = {
    "mrpc": {
        "train": (
            _file(
                "MRPC/msr_paraphrase_train.txt",
                "f3d26d73bb3510032f80836e2e81cf32c71863f8dd6151aa80a125c2c799a557",
                f"{_SENTEVAL}/msr_paraphrase_train.txt",
            ),
        ),
        "test": (
            _file(
                "MRPC/msr_paraphrase_test.txt",
                "51a1f197d8786712d2f0d97700f5be653b7488a96cde00e158159350d23e3d90",
                f"{_SENTEVAL}/msr_paraphrase_test.txt",
            ),
        ),
    },
    "cola": {
        "train": (
            _file("CoLA/in_domain_train.tsv", "f320a10f92d3bce6b29152fde322a362eac39238e50d8de0c8815457fdf4fc12"),
        ),
        "test": (
            _file("CoLA/in_domain_dev.tsv", "77176f6a03faa5a1c4f23c69971fc1bff565931112fb65af47b2d6e24b7f42f7"),
            _file("CoLA/out_of_domain_dev.tsv", "201b9c57b2a20f1282242eec0ed8995729e3be19c29a46c047b3727338836c05"),
        ),
    },
    "rte": {
        "train": (_file("RTE-amrnag/train.tsv", "35f5db50b0841d719be48297d35bda21b8890ab882b8167a8a31acf850f3e24f"),),
        "valid": (_file("RTE-amrnag/val.tsv", "f56596ee8d8f4a3c7fe06fe373b89975bffa2217bcc6e8e74aa96c82b218b216"),),
        "test": (_file("RTE-amrnag/dev.tsv", "80230dfa1347282e7b532b06a1004a76a710087541189bf874223ddf0e3819fb"),),
    },
    "stsb": {
        "train": (_file("STS-B/sts-train.tsv", "0f71910b59aa1ad973c5897f0791f3b0965a92b8f82b1a95f3eea9f4162fda82"),),
        "valid": (_file("STS-B/sts-dev.tsv", "5d7e944d8b02734b07bfdb5df67db3420c64bed153fcaa1ba47ad03480cf4234"),),
        "test": (_file("STS-B/sts-test.tsv", "affe45928a66ee5a708531233c95b7dacbbdc57f974f002a3d32ea0180cf816a"),),
    },
    "sst2": {
        "train": (_file("SST-2-alps/train.tsv", "920e317b2c52e12cd22db1da2c6708312bd7dc4f3712b9bbf1b50ee6c2c792ba"),),
        "valid": (_file("SST-2-alps/dev.tsv", "92353770071a2a889f75d000a38a9e541ea8f0a5499e50f040b17917a5cbf66f"),),
        "test": (_file("SST-2-alps/test.tsv", "54a9c12c77e402fc14d6a66a506f24d999f596b0176eb777c972cccc2f9cc4b0"),),
    },
}
"""Files of every split, with the SHA-256 of their content; those of one split are read one after the other."""


def load(name: str, *, may_download: bool = False) -> SentenceTask:
    """A task of the table above, or "generated" and "generated-score", which need no files.

    Args:
        name: Of the task.
        may_download: Whether to fetch missing files where the official address of single files is known (mrpc).

    Raises:
        FileNotFoundError: The files are not on this machine; the message lists the ways to get them.
        ValueError: An unknown name, or a file that is not what it should be; says where.
    """
    require_choice("task", name, [*TASKS, "generated", "generated-score"])
    if name.startswith("generated"):
        return generated_task(is_score=name == "generated-score")
    spec = _SPEC[name]
    if spec.folder:
        splits = _unchecked(name, spec)
    else:
        splits = {split: _checked(name, split, may_download=may_download) for split in FILES[name]}
    if "valid" not in splits:
        splits["train"], splits["valid"] = held_out(splits["train"], spec.num_valid)
    return SentenceTask(name, len(spec.columns.labels) or 1, spec.metric, **splits)


def read_table(content: bytes, columns: Columns, *, place: str) -> Sentences:
    r"""Sentences from a table with tabs between its columns and no quoting.

    Args:
        content: Of the file; UTF-8, with or without a byte-order mark.
        columns: Where things stand.
        place: Of the file, for messages.

    Raises:
        ValueError: A line with too few columns, or a target that is none; the message says which line.

    Example:
        >>> read_table(b"1\tgood film\n0\tbad film\n", Columns(1, None, 0, has_header=False), place="a").targets
        (1.0, 0.0)
    """
    lines = content.decode("utf-8-sig").split("\n")
    needed = max(columns.first, columns.second or 0, columns.target) + 1
    rows: list[tuple[str, str, float]] = []
    for number, line in enumerate(lines, start=1):
        if (number == 1 and columns.has_header) or not line.strip():
            continue
        cells = line.rstrip("\r").split("\t")
        if len(cells) < needed and columns.skips_broken:
            continue
        if len(cells) < needed:
            raise ValueError(f"{place}, line {number}: expected at least {needed} columns, got {len(cells)}")
        partner = "" if columns.second is None else cells[columns.second].strip()
        target = _target(cells[columns.target].strip(), columns.labels, f"{place}, line {number}")
        rows.append((cells[columns.first].strip(), partner, target))
    if not rows:
        raise ValueError(f"{place} has no examples")
    firsts, seconds, targets = zip(*rows, strict=True)
    return Sentences(firsts, None if columns.second is None else seconds, targets)


def _target(text: str, labels: tuple[str, ...], place: str) -> float:
    if labels:
        if text not in labels:
            raise ValueError(f"{place}: expected one of the labels {', '.join(labels)}, got {text!r}")
        return float(labels.index(text))
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{place}: expected a number, got {text!r}") from None


def _checked(name: str, split: str, *, may_download: bool) -> Sentences:
    parts = []
    for file in FILES[name][split]:
        path = locate(file, may_download=may_download)
        columns = _SPEC[name].columns
        if file.path.endswith("RTE-amrnag/val.tsv"):  # the only file of its kind without a header
            columns = Columns(columns.first, columns.second, columns.target, columns.labels, has_header=False)
        parts.append(read_table(read_content(path), columns, place=str(path)))
    second = None if parts[0].second is None else sum((part.second or () for part in parts), ())
    return Sentences(sum((part.first for part in parts), ()), second, sum((part.targets for part in parts), ()))


def _unchecked(name: str, spec: _Task) -> dict[str, Sentences]:
    """Training and dev set as GLUE distributes them; there is no published checksum to compare with."""
    dev = "dev_matched.tsv" if name == "mnli" else "dev.tsv"
    found = {split: _in_data_folder(name, f"glue/{spec.folder}/{file}") for split, file in
             (("train", "train.tsv"), ("test", dev))}  # fmt: skip
    return {split: read_table(read_content(path), spec.columns, place=str(path)) for split, path in found.items()}


def _in_data_folder(name: str, file: str) -> Path:
    folder = data_folder()
    for packing in PACKINGS if folder else ():
        path = Path(f"{folder}/{file}{packing}")
        if path.is_file():
            return path
    state = f"it names {folder}, which has no {file}" if folder else "it is not set"
    raise FileNotFoundError(
        f"{file} of GLUE's {name} is not on this machine. Get it by hand from {CORPUS.homepage} and set PROBATTN_DATA "
        f"to a folder that holds it ({state}); or use the task 'generated', which needs no files"
    )
