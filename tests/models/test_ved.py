"""The variational encoder-decoder: overfits, ignores padding, sums its KL over steps, and knows no estimator."""

import pytest
import torch
from torch import Tensor, nn

import probattn as pa
from probattn.core import Estimator
from probattn.decoding import Constraints, beam_search, greedy
from probattn.models import DroppedEmbedding, Ved
from probattn.models.ved_stepper import VedStepper
from probattn.nn import Attention, Bilinear, BiLSTM, Bottleneck, Conditional, LayerNormLSTMCell

E, ENCODER, H, Z, WORDS = 12, 8, 16, 6, 20
C = 2 * ENCODER


def code_site(prior: bool = True) -> Bottleneck:
    given = pa.StandardNormal(Z) if prior else None
    posterior = pa.GaussianHead(C, Z)
    return Bottleneck(pa.Site("code", prior=given, posterior=posterior, unit="example", feeds_state=True))


def step_site(name: str, prior: Conditional | None, posterior: Conditional) -> pa.Site:
    return pa.Site(name, prior=prior, posterior=posterior, feeds_state=True)


def attention(kind: str) -> Attention | None:
    score = Bilinear(H, C)
    if kind == "none":
        return None
    if kind == "soft":
        return Attention(score)
    if kind == "weibull":
        prior = pa.KeyPrior(C, pa.GammaPrior())
        weights = step_site("attention", prior, pa.FromScores(pa.Weibull(5.0, anchor="softmax")))
        return Attention(score, weights=weights)
    if kind == "dirichlet":
        weights = step_site("attention", pa.Fixed(pa.DirichletPrior(), 1.0), pa.FromScores(pa.Dirichlet()))
        return Attention(score, weights=weights)
    prior = pa.StandardNormal(C) if kind == "zero" else pa.MeanMemory()
    return Attention(score, context=step_site("attention", prior, pa.FromContext(C)))


def build(kind: str = "zero", *, has_code: bool = True, code_prior: bool = True, bridge: bool = False) -> Ved:
    torch.manual_seed(0)
    chosen = attention(kind)
    width = E + (0 if chosen is None else C) + (Z if has_code else 0)
    return Ved(
        nn.Embedding(WORDS, E),
        nn.Embedding(WORDS, E),
        encoder=BiLSTM(E, ENCODER),
        decoder=LayerNormLSTMCell(width, H),
        code=code_site(code_prior) if has_code else None,
        attention=chosen,
        bridge=nn.Linear(C, 2 * H) if bridge else None,
    )


def batch(sentences: int = 8) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(1)
    source = torch.randint(4, WORDS, (sentences, 5), generator=draw)
    target = torch.randint(4, WORDS, (sentences, 6), generator=draw)
    inputs = torch.cat([torch.ones(sentences, 1, dtype=torch.long), target[:, :-1]], dim=1)
    return {
        "source": source,
        "source_mask": torch.arange(5) < torch.randint(2, 6, (sentences, 1), generator=draw),
        "target_in": inputs,
        "target_out": target,
        "target_mask": torch.arange(6) < torch.randint(3, 7, (sentences, 1), generator=draw),
    }


class Sources:
    """Source sentences of a batch, for decoding."""

    def __init__(self, data: dict[str, Tensor]):
        self.source, self.source_mask = data["source"], data["source_mask"]


PATHWISE = {"code": pa.Pathwise(), "attention": pa.Pathwise()}
MEAN = {"code": pa.Mean(), "attention": pa.Mean()}
KINDS = ("none", "soft", "zero", "mean", "weibull", "dirichlet")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("estimators", [MEAN, PATHWISE], ids=["mean", "pathwise"])
def test_overfits_eight_sentences(kind: str, estimators: dict[str, Estimator]) -> None:
    model, data = build(kind), batch()
    weights = {name: {"code": 0.001, "attention": 0.0001}[name] for name in model.sites}
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(120):
        optimiser.zero_grad()
        terms = pa.Elbo()(model(**data, estimators=estimators), weights)
        loss = terms.loss.mean()
        loss.backward()
        optimiser.step()
        losses.append(float(terms.log_lik.mean().detach()))
    assert losses[-1] > 0.1 * losses[0]  # log-likelihoods: close to zero at the end


