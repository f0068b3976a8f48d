"""Graph attention by way of the kernel gives what it gives by way of its site, or leaves it to the site."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from probattn import (
    Categorical,
    Elbo,
    Fixed,
    FromScores,
    GammaPrior,
    KeyPrior,
    Lognormal,
    LognormalPrior,
    Mean,
    Pathwise,
    Site,
    Uniform,
    Weibull,
)
from probattn.core import Estimator, Support, Terms
from probattn.data.graphs import block_model
from probattn.distributions import MaskedOneHot, NormalisedWeibull
from probattn.kernels import native, self_test
from probattn.models.gat import GAT, GraphAttention, neighbourhoods
from probattn.nn import Conditional, Dropout
from probattn.nn.fused_graph import visit_fused

HEADS, WIDTH = 2, 4
ONE_DRAW = Pathwise(keeps_log_probs=False)
WEIBULL, LOGNORMAL = Weibull(2.0, anchor="softmax"), Lognormal(0.7)
PRIORS: dict[str, Callable[[], Conditional | None]] = {
    "weibull": lambda: None,
    "weibull-fixed": lambda: Fixed(GammaPrior(rate=0.5), 0.3),
    "weibull-keys": lambda: KeyPrior(WIDTH, GammaPrior(rate=2.0, concentration="psi_rate"), num_heads=HEADS, scale=9.0),
    "lognormal": lambda: None,
    "lognormal-fixed": lambda: Fixed(LognormalPrior(sigma=2.0), 0.3),
    "lognormal-keys": lambda: KeyPrior(WIDTH, LognormalPrior(sigma=2.0, location="log_psi")),
}


def model(make: Callable[[], Site]) -> GAT:
    torch.manual_seed(0)
    layer = GraphAttention(6, WIDTH, num_heads=HEADS, weights=make(), concatenates=False)
    return GAT([layer]).double()


def outcome(gat: GAT, estimator: Estimator) -> tuple[Terms, list[Tensor]]:
    graph = block_model(60, num_classes=3, num_features=6, train_per_class=5)
    support = neighbourhoods(graph.edges, graph.num_nodes)
    features, nodes = graph.features.double(), graph.train
    gat.zero_grad()
    evaluation = gat(
        features,
        support,
        labels=graph.labels,
        nodes=nodes,
        estimators={"weights": estimator},
        seed=torch.tensor(5),
    )
    terms = Elbo()(evaluation)
    terms.loss.sum().backward()
    return terms, [torch.zeros(()) if p.grad is None else p.grad.clone() for p in gat.parameters()]


@pytest.mark.usefixtures("native_kernels")
@pytest.mark.parametrize("estimator", [Mean(), ONE_DRAW], ids=["mean", "draw"])
@pytest.mark.parametrize("kind", PRIORS)
def test_bayesian_sites(kind: str, estimator: Estimator) -> None:
    family = WEIBULL if kind.startswith("weibull") else LOGNORMAL
    gat = model(lambda: Site("weights", prior=PRIORS[kind](), posterior=FromScores(family)))
    fused = outcome(gat, estimator)
    with native.switched(False):
        plain = outcome(gat, estimator)
    assert torch.allclose(fused[0].loss, plain[0].loss, rtol=1e-9)
    assert torch.allclose(fused[0].cost, plain[0].cost, rtol=1e-9)
    for mine, theirs in zip(fused[1], plain[1], strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-7, atol=1e-10)


@pytest.mark.usefixtures("native_kernels")
def test_soft_attention() -> None:
    gat = model(lambda: Site("weights", prior=FromScores(Categorical()), posterior=None))
    fused = outcome(gat, Mean())
    with native.switched(False):
        plain = outcome(gat, Mean())
    assert torch.allclose(fused[0].loss, plain[0].loss, rtol=1e-9)
    assert float(fused[0].cost.detach()) == 0.0


def visit(site: Site, estimator: Estimator, **changes: object) -> object:
    graph = block_model(60, num_classes=3, num_features=6, train_per_class=5)
    layer = GraphAttention(6, WIDTH, num_heads=HEADS, weights=site)
    nodes = layer.project(graph.features).view(-1, HEADS, WIDTH)
    arguments = {
        "nodes": nodes,
        "support": neighbourhoods(graph.edges, graph.num_nodes),
        "score": layer.score,
        "dropout": Dropout(0.0),
        "seed": None,
        **changes,
    }
    return visit_fused(site, estimator, **arguments)  # type: ignore[arg-type]


@pytest.mark.usefixtures("native_kernels")
def test_what_the_kernel_does_not_know_goes_to_the_site() -> None:
    bayesian = Site("weights", prior=None, posterior=FromScores(WEIBULL))
    assert visit(bayesian, ONE_DRAW) is not None
    assert visit(bayesian, Pathwise(num_samples=2, keeps_log_probs=False)) is None
    assert visit(bayesian, Pathwise()) is None  # densities of the draws
    assert visit(bayesian, ONE_DRAW, dropout=Dropout(1.0)) is None
    soft = Site("weights", prior=FromScores(Categorical()), posterior=None)
    assert visit(soft, Mean()) is not None
    per_set = KeyPrior(WIDTH, GammaPrior(), normalises="set")
    for prior in (per_set, Uniform(GammaPrior())):
        assert visit(Site("weights", prior=prior, posterior=FromScores(WEIBULL)), ONE_DRAW) is None
    terms = Site("weights", prior=Fixed(GammaPrior(), 1.0), posterior=FromScores(WEIBULL), keeps_kl_terms=True)
    assert visit(terms, ONE_DRAW) is None
    with native.switched(False):
        assert visit(bayesian, ONE_DRAW) is None


@pytest.mark.usefixtures("native_kernels")
def test_predictions_leave_the_kl_out_and_change_nothing_else() -> None:
    gat = model(lambda: Site("weights", prior=PRIORS["weibull-keys"](), posterior=FromScores(WEIBULL)))
    graph = block_model(60, num_classes=3, num_features=6, train_per_class=5)
    support = neighbourhoods(graph.edges, graph.num_nodes)
    options = {"estimators": {"weights": ONE_DRAW}, "seed": torch.tensor(3)}
    logits, latents = gat.logits(graph.features.double(), support, **options)  # type: ignore[arg-type]
    assert torch.equal(gat.predict(graph.features.double(), support, **options), logits)  # type: ignore[arg-type]
    assert float(latents[0].kl.detach().sum()) > 0.0


@pytest.mark.usefixtures("native_kernels")
def test_nan_scores_are_named() -> None:
    with pytest.raises(ValueError, match="attention scores"):
        visit(
            Site("weights", prior=None, posterior=FromScores(WEIBULL)),
            ONE_DRAW,
            nodes=torch.full((60, HEADS, WIDTH), torch.nan),
        )


@pytest.mark.usefixtures("native_kernels")
@pytest.mark.parametrize("rate", [0.6, 1.0])
def test_dropout_masks_are_the_same_on_both_ways(rate: float) -> None:
    torch.manual_seed(0)
    site = Site("weights", prior=PRIORS["weibull-keys"](), posterior=FromScores(WEIBULL))
    gat = GAT([GraphAttention(6, WIDTH, num_heads=HEADS, weights=site, dropout=rate)]).double().train()
    fused = outcome(gat, ONE_DRAW)
    with native.switched(False):
        plain = outcome(gat, ONE_DRAW)
    for mine, theirs in zip(fused[1], plain[1], strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-7, atol=1e-10)


@pytest.mark.usefixtures("native_kernels")
def test_the_self_test_finds_rounding_only() -> None:
    differences = self_test()
    assert differences["noise"] == 0.0
    assert all(difference < 1e-5 for difference in differences.values())
    assert max(differences.values()) > 0.0  # two ways were compared, not one with itself


class Tempered(Weibull):
    """Another law than its base's."""

    def __call__(self, scores: Tensor, support: Support) -> NormalisedWeibull:
        return super().__call__(0.3 * scores, support)


class Blunt(Categorical):
    """The same for a choice."""

    def __call__(self, scores: Tensor, support: Support) -> MaskedOneHot:
        return super().__call__(0.3 * scores, support)


@pytest.mark.usefixtures("native_kernels")
@pytest.mark.parametrize(
    ("conditionals", "estimator"),
    [
        ({"prior": None, "posterior": FromScores(Tempered(2.0, anchor="softmax"))}, ONE_DRAW),
        ({"prior": FromScores(Blunt()), "posterior": None}, Mean()),
    ],
    ids=["weibull", "soft"],
)
def test_a_subclass_is_not_taken_for_its_base(
    conditionals: dict[str, Conditional | None], estimator: Estimator
) -> None:
    gat = model(lambda: Site("weights", **conditionals))
    fused = outcome(gat, estimator)[0]
    with native.switched(False):
        plain = outcome(gat, estimator)[0]
    assert torch.allclose(fused.loss, plain.loss, rtol=1e-9)
