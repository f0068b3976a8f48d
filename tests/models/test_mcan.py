"""MCAN: overfits with soft and random attention, is blind to padding, and its receipts cover all units."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import probattn as pa
from probattn.models.mcan import Mcan
from probattn.models.vqa import QuestionEncoder, VqaInputs
from probattn.nn import MultiheadAttention
from tests.models.test_vqa import A, D, inputs

E = 16


def build(family: pa.Weibull | None = None, *, has_prior: bool = False, dropout: float = 0.0) -> Mcan:
    torch.manual_seed(0)

    def attention(name: str) -> MultiheadAttention:
        prior = pa.KeyPrior(E // 2, pa.GammaPrior(rate=1.0), hidden_dim=4) if has_prior else None
        return MultiheadAttention(E, 2, dropout, batch_first=True, family=family, prior=prior, name=name)

    question = QuestionEncoder(nn.Embedding(12, 7), E)
    return Mcan(question, attention, region_dim=D, num_layers=2, hidden_dim=24, num_answers=A, dropout=dropout)


@pytest.mark.parametrize("family", [None, pa.Weibull(10.0)])
def test_overfits_eight_questions(family: pa.Weibull | None) -> None:
    model = build(family)
    asked, answers = inputs()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(80):
        loss = pa.Elbo()(model(asked, answers)).loss.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with pa.sampling(model, False), torch.no_grad():
        assert torch.equal(model.predict(asked).log_probs.argmax(dim=-1), answers)


def test_receipts_of_all_units() -> None:
    asked, answers = inputs()
    assert build()(asked, answers).latents == ()
    model = build(pa.Weibull(10.0), has_prior=True)
    evaluation = model(asked, answers)
    names = ["words1", "words2", "regions1", "guided1", "regions2", "guided2"]
    assert [latent.name for latent in evaluation.latents] == names
    assert sorted(model.site_names) == sorted(names)
    kl = {latent.name: latent.kl for latent in evaluation.latents}
    assert kl["words1"].shape == (8, 2, 5) and kl["guided1"].shape == (8, 2, 4)
    assert bool((kl["words1"][1, :, 3:] == 0.0).all()), "padded words have no KL"
    assert bool((kl["guided1"][0, :, 3] == 0.0).all()), "padded regions have no KL"
    terms = pa.Elbo()(evaluation)
    torch.testing.assert_close(terms.cost, sum(one.flatten(1).sum(dim=-1) for one in kl.values()))


@pytest.mark.parametrize("has_prior", [False, True])
def test_padding_changes_nothing(has_prior: bool) -> None:
    model, (asked, answers) = build(pa.Weibull(10.0), has_prior=has_prior), inputs()
    more = VqaInputs(
        torch.cat([asked.regions, torch.full((8, 2, D), 50.0)], 1),
        torch.cat([asked.regions_mask, torch.zeros(8, 2, dtype=torch.bool)], 1),
        torch.cat([asked.words, torch.full((8, 1), 11)], 1),
        torch.cat([asked.words_mask, torch.zeros(8, 1, dtype=torch.bool)], 1),
    )
    with pa.sampling(model, False), torch.no_grad():
        one, other = (model(some, answers) for some in (asked, more))
        torch.testing.assert_close(one.log_lik, other.log_lik)
        torch.testing.assert_close(pa.Elbo()(one).cost, pa.Elbo()(other).cost)
        torch.testing.assert_close(model.predict(asked).weights, model.predict(more).weights[:, :4])


def test_draws_differ_and_plug_in_weights_are_soft_attention() -> None:
    asked, _ = inputs()
    random, soft = build(pa.Weibull(2.0)), build()
    with torch.no_grad():
        assert not torch.equal(random.predict(asked).log_probs, random.predict(asked).log_probs)
        with pa.sampling(random, False):
            torch.testing.assert_close(random.predict(asked).log_probs, soft.predict(asked).log_probs)


def test_features_of_another_width_are_refused() -> None:
    asked, answers = inputs()
    with pytest.raises(ValueError, match="expected regions of 6 features, got 2"):
        build()(replace(asked, regions=asked.regions[..., :2]), answers)
