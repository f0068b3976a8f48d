"""What is handed over as family, prior, estimator or weight: wrong kinds are told, subclasses are heard."""

import copy

import pytest
import torch
from torch import nn

import probattn
import probattn.nn.fused_attention as kernels_for_attention
from probattn import Attention, Categorical, Dense, Elbo, Enumerate, Evaluation, FromScores, GammaPrior, Memory, Weibull
from probattn.core import Constant, Pathwise
from probattn.nn import Bilinear, Conditional

QKV = torch.randn(3, 1, 2, 6, 8, generator=torch.Generator().manual_seed(0))
LAW = Weibull(10.0, anchor="softmax")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"family": Weibull}, r"family\): expected a family such as Weibull\(10.0\), or None, got Weibull; call it"),
        ({"family": "weibull"}, r"family\): expected a family .* got 'weibull'"),
        (
            {"family": LAW, "prior": GammaPrior()},
            r"prior\): expected a Conditional .* KeyPrior\(head_dim, GammaPrior\(",
        ),
        ({"family": LAW, "prior": Categorical()}, r"got Categorical; say what .*FromScores\(Categorical\(\)\)"),
    ],
)
def test_a_wrong_kind_is_told_at_once(arguments, message):
    with pytest.raises(TypeError, match=message):
        probattn.scaled_dot_product_attention(*QKV, **arguments)
    with pytest.raises(TypeError, match=message):
        probattn.MultiheadAttention(16, 2, **arguments)


def test_a_site_says_how_to_wrap_a_family():
    with pytest.raises(TypeError, match=r"prior of site 'a': .*FromScores\(Categorical\(\)\)"):
        probattn.Site("a", prior=Categorical(), posterior=None)


def test_estimators_and_weights_go_by_the_name_of_a_site():
    site = probattn.Site("a", prior=FromScores(Categorical()), posterior=None)
    attention = Attention(Bilinear(8, 8), weights=site)
    slots = torch.randn(2, 5, 8)
    memory = Memory(keys=slots, values=slots, support=Dense())
    with pytest.raises(TypeError, match=r"by the name of their site, \{'a': Enumerate\(\)\}; got Enumerate"):
        attention(torch.randn(2, 3, 8), memory, estimators=Enumerate())
    latent = attention(torch.randn(2, 3, 8), memory, estimators={"a": Enumerate()}).latents[0]
    log_lik = torch.zeros(5, 2, 3)
    with pytest.raises(TypeError, match="put it into a list"):
        Elbo()(Evaluation(log_lik, latent))
    for weights in (0.1, {"a": Constant(0.1)}):
        with pytest.raises(TypeError, match=r"numbers by the name of their site.*schedule\(update\)"):
            Elbo()(Evaluation(log_lik, [latent]), weights)


def test_a_prior_for_keys_of_another_width():
    with pytest.raises(ValueError, match=r"KeyPrior\(key_dim=16\) got keys of shape"):
        probattn.scaled_dot_product_attention(*QKV, family=LAW, prior=probattn.KeyPrior(16, GammaPrior()))


@pytest.mark.parametrize("wrong", ["target", {"draw"}])
def test_needs_has_two_words(wrong):
    with pytest.raises(TypeError, match=r"Mine.needs is a set of 'target' .* and 'value'"):
        type("Mine", (Conditional,), {"needs": wrong})
    with pytest.raises(NotImplementedError, match="Conditional has no `forward`"):
        Conditional()(None)


class NearTheStart(probattn.Fixed):
    """Another law than its base's, which kernels must not take it for."""

    def forward(self, given):
        rank = 1.0 + torch.arange(given.scores.shape[-1])
        return self.family((self.psi / rank).log().expand_as(given.scores), given.memory.support)


class Silent(Pathwise):
    """An estimator whose draws are all zeros."""

    def __call__(self, posterior, prior, seed):
        draw = super().__call__(posterior, prior, seed)
        return type(draw)(torch.zeros_like(draw.value), None, draw.log_weight)


class Doubled(GammaPrior):
    """A prior with twice the concentrations."""

    def __call__(self, log_psi, support):
        return super().__call__(log_psi + 0.5, support)


@pytest.mark.parametrize(
    "change",
    [
        {"prior": NearTheStart(GammaPrior(), 1.0)},
        {"estimator": Silent(keeps_log_probs=False)},
        {"prior": probattn.KeyPrior(8, Doubled(), normalises="set"), "is_causal": True},
    ],
    ids=["prior", "estimator", "prior family"],
)
def test_kernels_do_not_take_a_subclass_for_its_base(change, monkeypatch):
    """Whether weights are asked for decides which path runs, and must decide nothing else."""
    monkeypatch.setattr(
        kernels_for_attention, "_MANY_SCORES", 0
    )  # so that no matrix of weights is made of small inputs
    arguments = {"family": LAW, "prior": probattn.Fixed(GammaPrior(), 1.0), "seed": torch.tensor(3)} | change
    one, other = (probattn.scaled_dot_product_attention(*QKV, **arguments, need_weights=asked) for asked in (0, 1))
    torch.testing.assert_close(one.kl, other.kl)
    torch.testing.assert_close(one.context, other.context)


def test_a_learnt_number_of_a_family_is_a_parameter():
    family = Weibull(nn.Parameter(torch.tensor(10.0)), anchor="softmax")
    layer = probattn.MultiheadAttention(16, 2, batch_first=True, family=family, prior=None)
    assert any(parameter is family.concentration for parameter in layer.parameters())
    again = copy.deepcopy(layer)
    assert again.family.concentration is dict(again.named_parameters())["family_concentration"]
    site = probattn.Site("a", prior=None, posterior=FromScores(family))
    assert [name for name, _ in site.named_parameters()] == ["posterior.family_concentration"]
    x = torch.randn(2, 5, 16)
    layer(x, x, x)[0].square().sum().backward()
    assert float(family.concentration.grad.abs()) > 0.0
