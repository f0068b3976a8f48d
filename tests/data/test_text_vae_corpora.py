"""Corpora of text VAEs: labels, turns, topics, splits, errors, and the statistics on the real files."""

from pathlib import Path

import pytest

from probattn.data import text_vae_corpora
from probattn.data.text_vae_corpora import CORPORA, FILES, NUM_SENTENCES, SHA256, deal_topics, strip_label, utterances
from tests.data.corpora import num_words

WORDS = {
    "yahoo": {"train": 714_199, "valid": 76_481, "test": 788_673},
    "snli": {"train": 87_095, "valid": 9_700, "test": 97_581},
    "short_yelp": {"train": 89_405, "valid": 89_330, "test": 89_998},
    "dailydialog": {"train": 100_934, "valid": 11_414, "test": 110_067},
}
SHARED_WITH_TRAIN = {"yahoo": (0, 0), "snli": (0, 3), "short_yelp": (606, 662), "dailydialog": (59, 486)}


def test_tables_agree() -> None:
    assert CORPORA.keys() == FILES.keys() == NUM_SENTENCES.keys() == WORDS.keys()
    assert {path for files in FILES.values() for path in files.values()} == SHA256.keys()


def test_topics_are_dealt_in_turns() -> None:
    assert deal_topics(["a1", "a2", "a3", "b1", "b2", "b3"], num_topics=2) == ["a1", "b1", "a2", "b2", "a3", "b3"]
    with pytest.raises(ValueError, match="7 rows are not 2 topics of the same size; the file is not Yahoo's"):
        deal_topics(["a"] * 7, num_topics=2)


def test_labels_are_left_out() -> None:
    assert strip_label("0\tno 1 came .") == "no 1 came ."
    for row in ("good soup .", "2\tgood soup .", "1 good soup ."):
        with pytest.raises(ValueError, match=r"expected 0 or 1, a tab and a sentence, got .*; the file is damaged"):
            strip_label(row)


def test_utterances_of_a_dialogue() -> None:
    dialogue = "That’s far.Can you wait ? __eou__ I can't . __eou__ OK ! __eou__"
    assert utterances(dialogue) == ["that 's far . can you wait ?", "i ca n't .", "ok !"]


@pytest.mark.parametrize("name", CORPORA)
def test_bad_requests_and_missing_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(ValueError, match=r"corpus 'yaho' is unknown; did you mean 'yahoo'\?"):
        text_vae_corpora.load("yaho", "train")
    with pytest.raises(ValueError, match=r"split 'dev' is unknown; Choose from train, valid, test"):
        text_vae_corpora.load(name, "dev")
    monkeypatch.delenv("PROBATTN_DATA", raising=False)
    monkeypatch.setenv("PROBATTN_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=rf"textvae/{name}.* by hand from http.*generated_text"):
        text_vae_corpora.load(name, "test")
    with pytest.raises(FileNotFoundError, match="cannot be downloaded"):
        text_vae_corpora.load(name, "test", may_download=True)


@pytest.mark.data
@pytest.mark.parametrize("name", CORPORA)
def test_statistics(data_dir: Path, name: str) -> None:
    texts = {split: text_vae_corpora.load(name, split) for split in text_vae_corpora.SPLITS}
    assert {split: len(text) for split, text in texts.items()} == NUM_SENTENCES[name]
    assert {split: num_words(text) for split, text in texts.items()} == WORDS[name]
    known = set(texts["train"])
    shared = tuple(sum(line in known for line in texts[split]) for split in ("valid", "test"))
    assert shared == SHARED_WITH_TRAIN[name]
    for line in (line for text in texts.values() for line in text):
        assert line == " ".join(line.split(" ")) and "\t" not in line and "__eou__" not in line
        assert line.replace("_UNK", "") == line.lower().replace("_unk", "")


@pytest.mark.data
@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_every_part_of_yahoo_has_all_topics(data_dir: Path, split: str) -> None:
    texts = text_vae_corpora.load("yahoo", split)
    first = " ".join(texts[:1000]).split(" ")
    # in the file, all but a few of each are in one block of 1,000 texts
    assert all(first.count(word) > 5 for word in ("god", "computer", "doctor", "team", "school", "president", "music"))
