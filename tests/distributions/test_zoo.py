"""What must hold for every family, on a padded batch with an empty row and on an edge list with an empty node."""

import copy
import pickle

import pytest
import torch
from torch import Tensor

from probattn.core import Dense, Segments
from probattn.core.noise import fresh_seed
from probattn.distributions import WeightsDistribution, has_kl, kl, kl_entries
from tests.core.problems import problem
from tests.distributions.laws import z_scores
from tests.distributions.zoo import (
    HEADS,
    ROWS,
    SETTINGS,
    Row,
    Setting,
    padded,
    units_without_padding,
    without_padding,
)

SEED = torch.tensor(2**45 + 3)


def _pair(row: Row) -> tuple[WeightsDistribution, WeightsDistribution]:
    q, p = (SETTINGS["dense"].make(one) for one in (row.family, row.prior))
    return q, p


def _has_entries(row: Row) -> bool:
    return kl_entries(*_pair(row)) is not None


def _has_densities_of_one_variable(row: Row) -> bool:
    """A relaxed choice has densities of its own, and a KL that is the choice's."""
    q, p = _pair(row)
    return q.raw_variable == p.raw_variable


POSTERIORS = [row for row in ROWS if row.prior is not None]
DIFFERENTIABLE = [row for row in ROWS if row.differentiation != "none"]
EXACT = [row for row in ROWS if row.differentiation == "exact"]
COMPARABLE = [row for row in POSTERIORS if _has_densities_of_one_variable(row)]
WITH_ENTRIES = [row for row in POSTERIORS if _has_entries(row)]
WITH_LIMIT = [row for row in ROWS if row.limit is not None]
all_rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
posterior_rows = pytest.mark.parametrize("row", POSTERIORS, ids=lambda row: row.name)
differentiable_rows = pytest.mark.parametrize("row", DIFFERENTIABLE, ids=lambda row: row.name)


@pytest.fixture(params=SETTINGS)
def setting(request) -> Setting:
    return SETTINGS[request.param]


def to_dense(setting: Setting, x: Tensor) -> Tensor:
    return problem().to_rows(x) if setting.name == "segments" else x


@all_rows
class TestWeights:
    def test_samples_are_weights(self, row: Row, setting: Setting):
        made = setting.make(row.family)
        weights = made.realise(made.draw_raw(50, SEED))
        assert weights.shape == (50, *setting.scores.shape)
        assert (weights >= 0).all()
        totals = setting.support.sum(weights)
        assert torch.allclose(totals, (~setting.is_empty).to(totals.dtype).expand_as(totals), atol=1e-12)
        assert (weights[:, ~setting.is_inside] == 0).all()

    def test_plug_in_is_weights(self, row: Row, setting: Setting):
        made = setting.make(row.family)
        assert made.plug_in.shape == setting.scores.shape
        totals = setting.support.sum(made.plug_in)
        assert torch.allclose(totals, (~setting.is_empty).to(totals.dtype), atol=1e-12)
        assert (made.plug_in[~setting.is_inside] == 0).all() and (made.plug_in >= 0).all()

    def test_plug_in_is_soft_attention(self, row: Row, setting: Setting):
        soft = setting.support.log_softmax(setting.scores).exp()
        is_soft = torch.allclose(setting.make(row.family).plug_in, soft, atol=1e-12)
        assert is_soft == row.plug_in_is_softmax

    def test_shapes(self, row: Row, setting: Setting):
        made = setting.make(row.family)
        assert isinstance(made, WeightsDistribution)
        assert made.batch_shape == setting.support.unit_shape(setting.scores)
        raw = made.draw_raw(3, SEED)
        assert raw.shape == (3, *setting.scores.shape) and raw.dtype == torch.float64
        assert made.log_prob(raw).shape == (3, *made.batch_shape)
        assert torch.isfinite(raw).all() and torch.isfinite(made.log_prob(raw)).all()

    def test_empty_sets_cost_nothing(self, row: Row, setting: Setting):
        made = setting.make(row.family)
        log_prob = made.log_prob(made.draw_raw(2, SEED))
        assert (log_prob[:, setting.is_empty] == 0).all()
        assert setting.is_empty.any() and (log_prob[:, ~setting.is_empty] != 0).any()

    def test_sets_do_not_share_noise(self, row: Row, setting: Setting):
        same = setting.make(row.family, torch.zeros_like(setting.scores))
        weights = to_dense(setting, same.realise(same.draw_raw(40, SEED)))
        assert not torch.equal(weights[:, 0, 0], weights[:, 1, 0])  # two heads
        assert not torch.equal(weights[0], weights[1])  # two particles

    def test_supports_agree_without_noise(self, row: Row, setting: Setting):
        made, dense = setting.make(row.family), SETTINGS["dense"].make(row.family)
        assert torch.allclose(to_dense(setting, made.plug_in), dense.plug_in)


