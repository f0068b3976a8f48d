"""Four small corpora of text VAEs: Yahoo, SNLI, short Yelp and DailyDialog, as far as they can be had.

The training files (Yahoo, SNLI, short Yelp: 100,000 texts each; DailyDialog: 11,118 dialogues) are not to be had. So
`train` is made of what there is, `test` is the published file, and no figure of a model trained on the one and measured
on the other may be put beside a published figure:

| corpus | split | what | sentences | words | types | words, mean | least, most | also in train |
|---|---|---|---|---|---|---|---|---|
| yahoo | train | published valid, first 9 of 10 | 9,000 | 714,199 | 16,663 | 79.4 | 20, 200 | |
| yahoo | valid | published valid, the rest | 1,000 | 76,481 | 6,931 | 76.5 | 20, 198 | 0 |
| yahoo | test | published test | 10,000 | 788,673 | 17,024 | 78.9 | 20, 200 | 0 |
| snli | train | published valid, first 9 of 10 | 9,000 | 87,095 | 5,040 | 9.7 | 2, 55 | |
| snli | valid | published valid, the rest | 1,000 | 9,700 | 1,627 | 9.7 | 3, 38 | 0 |
| snli | test | published test | 10,000 | 97,581 | 5,277 | 9.8 | 2, 62 | 3 |
| short_yelp | train | 10,000 lines of the published train | 10,000 | 89,405 | 5,148 | 8.9 | 1, 15 | |
| short_yelp | valid | published valid | 10,000 | 89,330 | 4,957 | 8.9 | 1, 15 | 606 |
| short_yelp | test | published test | 10,000 | 89,998 | 4,808 | 9.0 | 2, 15 | 662 |
| dailydialog | train | published valid, first 900 dialogues | 7,199 | 100,934 | 6,049 | 14.0 | 1, 169 | |
| dailydialog | valid | published valid, last 100 dialogues | 870 | 11,414 | 1,689 | 13.1 | 2, 93 | 59 |
| dailydialog | test | published test, 1,000 dialogues | 7,740 | 110,067 | 6,611 | 14.2 | 2, 207 | 486 |

- Yahoo (Yang et al., 2017): a question and its answer in one text of several sentences. Its files are sorted: ten
  topics of 1,000 texts one after the other, so the end of a file is one topic alone. `load` deals them out in turns
  (`deal_topics`): ten texts in a row are of ten topics. There are no labels. Rare words are `_UNK` (4.2 %).
- SNLI (Bowman et al., 2015): captions and what people concluded from them, as single sentences in no order that one can
  see. Rare words are `<unk>` (0.9 %).
- Short Yelp (Shen et al., 2017): sentences of reviews. The label in front (0 or 1, 60 % are 1) is left out. Rare words
  are `<unk>` (0.1 % of train, 0.3 % of valid and test). The sentences that valid or test share with train have 3.8
  words on average. Which 10,000 lines of the published train these are is not known.
- DailyDialog (Li et al., 2017): an utterance is a sentence here. It is split by dialogues, lower-cased, and words and
  punctuation marks are set apart (`simple_words`). The published files share dialogues: 5 of test are in train word by
  word, and 32 have an utterance of eight words or more that is there; nothing is left out.

Of the words of test, 0.6 % (Yahoo), 2.4 % (SNLI), 1.9 % (short Yelp) and 3.9 % (DailyDialog) do not occur in train.
Li et al. (2019) train on the first three and say where their archives are.
`<unk>` and `_UNK` are kept; to `train_words` they are words like any other (see `ptb`).
Terms: SNLI is under CC BY-SA 4.0, DailyDialog under CC BY-NC-SA 4.0; Yahoo and Yelp are for research. Ask before you
redistribute anything.
"""

from collections.abc import Sequence

from probattn.data.cornell_movie import simple_words
from probattn.data.parallel import read_lines, split_words
from probattn.data.sources import Corpus, CorpusFile, locate, require_choice

__all__ = ["CORPORA", "NUM_SENTENCES", "load"]

TWIN = "probattn.data.generated_text"
LI_ET_AL = "https://github.com/bohanli/vae-pretraining-encoder"

CORPORA = {
    "yahoo": Corpus("Yahoo answers", LI_ET_AL, terms="research; the texts belong to their writers", twin=TWIN),
    "snli": Corpus("SNLI sentences", LI_ET_AL, terms="CC BY-SA 4.0", twin=TWIN),
    "short_yelp": Corpus("short Yelp", LI_ET_AL, terms="Yelp's dataset terms: academic use", twin=TWIN),
    "dailydialog": Corpus("DailyDialog", "http://yanran.li/dailydialog", terms="CC BY-NC-SA 4.0", twin=TWIN),
}
"""Name -> what the corpus is."""

NUM_SENTENCES = {
    "yahoo": {"train": 9_000, "valid": 1_000, "test": 10_000},
    "snli": {"train": 9_000, "valid": 1_000, "test": 10_000},
    "short_yelp": {"train": 10_000, "valid": 10_000, "test": 10_000},
    "dailydialog": {"train": 7_199, "valid": 870, "test": 7_740},
}
"""Name -> split -> sentences, of Yahoo and DailyDialog texts and utterances."""

