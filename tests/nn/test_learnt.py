"""Learnt numbers of families: the module that holds one lists them, and uses what is listed."""

import copy
import math

import pytest
import torch
import torch.nn.utils.parametrize
from torch import nn

import probattn as pa
from probattn.distributions import Family
from probattn.nn import FromScores

X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))


def learnt(value: float = 2.0) -> pa.Weibull:
    return pa.Weibull(nn.Parameter(torch.tensor(value)), anchor="softmax")


def layer(family: Family) -> pa.MultiheadAttention:
    torch.manual_seed(0)
    made = pa.MultiheadAttention(8, 2, batch_first=True, family=family)
    pa.set_sampling(made, True, seed=3)
    return made


def output(module: nn.Module) -> torch.Tensor:
    return module(X, X, X)[0].detach()


class Learning(nn.Module, Family):
    """A family that is a module."""

    def __init__(self) -> None:
        super().__init__()
        self.log_k = nn.Parameter(torch.zeros(()))

    def forward(self, scores, support):
        return pa.Weibull(self.log_k.exp(), anchor="softmax")(scores, support)


@pytest.mark.parametrize("how", ["assign", "copy", "functional"])
def test_what_is_listed_is_used(how):
    module, expected = layer(learnt(2.0)), output(layer(learnt(30.0)))
    assert not torch.equal(output(module), expected)
    state = module.state_dict() | {"family_concentration": torch.tensor(30.0)}
    if how == "functional":
        found = torch.func.functional_call(module, state, (X, X, X))[0].detach()
    else:
        module.load_state_dict(state, assign=how == "assign")
        found = output(module)
        assert module.family.concentration is module.family_concentration
    assert torch.equal(found, expected)


def test_a_state_dict_of_torch_loads_unchanged():
    theirs = nn.MultiheadAttention(8, 2, batch_first=True)
    for family in (learnt(), Learning()):
        ours = pa.MultiheadAttention.from_torch(theirs, family=family)
        ours.load_state_dict(theirs.state_dict())
        assert {name for name, _ in ours.named_parameters()} - {name for name, _ in theirs.named_parameters()} in (
            {"family_concentration"},
            {"family.log_k"},
        )


def test_another_family_replaces_the_parameters_of_the_first():
    posterior = FromScores(learnt())
    assert [name for name, _ in posterior.named_parameters()] == ["family_concentration"]
    posterior.family = Learning()
    assert [name for name, _ in posterior.named_parameters()] == ["family.log_k"]
    posterior.family = pa.Lognormal(0.1)
    assert list(posterior.parameters()) == [] and posterior.family == pa.Lognormal(0.1)


def test_copies_have_parameters_of_their_own():
    module = layer(learnt())
    twin = copy.deepcopy(module)
    with torch.no_grad():
        twin.family_concentration.fill_(30.0)
    assert float(module.family.concentration.detach()) == 2.0
    assert float(twin.family.concentration.detach()) == 30.0


def test_a_graph_layer_lists_them_too():
    pyg = pytest.importorskip("probattn.integrations.pyg")
    conv = pyg.BayesianGATConv(4, 3, heads=2, family=learnt())
    edges = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])
    conv(torch.randn(3, 4), edges).square().sum().backward()
    assert float(dict(conv.named_parameters())["family_concentration"].grad.abs()) > 0.0


class Positive(nn.Module):
    def forward(self, value):
        return nn.functional.softplus(value)


def test_a_number_that_is_kept_positive_by_a_parametrisation():
    module = layer(learnt(2.0))
    nn.utils.parametrize.register_parametrization(module, "family_concentration", Positive())
    assert float(module.family.concentration.detach()) == pytest.approx(math.log1p(math.exp(2.0)))
    assert output(module).isfinite().all()


def test_parameters_of_like_names_and_class_attributes_stay():
    class Own(FromScores):
        family = None

        def __init__(self, family):
            super().__init__(family)
            self.family_bias = nn.Parameter(torch.zeros(()))
            self.family = learnt(7.0)

    own = Own(learnt(3.0))
    assert float(own.family.concentration.detach()) == 7.0
    assert {name for name, _ in own.named_parameters()} == {"family_bias", "family_concentration"}
