"""Sites: what is refused when one is built, which distribution is used when, and what the receipt says."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import kl_divergence
from torch.distributions.relaxed_categorical import ExpRelaxedCategorical

import probattn as pa
from probattn.core import (
    Elbo,
    Enumerate,
    Estimator,
    Evaluation,
    FreeBits,
    Given,
    LeaveOneOut,
    Mean,
    NoBaseline,
    Pathwise,
    ScoreFunction,
    TopKAndSample,
)
from probattn.distributions import (
    Categorical,
    CodeDelta,
    DiagonalGaussian,
    GammaPrior,
    GumbelSoftmax,
    Lognormal,
    Weibull,
)
from probattn.nn import (
    AutoregressiveGaussian,
    Bilinear,
    Conditional,
    Fixed,
    FromContext,
    FromScores,
    GaussianHead,
    InferenceNetwork,
    KeyPrior,
    Site,
    StandardNormal,
)
from tests.nn.zoo import B, CausalSum, D, S, T, make_given


def inference(family: object = None) -> InferenceNetwork:
    return InferenceNetwork(Bilinear(D, D), Categorical() if family is None else family)


def autoregressive() -> AutoregressiveGaussian:
    return AutoregressiveGaussian(CausalSum(D, 2 * D), D)


REFUSED = {
    "nothing": (dict(prior=None, posterior=None), "site 'a' needs a prior, a posterior, or both; got neither"),
    "no prior to predict with": (
        dict(prior=None, posterior=FromScores(Weibull()), predictive="prior"),
        "site 'a' is to predict with its prior, but has none",
    ),
    "no prior beside an inference network": (
        dict(prior=None, posterior=inference()),
        "site 'a' is to predict with its prior, but has none",
    ),
    "no posterior to predict with": (
        dict(prior=FromScores(Categorical()), posterior=None, predictive="posterior"),
        "site 'a' is to predict with its posterior, but has none; use predictive='prior'",
    ),
    "target at test time": (
        dict(prior=FromScores(Categorical()), posterior=inference(), predictive="posterior"),
        "InferenceNetwork reads the target, which is unknown at test time; use predictive='prior'",
    ),
    "target in the prior": (
        dict(prior=inference(), posterior=FromScores(Categorical())),
        "InferenceNetwork reads the target, so it cannot be a prior",
    ),
    "value in the posterior": (
        dict(prior=StandardNormal(D), posterior=autoregressive()),
        "AutoregressiveGaussian reads the draw, so it cannot be a posterior",
    ),
    "autoregressive prior alone": (
        dict(prior=autoregressive(), posterior=None),
        r"AutoregressiveGaussian reads the draw, so a site cannot predict with it.*ancestral\(\)",
    ),
    "autoregressive prior predicts": (
        dict(prior=autoregressive(), posterior=GaussianHead(D, D), predictive="prior"),
        r"AutoregressiveGaussian reads the draw, so a site cannot predict with it.*ancestral\(\)",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_when_built(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Site("a", **arguments)


@pytest.mark.parametrize(
    ("prior", "posterior", "expected"),
    [
        (FromScores(Categorical()), None, "prior"),  # hard attention
        (FromScores(Categorical()), inference(), "prior"),  # variational attention
        (KeyPrior(D, GammaPrior()), FromScores(Weibull()), "posterior"),  # Bayesian attention
        (None, FromScores(Weibull()), "posterior"),  # without a KL
        (StandardNormal(D), FromContext(D), "posterior"),  # a random context
    ],
)
def test_what_predicts_by_default(prior: Conditional | None, posterior: Conditional | None, expected: str) -> None:
    assert Site("a", prior=prior, posterior=posterior).predictive == expected


def test_the_receipt_carries_what_the_site_was_built_with() -> None:
    site = Site("a", prior=FromScores(Categorical()), posterior=None, unit="example", feeds_state=True)
    latent = site(make_given(), Mean())
    assert (latent.name, latent.unit, latent.feeds_state) == ("a", "example", True)
    assert latent.kl.shape == (B, T)
    assert latent.seed.shape == ()


@pytest.mark.parametrize("estimator", [Mean(), Enumerate(), ScoreFunction(2), TopKAndSample(2)], ids=repr)
def test_q_equal_to_p_has_no_kl(estimator: Estimator) -> None:
    site = Site("a", prior=FromScores(Categorical()), posterior=None)
    latent = site(make_given(), estimator)
    assert torch.equal(latent.kl, torch.zeros(B, T))
    if latent.draw.log_posterior is not None:
        assert torch.equal(latent.draw.log_posterior, latent.draw.log_prior)


@pytest.mark.parametrize("wrong", [Mean, "mean", None])
def test_what_is_no_estimator_is_named(wrong: object) -> None:
    site = Site("weights", prior=FromScores(pa.Categorical()), posterior=None)
    for visit in (site, site.predict):
        with pytest.raises(TypeError, match=r"expected an estimator for site 'weights', such as Mean\(\)"):
            visit(make_given(), wrong)


def test_no_prior_has_no_kl() -> None:
    latent = Site("a", prior=None, posterior=FromScores(Weibull()))(make_given(), Pathwise(2))
    assert torch.equal(latent.kl, torch.zeros(B, T))
    assert latent.draw.log_prior is None


# Which distribution is drawn from


def test_variational_attention_predicts_with_its_prior() -> None:
    site = Site("a", prior=FromScores(Categorical()), posterior=inference())
    given = make_given()
    without_target = replace(given, target=None)
    p, q = (conditional(given) for conditional in (site.prior, site.posterior))
    assert torch.equal(site.expected(without_target), p.plug_in)
    assert torch.equal(site(given, Mean()).draw.value[0], q.plug_in)
    seed = torch.tensor(3)
    latent = site.predict(without_target, ScoreFunction(5, NoBaseline()), seed=seed)
    assert torch.equal(latent.draw.index, p.draw_index(5, seed))
    assert torch.equal(latent.kl, torch.zeros(B, T))
    trained = site(given, ScoreFunction(5, NoBaseline()), seed=seed)
    assert torch.equal(trained.draw.index, q.draw_index(5, seed))
    torch.testing.assert_close(trained.kl, kl_divergence(q, p))
    with pytest.raises(ValueError, match=r"InferenceNetwork reads Given.target, which is absent"):
        site(without_target, Mean())


def test_bayesian_attention_predicts_with_its_posterior() -> None:
    site = Site("a", prior=KeyPrior(D, GammaPrior()), posterior=FromScores(Weibull(2.0)))
    given, seed = make_given(), torch.tensor(3)
    trained, predicted = site(given, Pathwise(), seed=seed), site.predict(given, Pathwise(), seed=seed)
    assert torch.equal(trained.draw.value, predicted.draw.value)
    assert torch.equal(trained.kl, predicted.kl)
    assert trained.kl.min() > 0
    assert torch.equal(site.expected(given), site.posterior(given).plug_in)


# Replay


ESTIMATORS = [
    (Mean(), "weibull"),
    (Pathwise(3), "weibull"),
    (Pathwise(2), "gaussian"),
    (ScoreFunction(2), "one-hot"),
    (ScoreFunction(3, LeaveOneOut()), "one-hot"),
    (Enumerate(2), "one-hot"),
    (TopKAndSample(2), "one-hot"),
    (Pathwise(), "autoregressive"),
]


def site_of(kind: str) -> Site:
    if kind == "weibull":
        return Site("a", prior=KeyPrior(D, GammaPrior()), posterior=FromScores(Weibull(2.0)))
    if kind == "gaussian":
        return Site("a", prior=StandardNormal(D), posterior=FromContext(D))
    if kind == "autoregressive":
        return Site("a", prior=autoregressive(), posterior=GaussianHead(D, D))
    return Site("a", prior=FromScores(Categorical()), posterior=inference())


@pytest.mark.parametrize(("estimator", "kind"), ESTIMATORS, ids=[f"{e} {k}" for e, k in ESTIMATORS])
def test_replay_gives_the_same_draw(estimator: Estimator, kind: str) -> None:
    """Bit for bit, and differentiable anew."""
    site = site_of(kind)
    given = make_given()
    for leaf in (given.scores, given.context, given.target):
        leaf.requires_grad_()
    latent = site(given, estimator)
    replayed = site.replay(given, estimator, latent.seed).draw
    for name in ("value", "index", "log_weight", "log_posterior", "log_prior", "score"):
        before, after = getattr(latent.draw, name), getattr(replayed, name)
        assert (before is None) == (after is None), name
        assert before is None or torch.equal(before, after), name
    differentiable = [
        (getattr(latent.draw, name), getattr(replayed, name)) for name in ("value", "log_weight", "log_posterior")
    ]
    pairs = [(a, b) for a, b in differentiable if a is not None and a.requires_grad]
    assert pairs
    leaf = {"weibull": given.scores, "one-hot": given.target}.get(kind, given.context)
    for before, after in pairs:
        grads = [
            torch.autograd.grad(x[torch.isfinite(x)].square().sum(), leaf, retain_graph=True)[0]
            for x in (before, after)
        ]
        assert torch.equal(*grads)


def test_seeds_come_from_the_generator_of_torch() -> None:
    site, given = site_of("weibull"), make_given()
    torch.manual_seed(1)
    first, second = site(given, Pathwise()), site(given, Pathwise())
    torch.manual_seed(1)
    again = site(given, Pathwise())
    assert not torch.equal(first.seed, second.seed)
    assert not torch.equal(first.draw.value, second.draw.value)
    assert torch.equal(first.draw.value, again.draw.value)


# The KL


def test_the_closed_form_is_used_where_there_is_one() -> None:
    site, given = site_of("weibull"), make_given()
    latent = site(given, Pathwise(2))
    assert latent.draw.log_prior is not None
    torch.testing.assert_close(latent.kl, kl_divergence(site.posterior(given), site.prior(given)))


def test_monte_carlo_where_there_is_no_closed_form() -> None:
    """KL of two Concrete distributions, against torch's own densities and sampler; fixed seeds, z-score."""
    scores = torch.tensor([1.0, -0.5, 0.3]).double()
    other = torch.tensor([-0.2, 0.4, 0.0]).double()
    given = make_given()
    memory = replace(given.memory, support=type(given.memory.support)())
    given = Given(memory, query=other.view(1, 1, 3), scores=scores.view(1, 1, 3))

    class FromQuery(Conditional):
        def forward(self, given: Given) -> object:
            return GumbelSoftmax(0.7)(given.query, given.memory.support)

    site = Site("a", prior=FromQuery(), posterior=FromScores(GumbelSoftmax(0.7)))
    latent = site(given, Pathwise(20000), seed=torch.tensor(3))
    terms = latent.draw.log_posterior - latent.draw.log_prior
    torch.testing.assert_close(latent.kl, terms.mean(dim=0))
    q, p = (ExpRelaxedCategorical(torch.tensor(0.7).double(), logits=x) for x in (scores, other))
    sample = q.sample((20000,))
    reference = q.log_prob(sample) - p.log_prob(sample)
    error = (terms.var() / terms.numel() + reference.var() / reference.numel()).sqrt()
    assert abs((latent.kl.item() - reference.mean().item()) / error) < 4
    assert latent.kl.item() > 10 * error  # the two laws do differ


