"""The translation network: overfits, ignores padding, mixes exactly, and knows no estimator."""

import pytest
import torch
from torch import Tensor, nn

import probattn as pa
from probattn.core import Bound, Estimator
from probattn.models import Readout, Seq2Seq
from probattn.nn import Additive, Bilinear, BiLSTM, StackedLSTMCell

E, ENCODER, H, WORDS = 12, 8, 16, 20


def build(site: pa.Site, dropout: float = 0.0, *, layers: int = 1, readout_dim: int | None = None) -> Seq2Seq:
    torch.manual_seed(0)
    target = nn.Embedding(WORDS, E)
    return Seq2Seq(
        nn.Embedding(WORDS, E),
        BiLSTM(E, ENCODER),
        score=Additive(H, 2 * ENCODER, hidden_dim=10),
        weights=site,
        readout=Readout(H, 2 * ENCODER, embedding=target, hidden_dim=readout_dim, dropout=dropout),
        decoder=nn.LSTMCell(E + 2 * ENCODER, H)
        if layers == 1
        else StackedLSTMCell(E + 2 * ENCODER, H, num_layers=layers, dropout=dropout),
        dropout=dropout,
    )


def categorical(posterior: bool = False, feeds_state: bool = False) -> pa.Site:
    network = pa.InferenceNetwork(
        Bilinear(2 * ENCODER, 2 * ENCODER),
        pa.Categorical(),
        target_encoder=BiLSTM(E, ENCODER),
        memory_encoder=BiLSTM(E, ENCODER),
    )
    prior = pa.FromScores(pa.Categorical())
    return pa.Site("weights", prior=prior, posterior=network if posterior else None, feeds_state=feeds_state)


def bayesian(feeds_state: bool = False) -> pa.Site:
    prior = pa.KeyPrior(2 * ENCODER, pa.GammaPrior(rate=1.0))
    posterior = pa.FromScores(pa.Weibull(5.0, anchor="softmax"))
    return pa.Site("weights", prior=prior, posterior=posterior, feeds_state=feeds_state)


def batch(sentences: int = 8) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(1)
    source = torch.randint(4, WORDS, (sentences, 5), generator=draw)
    target = torch.randint(4, WORDS, (sentences, 6), generator=draw)
    mask = torch.arange(6) < torch.randint(3, 7, (sentences, 1), generator=draw)
    inputs = torch.cat([torch.ones(sentences, 1, dtype=torch.long), target[:, :-1]], dim=1)
    return {
        "source": source,
        "source_mask": torch.arange(5) < torch.randint(2, 6, (sentences, 1), generator=draw),
        "target_in": inputs,
        "target_out": target,
        "target_mask": mask,
    }


ROWS: dict[str, tuple[pa.Site, Estimator, Bound]] = {
    "soft": (categorical(), pa.Mean(), pa.Elbo()),
    "marginal": (categorical(), pa.Enumerate(), pa.Marginal()),
    "hard-enum": (categorical(), pa.Enumerate(), pa.Elbo()),
    "hard-sample": (categorical(), pa.ScoreFunction(2, pa.LeaveOneOut()), pa.Elbo()),
    "variational-enum": (categorical(posterior=True), pa.Enumerate(), pa.Elbo()),
    "variational-sample": (categorical(posterior=True), pa.ScoreFunction(), pa.Elbo()),
    "wake-sleep": (categorical(posterior=True), pa.ScoreFunction(5, pa.NoBaseline()), pa.WakeSleep()),
    "bayesian": (bayesian(), pa.Pathwise(), pa.Elbo()),
    "bayesian, feeds state": (bayesian(feeds_state=True), pa.Pathwise(), pa.Elbo()),
    "hard-sample, feeds state": (categorical(feeds_state=True), pa.ScoreFunction(1, pa.NoBaseline()), pa.Elbo()),
}


