"""The recall task: its law, its padding, its seeds."""

import pytest
import torch

from probattn.data import RecallTask


def test_target_is_the_symbol_of_the_right_slot() -> None:
    task = RecallTask(value_noise=0.0, key_noise=0.0)
    batch = task.batch(20, 0)
    right_key = batch.keys.gather(1, batch.slot.unsqueeze(-1).expand(-1, -1, task.dim))
    assert torch.equal(right_key, batch.query)
    right_value = batch.values.gather(1, batch.slot.unsqueeze(-1).expand(-1, -1, task.dim))
    # equal values belong to equal symbols and different ones to different symbols
    same_value = torch.cdist(right_value[:, :1], right_value).squeeze(1) < 1e-6
    assert torch.equal(same_value, batch.target[:, :1] == batch.target)


def test_right_slots_are_never_padding() -> None:
    batch = RecallTask(min_slots=2, max_slots=7).batch(300, 5)
    assert bool(batch.mask.gather(1, batch.slot).all())
    assert batch.mask.sum(-1).min() == 2 and batch.mask.sum(-1).max() == 7


def test_batches_are_a_function_of_their_number() -> None:
    task = RecallTask()
    assert torch.equal(task.batch(4, 7).query, task.batch(4, 7).query)
    assert not torch.equal(task.batch(4, 7).query, task.batch(4, 8).query)
    assert not torch.equal(task.batch(4, 7).query, RecallTask(seed=1).batch(4, 7).query)


def test_slots_of_an_example_have_different_keys() -> None:
    batch = RecallTask(key_noise=0.0).batch(50, 0)
    distance = torch.cdist(batch.keys, batch.keys) + 10.0 * torch.eye(batch.keys.shape[1])
    assert distance.min() > 0.5


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="1 <= min_slots <= max_slots <= num_keys"):
        RecallTask(min_slots=11, max_slots=10)
