"""Text models: every row trains, stages do what they say, trained models write, reconstruct and interpolate."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.distributions import Normal

import probattn
from probattn import cli
from probattn.cli import augment as augment_command
from probattn.core import Constant, Cyclical, Elbo, ImportanceWeighted, Linear, Pathwise, WithoutPrior
from probattn.data.bpe import EOS
from probattn.distributions import DiagonalGaussian
from probattn.nn import AutoregressiveGaussian, CausalConvolutions, Codebook, Unquantised
from probattn.recipes.generation_search import Generated
from probattn.recipes.recipe import Run
from probattn.recipes.text_codes import sentence_bound
from probattn.recipes.text_data import CorpusSettings, load_corpus
from probattn.recipes.text_drawing import Law
from probattn.recipes.text_eval import (
    code_posteriors,
    evaluate_model,
    first_sentences,
    importance_weighted,
    information_metrics,
    tally,
)
from probattn.recipes.text_settings import SITE, LatentSettings, Weight, engine_stages
from probattn.recipes.text_task import TextTask, decoded
from probattn.recipes.text_vae import RECIPE
from probattn.recipes.text_writer import TextWriter
from probattn.training import Aggressive, Stage
from probattn.training.optim import set_trainable
from tests.recipes.tiny_text import TINY, settings_of, task_of

pytestmark = pytest.mark.filterwarnings("ignore::probattn.training.CollapseWarning")


@pytest.mark.parametrize("row", RECIPE.rows)
def test_every_row_takes_a_step_of_every_stage_and_is_evaluated(row: str) -> None:
    task = task_of(row)
    for stage in engine_stages(task.settings):
        output = task.step(task.batches(0)[0], stage, 0)
        output.loss.backward()  # type: ignore[no-untyped-call]
        task.after_update(task.batches(0)[0], output)
    metrics = task.validate()
    assert {"reconstruction", "elbo_ppl"} <= metrics.keys()
    corpus = task.corpus
    writer = TextWriter(task.model, corpus.tokenizer, settings=task.settings, lengths=corpus.length_counts)
    found = evaluate_model(writer, corpus)
    assert all(torch.isfinite(torch.tensor(value)) for value in found.values())
    assert ("kl" in found and "davam_ppl" in found) is (task.settings.latent is not None)
    is_choice = task.settings.latent is not None and task.settings.latent.posterior == "stochastic-codes"
    is_gaussian = row.startswith(("vae", "gavam"))
    assert ("iw_ppl" in found) is (is_gaussian or is_choice)
    assert ("active_units" in found and "mutual_information" in found) is is_gaussian
    assert ("codes_used" in found) is row.startswith("davam")
    assert {"entropy_4", "dist1_4", "dist2_4", "repetition_4"} <= found.keys()


def test_the_place_of_a_latent_is_no_information_about_the_sentence() -> None:
    """The same vectors in every sentence, one for each place."""
    place = torch.arange(6).repeat(40)
    mean = 3.0 * torch.nn.functional.one_hot(place, 6).float()
    log_variance = torch.full_like(mean, -4.0)
    assert information_metrics(mean, log_variance, place) == {
        "active_units": 0.0,
        "mutual_information": pytest.approx(0.0, abs=1e-5),
    }
    mixed = information_metrics(mean, log_variance, torch.zeros_like(place))  # the place taken for the sentence
    assert mixed["active_units"] == 6.0 and mixed["mutual_information"] > 1.0


def test_bursts_are_short_and_watched() -> None:
    settings = settings_of("vae-aggressive", updates=300)
    bursts, main = engine_stages(settings)
    rule = bursts.update_rule
    assert isinstance(rule, Aggressive) and (rule.max_burst, rule.window) == (10, 3)
    assert bursts.updates == 99 and bursts.validate_every == 49 and not bursts.decays and main.validate_every is None
    assert bursts.weights_at(50) == {SITE: 0.1} and main.weights_at(200) == {SITE: 1.0}


def test_only_a_memory_has_places() -> None:
    with pytest.raises(ValueError, match="one latent per sentence has none"):
        LatentSettings("sentence", has_places=True)


def test_a_stage_is_prepared_once_and_alike_in_all_processes() -> None:
    tasks = [task_of("vae-pretraining-fbp") for _ in range(2)]
    stage = engine_stages(tasks[0].settings)[1]
    readouts = []
    for rank, task in enumerate(tasks):
        torch.manual_seed(rank)  # each rank has noise of its own
        task.step(task.batches(0)[0], stage, 0)
        readouts.append(task.model.readout.weight.detach().clone())
        task.step(task.batches(0)[1], stage, 0)  # a second batch of the same update
        assert torch.equal(task.model.readout.weight, readouts[rank])
    assert torch.equal(readouts[0], readouts[1])
    books = []
    for rank in range(2):
        task = task_of("davam-128", **{"latent.num_codes": 16})
        torch.manual_seed(rank)
        task.model.train()
        task.step(task.batches(0)[0], engine_stages(task.settings)[1], 0)
        assert task.codebook is not None and task.model.dropout.training
        books.append(task.codebook.codes.clone())
    assert torch.equal(books[0], books[1])


@pytest.mark.parametrize("row", ["vae", "lstm-lm", "davam-128"])
def test_a_sentence_does_not_depend_on_how_many_are_asked_for(row: str) -> None:
    task = task_of(row, **({"latent.num_codes": 16} if row.startswith("davam") else {}))
    writer = TextWriter(
        task.model.eval(), task.corpus.tokenizer, settings=task.settings, lengths=task.corpus.length_counts
    )
    for seed in range(6):
        assert writer.sample(1, seed=seed)[0].text == writer.sample(9, seed=seed)[0].text


@pytest.mark.parametrize("row", ["vae", "lstm-lm", "davam-short"])
def test_texts_have_at_most_the_words_that_were_asked_for(row: str) -> None:
    task = task_of(row, **({"latent.num_codes": 16} if row == "davam-short" else {}))
    with torch.no_grad():
        task.model.readout.bias[EOS] = -1e4
    writer = TextWriter(
        task.model.eval(), task.corpus.tokenizer, settings=task.settings, lengths=task.corpus.length_counts
    )
    for length in (3, 10):
        assert {len(one.text.split()) for one in writer.sample(4, length=length)} == {length}


def test_blank_lines_of_a_corpus_are_left_out_and_words_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, more = tmp_path / "c.txt", tmp_path / "more.txt"
    corpus.write_text("a dog .\n\na cat .\n")

    class Fake:
        settings = SimpleNamespace(corpus=CorpusSettings(), latent=LatentSettings("sentence"))

        def samples(self, count: int, law: Law, *, seed: int) -> Iterator[list[Generated]]:
            assert law.word_temperature == 1.0  # samples of the model
            yield [Generated("text", -1.0, True)] * count

    monkeypatch.setattr(augment_command, "open_model", lambda *_: Fake())
    cli.main(["augment", str(corpus), "--times", "2", "--model", "m", "--output", str(more)])
    assert more.read_text().split("\n") == ["a dog .", "a cat .", *["text"] * 4, ""]


@pytest.mark.parametrize(("row", "positions"), [("vae", 1), ("davam-short", None), ("davam-128", 0)])
def test_the_averaged_kl_is_over_positions_of_the_latent(row: str, positions: int | None) -> None:
    """One of a sentence's vector, the number of codes where it is fixed, and else (0) that of its words."""
    task = task_of(row, **({} if row == "vae" else {"latent.num_codes": 16}))
    text = first_sentences(task.corpus.encoded["test"], 1)
    found = tally(task.model, text)
    if positions is None:
        assert task.settings.latent is not None
        positions = task.settings.latent.positions
    words = int(text.batch([0]).words_mask.sum())
    assert found.kl > 0.0 and words > 1 and positions != words
    assert found.kl_over_positions == pytest.approx(found.kl / (positions or words))