@all_rows
class TestSeeds:
    def test_same_seed_same_numbers(self, row: Row, setting: Setting):
        made = setting.make(row.family)
        assert torch.equal(made.draw_raw(2, SEED), setting.make(row.family).draw_raw(2, SEED))
        assert not torch.equal(made.draw_raw(2, SEED), made.draw_raw(2, SEED + 1))

    def test_one_particle_is_the_first_of_several(self, row: Row, setting: Setting):
        made = setting.make(row.family)
        assert torch.equal(made.draw_raw(1, SEED), made.draw_raw(3, SEED)[:1])
        several = made.realise(made.draw_raw(3, SEED))
        assert torch.equal(made.realise(made.draw_raw(1, SEED)), several[:1])

    def test_torch_interface(self, row: Row, setting: Setting):
        made = setting.make(row.family, setting.scores.clone().requires_grad_())
        raw = made.sample((2,), seed=SEED)
        assert torch.equal(raw, made.draw_raw(2, SEED)) and not raw.requires_grad
        assert torch.equal(made.sample(seed=SEED), raw[0])
        torch.manual_seed(1)
        first = made.sample()
        torch.manual_seed(1)
        assert torch.equal(first, made.sample()) and not torch.equal(first, made.sample())
        if made.has_rsample:
            assert torch.equal(made.rsample((2,), seed=SEED), raw) and made.rsample().requires_grad
        else:
            with pytest.raises(NotImplementedError, match=f"{type(made).__name__} has no differentiable samples"):
                made.rsample()
        with pytest.raises(ValueError, match=r"at most one size \(the particles\), got \(2, 3\)"):
            made.sample((2, 3))

    def test_realise_without_a_particle_axis(self, row: Row, setting: Setting):
        made = setting.make(row.family)
        assert torch.equal(made.realise(made.sample(seed=SEED)), made.realise(made.sample((1,), seed=SEED))[0])


class TestPadding:
    @all_rows
    def test_padding_changes_nothing(self, row: Row, setting: Setting):
        made, (scores, support) = setting.make(row.family), padded(setting, setting.scores)
        wide = row.family(scores, support)
        raw, wide_raw = made.draw_raw(3, SEED), wide.draw_raw(3, SEED)
        inside = setting.is_inside
        close = {"rtol": 1e-12, "atol": 1e-14}
        assert torch.allclose(raw[:, inside], without_padding(setting, wide_raw)[:, inside], **close)
        weights, wide_weights = made.realise(raw), without_padding(setting, wide.realise(wide_raw))
        assert torch.allclose(weights, wide_weights, **close)
        assert torch.allclose(made.plug_in, without_padding(setting, wide.plug_in), **close)
        log_prob = units_without_padding(setting, wide.log_prob(wide_raw))
        assert torch.allclose(made.log_prob(raw), log_prob, rtol=1e-11)

    @posterior_rows
    def test_padding_changes_no_kl_and_no_gradient(self, row: Row, setting: Setting):
        def kl_and_gradient(scores: Tensor, other: Tensor, support) -> tuple[Tensor, Tensor, Tensor]:
            scores, other = scores.clone().requires_grad_(), other.clone().requires_grad_()
            divergence = kl(row.family(scores, support), row.prior(other, support))
            units = units_without_padding(setting, divergence)
            return units, *torch.autograd.grad(units.square().sum(), (scores, other))

        small = kl_and_gradient(setting.scores, setting.other_scores, setting.support)
        scores, support = padded(setting, setting.scores)
        other, _ = padded(setting, setting.other_scores)
        large = kl_and_gradient(scores, other, support)
        assert torch.allclose(small[0], large[0], rtol=1e-12) and small[0].abs().sum() > 0
        for own, wide in zip(small[1:], large[1:], strict=True):
            assert torch.allclose(own, without_padding(setting, wide), rtol=1e-11, atol=1e-14)
            assert (own[~setting.is_inside] == 0).all() and (own[setting.is_inside] != 0).any()

    @all_rows
    def test_what_stands_at_padded_positions_does_not_matter(self, row: Row):
        setting = SETTINGS["dense"]  # an edge list has no padding
        results = []
        for filling in (0.0, -80.0, float("nan")):
            scores = setting.scores.masked_fill(~setting.is_inside, filling).requires_grad_()
            made = setting.make(row.family, scores)
            raw = made.draw_raw(2, SEED)
            results.append(torch.stack([*made.realise(raw), made.plug_in]).detach())
            log_prob = made.log_prob(raw.detach())
            assert torch.isfinite(log_prob).all()
            (gradient,) = torch.autograd.grad(log_prob.sum() + made.plug_in.square().sum(), scores)
            assert torch.isfinite(gradient[setting.is_inside]).all()
            assert torch.isfinite(gradient).all(), "a padded score has a gradient that is not finite"
        assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


