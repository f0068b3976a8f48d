"""Free bits: floors per unit and per factor, that change the loss and never the bound."""

import pytest
import torch
from torch import Tensor

from probattn.core import Draw, Elbo, Evaluation, FreeBits, Latent
from probattn.core.noise import fresh_seed

KL_TERMS = torch.tensor([[0.1, 0.9, 0.2], [1.5, 0.05, 0.0]], dtype=torch.float64)


def latent(kl_terms: Tensor | None = KL_TERMS, kl: Tensor | None = None) -> Latent:
    draw = Draw(value=torch.zeros(1, 2, 3), index=None, log_weight=torch.zeros(1, 2, dtype=torch.float64))
    divergence = KL_TERMS.sum(dim=-1) if kl is None else kl
    return Latent("z", "example", False, draw, divergence, fresh_seed(), kl_terms=kl_terms)


def test_floor_per_unit():
    assert torch.allclose(FreeBits(1.4)(latent()), torch.tensor([1.4, 1.55]).double())
    assert torch.allclose(FreeBits(0.0)(latent()), KL_TERMS.sum(dim=-1))


def test_floor_per_factor():
    made = FreeBits(0.3, per="factor")(latent())
    assert torch.allclose(made, torch.tensor([0.3 + 0.9 + 0.3, 1.5 + 0.3 + 0.3]).double())


def test_floor_per_factor_with_several_factor_axes():
    terms = torch.rand(2, 3, 4, dtype=torch.float64)
    made = FreeBits(0.5, per="factor")(latent(terms, terms.sum(dim=(1, 2))))
    assert torch.allclose(made, terms.clamp(min=0.5).sum(dim=(1, 2)))


@pytest.mark.parametrize("free_bits", [FreeBits(1.4), FreeBits(0.3, per="factor")])
def test_below_the_floor_there_is_no_pressure(free_bits):
    terms = KL_TERMS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(free_bits(latent(terms, terms.sum(dim=-1))).sum(), terms)
    if free_bits.per == "factor":
        assert torch.equal(gradient, (KL_TERMS > 0.3).double())
    else:
        assert torch.equal(gradient, torch.tensor([[0.0], [1.0]]).double().expand(2, 3))


@pytest.mark.parametrize("free_bits", [FreeBits(1.4), FreeBits(0.3, per="factor")])
def test_the_loss_changes_and_the_bound_does_not(free_bits):
    evaluation = Evaluation(torch.zeros(1, 2, dtype=torch.float64), (latent(),))
    plain, floored = Elbo()(evaluation), Elbo(free_bits={"z": free_bits})(evaluation)
    assert torch.equal(plain.bound, floored.bound) and torch.equal(plain.kl["z"], floored.kl["z"])
    assert torch.allclose(floored.loss, free_bits(latent())) and not torch.equal(plain.loss, floored.loss)
    half = Elbo(free_bits={"z": free_bits})(evaluation, {"z": 0.5})
    assert torch.allclose(half.loss, 0.5 * floored.loss)


def test_terms_that_were_not_kept():
    with pytest.raises(ValueError, match="needs the KL terms of site 'z'; build it with keeps_kl_terms=True"):
        FreeBits(0.3, per="factor")(latent(None))


def test_terms_of_an_edge_list():
    """(E, H) entries are no factors of (N, H) units."""
    for count in (7, 3):
        edges = latent(torch.zeros(count, 2), torch.zeros(3, 2))
        message = rf"with unit \(3, 2\), got \({count}, 2\) from site 'z'; an edge list has none"
        with pytest.raises(ValueError, match=message):
            FreeBits(0.3, per="factor")(edges)
