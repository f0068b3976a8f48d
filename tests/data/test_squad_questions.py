"""SQuAD questions: choices, the rules that make foreign tokens Du's, and the statistics on the real files."""

import json
import re
from pathlib import Path

import pytest

from probattn.data import read_lines, squad_questions
from probattn.data.parallel import read_content
from probattn.data.squad_questions import du_style, sentence_of
from tests.data.corpora import sizes


def rewritten(line: str) -> str:
    return " ".join(word for group in du_style(line.split(" ")) for word in group)


def test_unknown_split_is_refused() -> None:
    with pytest.raises(ValueError, match=r"split 'dev' is unknown; Choose from train, valid, test"):
        squad_questions.load("dev")


def test_missing_files_name_source_and_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROBATTN_DATA", raising=False)
    monkeypatch.setenv("PROBATTN_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"xinyadu/nqg/master/data/.*/src-dev\.txt .*generated_questions"):
        squad_questions.load("test")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("The ( Big ) [ one ]", "the -lrb- big -rrb- -lsb- one -rsb-"),
        ('He said " no " and " yes "', "he said `` no '' and `` yes ''"),
        ("1942–43 was — so to say—hard", "1942 -- 43 was -- so to say -- hard"),
        ("Rome ’ s elite , derivatives ’ deals", "rome 's elite , derivatives ' deals"),
        ("called 'humanism ' , it 's", "called ` humanism ' , it 's"),
        ("( e.g . bishops ) cost £4,200", "-lrb- e.g. bishops -rrb- cost # 4,200"),
        ("in the U.S .", "in the u.s. ."),
    ],
)
def test_tokens_become_those_of_du(line: str, expected: str) -> None:
    assert rewritten(line) == expected


def test_every_word_keeps_its_place() -> None:
    words = ["The", '"', "Rome", "’", "s", '"', "(", "e.g", ".", "it", ")", "1942–43", "."]
    assert len(du_style(words)) == len(words)


PARAGRAPH = 'Anna left ( why ? ) at 6 . " Go home . " It rained ( Lloyd et al . 2007 ) . 5th century mosaics stayed .'


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("Anna", "Anna left ( why ? ) at 6 ."),
        ("Go", '" Go home . "'),
        ("2007", "It rained ( Lloyd et al . 2007 ) ."),
        ("5th", "5th century mosaics stayed ."),
    ],
)
def test_sentence_of_an_answer(answer: str, sentence: str) -> None:
    words = PARAGRAPH.split(" ")
    place = words.index(answer)
    start, stop = sentence_of(words, place, place)
    assert " ".join(words[start:stop]) == sentence


def test_answer_across_sentences_has_both() -> None:
    assert sentence_of(["A", "b", ".", "C", "d", ".", "E", "f", "."], 1, 3) == (0, 6)
    with pytest.raises(ValueError, match="the span 3 to 9 is not in a paragraph of 4 words"):
        sentence_of(["A", "b", "c", "."], 3, 9)


@pytest.mark.data
@pytest.mark.parametrize(
    ("split", "source", "target"),
    [("train", 491_783, 172_354), ("valid", 32_766, 12_059), ("test", 358_015, 120_795)],
)
def test_statistics(data_dir: Path, split: str, source: int, target: int) -> None:
    text = squad_questions.load(split)
    assert sizes(text) == (squad_questions.NUM_PAIRS[split], source, target)
    assert text.name == f"SQuAD questions {split}"


@pytest.mark.data
def test_no_sentence_is_in_two_splits(data_dir: Path) -> None:
    train, valid, test = (set(squad_questions.load(split).source) for split in ("train", "valid", "test"))
    assert not train & valid and not train & test and not valid & test


@pytest.mark.data
def test_valid_is_whole_articles_and_no_paragraph_is_in_both(data_dir: Path) -> None:
    articles = json.loads(read_content(data_dir / "squad/du2017-test-v1.1.json.xz"))["data"]
    counts = [sum(len(paragraph["qas"]) for paragraph in article["paragraphs"]) for article in articles]
    assert sum(counts[:-6]) == squad_questions.NUM_TRAIN_DU and articles[-6]["title"] == "Architecture"
    du = [letters(paragraph["context"]) for article in articles for paragraph in article["paragraphs"]]
    foreign = {letters(line) for line in read_lines(data_dir / "squad/cs224n-val/val.context.xz")}
    assert (len(du), len(foreign), len(foreign & set(du))) == (2_430, 875, 0)


@pytest.mark.data
def test_words_are_those_of_du(data_dir: Path) -> None:
    train = squad_questions.load("train")
    du, foreign = train.rows(0, squad_questions.NUM_TRAIN_DU), train.rows(squad_questions.NUM_TRAIN_DU, len(train))
    words = " ".join(foreign.source + foreign.target).split(" ")
    assert not {"(", ")", "[", "]", '"', "–", "—", "’", "“"} & set(words)
    lengths = [sum(len(line.split()) for line in text.source) / len(text) for text in (du, foreign)]
    assert abs(lengths[0] - lengths[1]) < 1.0


def letters(text: str) -> str:
    return re.sub(r"\W", "", text.lower())