class TestGradients:
    @pytest.mark.parametrize("row", EXACT, ids=lambda row: row.name)
    def test_gradcheck_of_samples(self, row: Row, setting: Setting):
        def weights(scores: Tensor) -> Tensor:
            made = setting.make(row.family, scores)
            return made.realise(made.draw_raw(2, SEED))

        assert torch.autograd.gradcheck(weights, setting.scores.clone().requires_grad_())

    @all_rows
    def test_gradcheck_of_log_prob_and_plug_in(self, row: Row, setting: Setting):
        raw = setting.make(row.family).draw_raw(2, SEED)

        def both(scores: Tensor) -> tuple[Tensor, Tensor]:
            made = setting.make(row.family, scores)
            return made.log_prob(raw), made.plug_in

        assert torch.autograd.gradcheck(both, setting.scores.clone().requires_grad_())

    @posterior_rows
    def test_gradcheck_of_kl(self, row: Row, setting: Setting):
        def divergence(scores: Tensor, other: Tensor) -> Tensor:
            return kl(setting.make(row.family, scores), setting.make(row.prior, other))

        inputs = (setting.scores.clone().requires_grad_(), setting.other_scores.clone().requires_grad_())
        assert torch.autograd.gradcheck(divergence, inputs)

    @differentiable_rows
    def test_samples_reach_the_scores(self, row: Row, setting: Setting):
        scores = setting.scores.clone().requires_grad_()
        made = setting.make(row.family, scores)
        made.realise(made.draw_raw(4, SEED)).square().sum().backward()
        assert torch.isfinite(scores.grad).all()
        is_choice = setting.support.spread(setting.support.sum(torch.ones_like(scores)) > 1).expand_as(scores)
        moved = scores.grad != 0
        assert moved[is_choice & setting.is_inside].all() and not moved[~setting.is_inside].any()


class TestKl:
    @pytest.mark.parametrize("row", COMPARABLE, ids=lambda row: row.name)
    def test_monte_carlo(self, row: Row, setting: Setting):
        """Sampler, density and KL agree: a wrong one of the three is seen here."""
        q, p = setting.make(row.family), setting.make(row.prior, setting.other_scores)
        raw = q.draw_raw(4000, SEED)
        ratio = q.log_prob(raw) - p.log_prob(raw)
        assert (z_scores(ratio, kl(q, p)).abs() < 4.0).all()
        assert (ratio.std(dim=0)[~setting.is_empty] > 1e-3).any()  # else nothing was compared

    @posterior_rows
    def test_registered_positive_and_zero_for_empty_sets(self, row: Row, setting: Setting):
        q, p = setting.make(row.family), setting.make(row.prior, setting.other_scores)
        assert has_kl(type(q), type(p))
        divergence = kl(q, p)
        assert divergence.shape == q.batch_shape
        assert (divergence[setting.is_empty] == 0).all()
        sizes = setting.support.sum(torch.ones_like(setting.scores))
        assert (divergence[sizes > 1] > 0).all()

    @posterior_rows
    def test_supports_agree(self, row: Row, setting: Setting):
        q, p = setting.make(row.family), setting.make(row.prior, setting.other_scores)
        divergence = kl(q, p)
        dense = SETTINGS["dense"]
        expected = kl(dense.make(row.family), dense.make(row.prior, dense.other_scores))
        assert torch.allclose(divergence.T if setting.name == "segments" else divergence, expected)

    @pytest.mark.parametrize("row", WITH_ENTRIES, ids=lambda row: row.name)
    def test_entries_sum_to_the_kl(self, row: Row, setting: Setting):
        q, p = setting.make(row.family), setting.make(row.prior, setting.other_scores)
        entries = kl_entries(q, p)
        assert entries.shape == setting.scores.shape
        total = entries.sum(dim=-1) if setting.name == "dense" else setting.support.sum(entries)
        assert torch.allclose(total, kl(q, p))
        assert (entries[~setting.is_inside] == 0).all()