def test_the_monte_carlo_kl_is_differentiable() -> None:
    site = Site("a", prior=Fixed(GammaPrior(), 1.0), posterior=FromScores(Lognormal(0.5)))
    given = make_given()
    given.scores.requires_grad_()
    (grad,) = torch.autograd.grad(site(given, Pathwise(4)).kl.sum(), given.scores)
    assert torch.isfinite(grad).all()
    assert grad[0].abs().min() > 0


@pytest.mark.parametrize("estimator", [Mean(), Pathwise(keeps_log_probs=False)], ids=repr)
def test_no_closed_form_and_no_densities(estimator: Estimator) -> None:
    site = Site("a", prior=Fixed(GammaPrior(), 1.0), posterior=FromScores(Lognormal(0.5)))
    match = r"site 'a': no closed-form KL .* for \(NormalisedLognormal, NormalisedGamma\).*Register one .* use Pathwise"
    with pytest.raises(ValueError, match=match):
        site(make_given(), estimator)


class Spy(Conditional):
    """A prior that reads the draw and keeps what it saw."""

    needs = frozenset({"value"})

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor | None] = []

    def forward(self, given: Given) -> DiagonalGaussian:
        self.seen.append(given.value)
        return DiagonalGaussian(given.value[0] * 0.5, torch.zeros_like(given.value[0]))


