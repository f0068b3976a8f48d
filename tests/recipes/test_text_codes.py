"""Random codes in text models: bounds against enumeration, the price of a length, rows that train and write."""

import itertools
import math
import warnings
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from probattn.core import Elbo, Estimator, Given, Pathwise, WithoutPrior
from probattn.data.text import EncodedSentences
from probattn.models import MemoryVae, ReadText
from probattn.nn import EvenReading, SoftCodebook, Unquantised
from probattn.recipes import text_codes
from probattn.recipes.text_codes import length_nats, mean_choice, sentence_bound, spaced_sentences
from probattn.recipes.text_eval import evaluate_model
from probattn.recipes.text_network import TextModel, build_model
from probattn.recipes.text_settings import SITE, LatentSettings, engine_stages
from probattn.recipes.text_stages import Weight
from probattn.recipes.text_task import TextTask, decoded
from probattn.recipes.text_writer import TextWriter
from probattn.training.optim import set_trainable
from probattn.training.randomness import seeded
from tests.recipes.tiny_text import settings_of, task_of

pytestmark = pytest.mark.filterwarnings("ignore::probattn.training.CollapseWarning")

WORDS, CODES = 12, 3
FEW = {"latent.num_codes": 8}


def tiny_model(scope: str | int) -> MemoryVae:
    """Three codes; weights large enough that words, codes and posterior depend on each other."""
    settings = settings_of("davam-short", **{"latent.num_codes": CODES})
    latent = LatentSettings(scope, "stochastic-codes", "autoregressive", num_codes=CODES)  # type: ignore[arg-type]
    model = build_model(replace(settings, latent=latent), WORDS)
    assert isinstance(model, MemoryVae) and isinstance(model.project, EvenReading) is isinstance(scope, int)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
        book = model.latent.site.posterior
        assert isinstance(book, SoftCodebook)
        book.log_temperature.fill_(3.0)  # every code has some probability, or importance weights would be heavy
    return model.eval()


def log_joint(model: MemoryVae, text: EncodedSentences, row: int, index: tuple[int, ...]) -> tuple[float, float]:
    """Log p(x, z) and log q(z | x) of one memory, from the prior's factors and the decoder."""
    batch = text.batch([row])
    site = model.latent.site
    assert isinstance(site.posterior, SoftCodebook) and site.prior is not None
    places = torch.tensor(index)
    value = site.posterior.codes[places].unsqueeze(0)  # (1, S, Z)
    read = model.encode(batch.words, batch.words_mask, {SITE: Pathwise()})
    assert read.encoding is not None
    log_prior = site.prior(Given(memory=None, value=value.unsqueeze(0))).log_probs  # type: ignore[arg-type]
    log_posterior = model.latent.posterior(read.encoding).log_probs  # type: ignore[attr-defined]
    decoded = model.decode(
        ReadText.drawn(value),
        target_in=batch.target_in,
        target_out=batch.target_out,
        target_mask=batch.target_mask,
    )

    def total(log_probs: Tensor) -> float:
        return float(log_probs[0, torch.arange(len(index)), places].sum())

    return float(decoded.log_lik.sum()) + total(log_prior), total(log_posterior)


@torch.no_grad()
@pytest.mark.parametrize(("scope", "sentence"), [(2, [5, 7, 4, 9, 6]), ("memory", [5])])
def test_bounds_against_enumeration(scope: str | int, sentence: list[int]) -> None:
    """All memories of two (or, with begin and end, three) codes are summed over: the exact log-likelihood and ELBO."""
    model = tiny_model(scope)
    text = EncodedSentences([sentence], "one sentence")
    positions = scope if isinstance(scope, int) else len(sentence) + 2
    found = [log_joint(model, text, 0, index) for index in itertools.product(range(CODES), repeat=positions)]
    joint, posterior = (torch.tensor(column, dtype=torch.float64) for column in zip(*found, strict=True))
    assert float(posterior.logsumexp(dim=0)) == pytest.approx(0.0, abs=1e-5)
    exact = float(joint.logsumexp(dim=0))
    elbo = float((posterior.exp() * (joint - posterior)).sum())
    assert exact - elbo > 0.02  # a gap that can be seen
    with seeded(0, 0):
        batch = text.batch([0] * 2000)
        terms = Elbo()(
            model(
                batch.words,
                batch.words_mask,
                target_in=batch.target_in,
                target_out=batch.target_out,
                target_mask=batch.target_mask,
                estimators={SITE: Pathwise()},
            )
        )
        error = float(terms.bound.double().std()) / math.sqrt(2000)
        assert abs(float(terms.bound.double().mean()) - elbo) < 4.0 * error
        few = torch.tensor([sentence_bound(model, text, 0, draws=10) for _ in range(40)])
        many = sentence_bound(model, text, 0, draws=2000)
    assert elbo < float(few.mean()) < exact + 4.0 * float(few.std()) / math.sqrt(40)
    assert many == pytest.approx(exact, abs=4.0 * float(few.std()) * math.sqrt(10 / 2000))


