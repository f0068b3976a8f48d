"""Padded batches for training, and batches for decoding whose results come back in order."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from probattn.data import (
    BOS,
    EOS,
    PAD,
    EncodedText,
    ParallelText,
    TranslationBatch,
    decoding_batches,
    restore_order,
    train_bpe,
)

TEXT = EncodedText(source=((5, 6, 7), (8,), (9, 9)), target=((10,), (11, 12), (13, 14, 15)), name="toy")


def test_batch() -> None:
    batch = TEXT.batch(torch.tensor([2, 0]))
    assert batch.source.tolist() == [[9, 9, PAD], [5, 6, 7]]
    assert batch.source_mask.tolist() == [[True, True, False], [True] * 3]
    assert batch.target_in.tolist() == [[BOS, 13, 14, 15], [BOS, 10, PAD, PAD]]
    assert batch.target_out.tolist() == [[13, 14, 15, EOS], [10, EOS, PAD, PAD]]
    assert batch.target_mask.tolist() == [[True] * 4, [True, True, False, False]]
    assert batch.index.tolist() == [2, 0]
    assert {value.dtype for value in vars(batch).values()} == {torch.int64, torch.bool}


def test_batch_moves_to_a_device() -> None:
    batch = TEXT.batch([0, 1])
    moved = batch.to("meta")
    assert isinstance(moved, TranslationBatch)
    assert {value.device.type for value in vars(moved).values()} == {"meta"}
    assert moved.target_in.shape == batch.target_in.shape
    source = decoding_batches(TEXT.source)[0].to("meta")
    assert {value.device.type for value in vars(source).values()} == {"meta"}


def test_text_is_encoded_on_both_sides() -> None:
    text = ParallelText(("ein hund", "zwei"), ("a dog", "two"), "toy")
    tokenizer = train_bpe(text.source + text.target, vocabulary_size=60)
    encoded = EncodedText.from_text(text, tokenizer)
    assert (len(encoded), encoded.name) == (2, "toy")
    assert [tokenizer.decode(ids) for ids in encoded.target] == ["a dog", "two"]
    assert encoded.source_lengths == [len(tokenizer.encode(line)) for line in text.source]
    assert encoded.target_lengths == [len(tokenizer.encode(line)) + 1 for line in text.target]


def test_bad_text_is_refused() -> None:
    with pytest.raises(ValueError, match="toy: 1 source and 2 target sentences"):
        EncodedText(((5,),), ((6,), (7,)), name="toy")
    with pytest.raises(ValueError, match="toy: source sentence 1 is empty; there is nothing to attend to"):
        EncodedText(((5,), ()), ((6,), (7,)), name="toy")


@given(st.lists(st.lists(st.integers(4, 9), max_size=12), max_size=30), st.integers(1, 40), st.integers(1, 6))
def test_decoding_restores_the_order(source: list[list[int]], max_tokens: int, max_sentences: int) -> None:
    batches = decoding_batches(source, max_tokens=max_tokens, max_sentences=max_sentences)
    for batch in batches:
        rows, longest = batch.source.shape
        assert rows <= max_sentences and (rows * longest <= max_tokens or rows == 1)
        assert bool(batch.source_mask.any(0).all())  # no column is padding alone
    results: list[Any] = [
        [row[mask].tolist() for row, mask in zip(b.source, b.source_mask, strict=True)] for b in batches
    ]
    assert restore_order(batches, results, num_rows=len(source), empty=[]) == source


def test_batches_for_decoding_are_full_and_long_first() -> None:
    source = [[5] * length for length in (1, 4, 2, 4, 3)]
    batches = decoding_batches(source, max_tokens=8)
    assert [batch.index.tolist() for batch in batches] == [[1, 3], [4, 2], [0]]
    assert [batch.source.shape for batch in batches] == [(2, 4), (2, 3), (1, 1)]


def test_missing_results_are_noticed() -> None:
    batches = decoding_batches([[5], [6]], max_sentences=1)
    for results in ([["a"]], [["a"], []], [["a", "b"], ["c"]]):
        with pytest.raises(ValueError, match=r"expected \[1, 1\] results, got"):
            restore_order(batches, results, num_rows=2, empty="")