def test_a_prior_of_the_value_is_evaluated_after_the_draw() -> None:
    spy = Spy()
    latent = Site("a", prior=spy, posterior=FromContext(D))(replace(make_given(), value=None), Pathwise())
    (seen,) = spy.seen
    assert seen is latent.draw.value
    assert latent.kl.shape == (B, T)
    assert latent.draw.log_prior is not None


# Penalties


class NearestCode(Conditional):
    def __init__(self) -> None:
        super().__init__()
        self.codes = nn.Parameter(torch.randn(6, D))

    def forward(self, given: Given) -> CodeDelta:
        return CodeDelta(given.context, self.codes)


def test_penalties_reach_the_receipt_and_the_loss() -> None:
    site = Site("code", prior=None, posterior=NearestCode(), unit="example")
    given = make_given()
    given.context.requires_grad_()
    latent = site(given, Pathwise())
    chosen = site.posterior.codes[torch.cdist(given.context, site.posterior.codes).argmin(dim=-1)]
    commitment = (given.context - chosen).square().sum(dim=-1)  # (B, T)
    torch.testing.assert_close(latent.penalties["commitment"], commitment)
    evaluation = Evaluation(torch.full((1, B), -2.0), [latent])
    full, quarter = Elbo()(evaluation), Elbo()(evaluation, weights={"code/commitment": 0.25})
    torch.testing.assert_close(full.loss, 2.0 + commitment.sum(dim=-1))
    torch.testing.assert_close(quarter.loss, 2.0 + 0.25 * commitment.sum(dim=-1))
    torch.testing.assert_close(full.bound, torch.full((B,), -2.0))
    torch.testing.assert_close(full.penalties["code/commitment"], commitment.sum(dim=-1).detach())
    (grad,) = torch.autograd.grad(full.loss.sum(), given.context)
    torch.testing.assert_close(grad, 2.0 * (given.context - chosen))


