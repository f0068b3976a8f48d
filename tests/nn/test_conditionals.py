"""Priors and posteriors: the zoo, and what each of them means."""

from dataclasses import replace
from typing import cast

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from probattn.core import Dense, Given, LatentDistribution, Memory, Segments
from probattn.distributions import (
    Categorical,
    DiagonalGaussian,
    GammaPrior,
    LognormalPrior,
    MaskedOneHot,
    NormalisedGamma,
    NormalisedLognormal,
    Weibull,
)
from probattn.nn import (
    Bilinear,
    Conditional,
    Dot,
    Fixed,
    FromContext,
    FromScores,
    GaussianHead,
    InferenceNetwork,
    KeyPrior,
    MeanMemory,
    StandardNormal,
)
from tests.nn.zoo import CONDITIONALS, B, D, Row, S, T, make_given

ROWS = pytest.mark.parametrize("row", CONDITIONALS.values(), ids=CONDITIONALS.keys())
H = 3


def plug_in(distribution: Distribution) -> Tensor:
    return cast(LatentDistribution, distribution).plug_in


def reaches(density: Tensor, leaf: Tensor) -> bool:
    """Whether a gradient arrives that is finite and not zero."""
    (grad,) = torch.autograd.grad(density, leaf, retain_graph=True, allow_unused=True)
    return grad is not None and bool(torch.isfinite(grad).all()) and grad.abs().max().item() > 1e-6


def log_prob_of_a_draw(distribution: Distribution) -> Tensor:
    """Log-density of a draw that is held fixed, so that gradients are those of the density."""
    latent = cast(LatentDistribution, distribution)
    return latent.log_prob(latent.draw_raw(2, torch.tensor(5)).detach())


@ROWS
def test_shape(row: Row) -> None:
    distribution = row.build()(make_given())
    assert plug_in(distribution).shape == row.shape
    assert log_prob_of_a_draw(distribution).shape == (2, *row.shape[:-1])


@ROWS
def test_needs(row: Row) -> None:
    """It declares what it reads: it works without the rest, and names what is missing."""
    conditional = row.build()
    assert conditional.needs == row.needs
    undeclared = {"target", "value"} - row.needs
    conditional(replace(make_given(), **dict.fromkeys(undeclared)))
    for name in row.needs:
        with pytest.raises(ValueError, match=rf"Given\.{name}"):
            conditional(replace(make_given(), **{name: None}))


@ROWS
def test_gradient_reaches_parameters_and_what_is_read(row: Row) -> None:
    conditional = row.build()
    given = make_given()
    tensors = {name: getattr(given, name) for name in ("query", "scores", "context", "target", "value")}
    tensors |= {name: getattr(given.memory, name) for name in ("keys", "values", "inputs")}
    for tensor in tensors.values():
        tensor.requires_grad_()
    density = log_prob_of_a_draw(conditional(given)).sum()
    read = {name for name, tensor in tensors.items() if density.requires_grad and reaches(density, tensor)}
    assert read == row.reads
    for name, parameter in conditional.named_parameters():
        assert reaches(density, parameter), name


@ROWS
def test_padding_changes_nothing(row: Row) -> None:
    conditional = row.build()
    plain, padded = conditional(make_given()), conditional(make_given(2))
    mine, theirs = plug_in(plain), plug_in(padded)
    density, padded_density = log_prob_of_a_draw(plain), log_prob_of_a_draw(padded)
    if row.event == "weights":
        assert torch.equal(theirs[..., S:], torch.zeros_like(theirs[..., S:]))
        theirs = theirs[..., :S]
    if row.event == "memory":
        theirs, padded_density = theirs[:, :S], padded_density[..., :S]
    torch.testing.assert_close(theirs, mine)
    torch.testing.assert_close(padded_density, density)


def test_the_base_class_has_no_distribution() -> None:
    with pytest.raises(NotImplementedError):
        Conditional()(make_given())