def test_encoders_of_all_rows_have_one_width() -> None:
    models = {row: task_of(row).model for row in RECIPE.rows}
    encoders = {row: model.encoder for row, model in models.items() if model.encoder is not None}
    assert set(models) - set(encoders) == {"lstm-lm", "lstm-lm-peak-35", "lstm-lm-peak-75"}
    assert {encoder.hidden_size for encoder in encoders.values()} == {16}
    book = models["davam-q"].latent.site.posterior  # type: ignore[union-attr]
    assert isinstance(book, Codebook) and book.codes.shape[-1] == 4


def test_published_perplexity_averages_what_the_bound_sums() -> None:
    task = task_of("vae-attn")
    found = tally(task.model.eval(), task.corpus.encoded["test"])
    positions = sum(task.corpus.encoded["test"].words_lengths) / found.sentences  # about
    assert found.kl / found.kl_over_positions == pytest.approx(positions, rel=0.3)


def test_weights_in_shares_of_a_stage() -> None:
    assert Weight().schedule(100) == Constant(1.0)
    assert Weight(start=0.1, rise=0.5).schedule(100) == Linear(0.1, 1.0, steps=50)
    assert Weight(start=0.0, rise=0.5, cycles=4).schedule(100) == Cyclical(25, ramp=12, start=0.0, end=1.0)
    stages = engine_stages(settings_of("davam-128"))
    assert [stage.updates for stage in stages] == [2, 2, 4]
    assert [stage.weights_at(0)[SITE] for stage in stages] == [0.0, 0.0, 1.0]
    assert [stage.weights_at(0)[f"{SITE}/commitment"] for stage in stages] == [0.0, 0.1, 0.0]
    assert [stage.decays for stage in stages] == [False, True, True]
    assert tuple(stages[2].trainable) == ("latent.site.prior.*",)
    assert isinstance(engine_stages(settings_of("vae-aggressive"))[0].update_rule, Aggressive)


