"""Cornell movie dialogues: words, blocks of rows, subsets, and the statistics on the real file."""

from pathlib import Path

import pytest

from probattn.data import cornell_movie
from probattn.data.cornell_movie import ROWS, simple_words
from tests.data.corpora import sizes


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Where you been, man?  I COULDN'T...", "where you been , man ? i could n't ..."),
        ("It's <u>mine</u>!!", "it 's mine ! !"),
        ("They're -- we'd---I'm", "they 're -- we 'd -- i 'm"),
        ("C'mon, ma'am, 10:30 at O'Neil's", "c'mon , ma'am , 10:30 at o'neil 's"),
        ("Thatâ€™s “it”… gettin'", "that 's \" it \" ... gettin '"),
        ("twenty-five $1,000.50 100%", "twenty-five $ 1,000.50 100 %"),
    ],
)
def test_words_and_punctuation_are_apart(line: str, words: str) -> None:
    assert " ".join(simple_words(line)) == words


def test_blocks_have_gaps() -> None:
    assert ROWS["train"][1] + cornell_movie.GAP == ROWS["valid"][0]
    assert ROWS["valid"][1] + cornell_movie.GAP == ROWS["test"][0]
    assert ROWS["test"][1] == cornell_movie.NUM_ROWS
    assert {split: stop - start for split, (start, stop) in ROWS.items()} == cornell_movie.NUM_PAIRS


def test_bad_requests_are_refused() -> None:
    with pytest.raises(ValueError, match=r"split 'dev' is unknown"):
        cornell_movie.load("dev")
    with pytest.raises(ValueError, match="max_words must be at least 1, got 0; leave it out"):
        cornell_movie.load("train", max_words=0)
    with pytest.raises(ValueError, match="num_pairs must be at least 1, got -1"):
        cornell_movie.load("train", num_pairs=-1)


def test_missing_file_names_source_and_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROBATTN_DATA", raising=False)
    monkeypatch.setenv("PROBATTN_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"by hand from https://www\.cs\.cornell\.edu/.*generated_dialogue"):
        cornell_movie.load("test")


@pytest.mark.data
@pytest.mark.parametrize(("split", "prompt", "reply"), [("valid", 74_755, 79_352), ("test", 71_076, 75_212)])
def test_statistics(data_dir: Path, split: str, prompt: int, reply: int) -> None:
    assert sizes(cornell_movie.load(split)) == (5_000, prompt, reply)


@pytest.mark.data
@pytest.mark.slow
def test_statistics_of_train(data_dir: Path) -> None:
    train = cornell_movie.load("train")
    assert sizes(train) == (187_352, 2_492_491, 2_581_462)
    pairs = set(zip(train.source, train.target, strict=True))
    for split in ("valid", "test"):
        text = cornell_movie.load(split)
        assert not pairs & set(zip(text.source, text.target, strict=True))


@pytest.mark.data
def test_subset(data_dir: Path) -> None:
    few = cornell_movie.load("train", num_pairs=300, max_words=12)
    assert len(few) == 300 and few.num_long > 0
    assert max(len(line.split()) for line in few.source + few.target) == 12
    assert cornell_movie.load("train", num_pairs=200, max_words=12).source == few.source[:200]
    with pytest.raises(ValueError, match=r"valid has 3,062 such pairs, 4,000 were asked for; ask for fewer or longer"):
        cornell_movie.load("valid", num_pairs=4_000, max_words=20)
