"""Models of one's own from sites and families: what is silently wrong elsewhere is right here, or refused."""

import pytest
import torch
from torch import Tensor, nn

import probattn as pa
from probattn.core import Estimator, FreeBits, Support
from probattn.distributions import (
    DiagonalGaussian,
    Family,
    NormalisedLognormal,
    PriorFamily,
    WeightsDistribution,
    kl,
    kl_entries,
    register_kl,
    register_kl_entries,
)
from probattn.nn import Dot, FromScores, KeyPrior
from probattn.nn.functional import scaled_dot_product_attention


def inputs(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("family", [pa.GumbelSoftmax(0.1), pa.StraightThroughGumbel(0.5), pa.Weibull(2.0, "softmax")])
@pytest.mark.parametrize("need_weights", [True, False])
def test_the_smallest_float_hides_a_position(family: Family, need_weights: bool) -> None:
    """As in many causal masks; divided by a temperature below one it overflows."""
    x, later = inputs(1, 3, 8), torch.ones(3, 3).triu(1).bool()
    prior = None if not isinstance(family, pa.Weibull) else pa.Fixed(pa.GammaPrior(), 1.0)
    made = []
    for lowest in (torch.finfo(torch.float32).min, -torch.inf):
        mask = torch.zeros(3, 3).masked_fill(later, lowest)
        made.append(
            scaled_dot_product_attention(
                x, x, x, mask, family=family, prior=prior, need_weights=need_weights, seed=torch.tensor(1)
            )
        )
    torch.testing.assert_close(made[0].context, made[1].context)
    torch.testing.assert_close(made[0].kl, made[1].kl)
    assert made[0].weights is None or float(made[0].weights[..., later].abs().max()) == 0.0


def test_masks_have_the_shapes_that_torch_takes() -> None:
    layer = pa.MultiheadAttention(8, 2, batch_first=True)
    x = inputs(2, 4, 8)
    per_example = torch.zeros(2, 4, 4, dtype=torch.bool)
    per_example[1, :, 2:] = True
    with pytest.raises(ValueError, match=r"attn_mask \(4, 4\), or \(4, 4, 4\) .*got \(2, 4, 4\).*repeat_inter"):
        layer(x, x, x, attn_mask=per_example)
    weights = layer(x, x, x, attn_mask=per_example.repeat_interleave(2, dim=0))[1].detach()
    assert float(weights[1, :, 2:].sum()) == 0.0 and float(weights[0, :, 2:].min()) > 0.0
    for mask in (torch.zeros(4, 1), torch.zeros(1, 4), torch.zeros(1, 1, 4, 4)):
        with pytest.raises(ValueError, match="expected attn_mask"):
            layer(x, x, x, attn_mask=mask)
    for padding in (torch.zeros(1, 4), torch.zeros(4)):
        with pytest.raises(ValueError, match=r"expected key_padding_mask \(2, 4\)"):
            layer(x, x, x, key_padding_mask=padding.bool())


def test_padded_queries_are_in_no_bound() -> None:
    torch.manual_seed(0)
    layer = pa.MultiheadAttention(
        8, 2, batch_first=True, family=pa.Lognormal(0.5), prior=pa.Fixed(pa.LognormalPrior(), 1.0)
    )
    layer.estimator = pa.Pathwise()
    pa.set_sampling(layer, True, seed=3)
    x, padding = inputs(2, 4, 8), torch.tensor([[False] * 4, [False, False, True, True]])
    found = []
    for other in (0.0, 7.0):
        filled = x.masked_fill(padding.unsqueeze(-1), other)
        latent = layer.forward_with_latents(filled, filled, filled, key_padding_mask=padding)[1].latent
        evaluation = pa.Evaluation(torch.zeros(1, 2), (latent,))
        bounds = [pa.ImportanceWeighted()(evaluation).bound, pa.Elbo({"attention": FreeBits(100.0)})(evaluation).loss]
        found.append(torch.stack([bound.detach() for bound in bounds]))
    torch.testing.assert_close(found[0], found[1])
    assert float(found[0][1, 1]) == pytest.approx(0.5 * float(found[0][1, 0]))  # half of its queries are there


def test_a_kl_of_ones_own_has_no_terms_of_its_base() -> None:
    class Sharper(DiagonalGaussian):
        pass

    @register_kl(Sharper, DiagonalGaussian)
    def _(q: Sharper, p: DiagonalGaussian) -> Tensor:
        return 10.0 + 0.0 * q.location.sum(dim=-1)

    zeros = torch.zeros(2, 3)
    own, base = Sharper(zeros, zeros), DiagonalGaussian(zeros, zeros)
    assert kl_entries(own, base) is None and kl_entries(base, base) is not None


class Wide(NormalisedLognormal):
    """A distribution of one's own."""


@register_kl_entries(Wide, Wide)
def _wide_wide(q: Wide, p: Wide) -> Tensor:
    return 1.0 + (q.location - p.location).square()


class WideFamily(Family, PriorFamily):
    """A family of one's own, which is its own prior family."""

    def __call__(self, scores: Tensor, support: Support) -> WeightsDistribution:
        return Wide(support.log_softmax(scores).clamp(min=-50.0), 0.5, support=support)

    def usual_prior(self) -> PriorFamily:
        return self


def test_a_kl_of_ones_own_by_its_terms() -> None:
    mask = torch.tensor([[True, True, False], [True, True, True]])
    q, p = (WideFamily()(inputs(2, 3, seed=seed), pa.Dense(mask)) for seed in (1, 2))
    entries = kl_entries(q, p)
    assert entries is not None and entries.shape == (2, 3) and float(entries[0, 2]) == 0.0
    torch.testing.assert_close(kl(q, p), entries.sum(dim=-1))
    memory = pa.Memory(inputs(2, 3, 4), inputs(2, 3, 4), pa.Dense(mask.unsqueeze(1)))
    site = pa.Site("w", prior=KeyPrior(4, WideFamily()), posterior=FromScores(WideFamily()), keeps_kl_terms=True)
    latent = site(pa.Given(memory=memory, scores=inputs(2, 1, 3, seed=3)), pa.Pathwise())
    floored = FreeBits(5.0, per="factor")(latent).detach()
    terms = None if latent.kl_terms is None else latent.kl_terms.detach()
    assert terms is not None and float(terms.max()) < 5.0
    assert floored.tolist() == [[10.0], [15.0]]  # a floor for every position that is there, and none for padding


def test_contextual_is_the_prior_that_a_family_names() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True, dropout=0.0)
    pa.make_stochastic(layer, WideFamily(), "contextual")
    x = inputs(2, 3, 8)
    with pa.record_latents(layer) as record:
        layer(x)
    found = record.kl()
    assert float(found.detach().min()) >= 2 * 3 * 3  # every entry has more than a nat: heads, queries, keys
    found.sum().backward()
    assert all(one.grad is not None for name, one in layer.named_parameters() if ".prior." in name)