def test_padding_changes_nothing() -> None:
    model, data = build("mean").eval(), batch()
    expected = model(**data, estimators=MEAN)
    wider = {
        name: torch.cat([value, (torch.zeros if value.dtype == torch.bool else torch.ones)(8, 3).to(value)], dim=1)
        for name, value in data.items()
    }
    found = model(**wider, estimators=MEAN)
    torch.testing.assert_close(found.log_lik[..., :6], expected.log_lik)
    for one, other in zip(pa.Elbo()(found).kl.values(), pa.Elbo()(expected).kl.values(), strict=True):
        torch.testing.assert_close(one, other)


def test_kl_is_the_sum_over_the_code_and_all_real_steps() -> None:
    """Eq. 8: KL(z) + sum over j of KL(a_j), padding left out."""
    model, data = build("zero"), batch()
    evaluation = model(**data, estimators=MEAN)
    code, steps = evaluation.latents
    assert (code.unit, code.kl.shape) == ("example", (8,))
    assert (steps.unit, steps.kl.shape) == ("step", (8, 6))
    terms = pa.Elbo()(evaluation)
    by_hand = steps.kl.masked_fill(~data["target_mask"], 0.0).sum(dim=1)
    torch.testing.assert_close(terms.kl["attention"], by_hand.detach())
    torch.testing.assert_close(terms.bound, terms.log_lik - terms.kl["code"] - by_hand.detach())


def test_posterior_mean_of_the_attention_vector_is_the_soft_context() -> None:
    soft, variational = build("soft").eval(), build("zero").eval()
    variational.load_state_dict(soft.state_dict(), strict=False)
    data = batch()
    expected = soft(**data, estimators={"code": pa.Mean()}).log_lik
    torch.testing.assert_close(variational(**data, estimators=MEAN).log_lik, expected)


def test_gradients_reach_both_sites_and_their_priors_keys() -> None:
    model, data = build("weibull"), batch()
    terms = pa.Elbo()(model(**data, estimators=PATHWISE))
    terms.loss.sum().backward()
    names = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert names == []


def test_without_attending_the_context_is_zero_and_the_site_is_not_visited() -> None:
    model, data = build("zero").eval(), batch()
    evaluation = model(**data, estimators=MEAN, attends=False)
    assert [latent.name for latent in evaluation.latents] == ["code"]
    moved = dict(data, source=data["source"].flip(0), source_mask=data["source_mask"].flip(0))
    read = model.encode(data["source"], data["source_mask"], MEAN)
    other = model.encode(moved["source"], moved["source_mask"], MEAN)
    swapped = type(read)(other.memory, other.summary, read.code)
    for source in (read, swapped):  # the decoder sees the source by its code alone
        hidden, _ = model.decode(source, data["target_in"], estimators=MEAN, attends=False)
        torch.testing.assert_close(hidden, model.decode(read, data["target_in"], estimators=MEAN, attends=False)[0])


def test_a_bridge_lets_the_source_pass_by_the_code() -> None:
    plain, bridged, data = build("none").eval(), build("none", bridge=True).eval(), batch()
    for model, passes in ((plain, False), (bridged, True)):
        read = model.encode(data["source"], data["source_mask"], MEAN)
        other = model.encode(data["source"].flip(0), data["source_mask"].flip(0), MEAN)
        swapped = type(read)(other.memory, other.summary, read.code)
        first, second = (model.decode(one, data["target_in"], estimators=MEAN)[0] for one in (read, swapped))
        assert torch.equal(first, second) is not passes