def test_lengths_have_a_distribution() -> None:
    counts = (3, 0, 5)
    nats = [length_nats(counts, EncodedSentences([[7] * words], "one")) for words in range(1, 60)]
    assert sum(math.exp(-one) for one in nats) == pytest.approx(1.0)
    assert nats[0] == pytest.approx(math.log(12 / 4)) and nats[3] == pytest.approx(math.log(12 * 2))
    both = EncodedSentences([[7], [7, 8, 9]], "two")
    assert length_nats(counts, both) == pytest.approx(nats[0] + nats[2])


def test_one_code_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its draws are alike, so that a control's bound is the same without the time that they take."""
    asked: list[int] = []

    def counted(model: TextModel, text: EncodedSentences, row: int, *, draws: int) -> float:
        asked.append(draws)
        return sentence_bound(model, text, row, draws=draws)

    monkeypatch.setattr(text_codes, "sentence_bound", counted)
    task = task_of("davam-short-control")
    found = evaluate_model(writer_of(task), task.corpus)
    assert set(asked) == {1} and found["iw_ppl"] == pytest.approx(found["probed_ppl"], rel=1e-5)
    few = spaced_sentences(task.corpus.encoded["test"], task.settings.sampling.num_weighted)
    nats = [sentence_bound(task.model, few, row, draws=draws) for row in range(3) for draws in (1, 7)]
    assert nats[0::2] == pytest.approx(nats[1::2], rel=1e-5)


def writer_of(task: TextTask) -> TextWriter:
    corpus = task.corpus
    return TextWriter(task.model, corpus.tokenizer, settings=task.settings, lengths=corpus.length_counts)


def test_the_length_is_paid_for_where_a_memory_shows_it() -> None:
    per_word, fixed = task_of("davam-stochastic", **FEW), task_of("davam-short", **FEW)
    found = evaluate_model(writer_of(per_word), per_word.corpus)
    test = per_word.corpus.encoded["test"]
    share = length_nats(per_word.corpus.length_counts, test) / sum(test.target_lengths)
    assert found["counted_ppl"] == pytest.approx(found["elbo_ppl"] * math.exp(share))
    found = evaluate_model(writer_of(fixed), fixed.corpus)
    assert found["counted_ppl"] == found["elbo_ppl"]


def test_a_short_memory_has_as_many_codes_for_every_sentence() -> None:
    task = task_of("davam-short", **FEW)
    batch = task.corpus.encoded["train"].batch(range(8))
    read = task.model.encode(batch.words, batch.words_mask, {SITE: Pathwise()})
    assert read.value.shape == (1, 8, 4, 4) and bool(read.mask.all()) and read.mask.shape == (8, 4)
    book = task.model.latent.site.posterior  # type: ignore[union-attr]
    assert isinstance(book, SoftCodebook)
    nearest = torch.cdist(read.value[0], book.codes).detach().min(dim=-1).values
    assert float(nearest.max()) < 1e-3  # codes, and nothing between
    writer = writer_of(task)
    assert writer.sample(3, seed=1) == writer.sample(3, seed=1) != writer.sample(3, seed=2)
    assert len(writer.sample(2, length=5)) == 2
    assert len(writer.reconstruct(["the man sleeps ."])) == 1
    assert len(writer.interpolate("the man sleeps .", "two girls saw a dog .", steps=3)) == 3


def trained(model: TextModel, task: TextTask, updates: int) -> list[float]:
    """Losses of a few updates on one batch."""
    stage = engine_stages(task.settings)[0]
    optimiser = torch.optim.Adam(model.parameters(), lr=0.005)
    losses = []
    for update in range(updates):
        optimiser.zero_grad()
        output = task.step(task.batches(0)[0], stage, update)
        output.loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        task.after_update(task.batches(0)[0], output)
        losses.append(float(output.loss.detach()))
    return losses