def test_codebook_starts_from_the_warm_encoder_and_moves_in_its_stage_alone() -> None:
    task = task_of("davam-128", **{"latent.num_codes": 16})
    book = task.codebook
    assert isinstance(book, Codebook) and not bool(book.is_started)
    warm_up, posterior, prior = engine_stages(task.settings)
    batch, before = task.batches(0)[0], book.codes.clone()
    output = task.step(batch, warm_up, 0)
    task.after_update(batch, output)
    assert not bool(book.is_started) and torch.equal(book.codes, before)
    read = output.carry[0]  # type: ignore[index]
    assert read.encoding is not None and torch.equal(read.value[0], read.encoding)  # no code takes its place
    assert {"code_perplexity", "kl"}.isdisjoint(task.validate())
    output = task.step(batch, posterior, 0)
    assert bool(book.is_started) and "code_perplexity" in task.validate()
    before = book.codes.clone()
    task.after_update(batch, output)
    assert not torch.equal(book.codes, before)
    before = book.codes.clone()
    task.after_update(batch, task.step(batch, prior, 0))
    assert torch.equal(book.codes, before)


def test_a_warm_up_is_for_codes_and_not_the_end() -> None:
    stage = replace(settings_of("vae").stages[0], is_quantised=False)
    with pytest.raises(ValueError, match=r"is_quantised=false goes with latent\.posterior=codes"):
        replace(settings_of("vae"), stages=[stage])
    with pytest.raises(ValueError, match="the last stage must use the codes"):
        replace(settings_of("davam-128"), stages=[stage])
    with pytest.raises(TypeError, match="Unquantised needs a posterior over codes.*got DiagonalGaussian"):
        Unquantised()(DiagonalGaussian(torch.zeros(2, 3), torch.zeros(2, 3)), None, torch.tensor(0))


