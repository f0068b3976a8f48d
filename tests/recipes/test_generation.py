"""Text generation: every row trains, its KL is what eq. 8 says, trained models are folders, collapse is noticed."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import probattn
from probattn import cli
from probattn.core import Elbo, Logistic, Mean
from probattn.data.batches import EncodedText, SourceBatch
from probattn.recipes import dialogue, generation_search, pilot_vae, question_generation
from probattn.recipes.comparison import Comparison
from probattn.recipes.engine_run import validation_curves
from probattn.recipes.generation import GenerationTask
from probattn.recipes.generation_data import CorpusSettings, load_corpus
from probattn.recipes.generation_eval import _probed, evaluate_model
from probattn.recipes.generation_run import at_mean, run, with_last_kl
from probattn.recipes.generation_settings import Annealing, GenerationSettings
from probattn.recipes.generator import Generator
from probattn.recipes.recipe import Recipe, Run
from probattn.training import CollapseWarning

pytestmark = pytest.mark.filterwarnings("ignore::probattn.training.CollapseWarning")

TINY = {
    "epochs": 1,
    "batch_size": 20,
    "network": "{embedding_dim: 12, encoder_dim: 8, decoder_dim: 16, code_dim: 4}",
    "corpus.train_size": 120,
    "corpus.test_size": 20,
    "sampling": "{num_samples: 3, validation_sources: 5, max_length: 8}",
}
RECIPES = {"question_generation": question_generation, "dialogue": dialogue, "pilot_vae": pilot_vae}


def settings_of(row: str, recipe: Recipe = question_generation.RECIPE, **changes: object) -> GenerationSettings:
    settings, _ = recipe.load(recipe.configs(row, "generated"), {**TINY, **changes})
    assert isinstance(settings, GenerationSettings)
    return settings


def task_of(row: str, **changes: object) -> GenerationTask:
    settings = settings_of(row, **changes)
    return GenerationTask(settings, load_corpus(settings.corpus))


@pytest.mark.parametrize("row", question_generation.RECIPE.rows)
def test_every_row_takes_a_step_and_is_evaluated(row: str) -> None:
    task = task_of(row)
    batch = task.batches(0)[0]
    output = task.step(batch, task.stage(), task.updates - 1)
    output.loss.backward()  # type: ignore[no-untyped-call]
    without = [name for name, parameter in task.model.named_parameters() if parameter.grad is None]
    # a code without a prior is its mean: nothing depends on its variance
    assert all("log_variance" in name for name in without) and (not without or row.startswith("ded"))
    metrics = evaluate_model(task.model.eval(), task.corpus, task.settings)
    assert {f"map_bleu{n}" for n in range(1, 5)} <= metrics.keys()
    is_random = not row.startswith("ded")
    assert (
        {"sample_bleu4", "entropy", "dist1", "dist2", "elbo_ppl", "probed_iw_ppl", "kl_code"} <= metrics.keys()
    ) is is_random
    assert all(torch.isfinite(torch.tensor(value)) for value in metrics.values())


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_share_rows_but_not_text(name: str) -> None:
    recipe = RECIPES[name].RECIPE
    assert recipe.name == name
    rows = {"pilot_vae": ["vae", "vae-init"]}.get(name, question_generation.RECIPE.rows)
    assert recipe.rows == rows
    settings = settings_of(rows[0], recipe)
    corpus = load_corpus(settings.corpus)
    pairs = list(zip(corpus.texts["train"].source, corpus.texts["train"].target, strict=True))
    assert all((source == target) is (name == "pilot_vae") for source, target in pairs)


def test_bound_does_not_exceed_its_parts_and_importance_weights_tighten_it() -> None:
    task = task_of("ved-vattn-0")
    metrics = evaluate_model(task.model.eval(), task.corpus, task.settings)
    assert metrics["probed_elbo_ppl"] > metrics["probed_iw_ppl"] > 1.0
    tokens_nll = torch.tensor(metrics["elbo_ppl"]).log()
    assert float(tokens_nll) > metrics["reconstruction_nll"]


def test_released_kl_is_that_of_the_last_real_step() -> None:
    task = task_of("ved-vattn-h")
    pairs = task.corpus.subwords.to_output(task.corpus.encoded["train"].batch(task.batches(0)[0]))
    evaluation = run(task.model, pairs, at_mean(task.model))
    last = Elbo()(with_last_kl(evaluation)).kl
    every = evaluation.latents[1].kl
    ends = pairs.target_mask.sum(dim=1) - 1
    torch.testing.assert_close(last["attention"], every[torch.arange(len(every)), ends].detach())
    torch.testing.assert_close(last["code"], Elbo()(evaluation).kl["code"])
    released = settings_of("ved-vattn-h-released")
    assert (released.kl_steps, released.likelihood) == ("last", "token-mean")


def test_token_mean_likelihood_weighs_the_kl_by_the_words_of_a_sentence() -> None:
    """The gradient is that of the released loss, mean log-likelihood of a word against a summed KL, times the words."""
    task = task_of("ved")
    batch, stage, update = task.batches(0)[0], task.stage(), task.updates
    seeds = [torch.manual_seed(0) and task.step(batch, stage, update).parts]
    task.settings = replace(task.settings, likelihood="token-mean")
    seeds.append(torch.manual_seed(0) and task.step(batch, stage, update).parts)
    words = float(task.corpus.encoded["train"].batch(batch).target_mask.sum()) / len(batch)
    torch.testing.assert_close(seeds[1]["likelihood"], seeds[0]["likelihood"])
    torch.testing.assert_close(seeds[1]["kl"], words * seeds[0]["kl"])


def test_annealing_reaches_its_end_unless_it_is_the_released_one() -> None:
    ours, released = settings_of("ved-vattn-h"), settings_of("ved-vattn-h-released")
    assert ours.schedules(1000)["attention"](1000) == pytest.approx(0.1, rel=1e-3)
    assert ours.schedules(1000)["code"](0) < 1e-3
    assert released.schedules(1000)["code"](10**6) == pytest.approx(0.047, abs=2e-3)
    assert Annealing(midpoint=0.5, width=0.1).schedule(1.0, 200) == Logistic(midpoint=100.0, width=20.0)
    assert settings_of("ded").schedules(10) == {}


def test_free_nats_of_a_site_cost_nothing() -> None:
    floor = 50.0
    task = task_of("ved-vattn-h", free_nats=f"{{code: {floor}}}")
    batch, update = task.batches(0)[0], task.updates
    output = task.step(batch, task.stage(), update)
    weights = task.stage().weights_at(update)
    kl = {name: total / sentences for name, (total, sentences) in output.logs.items() if name.startswith("kl_")}
    assert float(kl["kl_code"]) < floor  # what is logged has no floor
    expected = weights["code"] * floor + weights["attention"] * kl["kl_attention"]
    assert float(output.parts["kl"].detach()) == pytest.approx(float(expected), rel=1e-5)
    assert settings_of("ved").free_bits is None


def test_two_stage_training_attends_later() -> None:
    task = task_of("ved-dattn-2stage")
    early, late = (int(share * task.updates) for share in (0.0, 0.9))
    batch = task.batches(0)[0]
    for update, attends in ((early, False), (late, True)):
        task.model.zero_grad()
        task.step(batch, task.stage(), update).loss.backward()  # type: ignore[no-untyped-call]
        assert task.model.attention is not None
        reached = any(parameter.grad is not None for parameter in task.model.attention.parameters())
        assert reached is attends


@pytest.mark.parametrize(("accumulate", "processes"), [(4, 1), (2, 2)])
def test_schedules_count_updates_and_not_batches(
    accumulate: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = task_of("ved-dattn-2stage").updates
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    task = task_of("ved-dattn-2stage", **{"trainer.accumulate": accumulate})
    per_epoch = math.ceil(len(task.buckets) / 4)
    assert task.updates == task.settings.epochs * per_epoch < whole
    assert task.stage().weights_at(task.updates)["code"] == pytest.approx(1.0, abs=0.01)


def test_collapse_is_warned_of_once_with_remedies() -> None:
    task = task_of("ved")
    task.model.eval()  # as the engine does
    assert task.model.code is not None
    with torch.no_grad():
        for parameter in task.model.code.parameters():
            parameter.zero_()  # q = N(0, 1) = p
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            metrics = task.validate()
    found = [str(warning.message) for warning in caught if warning.category is CollapseWarning]
    assert len(found) == 1 and "site 'code'" in found[0] and "FreeBits" in found[0]
    assert metrics["kl_code"] == pytest.approx(0.0, abs=1e-6) and metrics["active_code"] == 0.0


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    recipe = question_generation.RECIPE
    settings, plain = recipe.load(recipe.configs("ved-vattn-h", "generated"), TINY)
    result = recipe.train(Run(settings, plain, folder, show_progress=False))
    assert set(validation_curves(folder / "log.jsonl")) >= {"entropy", "sample_bleu2", "kl_attention"}
    assert result.curves["dist1"] and len(result.examples) > 2
    text = recipe.write_report("question_generation", [result, replace(result, seed=1)], folder)
    assert "| BLEU-4 |" in re.sub(" +", " ", text) and "±" in text
    page = (folder / "report.html").read_text()
    assert "Samples, source 1" in page and result.examples[0]["source"] in page
    assert result.curves["active_attention"] and "active_attention" in result.metrics
    return folder


def test_a_trained_model_is_a_folder(trained: Path) -> None:
    generator = probattn.load(trained)
    assert isinstance(generator, Generator) and generator.sites == ("code", "attention")
    source = "the old man buys a car ."
    first, again = (generator.generate([source, ""], num_samples=4) for _ in range(2))
    assert first == again and len(first[0]) == 4 and first[1] == []
    assert first != generator.generate([source, ""], num_samples=4, seed=1)
    best = generator.generate([source], num_samples=3, draw=())[0]
    assert len({one.text for one in best}) == 1
    assert generator.generate([source], draw=("code",), beam_size=2)[0][0].log_prob < 0.0
    with pytest.raises(ValueError, match="cannot draw 'weights'"):
        generator.generate([source], draw=("weights",))
    with pytest.raises(TypeError, match="put it into a list"):
        generator.generate(source)


def test_a_trained_model_needs_no_word_vectors(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They started training; what became of them is among the weights."""
    shutil.copytree(trained / "model", tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config["settings"]["network"]["pretrained"] = "glove50"
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    monkeypatch.delenv("PROBATTN_DATA", raising=False)
    assert isinstance(probattn.load(tmp_path / "model"), Generator)


def test_probes_come_from_all_over_a_text() -> None:
    pairs = tuple((number,) for number in range(1900))
    found = _probed(EncodedText(pairs, pairs, "t"))
    assert len(found.source) == 500 and found.source[0] == (0,) and found.source[-1] == (1896,)
    few = _probed(EncodedText(pairs[:7], pairs[:7], "t"))
    assert few.source == pairs[:7]


def called(model: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "probattn", "generate", str(model), *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    text = "the man buys a car .\n\nthe girl sleeps .\n"
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False, env=environment)


def test_command_line_generates(trained: Path) -> None:
    lines = called(trained, "--num_samples", "3").stdout.splitlines()
    assert [line.split(" ||| ")[0] for line in lines] == ["0"] * 3 + ["1 |||"] + ["2"] * 3
    assert all(float(line.split(" ||| ")[2]) < 0 for line in lines if not line.startswith("1"))
    plain = called(trained, "--num_samples", "3", "--no_scores").stdout.splitlines()
    assert plain == [line.rpartition(" ||| ")[0] if line.count("|||") == 2 else line for line in lines]
    records = [json.loads(line) for line in called(trained, "--draw", "none", "--format", "json").stdout.splitlines()]
    assert [len(record["samples"]) for record in records] == [1, 0, 1] and "log_prob" in records[0]["samples"][0]


def test_command_line_takes_nothing_that_it_cannot_use(trained: Path) -> None:
    refused = called(trained, "--draw", "none", "--num_samples", "3")
    assert refused.returncode != 0 and "--num_samples has no effect where nothing is drawn" in refused.stderr


def test_text_that_the_model_does_not_know_is_noticed(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "text.txt"
    for text, is_known in (("the man buys a car .\n", True), ("The man, Xaver,\nbuys cars!\n", False)):
        source.write_text(text)
        cli.main(["generate", str(trained), "--input", str(source), "--num_samples", "1"])
        said = capsys.readouterr().err
        assert ("words of these sources are unknown to the model" in said) is not is_known
    generator = probattn.load(trained)
    assert generator.count_unknown(["the xqz man", "qqq"]) == (2, 4)


def test_many_samples_are_drawn_in_turns(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = probattn.load(trained)
    sizes: list[int] = []
    search = generation_search.greedy

    def counted(stepper: object, batch: SourceBatch, **options: object) -> object:
        sizes.append(len(batch.source))
        return search(stepper, batch, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(generation_search, "greedy", counted)
    monkeypatch.setattr(generation_search, "_MAX_ROWS", 4)
    found = generator.generate(["the man buys a car .", "", "the girl sleeps ."], num_samples=10)
    assert [len(texts) for texts in found] == [10, 0, 10] and max(sizes) == 4
    with pytest.raises(ValueError, match="at least 1, got 1 and 0"):
        generator.generate(["the man"], beam_size=0)


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match=r"weights.cod: row 'ved' has code"):
        settings_of("ved", **{"weights.cod": 1})
    with pytest.raises(ValueError, match=r"free_nats.attention: row 'ved' has code"):
        replace(settings_of("ved"), free_nats={"attention": 1.0})
    with pytest.raises(ValueError, match="free_nats.code must be positive"):
        replace(settings_of("ved"), free_nats={"code": 0.0})
    with pytest.raises(ValueError, match="share of the training"):
        replace(settings_of("ved"), attention_from=1.0)
    with pytest.raises(ValueError, match="has no end"):
        load_corpus(CorpusSettings(name="questions"))
    with pytest.raises(ValueError, match="corpus.name=files"):
        CorpusSettings(name="questions", src=Path("a"))
    with pytest.raises(ValueError, match="at least 1"):
        CorpusSettings(max_target=0)


def test_own_files_are_split_from_their_end(tmp_path: Path) -> None:
    source, target = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_text("".join(f"A b {i}\n" for i in range(40)))
    target.write_text("".join(f"c {i}\n" for i in range(40)))
    corpus = load_corpus(CorpusSettings(name="files", src=source, tgt=target, min_frequency=1))
    assert [len(corpus.texts[split]) for split in ("train", "valid", "test")] == [36, 2, 2]
    assert corpus.texts["train"].source[0] == "a b 0"  # in lower case, as a trained model reads
    same = load_corpus(CorpusSettings(name="files", src=source, min_frequency=1))
    assert same.texts["test"].source == same.texts["test"].target
    with pytest.raises(ValueError, match="too few"):
        load_corpus(CorpusSettings(name="files", src=source, tgt=target, test_size=20))


def test_pairs_with_an_empty_or_very_long_side_are_left_out_where_that_is_asked_for(tmp_path: Path) -> None:
    source, target = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_text("".join(f"a b {i}\n" for i in range(40)))
    target.write_text("".join("\n" if i == 3 else "c " * (1001 if i == 5 else 2) + "\n" for i in range(40)))
    own = {"corpus.name": "files", "corpus.src": source, "corpus.tgt": target, "corpus.test_size": 2}
    with pytest.raises(ValueError, match=r"b\.txt, line 4: empty line; .* corpus\.on_empty=skip"):
        load_corpus(settings_of("ved", **own).corpus)
    own |= {"corpus.on_empty": "skip"}  # what the message says
    with pytest.raises(ValueError, match=r"b\.txt, line 6: 1,001 words, .* corpus\.on_long=skip"):
        load_corpus(settings_of("ved", **own).corpus)
    corpus = load_corpus(settings_of("ved", **own, **{"corpus.on_long": "skip"}).corpus)
    assert corpus.texts["train"].source[3:5] == ("a b 4", "a b 6")


def test_estimators_at_mean_cover_all_sites() -> None:
    model = task_of("ved-weibull").model
    assert at_mean(model) == {"code": Mean(), "attention": Mean()}


def test_results_of_a_comparison_are_those_of_the_text_in_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = [Path("source.txt"), Path("target.txt")]  # what the scale `paper` names
    in_a_mapping = {"corpus": "{name: files, src: source.txt, tgt: target.txt}"}
    one_by_one = {"corpus.name": "files", "corpus.src": "source.txt", "corpus.tgt": "target.txt"}
    for scale, overrides in (("paper", {}), ("generated", in_a_mapping), ("generated", one_by_one)):
        for file in files:
            file.write_text("a b\n")
        comparison = Comparison(question_generation.RECIPE, ["ved"], 1, scale, overrides, tmp_path / "results")
        before = comparison.fingerprint("ved")
        assert comparison.fingerprint("ved") == before
        files[1].write_text("a c\n")
        assert comparison.fingerprint("ved") != before, overrides