def test_a_prior_for_all_queries_draws_for_each_of_them() -> None:
    given = pa.Given(memory=pa.Memory(inputs(2, 3, 4), inputs(2, 3, 4), pa.Dense()), scores=inputs(2, 5, 3))
    site = pa.Site("a", prior=KeyPrior(4, pa.GammaPrior()), posterior=None)
    for visit in (site, site.predict):
        assert visit(given, pa.Pathwise()).draw.log_weight.shape == (1, 2, 5)
    hard = pa.Site("b", prior=KeyPrior(4, pa.Categorical()), posterior=FromScores(pa.Categorical()))  # type: ignore[arg-type]
    assert hard(given, pa.ScoreFunction()).draw.log_weight.shape == (2, 2, 5)  # a sample and the soft baseline


def test_relaxed_draws_have_no_density_under_a_hard_prior() -> None:
    site = pa.Site("a", prior=FromScores(pa.Categorical()), posterior=FromScores(pa.GumbelSoftmax(0.5)), unit="example")
    latent = site(
        pa.Given(memory=pa.Memory(inputs(2, 3, 4), inputs(2, 3, 4), pa.Dense()), scores=inputs(2, 3)), pa.Pathwise(3)
    )
    assert latent.draw.log_prior is None
    with pytest.raises(ValueError, match="ImportanceWeighted"):
        pa.ImportanceWeighted()(pa.Evaluation(torch.zeros(3, 2), (latent,)))


class Own(nn.Module):
    """A classifier that reads its input with a site of its own."""

    def __init__(self, estimator: Estimator):
        super().__init__()
        posterior = FromScores(pa.Weibull(2.0, anchor="softmax"))
        site = pa.Site("w", prior=None, posterior=posterior)
        self.attention = pa.Attention(Dot(), weights=site)
        self.head = nn.Linear(4, 3)
        self.estimator = estimator

    def forward(self, x: Tensor) -> Tensor:
        found = self.attention(x[:, :1], pa.Memory(x, x, pa.Dense()), estimators={"w": self.estimator})
        logits: Tensor = self.head(found.context[0, :, 0])
        return logits


def test_predictions_of_a_model_with_its_own_sites() -> None:
    x = inputs(5, 3, 4)
    prediction = pa.predict(Own(pa.Pathwise()), x, draws=4)
    assert prediction.num_draws == 4 and float(prediction.mutual_information.max()) > 1e-6
    plain = pa.predict(Own(pa.Mean()), x, noise=False)
    assert plain.num_draws == 1
    with pytest.raises(ValueError, match=r"noise=False.*outputs of Own differ.*Mean\(\)"):
        pa.predict(Own(pa.Pathwise()), x, noise=False)
