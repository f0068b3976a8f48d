"""Att2in: what enters where, one particle, padding, unbiased gradients of hard draws, stepping."""

import itertools
import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from probattn.core import (
    Draw,
    Elbo,
    Enumerate,
    Estimator,
    Mean,
    NoBaseline,
    Pathwise,
    ScoreFunction,
    SoftAttention,
)
from probattn.core.protocols import DiscreteDistribution, LatentDistribution
from probattn.data.caption_batches import PictureBatch
from probattn.decoding import Constraints, beam_search, greedy
from probattn.distributions import Categorical, GammaPrior, Weibull
from probattn.models.captioner import (
    Att2inCell,
    Captioner,
    with_sampled_kl,
    with_trajectory_baseline,
)
from probattn.models.captioner_stepper import CaptionerStepper
from probattn.models.recurrence import DecoderState
from probattn.models.regions import RegionEncoder
from probattn.nn import Additive, FromScores, InferenceNetwork, KeyPrior, Site

WORDS, FEATURES, REGIONS, CONTEXT, HIDDEN = 9, 5, 3, 6, 7


def hard_site() -> Site:
    return Site("weights", prior=FromScores(Categorical()), posterior=None, feeds_state=True)


def weibull_site() -> Site:
    prior = KeyPrior(CONTEXT, GammaPrior(rate=0.5), hidden_dim=2)
    return Site("weights", prior=prior, posterior=FromScores(Weibull(3.0)), feeds_state=True)


def captioner(site: Site, *, has_bridge: bool = True, dropout: float = 0.0) -> Captioner:
    torch.manual_seed(1)
    model = Captioner(
        nn.Embedding(WORDS, 4),
        RegionEncoder(FEATURES, CONTEXT, scale=2.0),
        score=Additive(HIDDEN, CONTEXT, hidden_dim=4),
        weights=site,
        hidden_dim=HIDDEN,
        bridge=nn.Linear(CONTEXT, 2 * HIDDEN) if has_bridge else None,
        dropout=dropout,
    )
    with torch.no_grad():
        for parameter in model.score.parameters():
            parameter.mul_(3.0)
    return model.double()


def batch(rows: int = 2, steps: int = 4) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(3)
    target = torch.randint(3, WORDS, (rows, steps), generator=draw)
    return {
        "features": torch.randn(rows, REGIONS, FEATURES, generator=draw, dtype=torch.float64),
        "region_mask": torch.ones(rows, REGIONS, dtype=torch.bool),
        "target_in": torch.cat([torch.ones(rows, 1, dtype=torch.int64), target[:, :-1]], dim=1),
        "target_out": target,
        "target_mask": torch.ones(rows, steps, dtype=torch.bool),
    }


def test_the_context_enters_the_candidate_and_not_the_gates() -> None:
    cell = Att2inCell(4, HIDDEN, context_dim=CONTEXT).double()
    draw = torch.Generator().manual_seed(0)
    word, hidden, before, context = (
        torch.randn(2, size, generator=draw, dtype=torch.float64) for size in (4, HIDDEN, HIDDEN, CONTEXT)
    )
    state = DecoderState(hidden, before, hidden[:, :0])
    found, after = cell(cell.words(word), state, context.unsqueeze(0))
    gates = cell.words(word) + cell.states(hidden)
    entry, keep, out = (torch.sigmoid(gates[:, i * HIDDEN : (i + 1) * HIDDEN]) for i in range(3))
    first = gates[:, 3 * HIDDEN : 4 * HIDDEN] + context @ cell.context.weight[:HIDDEN].T
    second = gates[:, 4 * HIDDEN :] + context @ cell.context.weight[HIDDEN:].T
    expected = keep * before + entry * torch.where(first > second, first, second)
    torch.testing.assert_close(after[0], expected)
    torch.testing.assert_close(found[0], out * torch.tanh(expected))


def test_padded_regions_and_words_change_nothing() -> None:
    model, plain = captioner(hard_site()), batch()
    expected = model(**plain, estimators={"weights": Mean()}).log_lik
    padded = {
        "features": torch.cat([plain["features"], torch.full((2, 2, FEATURES), 7.0, dtype=torch.float64)], dim=1),
        "region_mask": torch.cat([plain["region_mask"], torch.zeros(2, 2, dtype=torch.bool)], dim=1),
        **{name: torch.cat([plain[name], plain[name][:, :1]], dim=1) for name in ("target_in", "target_out")},
        "target_mask": torch.cat([plain["target_mask"], torch.zeros(2, 1, dtype=torch.bool)], dim=1),
    }
    found = model(**padded, estimators={"weights": Mean()}).log_lik
    torch.testing.assert_close(found[:, :, :-1], expected)
    assert bool((found[:, :, -1] == 0).all())