@pytest.mark.parametrize("row", ROWS)
def test_overfits_eight_sentences(row: str) -> None:
    site, estimator, bound = ROWS[row]
    model, data = build(site), batch()
    weights = {"weights": 0.01} if row.startswith("bayesian") else {}
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(80):
        terms = bound(model(**data, estimators={"weights": estimator}, bound=bound), weights)
        optimizer.zero_grad()
        (terms.loss.sum() / 8).backward()
        optimizer.step()
    with torch.no_grad():
        exact = pa.Mean() if row.startswith(("soft", "bayesian")) else pa.Enumerate()
        if row.endswith("feeds state"):
            exact = pa.Mean()
        terms = pa.Marginal()(model(**data, estimators={"weights": exact}, use_posterior=False))
    per_word = float(terms.log_lik.sum()) / int(data["target_mask"].sum())
    assert per_word > -0.7, per_word  # from -3 nats a word


def test_padding_changes_nothing() -> None:
    model, data = build(categorical(posterior=True)).eval(), batch()
    site = {"weights": pa.Enumerate()}
    expected = pa.Elbo()(model(**data, estimators=site))
    pad = {name: nn.functional.pad(data[name], (0, 3), value=7) for name in ("source", "target_in", "target_out")}
    pad |= {name: nn.functional.pad(data[name], (0, 3), value=False) for name in ("source_mask", "target_mask")}
    padded = pa.Elbo()(model(**pad, estimators=site))
    assert torch.allclose(expected.bound, padded.bound, atol=1e-5)
    assert torch.allclose(expected.kl["weights"], padded.kl["weights"], atol=1e-5)


@pytest.mark.parametrize("row", ["marginal", "variational-enum", "wake-sleep"])
def test_gradients_formed_in_chunks_are_those_of_the_plain_readout(row: str) -> None:
    site, estimator, bound = ROWS[row]
    model, data = build(site).eval(), batch()

    def gradients(hint: Bound | None) -> list[Tensor]:
        torch.manual_seed(3)
        terms = bound(model(**data, estimators={"weights": estimator}, bound=hint))
        return list(torch.autograd.grad(terms.loss.sum(), list(model.parameters()), allow_unused=True))

    for with_credit, without in zip(gradients(bound), gradients(None), strict=True):
        if without is not None:
            assert torch.allclose(with_credit, without, atol=1e-4)


@pytest.mark.parametrize(("layers", "readout_dim"), [(1, None), (2, None), (3, 7)])
def test_step_by_step_prediction_agrees_with_the_exact_likelihood(layers: int, readout_dim: int | None) -> None:
    model, data = build(categorical(), layers=layers, readout_dim=readout_dim).eval(), batch()
    with torch.no_grad():
        whole = model(**data, estimators={"weights": pa.Enumerate()}, use_posterior=False)
        exact = torch.logsumexp(whole.latents[0].draw.log_weight + whole.log_lik, dim=0)
        encoded = model.encode(data["source"], data["source_mask"])
        state = model.start(encoded)
        for step in range(data["target_in"].shape[1]):
            words = model.readout.embedding(data["target_in"][:, step])
            state, scores, _ = model.advance(state, words, encoded)
            log_probs, _ = model.predictive(model.query(state), scores, encoded, pa.Enumerate())
            picked = log_probs.gather(-1, data["target_out"][:, step : step + 1]).squeeze(-1)
            real = data["target_mask"][:, step]
            assert torch.allclose(picked[real], exact[:, step][real], atol=1e-5)


def test_one_dropout_mask_is_shared_by_all_particles() -> None:
    model = build(categorical(), dropout=0.5).train()
    query, context = torch.randn(3, 4, H), torch.randn(1, 3, 4, E).expand(6, -1, -1, -1)
    hidden = model.readout.hidden(query, context)
    assert torch.equal(hidden[0], hidden[5])
    assert 0.2 < float((hidden == 0).float().mean()) < 0.8


def test_source_padding_in_the_middle_is_refused() -> None:
    with pytest.raises(ValueError, match="real position after a padded one"):
        BiLSTM(3, 2)(torch.zeros(1, 3, 3), torch.tensor([[True, False, True]]))


def test_every_layer_and_an_output_layer_of_its_own_get_gradients() -> None:
    model, data = build(categorical(), layers=2, readout_dim=7), batch()
    terms = pa.Elbo()(model(**data, estimators={"weights": pa.Mean()}))
    terms.loss.sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and bool(parameter.grad.ne(0).any()), name
    assert {"cell.layers.1.weight_hh", "readout.output.weight"} <= set(model.state_dict())
    assert set(build(categorical()).state_dict()).isdisjoint({"readout.output.weight", "cell.layers.0.weight_hh"})