# Terms of the KL


def test_terms_are_kept_on_request_only() -> None:
    assert site_of("weibull")(make_given(), Pathwise()).kl_terms is None


@pytest.mark.parametrize("extra", [0, 2])
def test_terms_of_weights_add_up_to_the_kl(extra: int) -> None:
    """Also behind padding, where entries are not part of the KL."""
    site = Site("a", prior=KeyPrior(D, GammaPrior()), posterior=FromScores(Weibull()), keeps_kl_terms=True)
    latent = site(make_given(extra), Pathwise())
    assert latent.kl_terms.shape == (B, T, S + extra)
    torch.testing.assert_close(latent.kl_terms.sum(dim=-1), latent.kl)
    torch.testing.assert_close(FreeBits(-1e9, per="factor")(latent), latent.kl)


def test_terms_of_padded_units_are_zero() -> None:
    """Else free bits per factor would press what is not there."""
    site = Site("a", prior=StandardNormal(D), posterior=FromContext(D), keeps_kl_terms=True)
    mask = torch.tensor([[True, True, True], [True, False, False]])
    given = replace(make_given(), mask=mask)
    given.context.requires_grad_()
    latent = site(given, Pathwise())
    torch.testing.assert_close(latent.kl_terms.sum(dim=-1), latent.kl)
    (grad,) = torch.autograd.grad(FreeBits(0.01, per="factor")(latent).sum(), given.context)
    assert torch.equal(grad.abs().sum(dim=-1) > 0, mask)


def test_no_terms_where_the_kl_has_none() -> None:
    site = Site("a", prior=FromScores(Categorical()), posterior=inference(), keeps_kl_terms=True)
    assert site(make_given(), Mean()).kl_terms is None
    alone = Site("a", prior=None, posterior=FromScores(Weibull()), keeps_kl_terms=True)
    assert alone(make_given(), Mean()).kl_terms is None


def test_densities_of_different_variables_are_not_compared() -> None:
    site = pa.Site("w", prior=pa.FromScores(pa.Dirichlet()), posterior=pa.FromScores(pa.Weibull(3.0)))
    memory = pa.Memory(keys=torch.zeros(1, 3, 2), values=torch.zeros(1, 3, 2), support=pa.Dense())
    with pytest.raises(ValueError, match="log S for one and W for the other"):
        site(pa.Given(memory=memory, scores=torch.zeros(1, 2, 3)), pa.Pathwise())