def test_features_are_read_in_their_own_unit() -> None:
    encoder = RegionEncoder(FEATURES, CONTEXT, scale=4.0)
    features = torch.randn(1, 2, FEATURES)
    torch.testing.assert_close(encoder(features), torch.relu(encoder.project(features / 4.0)))
    with pytest.raises(ValueError, match="scale.* must be positive, got 0.0"):
        RegionEncoder(FEATURES, CONTEXT, scale=0.0)


@pytest.mark.parametrize("has_bridge", [True, False])
def test_stepping_gives_the_probabilities_of_the_whole_caption(has_bridge: bool) -> None:
    model, inputs = captioner(hard_site(), has_bridge=has_bridge).eval(), batch()
    expected = model(**inputs, estimators={"weights": Mean()}).log_lik[0]
    stepper = CaptionerStepper(model, Mean())
    state = stepper.start(PictureBatch(inputs["features"], inputs["region_mask"]), {})
    assert stepper.weights(state) is None
    for step in range(inputs["target_in"].shape[1]):
        log_probs, state = stepper.step(state, inputs["target_in"][:, step])
        wanted = log_probs.gather(1, inputs["target_out"][:, step : step + 1]).squeeze(1)
        torch.testing.assert_close(wanted.float(), expected[:, step].float(), rtol=1e-5, atol=1e-5)
        weights = stepper.weights(state)
        assert weights is not None
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, dtype=torch.float64))


def test_a_wide_beam_is_not_worse_than_greedy_and_rows_do_not_mix() -> None:
    model, inputs = captioner(hard_site()).eval(), batch()
    constraints = Constraints(bos=1, eos=2, max_length=4, min_length=1, forbidden=(0, 1))
    pictures = PictureBatch(inputs["features"], inputs["region_mask"])
    stepper = CaptionerStepper(model, Mean())
    plain = greedy(stepper, pictures, constraints=constraints)
    wide = beam_search(stepper, pictures, constraints=constraints, beam_size=9)
    assert all(best[0].log_prob >= one.log_prob - 1e-9 for best, one in zip(wide, plain, strict=True))
    alone = greedy(stepper, PictureBatch(pictures.features[1:], pictures.region_mask[1:]), constraints=constraints)
    assert alone[0].tokens == plain[1].tokens


@dataclass(frozen=True)
class _Path(Estimator):
    """The hard draws of one path, the same for all rows: step by step."""

    positions: tuple[int, ...]
    taken: list[int]

    def __call__(self, posterior: LatentDistribution, prior: LatentDistribution | None, seed: Tensor) -> Draw:
        discrete: DiscreteDistribution = posterior  # type: ignore[assignment]
        shape = posterior.plug_in.shape[:-1]
        index = torch.full((1, *shape), self.positions[len(self.taken)])
        self.taken.append(1)
        log_prob = discrete.log_prob_index(index)
        return Draw(value=None, index=index, log_weight=torch.zeros_like(log_prob), log_posterior=log_prob)


def _score_gradient(model: Captioner, inputs: dict[str, Tensor], has_baseline: bool) -> Tensor:
    evaluation = model(**inputs, estimators={"weights": ScoreFunction(1, NoBaseline())})
    if has_baseline:
        with torch.no_grad():
            evaluation = with_trajectory_baseline(evaluation, model(**inputs, estimators={"weights": Mean()}))
    loss = Elbo()(evaluation).loss.mean()
    return torch.cat([one.flatten() for one in torch.autograd.grad(loss, list(model.score.parameters()))])


@pytest.mark.parametrize("has_baseline", [False, True])
def test_hard_draws_have_the_gradient_of_all_paths_together(has_baseline: bool) -> None:
    model, one = captioner(hard_site()), batch(rows=1, steps=3)
    total = torch.zeros((), dtype=torch.float64)
    for positions in itertools.product(range(REGIONS), repeat=3):
        found = model(**one, estimators={"weights": _Path(positions, [])})
        log_prob = found.latents[0].draw.log_posterior
        total = total + log_prob.sum().exp() * found.log_lik.sum()
    exact = -torch.cat([part.flatten() for part in torch.autograd.grad(total, list(model.score.parameters()))])
    many = {name: value.expand(100, *value.shape[1:]).contiguous() for name, value in one.items()}
    draws = torch.stack([_score_gradient(model, many, has_baseline) for _ in range(40)])
    moves = draws.std(dim=0) > 1e-9  # a region feature that is zero everywhere has no gradient
    z_scores = ((draws.mean(dim=0) - exact) / (draws.std(dim=0) / math.sqrt(len(draws))))[moves]
    assert float(z_scores.abs().max()) < 4.0  # they are far from independent
    assert float(exact.abs().max()) > 1e-3  # there is a gradient to miss


