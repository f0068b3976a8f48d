"""The inference network of visual question answering against its formula, written out region by region."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from probattn.core import Dense, Given, Memory
from probattn.distributions import Categorical, MaskedOneHot
from probattn.nn.answer_posterior import AnswerPosterior


def given() -> Given:
    torch.manual_seed(1)
    keys = torch.randn(2, 4, 3)
    mask = torch.tensor([[True, True, True, True], [True, True, True, False]]).unsqueeze(1)
    memory = Memory(keys=keys, values=keys, support=Dense(mask))
    return Given(memory=memory, query=torch.randn(2, 1, 5), target=torch.tensor([[6], [2]]))


def network() -> AnswerPosterior:
    torch.manual_seed(0)
    return AnswerPosterior(
        3, 5, answer_dim=4, hidden_dim=7, family=Categorical(), answer_encoder=nn.Embedding(9, 4)
    ).double()


def test_it_is_the_papers_formula() -> None:
    posterior, plain = network(), given()
    keys, query = plain.memory.keys.double(), plain.query.double()
    made = posterior(replace(plain, query=query, memory=replace(plain.memory, keys=keys, values=keys)))
    assert isinstance(made, MaskedOneHot)
    for example, regions in ((0, 4), (1, 3)):
        h = posterior.answer_encoder.weight[plain.target[example, 0]]
        energies = []
        for region in range(regions):
            x = posterior.project_region.weight @ (keys[example, region] * torch.relu(posterior.region_gate.weight @ h))
            q = posterior.project_query.weight @ (query[example, 0] * torch.relu(posterior.query_gate.weight @ h))
            energies.append(posterior.energy.weight[0] @ torch.tanh(x + q))
        expected = torch.stack(energies).softmax(dim=0)
        torch.testing.assert_close(made.plug_in[example, 0, :regions], expected)
    assert made.plug_in[1, 0, 3].item() == 0.0


def test_the_answer_changes_where_it_looks() -> None:
    posterior = network().float()
    one, other = (posterior(replace(given(), target=torch.tensor([[a], [a]]))).plug_in for a in (1, 5))
    assert float((one - other).detach().abs().max()) > 1e-3


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match=r"AnswerPosterior reads Given\.target"):
        network()(replace(given(), target=None))
    with pytest.raises(ValueError, match=r"AnswerPosterior reads Given\.query"):
        network()(replace(given(), query=None))