def test_bursts_have_the_updates_of_other_rows_and_are_counted_apart(tmp_path: Path) -> None:
    """Equal time: every step of a burst is one of the row's updates, and what moved the decoder is said."""
    found = {}
    for row in ("vae", "vae-aggressive"):
        settings, plain = RECIPE.load(
            RECIPE.configs(row, "generated"), {**TINY, "updates": 130, "trainer.validate_every": 130}
        )
        found[row] = RECIPE.train(Run(settings, plain, tmp_path / row, show_progress=False))
    assert found["vae"].facts["updates"] == found["vae-aggressive"].facts["updates"] == 130
    assert "decoder_updates" not in found["vae"].metrics
    # bursts take a third or less, and end for good when the information falls
    assert 130 * 0.67 < found["vae-aggressive"].metrics["decoder_updates"] < 130
    assert [update for update, _ in found["vae"].curves["train_kl"]] == [*range(20, 121, 20), 130]
    first = found["vae"].curves["train_reconstruction"]
    assert first[0][1] > first[-1][1] > 0.0
    assert found["vae"].facts["importance"] == "10 draws, 4 test sentences from all over the split"


def test_codes_in_use_are_counted_at_every_validation() -> None:
    task = task_of("davam-128", **{"latent.num_codes": 16})
    task.step(task.batches(0)[0], engine_stages(task.settings)[1], 0)  # starts the codebook
    task.model.eval()
    text = task.corpus.encoded["valid"]
    batch = text.batch(range(len(text)))
    read = task.model.encode(batch.words, batch.words_mask, {SITE: Pathwise()})
    chosen = read.value[0][read.mask].detach().round(decimals=4).unique(dim=0)  # straight-through rounds
    assert task.validate()["codes_used"] == len(chosen) > 8
    assert isinstance(task.codebook, Codebook)
    task.codebook.codes.copy_(1e3 * torch.arange(16.0).unsqueeze(1).expand(16, 4))
    assert task.validate()["codes_used"] == 1.0


@pytest.mark.slow
@pytest.mark.data
def test_half_of_512_codes_are_in_use_after_an_epoch_of_ptb(data_dir: Path) -> None:
    """Row davam-512 with a smaller network; the released code has one code alive for about 1,200 updates."""
    changes = {
        "network": "{embedding_dim: 32, hidden_dim: 64, latent_dim: 32, attention_dim: 32, prior_channels: 8, prior_layers: 1}",  # noqa: E501
        "corpus": "{name: ptb, vocabulary_size: 1000, test_size: 500}",
    }
    settings, plain = RECIPE.load(RECIPE.configs("davam-512", "ptb"), changes)
    task = TextTask(settings, load_corpus(settings.corpus), plain=plain)
    stage = engine_stages(settings)[1]  # without the warm-up
    optimiser = torch.optim.Adam(set_trainable(task.model, stage).values(), lr=settings.trainer.learning_rate)
    torch.manual_seed(0)
    task.model.train()
    for update, batch in enumerate(task.batches(0)):
        output = task.step(batch, stage, update)
        optimiser.zero_grad()
        output.loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        task.after_update(batch, output)
    task.model.eval()
    assert task.validate()["codes_used"] >= 256
    assert task.codebook is not None and task.codebook.perplexity >= 128


