"""Generated sentences: seeds, splits, lengths, and what is refused."""

import re

import pytest

from probattn.data import GeneratedText
from probattn.data.generated_examples import Split, split_of_text

SIZE = 1000


@pytest.fixture(scope="module")
def train() -> tuple[str, ...]:
    return GeneratedText(seed=0).sentences("train", SIZE)


def test_sentences_are_a_function_of_seed_split_and_number(train: tuple[str, ...]) -> None:
    assert GeneratedText(seed=0).sentences("train", 50) == train[:50]
    assert not set(GeneratedText(seed=1).sentences("train", 50)) & set(train[:50])


def test_no_sentence_twice_nor_in_two_splits(train: tuple[str, ...]) -> None:
    assert len(train) == len(set(train)) == SIZE
    held_out: tuple[tuple[int, Split], ...] = ((0, "valid"), (1, "test"))
    for seed, split in held_out:
        sentences = GeneratedText(seed=seed).sentences(split, 200)
        assert not set(sentences) & set(train)
        assert {split_of_text(line) for line in sentences} == {split}


def test_sentences_are_tokenised(train: tuple[str, ...]) -> None:
    assert all(re.fullmatch(r"\S+( \S+)* \.", line) and line == line.lower() for line in train)
    assert len({word for line in train for word in line.split(" ")}) > 800


def test_several_statements_make_a_longer_text(train: tuple[str, ...]) -> None:
    texts = GeneratedText(seed=0, num_statements=5).sentences("train", 20)
    assert texts == tuple(" ".join(train[start : start + 5]) for start in range(0, 100, 5))
    assert all(text.count(" . ") + text.endswith(" .") == 5 for text in texts)
    held_out = {line for text in GeneratedText(num_statements=5).sentences("test", 20) for line in text.split(" . ")}
    assert not held_out & {line for text in texts for line in text.split(" . ")}


def test_bad_requests() -> None:
    with pytest.raises(ValueError, match=r"split 'tests' is unknown; did you mean 'test'\?"):
        GeneratedText().sentences("tests", 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        GeneratedText().sentences("train", 0)
    with pytest.raises(ValueError, match="num_statements must be at least 1, got 0"):
        GeneratedText(num_statements=0)