# FromScores


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_scores_that_are_not_finite_are_named(bad: float) -> None:
    given = make_given()
    scores = given.scores.clone()
    scores[0, 1, 2] = bad
    with pytest.raises(ValueError, match=r"attention scores of shape \(2, 3, 4\) has 1 value.*mask it in the support"):
        FromScores(Weibull())(replace(given, scores=scores))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_scores_outside_the_support_do_not_matter(bad: float) -> None:
    expected = FromScores(Categorical())(make_given()).plug_in
    found = FromScores(Categorical())(make_given(1, junk=bad)).plug_in
    torch.testing.assert_close(found[..., :S], expected)


@pytest.mark.parametrize(
    "conditional", [FromScores(Categorical()), Fixed(GammaPrior(), 1.0)], ids=lambda c: type(c).__name__
)
def test_scores_are_required(conditional: Conditional) -> None:
    name = type(conditional).__name__
    with pytest.raises(ValueError, match=rf"{name} reads Given\.scores, which is absent; pass it to the site"):
        conditional(replace(make_given(), scores=None))


@pytest.mark.parametrize("conditional", [MeanMemory(), FromContext(D), GaussianHead(D, 3)])
def test_the_context_is_required(conditional: Conditional) -> None:
    name = type(conditional).__name__
    with pytest.raises(ValueError, match=rf"{name} reads Given\.context, which is absent"):
        conditional(replace(make_given(), context=None))


# Fixed


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_fixed_gamma_is_the_same_everywhere(dtype: torch.dtype) -> None:
    given = make_given()
    given = replace(given, scores=given.scores.to(dtype).requires_grad_())
    prior = Fixed(GammaPrior(rate=0.1), 1e-3)(given)
    assert isinstance(prior, NormalisedGamma)
    assert prior.concentration.dtype == torch.promote_types(dtype, torch.float32)
    assert not prior.concentration.requires_grad  # a constant: the KL must not reach the scores through it
    inside = given.memory.support.mask.expand(B, T, S)
    expected = torch.full_like(prior.concentration[inside], 1e-3)
    torch.testing.assert_close(prior.concentration[inside], expected)


@pytest.mark.parametrize(("location", "expected"), [("psi", 0.25), ("log_psi", -1.3862944)])
def test_fixed_lognormal(location: str, expected: float) -> None:
    prior = Fixed(LognormalPrior(sigma=2.0, location=location), 0.25)(make_given())
    assert isinstance(prior, NormalisedLognormal)
    torch.testing.assert_close(prior.location[0], torch.full((T, S), expected))


@pytest.mark.parametrize("psi", [0.0, -1.0, float("nan")])
def test_fixed_wants_a_positive_constant(psi: float) -> None:
    with pytest.raises(ValueError, match=r"Fixed\(psi\) must be positive, got"):
        Fixed(GammaPrior(), psi)


# KeyPrior


def psi_by_hand(prior: KeyPrior, keys: Tensor, seen: Tensor, *, head: int = 0) -> Tensor:
    """(S) softmax of F2(relu(F1(key))) over the keys that are seen, for one example and head; keys: (S, D)."""
    logits = torch.stack(
        [
            (prior.out_weight[head] * torch.relu(key @ prior.hidden_weight[head] + prior.hidden_bias[head])).sum()
            for key in keys
        ]
    )
    psi = torch.zeros_like(logits)
    psi[seen] = logits[seen].softmax(dim=0)
    return psi


def key_prior(family: object = None, *, num_heads: int | None = None) -> KeyPrior:
    prior = KeyPrior(D, GammaPrior() if family is None else family, hidden_dim=6, num_heads=num_heads)
    nn.init.normal_(prior.hidden_bias)
    return prior


