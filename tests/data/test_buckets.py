"""Token buckets: a partition of the text, within the budget, the same for every run, dealt out to all processes."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probattn.data import EncodedText, TokenBuckets, multi30k, train_bpe

LENGTHS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 15)), min_size=1, max_size=60)


@st.composite
def plans(draw: Any) -> tuple[list[int], list[int], TokenBuckets]:
    pairs = draw(LENGTHS)
    smallest = draw(st.integers(1, min(4, len(pairs))))
    source, target = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    buckets = TokenBuckets(
        source,
        target,
        max_tokens=2 * smallest * 15 + draw(st.integers(0, 60)),
        max_sentences=2 * smallest + draw(st.integers(0, 10)),
        min_sentences=smallest,
        seed=draw(st.integers(0, 3)),
        source_width=draw(st.integers(1, 3)),
        target_width=draw(st.integers(1, 5)),
    )
    return source, target, buckets


@given(plans(), st.integers(0, 5))
def test_every_row_once_within_the_limits(plan: tuple[list[int], list[int], TokenBuckets], epoch: int) -> None:
    source, target, buckets = plan
    batches = [rows.tolist() for rows in buckets.epoch(epoch)]
    assert sorted(row for rows in batches for row in rows) == list(range(len(source)))
    assert len(batches) == len(buckets)
    for rows in batches:
        assert buckets.min_sentences <= len(rows) <= buckets.max_sentences
        longest = max(max(source[row], target[row]) for row in rows)
        assert longest * len(rows) <= buckets.max_tokens


@given(plans(), st.data())
def test_shares_of_all_processes_make_the_batch(
    plan: tuple[list[int], list[int], TokenBuckets], choice: st.DataObject
) -> None:
    _, _, buckets = plan
    world_size = choice.draw(st.integers(1, buckets.min_sentences))
    shares = [buckets.epoch(2, rank=rank, world_size=world_size) for rank in range(world_size)]
    for whole, *parts in zip(buckets.epoch(2), *shares, strict=True):
        sizes = [len(part) for part in parts]
        assert min(sizes) >= 1 and max(sizes) - min(sizes) <= 1
        assert sorted(row for part in parts for row in part.tolist()) == sorted(whole.tolist())


def test_shares_are_equally_long() -> None:
    target = list(range(1, 41))  # one batch whose rows are sorted by target length
    buckets = TokenBuckets([3] * 40, target, min_sentences=2)
    assert len(buckets) == 1
    totals = [sum(target[row] for row in buckets.epoch(0, rank=rank, world_size=2)[0].tolist()) for rank in (0, 1)]
    assert abs(totals[0] - totals[1]) <= 40 and sum(totals) == 820


@given(LENGTHS)
def test_source_lengths_of_a_batch_are_equal(pairs: list[tuple[int, int]]) -> None:
    source, target = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    for rows in TokenBuckets(source, target, max_tokens=60).epoch(0):
        assert len({source[row] for row in rows.tolist()}) == 1


def test_batches_are_full() -> None:
    buckets = TokenBuckets([5] * 100, [4] * 100, max_tokens=50)
    assert [len(rows) for rows in buckets.epoch(0)] == [10] * 10
    buckets = TokenBuckets([5] * 100, [4] * 100, max_sentences=20)
    assert [len(rows) for rows in buckets.epoch(0)] == [20] * 5


def test_small_batches_are_filled_up() -> None:
    # five lengths with one row each: alone where one row is enough, together where two are wanted
    assert len(TokenBuckets([1, 2, 3, 4, 5], [3] * 5)) == 5
    sizes = sorted(len(rows) for rows in TokenBuckets([1, 2, 3, 4, 5], [3] * 5, min_sentences=2).epoch(0))
    assert sizes == [2, 3]
    # the last row takes one of its neighbours, which can spare it
    sizes = sorted(len(rows) for rows in TokenBuckets([3] * 6 + [4], [3] * 7, min_sentences=2).epoch(0))
    assert sizes == [2, 5]


def test_epochs_are_functions_of_seed_and_number() -> None:
    source, target = [3, 4, 5, 6] * 50, [5, 4, 3] * 66 + [5, 5]

    def batches(seed: int, epoch: int) -> list[list[int]]:
        buckets = TokenBuckets(source, target, max_tokens=40, seed=seed)
        return [rows.tolist() for rows in buckets.epoch(epoch)]

    assert batches(1, 4) == batches(1, 4)
    others = [batches(1, 5), batches(2, 4)]
    for other in others:
        assert other != batches(1, 4)
        # both the rows of a batch and the order of batches change
        assert {frozenset(rows) for rows in other} != {frozenset(rows) for rows in batches(1, 4)}
        assert [source[rows[0]] for rows in other] != [source[rows[0]] for rows in batches(1, 4)]
    assert len({len(other) for other in others} | {len(batches(1, 4))}) == 1


def test_too_small_a_budget_is_refused() -> None:
    with pytest.raises(ValueError, match=r"row 1 has up to 2,000 tokens, and max_tokens 1,600 must hold 1 of it"):
        TokenBuckets([3, 2000], [3, 3])
    with pytest.raises(ValueError, match=r"row 0 has up to 20 tokens, and max_tokens 70 must hold 4 of it"):
        TokenBuckets([20, 3], [3, 3], max_tokens=70, min_sentences=2)


def test_bad_limits_are_refused() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        TokenBuckets([3], [3], max_sentences=0)
    with pytest.raises(ValueError, match="max_sentences 3 must be at least twice min_sentences 2"):
        TokenBuckets([3, 3], [3, 3], max_sentences=3, min_sentences=2)
    with pytest.raises(ValueError, match="2 rows cannot make a batch of min_sentences 3"):
        TokenBuckets([3, 3], [3, 3], min_sentences=3)


def test_bad_lengths_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"expected lengths of shape \(N\), N > 0, for both sides, got \(2,\) and \(1,\)"
    ):
        TokenBuckets([3, 3], [3])
    with pytest.raises(ValueError, match=r"N > 0"):
        TokenBuckets([], [])
    with pytest.raises(ValueError, match="source sentence 1 has length 0, at least 1 wanted"):
        TokenBuckets([3, 0], [3, 3])


def test_bad_ranks_are_refused() -> None:
    buckets = TokenBuckets([3, 3, 3], [3, 3, 3])
    with pytest.raises(ValueError, match="rank 2 does not exist; ranks go from 0 to 1"):
        buckets.epoch(0, rank=2, world_size=2)
    with pytest.raises(ValueError, match=r"2 processes share each batch, .*set min_sentences to 2 or more"):
        buckets.epoch(0, rank=0, world_size=2)


@pytest.mark.data
def test_multi30k_has_no_source_padding_and_little_target_padding(data_dir: Path) -> None:
    text = multi30k.load("valid")
    tokenizer = train_bpe([*text.source, *text.target], vocabulary_size=2000)
    encoded = EncodedText.from_text(text, tokenizer)
    buckets = TokenBuckets(encoded.source_lengths, encoded.target_lengths, max_tokens=400)
    batches = [encoded.batch(rows) for rows in buckets.epoch(0)]
    assert all(bool(batch.source_mask.all()) for batch in batches)
    filled = sum(int(batch.target_mask.sum()) for batch in batches)
    assert filled / sum(batch.target_mask.numel() for batch in batches) > 0.85
    assert sum(encoded.target_lengths) == filled