@pytest.mark.parametrize("row", ["davam-short-joint", "davam-joint"])
def test_a_warm_up_without_codes_then_codes_among_what_the_decoder_reads(row: str) -> None:
    task = task_of(row, **{"latent.num_codes": 16, "network.dropout": 0.0})
    book = task.any_codebook
    assert isinstance(book, SoftCodebook)
    stages = engine_stages(task.settings)
    batch = task.batches(0)[0]
    text = task.corpus.encoded["train"].batch(batch)

    def likelihoods(estimator: Estimator) -> tuple[Tensor, Tensor]:
        """The same sentences with the same draw as the model is trained on them, and as it is tested."""
        found = []
        for mode in (True, False):
            task.model.train(mode)
            with seeded(0, 0):
                read = task.model.encode(text.words, text.words_mask, {SITE: estimator})
            found.append(decoded(task.model, read, text).log_lik.detach())
        return found[0], found[1]

    task.model.train()
    output = task.step(batch, stages[0], 0)
    task.after_update(batch, output)
    assert bool(book.is_settled) and not bool(book.is_started) and "kl" not in task.validate()
    read = output.carry[0]  # type: ignore[index]
    assert torch.equal(read.value[0], book.scaled(read.encoding))  # no code takes its place
    assert torch.equal(*likelihoods(WithoutPrior(Unquantised())))
    before = book.centre.clone()
    task.model.train()
    output = task.step(batch, stages[1], 0)
    task.after_update(batch, output)
    assert bool(book.is_started) and torch.equal(book.centre, before) and "kl" in task.validate()
    assert torch.equal(*likelihoods(Pathwise()))
    entropy = mean_choice(task.model.eval(), task.corpus.encoded["train"])[1]
    assert 0.0 < entropy < 0.2 * math.log(16)  # a tenth, on the vectors that it was set by


def test_the_control_is_the_same_model_until_its_code_comes_in() -> None:
    """And then a language model with that decoder: a KL of zero at every stage."""
    row, control = (
        task_of(name, **{"latent.num_codes": count})
        for name, count in (("davam-short-joint", 8), ("davam-short-control", 1))
    )
    assert row.settings.stages == control.settings.stages
    states = []
    for task in (row, control):
        stage = engine_stages(task.settings)[0]
        optimiser = torch.optim.Adam(set_trainable(task.model, stage).values(), lr=0.01)
        torch.manual_seed(0)
        task.model.train()
        for update in range(3):
            output = task.step(task.batches(0)[update], stage, update)
            output.loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            optimiser.zero_grad()
            task.after_update(task.batches(0)[update], output)
        states.append(task.model.state_dict())
    shared = [name for name in states[0] if states[0][name].shape == states[1][name].shape]
    assert {name.split(".")[0] for name in shared} > {"encoder", "project", "decoder", "readout", "score", "values"}
    assert all(torch.equal(states[0][name], states[1][name]) for name in shared)
    for stage in engine_stages(control.settings)[1:]:
        set_trainable(control.model, stage)
        output = control.step(control.batches(0)[0], stage, 0)
        output.loss.backward()  # type: ignore[no-untyped-call]
        assert output.logs.get("kl_latent", (0.0, 1.0))[0] == 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert control.validate()["kl"] == 0.0  # by design, so no warning of collapse
    found = evaluate_model(writer_of(control), control.corpus)
    assert found["kl"] == 0.0 and found["counted_ppl"] == found["reconstruction_ppl"]


@pytest.mark.parametrize("row", ["davam-short-joint", "davam-short"])
def test_rows_learn_and_keep_their_codes_apart(row: str) -> None:
    torch.manual_seed(0)
    task = task_of(row, **{"latent.num_codes": 16, "updates": 400})  # the KL's weight stays small over the first 30
    losses = trained(task.model, task, 30)
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    average, entropy = mean_choice(task.model.eval(), task.corpus.encoded["train"])
    assert float(average.sum()) == pytest.approx(1.0)
    marginal = float(torch.special.entr(average).sum())
    assert marginal > 1.0  # more than a few codes are chosen
    assert marginal > entropy  # and which one says something of the sentence


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="prior over codes"):
        settings_of("davam-short", **{"latent.prior": "normal"})
    with pytest.raises(ValueError, match="at least 1"):
        settings_of("davam-short", **{"latent.scope": 0})
    with pytest.raises(ValueError, match=r"latent\.reading=pooled goes with a number.*got latent\.scope=memory"):
        settings_of("davam-joint", **{"latent.reading": "pooled"})
    joint = settings_of("davam-short-joint")
    with pytest.raises(ValueError, match=r"stage 'warm-up' has no codes yet, so no KL: write kl: \{end: 0\.0\}"):
        replace(joint, stages=[replace(joint.stages[0], kl=Weight()), *joint.stages[1:]])
    with pytest.raises(ValueError, match="set latent.scope to a number"):
        engine_stages(settings_of("davam-short", **{"latent.scope": "memory"}))


def test_one_random_code_per_sentence() -> None:
    task = task_of("davam-short", **FEW, **{"latent.scope": "sentence"})
    assert trained(task.model, task, 1)[0] > 0.0
    assert {"elbo_ppl", "kl"} <= task.validate().keys()
    assert "iw_ppl" in evaluate_model(writer_of(task), task.corpus)