SPLITS = ("train", "valid", "test")
NUM_TOPICS = 10  # of Yahoo, one after the other in its files

# The file of each split. SHA-256 of the unpacked files; they were published in archives, so no address is known.
FILES = {
    "yahoo": {"train": "yahoo.val.txt", "valid": "yahoo.val.txt", "test": "yahoo.test.txt"},
    "snli": {"train": "snli.valid.txt", "valid": "snli.valid.txt", "test": "snli.test.txt"},
    "short_yelp": {
        "train": "short_yelp.train.10000.txt",
        "valid": "short_yelp.valid.txt",
        "test": "short_yelp.test.txt",
    },
    "dailydialog": {
        "train": "dailydialog.valid.utts.txt",
        "valid": "dailydialog.valid.utts.txt",
        "test": "dailydialog.test.utts.txt",
    },
}
SHA256 = {
    "yahoo.val.txt": "6129c0622bd0a12b092814e7b660f70c20481788f42860d980431c0a614006ef",
    "yahoo.test.txt": "54dd2d2de3843cc701faebf793ab72253ff2286b00879d25790ad087a74917a1",
    "snli.valid.txt": "8aee585ebefd01b449ce434f94374a3a0b45a77a6f6bb3eb2d0b0ced53735239",
    "snli.test.txt": "94aceee0c5a7b26319250bdd6b2d9a27e75352f3f53ab5f6e1fa6a7592c9bd59",
    "short_yelp.train.10000.txt": "db61555383043e4032443c9a04bffe2129c8e181f596e437c9c9b56292578c06",
    "short_yelp.valid.txt": "34240114bd7b8b8b016c2ea033aaf7efefbc4e5be5aa7c53f95e03260c631521",
    "short_yelp.test.txt": "56dc9c763128e315b167870ba6714c0f528b335855b7cc469ab3018457daddeb",
    "dailydialog.valid.utts.txt": "2ad64701fe3a4449e7a6ee7cdc6c2a71c80f77b8a34f708ac0532395f499081c",
    "dailydialog.test.utts.txt": "3c323651cdfb09f7b529f850eddf96a638fc6cc9b43330b77956ab248484a1a8",
}


def load(name: str, split: str, *, may_download: bool = False) -> tuple[str, ...]:
    """The sentences (Yahoo: texts, DailyDialog: utterances) of one split, with one space between words.

    Args:
        name: "yahoo", "snli", "short_yelp" or "dailydialog".
        split: "train", "valid" or "test".
        may_download: As for `locate`; no address of the files is known.

    Raises:
        FileNotFoundError: The file is not on this machine; the message lists the ways to get it.
        ValueError: An unknown corpus or split, or a file that is not the known one.
    """
    require_choice("corpus", name, CORPORA)
    require_choice("split", split, SPLITS)
    path = FILES[name][split]
    file = CorpusFile(CORPORA[name], f"textvae/{path}", sha256=SHA256[path])
    rows: Sequence[str] = read_lines(locate(file, may_download=may_download))
    if name == "yahoo":
        rows = deal_topics(rows, num_topics=NUM_TOPICS)
    if split != "test" and FILES[name]["train"] == FILES[name]["valid"]:
        held_out = len(rows) - len(rows) // 10
        rows = rows[:held_out] if split == "train" else rows[held_out:]
    if name == "short_yelp":
        rows = [strip_label(row) for row in rows]
    if name == "dailydialog":
        return tuple(utterance for row in rows for utterance in utterances(row))
    return tuple(" ".join(split_words(row)) for row in rows)


def deal_topics(rows: Sequence[str], *, num_topics: int) -> list[str]:
    """Rows that are sorted by topic, as many of each, in turns: the first of every topic, then the second ...

    Example:
        >>> deal_topics(["a1", "a2", "b1", "b2"], num_topics=2)
        ['a1', 'b1', 'a2', 'b2']
    """
    if len(rows) % num_topics:
        raise ValueError(f"{len(rows):,} rows are not {num_topics} topics of the same size; the file is not Yahoo's")
    size = len(rows) // num_topics
    return [row for place in range(size) for row in rows[place::size]]


def strip_label(row: str) -> str:
    r"""The sentence behind the label of its sentiment, 0 or 1, and a tab.

    Example:
        >>> strip_label("1\tgood soup .")
        'good soup .'
    """
    label, tab, sentence = row.partition("\t")
    if label not in ("0", "1") or not tab:
        raise ValueError(f"expected 0 or 1, a tab and a sentence, got {row[:40]!r}; the file is damaged")
    return sentence


def utterances(dialogue: str) -> list[str]:
    """What the speakers of a dialogue say in turns, lower-cased, words and punctuation marks apart.

    Example:
        >>> utterances("It's late.Shall we go ? __eou__ Yes . __eou__")
        ["it 's late . shall we go ?", 'yes .']
    """
    turns = (simple_words(turn) for turn in dialogue.split("__eou__"))
    return [" ".join(words) for words in turns if words]