def test_the_soft_trajectory_lowers_the_variance() -> None:
    model, inputs = captioner(hard_site()), batch(rows=1, steps=5)
    spread = [
        float(torch.stack([_score_gradient(model, inputs, has_baseline) for _ in range(40)]).var(dim=0).sum())
        for has_baseline in (False, True)
    ]
    assert spread[1] < 0.7 * spread[0]


def test_a_soft_baseline_branches_off_one_step_only() -> None:
    model, inputs = captioner(hard_site()).float(), batch()
    inputs["features"] = inputs["features"].float()
    found = model(**inputs, estimators={"weights": ScoreFunction(1, SoftAttention())}, bound=Elbo())
    assert found.log_lik.shape == (2, 2, 4)
    Elbo()(found).loss.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_sampled_kl_has_the_closed_form_as_its_mean() -> None:
    model, one = captioner(weibull_site()), batch(rows=1, steps=2)
    many = {name: value.expand(3000, *value.shape[1:]).contiguous() for name, value in one.items()}
    with torch.no_grad():
        evaluation = model(**many, estimators={"weights": Pathwise()})
        closed, sampled = (found.latents[0].kl[:, 0] for found in (evaluation, with_sampled_kl(evaluation)))
    z_score = (sampled.mean() - closed.mean()) / (sampled.std() / math.sqrt(len(sampled)))
    assert abs(float(z_score)) < 4.0
    assert float(closed.std()) < 1e-9 < float(sampled.std())
    with pytest.raises(ValueError, match=r"needs Pathwise\(keeps_log_probs=True\)"):
        with_sampled_kl(model(**one, estimators={"weights": Pathwise(keeps_log_probs=False)}))


def test_trace_gives_prior_and_posterior_of_every_word() -> None:
    model, inputs = captioner(weibull_site()).eval(), batch()
    steps = model.trace(inputs["features"], inputs["region_mask"], inputs["target_in"])
    assert len(steps) == 4
    weights = model(**inputs, estimators={"weights": Mean()}).latents[0].draw.value
    for number, step in enumerate(steps):
        torch.testing.assert_close(step.posterior.plug_in[:, 0], weights[0, :, number])  # type: ignore[attr-defined]
        assert step.prior is not None and step.prior is not step.posterior


def test_it_learns_eight_captions() -> None:
    model, inputs = captioner(weibull_site()).float(), batch(rows=8)
    inputs["features"] = inputs["features"].float()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(60):
        optimiser.zero_grad()
        evaluation = model(**inputs, estimators={"weights": Pathwise()}, bound=Elbo())
        Elbo()(evaluation, {"weights": 1e-3}).loss.mean().backward()
        optimiser.step()
    final = model(**inputs, estimators={"weights": Mean()}).log_lik.detach().mean()
    assert float(final) > -0.3


def test_what_cannot_work_is_refused() -> None:
    model, inputs = captioner(hard_site()), batch()
    with pytest.raises(ValueError, match="feeds the recurrence, so it has one sample, got 3"):
        model(**inputs, estimators={"weights": ScoreFunction(3, NoBaseline())})
    with pytest.raises(ValueError, match="by enumeration"):
        model(**inputs, estimators={"weights": Enumerate()})
    with pytest.raises(KeyError, match="site 'weights' needs an estimator"):
        model(**inputs, estimators={})
    with pytest.raises(ValueError, match="expected features of width 5, got 4"):
        model.encode(inputs["features"][..., :4], inputs["region_mask"])
    with pytest.raises(ValueError, match="build it with feeds_state=True"):
        captioner(Site("weights", prior=FromScores(Categorical()), posterior=None))
    network = InferenceNetwork(Additive(4, CONTEXT, hidden_dim=2), Categorical())
    with pytest.raises(ValueError, match="reads the caption"):
        captioner(Site("weights", prior=FromScores(Categorical()), posterior=network, feeds_state=True))
