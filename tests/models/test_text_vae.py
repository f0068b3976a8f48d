"""Text models: overfit, ignore padding, know no estimator, and decode what they read."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import probattn as pa
from probattn.core import Estimator
from probattn.decoding import Constraints, greedy
from probattn.models import MemoryVae, ReadText, SentenceVae
from probattn.models.text_vae_stepper import MemoryVaeStepper, SentenceVaeStepper
from probattn.nn import (
    Additive,
    AutoregressiveCategorical,
    AutoregressiveGaussian,
    Bottleneck,
    CausalConvolutions,
    Codebook,
    Placed,
)

E, H, A, Z, WORDS, CODES = 10, 16, 12, 6, 20, 8
Model = SentenceVae | MemoryVae


def convolutions(output_dim: int) -> CausalConvolutions:
    return CausalConvolutions(Z, output_dim, channels=8, num_layers=2, kernel_size=3)


def latent(kind: str) -> Bottleneck:
    if kind == "codes":
        book = Codebook(CODES, Z)
        prior = AutoregressiveCategorical(convolutions(CODES), book)
        return Bottleneck(pa.Site("latent", prior=prior, posterior=book, unit="example", feeds_state=True))
    given = AutoregressiveGaussian(convolutions(2 * Z), Z) if kind == "autoregressive" else pa.StandardNormal(Z)
    posterior = pa.GaussianHead(H, Z)
    return Bottleneck(pa.Site("latent", prior=given, posterior=posterior, unit="example", feeds_state=True))


def sentence_vae(kind: str | None) -> SentenceVae:
    torch.manual_seed(0)
    embedding = nn.Embedding(WORDS, E)
    if kind is None:
        return SentenceVae(embedding, nn.LSTM(E, H, batch_first=True))
    width = Z if kind == "codes" else H
    return SentenceVae(
        embedding,
        nn.LSTM(E + Z, H, batch_first=True),
        encoder=nn.LSTM(E, width, batch_first=True),
        latent=latent(kind),
        latent_dim=Z,
    )


def memory_vae(kind: str, *, has_places: bool = False, dropout: float = 0.0) -> MemoryVae:
    torch.manual_seed(0)
    score = Additive(H, A, hidden_dim=A)
    return MemoryVae(
        nn.Embedding(WORDS, E),
        nn.LSTM(E, H, batch_first=True),
        project=nn.Linear(H, Z) if kind == "codes" else nn.Identity(),
        latent=latent(kind),
        values=nn.Linear(Z, A),
        score=Placed(score) if has_places else score,
        decoder_dim=H,
        dropout=dropout,
    )


def batch(sentences: int = 8) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(1)
    words = torch.randint(4, WORDS, (sentences, 6), generator=draw)
    mask = torch.arange(6) < torch.randint(3, 7, (sentences, 1), generator=draw)
    inputs = torch.cat([torch.ones(sentences, 1, dtype=torch.long), words[:, :-1]], dim=1)
    return {"words": words, "words_mask": mask, "target_in": inputs, "target_out": words, "target_mask": mask}


MODELS: dict[str, Callable[[], Model]] = {
    "language model": lambda: sentence_vae(None),
    "vae": lambda: sentence_vae("normal"),
    "davam-q": lambda: sentence_vae("codes"),
    "vae + attention": lambda: memory_vae("normal"),
    "gavam": lambda: memory_vae("autoregressive"),
    "davam": lambda: memory_vae("codes"),
}
MEAN: dict[str, Estimator] = {"latent": pa.Mean()}
PATHWISE: dict[str, Estimator] = {"latent": pa.Pathwise()}


def weights_of(model: Model) -> dict[str, float]:
    if model.latent is None:
        return {}
    is_code = isinstance(model.latent.site.posterior, Codebook)
    return {"latent": 0.0, "latent/commitment": 0.1} if is_code else {"latent": 0.01}


@pytest.mark.parametrize("name", MODELS)
def test_overfits_eight_sentences(name: str) -> None:
    model, data = MODELS[name](), batch()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    log_liks = []
    for step in range(150):
        optimiser.zero_grad()
        read = model.encode(data["words"], data["words_mask"], PATHWISE)
        targets = {name: data[name] for name in ("target_in", "target_out", "target_mask")}
        terms = pa.Elbo()(model.decode(read, **targets), weights_of(model))
        terms.loss.mean().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if model.latent is not None and isinstance(book := model.latent.site.posterior, Codebook):
            assert read.encoding is not None
            vectors = read.encoding[read.mask].detach()
            book.update_(vectors, torch.cdist(vectors, book.codes).argmin(dim=-1), seed=torch.tensor(step))
        log_liks.append(float(terms.log_lik.mean()))
    # a language model has to guess which of the eight it is, log 8 = 2.1 nats; one of eight codes may serve two
    assert log_liks[-1] > (0.3 if name in ("language model", "davam-q") else 0.15) * log_liks[0]


@pytest.mark.parametrize("name", MODELS)
def test_padding_changes_nothing(name: str) -> None:
    model, data = MODELS[name]().eval(), batch()
    expected = model(**data, estimators=MEAN)
    wider = {
        key: torch.cat([value, (torch.zeros if value.dtype == torch.bool else torch.ones)(8, 3).to(value)], dim=1)
        for key, value in data.items()
    }
    found = model(**wider, estimators=MEAN)
    torch.testing.assert_close(found.log_lik[..., :6], expected.log_lik)
    for one, other in zip(pa.Elbo()(found).kl.values(), pa.Elbo()(expected).kl.values(), strict=True):
        torch.testing.assert_close(one, other)


def test_kl_of_a_memory_is_the_sum_over_its_real_positions() -> None:
    model, data = memory_vae("normal").eval(), batch()
    evaluation = model(**data, estimators=MEAN)
    per_position = evaluation.latents[0].kl
    assert per_position.shape == (8, 6)
    torch.testing.assert_close(pa.Elbo()(evaluation).kl["latent"], per_position.sum(dim=1).detach())
    assert bool((per_position[~data["words_mask"]] == 0).all())


def test_kl_of_codes_reaches_the_prior_alone() -> None:
    """DAVAM: the KL cannot collapse the posterior, because it has no gradient with respect to the encoder."""
    model, data = memory_vae("codes"), batch()
    terms = pa.Elbo()(model(**data, estimators=MEAN), {"latent": 1.0, "latent/commitment": 0.0})
    terms.cost.sum().backward()  # type: ignore[no-untyped-call]
    touched = {name.split(".")[0] for name, one in model.named_parameters() if one.grad is not None and one.grad.any()}
    assert touched == {"latent"}


def test_importance_weights_tighten_the_bound_of_a_vae() -> None:
    model, data = sentence_vae("normal").eval(), batch()
    torch.manual_seed(0)
    with torch.no_grad():
        elbo = pa.Elbo()(model(**data, estimators={"latent": pa.Pathwise(500)})).bound.mean()
        weighted = pa.ImportanceWeighted()(model(**data, estimators={"latent": pa.Pathwise(500)})).bound.mean()
    assert float(weighted) > float(elbo)


def stepper_of(model: Model) -> SentenceVaeStepper | MemoryVaeStepper:
    return SentenceVaeStepper(model) if isinstance(model, SentenceVae) else MemoryVaeStepper(model)


@pytest.mark.parametrize("name", MODELS)
def test_stepping_gives_the_log_likelihoods_of_the_whole(name: str) -> None:
    model, data = MODELS[name]().eval(), batch()
    data["target_mask"] = torch.ones_like(data["target_mask"])
    expected = model(**data, estimators=MEAN).log_lik[0]
    stepper = stepper_of(model)
    state = stepper.start(model.encode(data["words"], data["words_mask"], MEAN), {})
    for step in range(6):
        log_probs, state = stepper.step(state, data["target_in"][:, step])  # type: ignore[arg-type]
        found = log_probs.gather(1, data["target_out"][:, step : step + 1]).squeeze(1)
        torch.testing.assert_close(found, expected[:, step], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["davam", "gavam"])
def test_sentences_come_from_the_prior(name: str) -> None:
    model = MODELS[name]().eval()
    assert isinstance(model, MemoryVae)
    prior = model.latent.site.prior
    assert isinstance(prior, AutoregressiveCategorical | AutoregressiveGaussian)
    with torch.no_grad():
        read = ReadText.drawn(prior.ancestral(5, 7, seed=torch.tensor(0)))
    constraints = Constraints(bos=1, eos=2, max_length=9, forbidden=(0, 1))
    found = greedy(MemoryVaeStepper(model), read, constraints=constraints)
    assert len(found) == 5 and all(len(one.tokens) <= 9 for one in found)


@pytest.mark.parametrize("kind", ["sentence", "memory"])
def test_dropout_does_not_touch_what_the_encoder_reads(kind: str) -> None:
    """A codebook would else follow vectors that evaluation never sees."""
    if kind == "memory":
        model: Model = memory_vae("codes", dropout=0.5)
    else:
        model = sentence_vae("codes")
        model.dropout.p = 0.5
    inputs = batch()
    read = [model.train().encode(inputs["words"], inputs["words_mask"], {"latent": pa.Mean()}) for _ in range(2)]
    assert read[0].encoding is not None and read[1].encoding is not None
    assert torch.equal(read[0].encoding, read[1].encoding)
    losses = [model(**inputs, estimators={"latent": pa.Mean()}).log_lik.sum() for _ in range(2)]
    assert not torch.equal(losses[0], losses[1])


def test_places_tell_equal_latents_apart() -> None:
    read = ReadText.drawn(torch.ones(1, 5, Z))
    for has_places in (False, True):
        model = memory_vae("codes", has_places=has_places)
        memory, state = model.attended(read), model.start(read)
        scores = model.score.compare(state.hidden.unsqueeze(1), memory.prepared).flatten()
        assert scores.unique().numel() == (5 if has_places else 1)
        assert torch.equal(memory.values, memory.values[:, :1].expand(-1, 5, -1))  # contexts stay what they are


def test_bad_use_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="go together"):
        SentenceVae(nn.Embedding(WORDS, E), nn.LSTM(E, H, batch_first=True), latent=latent("normal"), latent_dim=Z)
    step = Bottleneck(pa.Site("latent", prior=pa.StandardNormal(Z), posterior=pa.GaussianHead(H, Z)))
    with pytest.raises(ValueError, match="unit='example'"):
        MemoryVae(
            nn.Embedding(WORDS, E),
            nn.LSTM(E, H, batch_first=True),
            project=nn.Identity(),
            latent=step,
            values=nn.Linear(Z, A),
            score=Additive(H, A, hidden_dim=A),
            decoder_dim=H,
        )
    with pytest.raises(ValueError, match="repeat its row K times"):
        memory_vae("normal")(**batch(), estimators={"latent": pa.Pathwise(3)})
