"""The restricted output: maps in both directions, special ids, the size on real text."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from probattn.data import BOS, EOS, PAD, UNK, OutputVocabulary, multi30k, target_types, train_bpe


@given(st.lists(st.integers(0, 39)))
def test_maps_are_inverse_on_the_outputs(ids: list[int]) -> None:
    outputs = OutputVocabulary.from_ids(ids, vocabulary_size=40)
    kept = set(ids) | {PAD, BOS, EOS, UNK}
    assert len(outputs) == len(kept)
    assert outputs.full_ids.tolist() == sorted(kept)
    assert torch.equal(outputs.to_output(outputs.full_ids), torch.arange(len(outputs)))
    everything = torch.arange(40).view(5, 8)
    back = outputs.to_full(outputs.to_output(everything))
    for number, result in zip(everything.flatten().tolist(), back.flatten().tolist(), strict=True):
        assert result == (number if number in kept else UNK)


def test_special_ids_stay() -> None:
    outputs = OutputVocabulary.from_ids([30], vocabulary_size=40)
    special = torch.tensor([PAD, BOS, EOS, UNK])
    assert torch.equal(outputs.to_output(special), special)
    assert outputs.to("cpu").output_ids.tolist() == outputs.output_ids.tolist()


@pytest.mark.parametrize("bad", [-1, 40])
def test_ids_outside_the_vocabulary_are_refused(bad: int) -> None:
    with pytest.raises(ValueError, match="but the joint vocabulary has 40 types"):
        OutputVocabulary.from_ids([5, bad], vocabulary_size=40)


def test_target_types_are_those_of_the_target_side() -> None:
    source, target = ["zwei hunde", "ein hund"], ["two dogs", "a dog"]
    tokenizer = train_bpe(source + target, vocabulary_size=60)
    outputs = target_types(tokenizer, target)
    assert len(outputs) < tokenizer.vocabulary_size
    for line in target:
        ids = torch.tensor(tokenizer.encode(line))
        assert tokenizer.decode(outputs.to_full(outputs.to_output(ids))) == line
    assert UNK in outputs.to_output(torch.tensor(tokenizer.encode("zwei"))).tolist()


@pytest.mark.data
def test_size_on_multi30k(data_dir: Path) -> None:
    text = multi30k.load("train")
    tokenizer = train_bpe([*text.source, *text.target], vocabulary_size=4000)
    outputs = target_types(tokenizer, text.target)
    assert tokenizer.vocabulary_size == 4000
    assert len(outputs) == 2456  # a trial with the mark behind the word had 2,444