@pytest.mark.parametrize(("concentration", "factor"), [("psi", 1.0), ("psi_rate", 0.3)])
@pytest.mark.parametrize("num_heads", [None, H])
def test_key_prior_on_dense(num_heads: int | None, concentration: str, factor: float) -> None:
    """Concentration Psi (the paper) or Psi * rate (its code), per layer and per head, shared by all queries."""
    conditional = key_prior(GammaPrior(rate=0.3, concentration=concentration), num_heads=num_heads)
    keys = torch.randn(B, H, S, D)
    mask = torch.ones(B, 1, 1, S, dtype=torch.bool)
    mask[1, ..., -1] = False
    prior = conditional(Given(Memory(keys=keys, values=keys, support=Dense(mask))))
    assert isinstance(prior, NormalisedGamma)
    assert prior.concentration.shape == (B, H, 1, S)
    assert prior.rate.item() == pytest.approx(0.3)
    for b in range(B):
        for h in range(H):
            seen = mask[b, 0, 0]
            psi = psi_by_hand(conditional, keys[b, h], seen, head=0 if num_heads is None else h)
            torch.testing.assert_close(prior.concentration[b, h, 0][seen], factor * psi[seen])


@pytest.mark.parametrize("num_heads", [None, H])
@pytest.mark.parametrize("has_source", [True, False])
def test_key_prior_on_segments(num_heads: int | None, has_source: bool) -> None:
    """On graphs the softmax runs over all nodes (paper and code), not over the neighbours of one."""
    conditional = key_prior(num_heads=num_heads)
    source, target = torch.tensor([0, 1, 2, 1]), torch.tensor([0, 0, 1, 3])
    keys = torch.randn(4, H, D)
    support = Segments(target, 5, source if has_source else None)
    prior = conditional(Given(Memory(keys=keys, values=keys, support=support)))
    for h in range(H):
        psi = psi_by_hand(conditional, keys[:, h], torch.ones(4, dtype=torch.bool), head=0 if num_heads is None else h)
        torch.testing.assert_close(prior.concentration[:, h], psi[source] if has_source else psi)


@pytest.mark.parametrize("num_heads", [None, H])
def test_key_prior_with_a_causal_mask(num_heads: int | None) -> None:
    """Psi does not depend on the query: it is not renormalised over what each of them may see."""
    conditional = key_prior(num_heads=num_heads)
    keys = torch.randn(B, H, S, D)
    causal = torch.ones(S, S, dtype=torch.bool).tril()
    with_mask = conditional(Given(Memory(keys=keys, values=keys, support=Dense(causal))))
    without = conditional(Given(Memory(keys=keys, values=keys, support=Dense())))
    seen = causal.expand(B, H, S, S)
    expected = without.concentration.expand(B, H, S, S)
    torch.testing.assert_close(with_mask.concentration.expand(B, H, S, S)[seen], expected[seen])


def test_key_prior_leaves_out_keys_that_no_query_sees() -> None:
    conditional = key_prior()
    keys = torch.randn(B, S, D)
    mask = torch.ones(T, S, dtype=torch.bool)
    mask[:, -1] = False
    masked = conditional(Given(Memory(keys=keys, values=keys, support=Dense(mask))))
    shorter = conditional(Given(Memory(keys=keys[:, :-1], values=keys[:, :-1], support=Dense())))
    torch.testing.assert_close(masked.concentration[:, :1, :-1], shorter.concentration)