@all_rows
class TestNumerics:
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_is_computed_in_float32(self, row: Row, setting: Setting, dtype):
        scores = setting.scores.to(dtype).requires_grad_()
        made = setting.make(row.family, scores)
        raw = made.draw_raw(5, SEED)
        weights, log_prob = made.realise(raw), made.log_prob(raw)
        for result in (raw, weights, log_prob, made.plug_in):
            assert result.dtype == torch.float32 and torch.isfinite(result).all()
        exact = setting.make(row.family, scores.detach().double())
        assert torch.allclose(made.plug_in.double(), exact.plug_in, atol=1e-6)
        if row.prior is not None:
            divergence = kl(made, setting.make(row.prior, setting.other_scores.to(dtype)))
            assert divergence.dtype == torch.float32 and torch.isfinite(divergence).all()
        (made.plug_in.square().sum() + log_prob.sum()).backward()
        assert scores.grad.dtype == dtype and torch.isfinite(scores.grad).all()

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_scores_of_ten_thousand(self, row: Row, setting: Setting, dtype):
        scores = 1e4 * setting.scores.sign().to(dtype)
        if row in POSTERIORS:
            leaf = scores.requires_grad_()
        else:  # a prior is given the logarithm of something normalised
            leaf = setting.support.log_softmax(scores).detach().clamp(min=-2e4).requires_grad_()
        made = setting.make(row.family, leaf)
        raw = made.draw_raw(5, SEED)
        weights = made.realise(raw)
        for result in (raw, weights, made.plug_in):
            assert torch.isfinite(result).all()
        totals = setting.support.sum(weights)
        assert torch.allclose(totals, (~setting.is_empty).to(dtype).expand_as(totals), atol=1e-5)
        (weights.square().sum() + made.plug_in.square().sum()).backward()
        assert torch.isfinite(leaf.grad).all()

    def test_one_key(self, row: Row, setting: Setting):
        support = Dense() if setting.name == "dense" else Segments(torch.arange(3), 3)
        scores = torch.randn(2, 3, 1) if setting.name == "dense" else torch.randn(3, HEADS)
        made = row.family(scores.requires_grad_(), support)
        weights = made.realise(made.draw_raw(4, SEED))
        assert torch.allclose(weights, torch.ones_like(weights))
        assert torch.allclose(made.plug_in, torch.ones_like(made.plug_in))
        log_prob = made.log_prob(made.draw_raw(4, SEED))
        (made.plug_in.sum() + log_prob.sum()).backward()
        assert torch.isfinite(scores.grad).all()

    def test_no_keys(self, row: Row, setting: Setting):
        if setting.name == "dense":
            support, scores = Dense(), torch.zeros(2, 3, 0)
        else:
            support, scores = Segments(torch.zeros(0, dtype=torch.int64), 3), torch.zeros(0, HEADS)
        made = row.family(scores, support)
        assert made.plug_in.shape == scores.shape
        if row.differentiation == "none":
            with pytest.raises(ValueError, match="a hard choice needs at least one position, but the memory is empty"):
                made.draw_raw(2, SEED)
        else:
            assert made.realise(made.draw_raw(2, SEED)).shape == (2, *scores.shape)
            assert (made.log_prob(made.draw_raw(2, SEED)) == 0).all()


class TestObjects:
    @all_rows
    def test_deepcopy_and_pickle(self, row: Row, setting: Setting):
        made = setting.make(row.family)
        expected = made.draw_raw(2, SEED)
        assert torch.equal(copy.deepcopy(made).draw_raw(2, SEED), expected)
        assert torch.equal(pickle.loads(pickle.dumps(made)).draw_raw(2, SEED), expected)
        assert copy.deepcopy(row.family) == row.family

    @all_rows
    def test_meta_device(self, row: Row, setting: Setting):
        if setting.name == "dense":
            support = Dense(setting.support.mask.to("meta"))
        else:
            support = Segments(setting.support.index.to("meta"), setting.support.num_segments)
        scores = setting.scores.to("meta")
        made = row.family(scores, support)
        raw = made.draw_raw(2, fresh_seed("meta"))
        results = [raw, made.realise(raw)]
        assert made.log_prob(raw).shape == (2, *made.batch_shape)
        for result in results:
            assert result.is_meta and result.shape == (2, *scores.shape)
        if row.prior is not None:
            assert kl(made, row.prior(scores, support)).is_meta

    @pytest.mark.parametrize("row", WITH_LIMIT, ids=lambda row: row.name)
    def test_limit(self, row: Row, setting: Setting):
        made = setting.make(row.limit)
        weights = made.realise(made.draw_raw(20, SEED))
        if row.limit_is == "softmax":
            soft = setting.support.log_softmax(setting.scores).exp()
            assert torch.allclose(weights, soft.expand_as(weights), atol=1e-4)
        else:
            assert torch.allclose(weights, weights.round(), atol=1e-4)
        made = setting.make(row.family)
        ordinary = made.realise(made.draw_raw(20, SEED))
        # the straight-through family is one-hot at every temperature
        assert row.differentiation == "straight-through" or not torch.allclose(weights, ordinary, atol=1e-2)
