"""Bounds on parameters: values, gradients that lead back, and none that lead further out."""

import pytest
import torch

from probattn.core import Dense
from probattn.core.records import Given, Memory
from probattn.distributions import Dirichlet, MaskedDirichlet, kl
from probattn.distributions.clamping import inward_clamp
from probattn.nn import FromContext, GaussianHead


@pytest.mark.parametrize(("sign", "expected"), [(1.0, [0.0, 1.0, 1.0]), (-1.0, [-1.0, -1.0, 0.0])])
def test_only_gradients_that_lead_back_pass(sign, expected):
    x = torch.tensor([-3.0, 0.5, 3.0], requires_grad=True)
    clamped = inward_clamp(x, -1.0, 1.0)
    assert clamped.tolist() == [-1.0, 0.5, 1.0]
    (sign * clamped.sum()).backward()
    assert x.grad.tolist() == expected


def test_inside_it_is_the_identity_to_second_order():
    x = torch.linspace(-0.9, 0.9, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: inward_clamp(x, -1.0, 1.0).pow(3), x)


def test_a_gradient_that_is_no_number_is_not_hidden():
    x = torch.tensor([0.0, 3.0, float("nan")], requires_grad=True)
    inward_clamp(x, -1.0, 1.0).backward(torch.tensor([float("nan"), float("nan"), 1.0]))
    assert x.grad.isnan().tolist() == [True, True, False]


def test_works_under_vmap():
    x = torch.tensor([[-3.0, 0.5], [2.0, 0.0]])
    gradient = torch.func.vmap(torch.func.grad(lambda row: inward_clamp(row, -1.0, 1.0).square().sum()))(x)
    assert torch.equal(gradient, torch.tensor([[-2.0, 1.0], [2.0, 0.0]]))  # both of them lead back


def test_a_dirichlet_comes_back_from_its_bound():
    """Where noise cost likelihood before the KL had a weight, concentrations are beyond it."""
    scores = torch.full((1, 4), 25.0, requires_grad=True)
    uniform = MaskedDirichlet(torch.ones(1, 4), support=Dense())
    optimiser = torch.optim.Adam([scores], lr=0.3)
    for _ in range(150):
        optimiser.zero_grad()
        kl(Dirichlet()(scores, Dense()), uniform).sum().backward()
        optimiser.step()
    assert float(scores.detach().abs().max()) < 0.5  # Dirichlet(1) has scores of zero


@pytest.mark.parametrize("conditional", [FromContext(3), GaussianHead(3, 2)], ids=["context", "head"])
def test_a_gaussian_comes_back_from_its_bound(conditional):
    with torch.no_grad():
        for name, parameter in conditional.named_parameters():
            if ("sigma" in name or "variance" in name) and name.endswith("bias"):
                parameter.fill_(-30.0)
    made = conditional(Given(Memory(torch.zeros(1, 1, 3), torch.zeros(1, 1, 3), Dense()), context=torch.ones(1, 3)))
    assert torch.equal(made.log_variance, torch.full_like(made.log_variance, -10.0))
    (-made.log_variance.sum()).backward()  # as the KL to a wider prior does
    last = conditional.log_variance if isinstance(conditional, GaussianHead) else conditional.log_sigma[-1]
    assert (last.bias.grad < 0).all()
