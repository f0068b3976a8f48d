"""Records are plain frozen data that pytrees, copies and pickles can look into."""

import copy
import dataclasses
import pickle

import pytest
import torch
from torch.utils import _pytree as pytree

from probattn.core import Dense, Draw, Evaluation, Given, Latent, Memory, Terms

DRAW = Draw(value=None, index=torch.tensor([[1, 2]]), log_weight=torch.zeros(1, 2), log_prior=torch.ones(1, 2))
LATENT = Latent("z", "step", True, DRAW, torch.zeros(2), torch.tensor(3), penalties={"commitment": torch.ones(2)})
EVALUATION = Evaluation(torch.zeros(1, 2), (LATENT,), mask=torch.ones(2, dtype=torch.bool))
TERMS = Terms(torch.zeros(2), torch.zeros(2), torch.ones(2), torch.ones(2), {"z": torch.zeros(2)})
RECORDS = [DRAW, LATENT, EVALUATION, TERMS]
by_name = pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)


def leaves(record: object) -> list[object]:
    return pytree.tree_leaves(record)


@by_name
def test_pytrees_see_the_tensors(record):
    tensors = [leaf for leaf in leaves(record) if isinstance(leaf, torch.Tensor)]
    doubled = pytree.tree_map(lambda leaf: leaf * 2 if isinstance(leaf, torch.Tensor) else leaf, record)
    assert type(doubled) is type(record)
    again = [leaf for leaf in leaves(doubled) if isinstance(leaf, torch.Tensor)]
    assert len(tensors) >= 3 and len(again) == len(tensors)
    assert all(torch.equal(2 * before, after) for before, after in zip(tensors, again, strict=True))


@by_name
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda record: pickle.loads(pickle.dumps(record))])
def test_copies(record, duplicate):
    for before, after in zip(leaves(record), leaves(duplicate(record)), strict=True):
        assert torch.equal(before, after) if isinstance(before, torch.Tensor) else before == after


@pytest.mark.parametrize("record", [*RECORDS, Memory(torch.zeros(1), torch.zeros(1), Dense())])
def test_frozen(record):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, dataclasses.fields(record)[0].name, None)


def test_number_of_particles_counts_the_baseline():
    assert DRAW.num_particles == 1
    assert Draw(value=None, index=None, log_weight=torch.zeros(4, 2), has_baseline=True).num_particles == 4


def test_given_needs_a_memory_alone():
    given = Given(Memory(torch.zeros(2, 3), torch.zeros(2, 3), Dense()))
    assert all(getattr(given, field.name) is None for field in dataclasses.fields(given) if field.name != "memory")


def test_records_pass_through_compiled_code():
    def visit(x: torch.Tensor) -> Latent:
        draw = Draw(value=x.unsqueeze(0), index=None, log_weight=torch.zeros(1, 2))
        return Latent("z", "step", False, draw, x.sum(dim=-1), torch.zeros((), dtype=torch.int64))

    made = torch.compile(visit, fullgraph=True, backend="eager")(torch.ones(2, 3))
    assert made.name == "z" and torch.equal(made.draw.value, torch.ones(1, 2, 3)) and made.kl.tolist() == [3.0, 3.0]