def test_a_stage_of_the_prior_alone_reads_no_words_and_has_the_same_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of("davam-128", **{"latent.num_codes": 16})
    stage = engine_stages(task.settings)[2]
    batch = task.batches(0)[0]
    set_trainable(task.model, stage)
    task.model.eval()  # no dropout
    task.step(batch, stage, 0)  # starts the codebook
    text = task.corpus.encoded["train"].batch(batch)
    with_words = decoded(task.model, task.model.encode(text.words, text.words_mask, stage.estimators), text)
    assert float(with_words.log_lik.sum()) < 0.0
    monkeypatch.setattr(type(task.model), "decode", None)  # would fail
    output = task.step(batch, stage, 1)
    assert "log_lik" not in output.logs and "kl_latent" in output.logs
    prior = dict(task.model.named_parameters())["latent.site.prior.start"]
    (found,) = torch.autograd.grad(output.loss, prior, retain_graph=True)
    (whole,) = torch.autograd.grad(Elbo()(with_words).loss.sum() / len(batch), prior)
    assert found.abs().sum() > 0 and torch.allclose(found, whole, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("row", ["davam-128", "davam-joint"])
def test_a_prior_whose_kl_has_no_weight_is_not_computed_and_nothing_else_changes(
    row: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    forward = CausalConvolutions.forward
    monkeypatch.setattr(CausalConvolutions, "forward", lambda self, x: calls.append(1) or forward(self, x))

    def trained(number: int) -> tuple[dict[str, torch.Tensor], set[str]]:
        task = task_of(row, **{"latent.num_codes": 16})
        stage, batch = engine_stages(task.settings)[number], task.batches(0)[0]
        optimiser = torch.optim.Adam(set_trainable(task.model, stage).values())
        torch.manual_seed(0)
        task.model.train()
        for update in range(3):
            output = task.step(batch, stage, update)
            output.loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            optimiser.zero_grad()
            task.after_update(batch, output)
        return task.model.state_dict(), set(output.logs)

    for number in range(2):  # without codes, and with them
        calls.clear()
        monkeypatch.setattr(WithoutPrior, "needs_prior", False)
        found, logs = trained(number)
        assert not calls and "kl_latent" not in logs and "reconstruction" in logs
        monkeypatch.setattr(WithoutPrior, "needs_prior", True)
        whole, _ = trained(number)
        assert calls and all(torch.equal(found[name], whole[name]) for name in whole)
    calls.clear()
    monkeypatch.setattr(WithoutPrior, "needs_prior", False)
    trained(2)
    assert len(calls) == 3  # the prior's own stage


def test_codes_of_a_sentence_are_not_put_elsewhere_all_the_time() -> None:
    """Codes that are chosen as often as all others must not count as dead."""
    for scale in ("ptb", "captions", "yahoo"):
        settings, _ = RECIPE.load(RECIPE.configs("davam-q", scale), {})
        assert 0.0 < settings.latent.revive_below < 0.1 * settings.batch_size / settings.latent.num_codes


def test_a_stage_of_the_prior_alone_fits_the_codes_that_the_posterior_has() -> None:
    """Dropout of words would change most codes, and the prior would learn others than are drawn later."""
    task = task_of("davam-128", **{"latent.num_codes": 16, "network.dropout": 0.5})
    _, first, second = engine_stages(task.settings)
    batch = task.batches(0)[0]

    def losses(stage: Stage) -> list[float]:
        set_trainable(task.model, stage)
        found = []
        for seed in (0, 1):
            task.model.train()
            torch.manual_seed(seed)
            found.append(float(task.step(batch, stage, 1).loss.detach()))
        return found

    task.step(batch, first, 0)  # starts the codebook
    assert len(set(losses(first))) == 2 and len(set(losses(second))) == 1


def test_pretraining_draws_the_decoder_anew_and_keeps_the_encoder() -> None:
    task = task_of("vae-pretraining-fbp")
    second = engine_stages(task.settings)[1]
    before = {name: value.clone() for name, value in task.model.state_dict().items()}
    task.step(task.batches(0)[0], second, 1)  # not the first step: nothing is reset
    assert all(torch.equal(value, before[name]) for name, value in task.model.state_dict().items())
    task.step(task.batches(0)[0], second, 0)
    changed = {
        name.split(".")[0] for name, value in task.model.state_dict().items() if not torch.equal(value, before[name])
    }
    assert changed == {"decoder", "first_cell", "readout"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    settings, plain = RECIPE.load(RECIPE.configs("davam-128", "generated"), {**TINY, "latent.num_codes": 16})
    result = RECIPE.train(Run(settings, plain, folder, show_progress=False))
    assert [example["kind"] for example in result.examples] == ["from scratch", "reconstruction", "interpolation"]
    text = RECIPE.write_report("text_vae", [result, replace(result, seed=1)], folder)
    assert "davam_ppl" in text and "Report:" in text
    return folder


def test_a_trained_model_is_a_folder(trained: Path) -> None:
    writer = probattn.load(trained)
    assert isinstance(writer, TextWriter)
    first, again = (writer.sample(7, seed=3) for _ in range(2))
    assert first == again and len(first) == 7
    assert first != writer.sample(7, seed=4)
    assert all(len(one.text.split()) <= 16 for one in writer.sample(3, length=5))
    sentences = ["the man buys a car .", "the girl sleeps ."]
    assert len(writer.reconstruct(sentences)) == 2
    assert len(writer.interpolate(*sentences, steps=4)) == 4
    with pytest.raises(ValueError, match="at least 2"):
        writer.interpolate(*sentences, steps=1)
    with pytest.raises(ValueError, match="must be a whole number from 1"):
        writer.sample(0)
    (trained / "model" / "lengths.json").write_text("{")
    with pytest.raises(Exception, match="lengths"):
        probattn.load(trained)
    content = {"counts": [1, 2, 3], "digest": writer.tokenizer.digest}
    (trained / "model" / "lengths.json").write_text(json.dumps(content))
    assert probattn.load(trained).lengths == (1, 2, 3)


def test_command_line_writes_from_scratch_and_augments(trained: Path, tmp_path: Path) -> None:
    def call(*words: str, text: str = "") -> str:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "probattn", *words]
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path
        )
        return done.stdout

    lines = call("generate", str(trained), "--from", "prior", "--num_samples", "4", "--length", "5").splitlines()
    words = ("--num_samples", "4", "--length", "5", "--word_temperature", "1")
    assert len(lines) == 4 and call("generate", str(trained), "--from", "prior", *words).splitlines() != lines
    assert len(call("generate", str(trained), text="the man sleeps .\n\n").splitlines()) == 2
    way = call("generate", str(trained), "--between", "the man sleeps .", "a dog .", "--steps", "3", "--format", "json")
    assert [set(json.loads(line)) for line in way.splitlines()] == [{"text"}] * 3
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the man sleeps .\nthe girl buys a car .\n")
    more = tmp_path / "more.txt"
    call("augment", str(corpus), "--times", "1.5", "--model", str(trained), "--output", str(more))
    found = more.read_text().splitlines()
    assert found[:2] == corpus.read_text().splitlines() and len(found) == 5


def test_augment_trains_anew_for_another_text_or_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the same name with other sentences is another run, and the same one is found again."""
    tiny = ["updates=3", "batch_size=8", "latent.num_codes=4", "trainer.validate_every=3", "sampling.lengths=[3]"]
    tiny += [f"network.{name}=4" for name in ("embedding_dim", "hidden_dim", "latent_dim", "attention_dim")]
    tiny += ["network.prior_channels=4", "network.prior_layers=1", "sampling.num_samples=2"]
    monkeypatch.chdir(tmp_path)

    def augment(text: str, *settings: str) -> int:
        Path("c.txt").write_text(text * 6)
        cli.main(["augment", "c.txt", "--times", "0.2", "--output", "more.txt", "--set", *tiny, *settings])
        assert len(Path("more.txt").read_text().splitlines()) == 7
        return len(list(Path("runs/augment").iterdir()))

    assert [augment("a dog .\n"), augment("a cat .\n"), augment("a dog .\n")] == [1, 2, 2]
    assert augment("a dog .\n", "seed=1") == 3


def test_augment_writes_nothing_where_a_model_cannot_draw_so(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("a dog .\n")
    words = ["augment", str(tmp_path / "text.txt"), "--model", str(trained), "--top_p", "2"]
    for more in ([], ["--output", str(tmp_path / "more.txt")]):
        with pytest.raises(SystemExit, match="wanted a finite temperature >= 0 and 0 < top_p"):
            cli.main([*words, *more])
    assert capsys.readouterr().out == "" and [one.name for one in tmp_path.iterdir()] == ["text.txt"]


@pytest.mark.parametrize("more", [["--row", "lstm-lm"], ["--set", "updates=5"]])
def test_augment_refuses_what_a_trained_model_would_ignore(tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "text.txt").write_text("a dog .\n")
    with pytest.raises(SystemExit, match="--model is trained already"):
        cli.main(["augment", str(tmp_path / "text.txt"), "--model", str(tmp_path), *more])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--times", "0"], r"--times must be positive, got 0\.0"),
        (["--temperature", "-1"], "wanted a finite temperature"),
        (["--top_p", "2"], "wanted a finite temperature >= 0 and 0 < top_p"),
        (["--word_temperature", "-1"], "wanted a finite word_temperature"),
    ],
)
def test_augment_refuses_bad_numbers_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("a dog .\n" * 6)
    with pytest.raises(SystemExit, match=message):
        cli.main(["augment", "text.txt", "--output", "more.txt", *more])
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("row", "changes", "message"),
    [
        ("vae", {"latent.num_codes": 64}, "latent.num_codes=64 would have no effect with latent.posterior=gaussian"),
        ("gavam", {"latent.decay": 0.5}, "latent.decay=0.5 would have no effect"),
        ("davam-short", {"latent.revive_below": 0.5}, "latent.revive_below=0.5 would have no effect"),
        ("vae", {"stages": "[{name: main, max_burst: 3}]"}, "max_burst is about bursts"),
        ("vae", {"sampling.num_importance": 0}, "sampling.num_importance must be at least 1, got 0"),
        ("vae", {"sampling.num_weighted": 0}, "sampling.num_weighted must be at least 1, got 0"),
        ("vae", {"sampling.lengths": "[4, 0]"}, r"sampling.lengths\[1\] must be at least 1, got 0"),
    ],
)
def test_settings_without_effect_or_sense_are_refused(row: str, changes: dict[str, object], message: str) -> None:
    with pytest.raises((SystemExit, ValueError), match=message):
        settings_of(row, **changes)


def test_free_nats_are_those_of_a_sentence() -> None:
    """Whatever the number of latents: eight nats in all, divided over them and their features."""
    for scope, positions in (("sentence", 1), (2, 2)):
        latent = f"{{scope: {scope}, posterior: gaussian}}"
        stages = engine_stages(settings_of("vae", latent=latent, stages="[{name: main, free_nats: 8.0}]"))
        assert isinstance(bound := stages[0].bound, Elbo) and bound.free_bits is not None
        assert bound.free_bits[SITE].nats * positions * 4 == pytest.approx(8.0)  # four features
    with pytest.raises(ValueError, match="whose number must be known"):
        engine_stages(settings_of("gavam", stages="[{name: main, free_nats: 8.0}]"))


def test_a_single_sentence_has_perplexities_and_no_active_units() -> None:
    task = task_of("vae")
    corpus = task.corpus
    writer = TextWriter(task.model, corpus.tokenizer, settings=task.settings, lengths=corpus.length_counts)
    single = replace(corpus, encoded={**corpus.encoded, "test": first_sentences(corpus.encoded["test"], 1)})
    metrics = evaluate_model(writer, single)
    assert metrics["iw_ppl"] > 1.0 and "active_units" not in metrics


def test_a_language_model_has_nothing_to_reconstruct() -> None:
    task = task_of("lstm-lm")
    corpus = task.corpus
    writer = TextWriter(task.model, corpus.tokenizer, settings=task.settings, lengths=corpus.length_counts)
    with pytest.raises(ValueError, match="cannot reconstruct"):
        writer.reconstruct(["a b"])
    assert len(writer.sample(3, length=4, top_p=0.9)) == 3


@pytest.mark.parametrize("row", ["vae", "gavam", "davam-128", "davam-q", "lstm-lm"])
def test_no_temperature_or_top_p_is_taken_and_ignored(row: str) -> None:
    task = task_of(row)
    corpus = task.corpus
    writer = TextWriter(task.model, corpus.tokenizer, settings=task.settings, lengths=corpus.length_counts)
    for law in ({"temperature": -1.0}, {"temperature": float("nan")}, {"top_p": 0.0}, {"top_p": 7.0}):
        with pytest.raises(ValueError, match=r"wanted a finite temperature >= 0 and 0 < top_p <= 1"):
            writer.sample(1, **law)  # type: ignore[arg-type]
    still = writer.sample(3, length=4, temperature=0.0)
    assert len({one.text for one in still}) == 1  # also of a language model
    if row in ("vae", "gavam"):
        with pytest.raises(ValueError, match="lower the temperature instead"):
            writer.sample(1, top_p=0.5)
    else:
        assert len(writer.sample(2, top_p=0.5)) == 2


@pytest.mark.parametrize("row", ["vae", "davam-q"])
def test_one_latent_may_stand_for_the_longest_sentence(row: str) -> None:
    """A model that never ends a sentence is cut at the length of training sentences, not at that of its one latent."""
    task = task_of(row)
    with torch.no_grad():
        task.model.readout.bias[EOS] = -1e4
    writer = TextWriter(task.model, task.corpus.tokenizer, settings=task.settings, lengths=[1] * 30)
    assert [len(text.split()) for text in writer.reconstruct(["the man sleeps ."])] == [40]
    assert [len(text.split()) for text in writer.interpolate("the man sleeps .", "a dog .", steps=2)] == [40, 40]


def test_more_draws_tighten_the_importance_weighted_perplexity() -> None:
    task = task_of("vae")
    few = first_sentences(task.corpus.encoded["test"], 8)
    torch.manual_seed(0)
    one, many = (importance_weighted(task.model.eval(), few, draws=draws) for draws in (1, 300))  # type: ignore[arg-type]
    assert many < one


@torch.no_grad()
@pytest.mark.parametrize("row", ["vae-attn", "gavam"])
def test_a_memory_of_gaussians_has_importance_weights(row: str) -> None:
    task = task_of(row)
    model, text = task.model.eval(), task.corpus.encoded["test"]
    torch.manual_seed(0)
    batch = text.batch([0] * 300)
    read = model.encode(batch.words, batch.words_mask, {SITE: Pathwise()})
    words = {"target_in": batch.target_in, "target_out": batch.target_out, "target_mask": batch.target_mask}
    evaluation = model.decode(read, **words)
    # log p(x, z) - log q(z | x) by hand
    value, encoding = read.value[0], read.encoding
    assert model.latent is not None and encoding is not None
    posterior = model.latent.posterior(encoding)
    assert isinstance(posterior, DiagonalGaussian)
    log_q = Normal(posterior.mean, (0.5 * posterior.log_variance).exp()).log_prob(value).sum(dim=(1, 2))
    prior = Normal(torch.zeros_like(value), 1.0)
    if row == "gavam":
        network = model.latent.site.prior
        assert isinstance(network, AutoregressiveGaussian)
        shifted = torch.cat([network.start.expand(len(value), 1, -1), value[:, :-1]], dim=1)
        mean, log_variance = network.network(shifted).chunk(2, dim=-1)
        prior = Normal(mean, (0.5 * log_variance).exp())
    by_hand = evaluation.log_lik[0].sum(dim=-1) + prior.log_prob(value).sum(dim=(1, 2)) - log_q
    torch.testing.assert_close(ImportanceWeighted()(evaluation).bound, by_hand, rtol=1e-4, atol=1e-3)
    bound = float(Elbo()(evaluation).bound.mean())
    error = float(by_hand.std()) / 300**0.5
    assert abs(float(by_hand.mean()) - bound) < 4.0 * error
    assert sentence_bound(model, text, 0, draws=500) > bound


def test_latents_of_a_memory_are_counted_by_position() -> None:
    task = task_of("gavam")
    text = task.corpus.encoded["test"]
    positions = sum(len(ids) + 2 for ids in text.sentences)  # begin and end have one each
    assert len(code_posteriors(task.model.eval(), text, limit=10_000)[0]) == positions
    assert len(code_posteriors(task.model, text, limit=7)[0]) == 7


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="add up to 1"):
        replace(settings_of("vae"), stages=[replace(settings_of("vae").stages[0], share=0.5)])
    with pytest.raises(ValueError, match="prior over codes"):
        settings_of("davam-128", **{"latent.prior": "normal"})
    with pytest.raises(ValueError, match="has no end"):
        load_corpus(CorpusSettings(name="generated"))
    with pytest.raises(ValueError, match="corpus.path goes with"):
        CorpusSettings(name="ptb", path=Path("a"))
    with pytest.raises(ValueError, match="needs corpus.path=FILE"):
        load_corpus(settings_of("vae", **{"corpus.name": "files"}).corpus)