@pytest.mark.parametrize("normalises", ["memory", "set"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_key_prior_of_half_precision_sums_to_one(dtype: torch.dtype, normalises: str) -> None:
    """A log-softmax in bfloat16 is wrong by a hundredth, and a KL over many keys by several nats."""
    torch.manual_seed(0)
    prior, keys = KeyPrior(D, GammaPrior(), normalises=normalises).to(dtype), torch.randn(2, 200, D, dtype=dtype)
    found = prior(Given(memory=Memory(keys=keys, values=keys, support=Dense())))
    assert isinstance(found, NormalisedGamma)
    torch.testing.assert_close(found.concentration.sum(dim=-1), torch.ones(2, 1), rtol=0, atol=1e-5)


def test_key_prior_per_head_without_a_batch() -> None:
    """(H, S, D) keys on Dense have their heads first, also where there are as many positions as heads."""
    conditional = key_prior(num_heads=H)
    keys = torch.randn(H, H, D)
    alone = conditional(Given(Memory(keys=keys, values=keys, support=Dense())))
    batched = conditional(Given(Memory(keys=keys[None], values=keys[None], support=Dense())))
    torch.testing.assert_close(alone.concentration, batched.concentration[0])


@pytest.mark.parametrize("shape", [(B, H + 1, S, D), (S, D)])
def test_key_prior_names_the_heads_it_expects(shape: tuple[int, ...]) -> None:
    keys = torch.zeros(shape)
    with pytest.raises(
        ValueError, match=r"KeyPrior\(num_heads=3\) expects keys with 3 heads on axis -3, got keys of shape"
    ):
        key_prior(num_heads=H)(Given(Memory(keys=keys, values=keys, support=Dense())))


# Gaussians


@pytest.mark.parametrize("conditional", [FromContext(D), GaussianHead(D, 3)], ids=lambda c: type(c).__name__)
@pytest.mark.parametrize("bias", [1e3, -1e3])
def test_log_variance_is_bounded(conditional: nn.Module, bias: float) -> None:
    """exp of an unbounded network output overflows (Bahuleyan et al.'s code does)."""
    last = conditional.log_sigma[-1] if isinstance(conditional, FromContext) else conditional.log_variance
    nn.init.constant_(last.bias, bias)
    posterior = conditional(make_given())
    torch.testing.assert_close(
        posterior.log_variance, torch.full_like(posterior.log_variance, 10.0 if bias > 0 else -10.0)
    )
    draw = posterior.rsample((2,), seed=torch.tensor(1))
    (draw.sum() + posterior.log_prob(draw).sum()).backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in conditional.parameters())


def test_from_context_has_the_context_as_its_mean() -> None:
    conditional = FromContext(D)
    given = make_given()
    posterior = conditional(given)
    assert torch.equal(posterior.mean, given.context)
    log_sigma = conditional.log_sigma[2](torch.tanh(conditional.log_sigma[0](given.context)))
    torch.testing.assert_close(posterior.variance.sqrt(), log_sigma.exp())


def test_gaussian_head() -> None:
    conditional = GaussianHead(D, 3)
    given = make_given()
    posterior = conditional(given)
    torch.testing.assert_close(posterior.mean, given.context @ conditional.mean.weight.T + conditional.mean.bias)
    log_variance = given.context @ conditional.log_variance.weight.T + conditional.log_variance.bias
    torch.testing.assert_close(posterior.variance, log_variance.exp())


@pytest.mark.parametrize("conditional", [FromContext(D), GaussianHead(D, D), StandardNormal(D)])
def test_padded_units_have_density_zero(conditional: Conditional) -> None:
    mask = torch.tensor([[True, True, True], [True, False, False]])
    distribution = conditional(replace(make_given(), mask=mask))
    density = distribution.log_prob(torch.ones(1, B, T, D))[0]
    assert torch.equal(density == 0, ~mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_standard_normal_is_shaped_like_what_it_is_a_prior_of(dtype: torch.dtype) -> None:
    given = make_given()
    memory = replace(given.memory, values=given.memory.values.to(dtype))
    of_context = replace(given, memory=memory, context=given.context.to(dtype))
    for case, shape in ((of_context, (B, T, 2)), (Given(memory), (B, S, 2))):
        prior = StandardNormal(2)(case)
        assert prior.mean.shape == shape
        assert prior.mean.dtype == dtype
        assert not prior.mean.any()
        assert bool((prior.variance == 1).all())


@pytest.mark.parametrize("junk", [1e4, float("nan"), float("inf")])
def test_mean_memory_ignores_padding(junk: float) -> None:
    given = make_given(2, junk=junk)
    prior = MeanMemory()(given)
    values = make_given().memory.values
    expected = torch.stack([values[0].mean(dim=0), values[1, :-1].mean(dim=0)])
    torch.testing.assert_close(prior.mean, expected[:, None].expand(B, T, D))
    assert bool((prior.variance == 1).all())


def test_mean_memory_of_what_each_query_may_see() -> None:
    values = torch.randn(B, T, D, dtype=torch.float64)
    memory = Memory(keys=values, values=values, support=Dense(torch.ones(T, T, dtype=torch.bool).tril()))
    prior = MeanMemory()(Given(memory, context=torch.zeros(B, T, D)))
    expected = torch.stack([values[:, : t + 1].mean(dim=1) for t in range(T)], dim=1)
    torch.testing.assert_close(prior.mean, expected, rtol=1e-12, atol=1e-12)


def test_mean_memory_of_nothing_is_zero() -> None:
    values = torch.ones(1, S, D)
    memory = Memory(keys=values, values=values, support=Dense(torch.zeros(1, 1, S, dtype=torch.bool)))
    assert not MeanMemory()(Given(memory, context=torch.ones(1, T, D))).mean.any()


def test_mean_memory_on_a_graph() -> None:
    nodes = torch.randn(3, H, D)
    support = Segments(torch.tensor([0, 0, 1]), 3, torch.tensor([1, 2, 0]))
    given = Given(Memory(keys=nodes, values=nodes, support=support), scores=torch.randn(3, H), context=nodes)
    expected = torch.stack([(nodes[1] + nodes[2]) / 2, nodes[0], torch.zeros(H, D)])
    torch.testing.assert_close(MeanMemory()(given).mean, expected)


# InferenceNetwork


def test_inference_network_encodes_targets_and_inputs() -> None:
    target_encoder, memory_encoder = nn.Linear(D, 7), nn.Linear(D, 7)
    network = InferenceNetwork(
        Dot(scale=1.0), Categorical(), target_encoder=target_encoder, memory_encoder=memory_encoder
    )
    given = make_given()
    scores = target_encoder(given.target) @ memory_encoder(given.memory.inputs).transpose(-1, -2)
    expected = scores.masked_fill(~given.memory.support.mask, -torch.inf).softmax(dim=-1)
    posterior = network(given)
    assert isinstance(posterior, MaskedOneHot)
    torch.testing.assert_close(posterior.plug_in, expected)


def test_inference_network_reads_the_keys_where_there_are_no_inputs() -> None:
    network = InferenceNetwork(Bilinear(D, D), Categorical())
    given = make_given()
    from_keys = network(replace(given, memory=replace(given.memory, inputs=None))).plug_in
    from_inputs = network(replace(given, memory=replace(given.memory, inputs=given.memory.keys))).plug_in
    assert torch.equal(from_keys, from_inputs)
    assert not torch.allclose(from_keys, network(given).plug_in)


def test_inference_network_does_not_read_the_scores() -> None:
    network = InferenceNetwork(Bilinear(D, D), Weibull())
    given = make_given()
    assert torch.equal(network(given).plug_in, network(replace(given, scores=None)).plug_in)


def test_inference_network_names_a_target_that_is_not_finite() -> None:
    given = make_given()
    with pytest.raises(ValueError, match="scores of the inference network of shape .* not finite"):
        InferenceNetwork(Bilinear(D, D), Categorical())(replace(given, target=given.target * float("nan")))


def test_gaussian_kl_between_zoo_members() -> None:
    """The pair of VAttn-h̄: N(context, sigma²) against N(mean of the memory, 1), by hand."""
    given = make_given()
    posterior, prior = FromContext(D)(given), MeanMemory()(given)
    assert isinstance(posterior, DiagonalGaussian)
    variance = posterior.variance
    expected = 0.5 * (variance + (posterior.mean - prior.mean).square() - 1.0 - variance.log()).sum(dim=-1)
    torch.testing.assert_close(torch.distributions.kl_divergence(posterior, prior), expected)