@pytest.mark.parametrize("kind", KINDS)
def test_stepping_gives_the_log_likelihoods_of_the_whole(kind: str) -> None:
    model, data = build(kind).eval(), batch()
    data["target_mask"] = torch.ones_like(data["target_mask"])
    expected = model(**data, estimators=MEAN).log_lik[0]
    stepper = VedStepper(model, MEAN)
    state = stepper.start(Sources(data), {})
    for step in range(6):
        log_probs, state = stepper.step(state, data["target_in"][:, step])
        found = log_probs.gather(1, data["target_out"][:, step : step + 1]).squeeze(1)
        torch.testing.assert_close(found, expected[:, step], rtol=1e-4, atol=1e-5)


def test_map_is_one_sentence_and_sampling_gives_others() -> None:
    model, data = build("zero").eval(), batch()
    constraints = Constraints(bos=1, eos=2, max_length=8, forbidden=(0, 1))
    stepper = VedStepper(model, MEAN)
    first, again = (greedy(stepper, Sources(data), constraints=constraints) for _ in range(2))
    assert [one.tokens for one in first] == [one.tokens for one in again]
    beams = beam_search(stepper, Sources(data), constraints=constraints, beam_size=3, num_return=2)
    assert all(best.score >= second.score for best, second in beams)
    sampled = [greedy(VedStepper(model, PATHWISE), Sources(data), constraints=constraints) for _ in range(5)]
    assert len({tuple(one.tokens for one in draw) for draw in sampled}) > 1


def test_word_dropout_replaces_a_share_of_the_words_but_not_the_first() -> None:
    torch.manual_seed(0)
    words = torch.full((200, 50), 7)
    layer = DroppedEmbedding(WORDS, E, rate=0.25, unknown=3)
    found = layer.dropped(words)
    assert torch.equal(found[:, 0], words[:, 0])
    share = float((found[:, 1:] == 3).float().mean())
    assert abs(share - 0.25) < 0.02
    is_kept = (layer(words) == layer.weight[7]).all(dim=-1)
    assert 0.7 < float(is_kept[:, 1:].float().mean()) < 0.8
    assert bool((layer.eval()(words) == layer.weight[7]).all())
    with pytest.raises(ValueError, match="probability below one"):
        DroppedEmbedding(WORDS, E, rate=1.0, unknown=3)


def test_bad_use_is_refused_by_name() -> None:
    model, data = build("zero"), batch()
    with pytest.raises(KeyError, match="site 'code' needs an estimator"):
        model(**data, estimators={"attention": pa.Mean()})
    with pytest.raises(ValueError, match="repeat its row K times"):
        model(**data, estimators={"code": pa.Pathwise(3), "attention": pa.Mean()})
    with pytest.raises(ValueError, match="repeat its row K times"):
        model(**data, estimators={"code": pa.Mean(), "attention": pa.Pathwise(3)})
    step = pa.Site("code", prior=pa.StandardNormal(Z), posterior=pa.GaussianHead(C, Z))
    with pytest.raises(ValueError, match="unit='example'"):
        Ved(
            nn.Embedding(WORDS, E),
            nn.Embedding(WORDS, E),
            encoder=BiLSTM(E, ENCODER),
            decoder=nn.LSTMCell(E + Z, H),
            code=Bottleneck(step),
            attention=None,
        )


def test_layer_norm_cell_matches_its_formula() -> None:
    torch.manual_seed(0)
    cell = LayerNormLSTMCell(3, 4).double()
    x, h, c = (torch.randn(2, width, dtype=torch.float64) for width in (3, 4, 4))
    gates = x @ cell.input.weight.T + h @ cell.recurrent.weight.T
    norm = [nn.functional.layer_norm(part, (4,)) for part in gates.chunk(4, dim=-1)]
    new = torch.sigmoid(norm[2] + 1) * c + torch.sigmoid(norm[0]) * torch.tanh(norm[1])
    new = nn.functional.layer_norm(new, (4,))
    hidden, memory = cell(x, (h, c))
    torch.testing.assert_close(memory, new)
    torch.testing.assert_close(hidden, torch.sigmoid(norm[3]) * torch.tanh(new))
