"""Visual question answering on tiny scenes and files: every row trains, evaluates, is saved; wrong input is named."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import probattn
from probattn import cli
from probattn.cli import answer as answer_command
from probattn.data.generated_scenes import scenes
from probattn.data.image_features import ImageFeatures, read_features, write_features
from probattn.data.whitening import Whitening
from probattn.recipes import vqa
from probattn.recipes.recipe import Run
from probattn.recipes.vqa import RECIPE, VqaTask, train
from probattn.recipes.vqa_answerer import Answerer
from probattn.recipes.vqa_data import load_corpus
from probattn.recipes.vqa_eval import VqaEvaluator, attention_scores, evaluate_model
from probattn.recipes.vqa_examples import _places
from probattn.recipes.vqa_network import build_model, is_random, sites_with_kl
from probattn.recipes.vqa_report import _verdict, picture_source, write_report
from probattn.recipes.vqa_sources import CorpusSettings
from probattn.training import CheckpointError

SMALL = {
    "epochs": 2,
    "batch_size": 40,
    "corpus.train_scenes": 20,
    "corpus.test_scenes": 8,
    "regions.embedding_dim": 8,
    "regions.question_dim": 12,
    "regions.attention_dim": 12,
    "regions.hidden_dim": 16,
    "regions.answer_dim": 6,
    "mcan.embedding_dim": 8,
    "mcan.dim": 8,
    "mcan.num_heads": 2,
    "mcan.num_layers": 1,
    "mcan.hidden_dim": 12,
    "evaluation.draws": 3,
    "evaluation.noise_variances": "[5.0]",
    "trainer.log_every": 1,
    "trainer.kl_gradient_every": 2,
    "trainer.warmup_updates": 0,
    "trainer.tensorboard": "false",
}


def small(row: str, **overrides: Any) -> tuple[Any, dict[str, Any]]:
    return RECIPE.load(RECIPE.configs(row, "scenes"), {**SMALL, **overrides})


def job(row: str, output: Path, **overrides: Any) -> Run:
    return Run(*small(row, **overrides), output, show_progress=False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("vqa")
    train(job("variational-enum", output))
    return output


@pytest.mark.parametrize("row", RECIPE.rows)
def test_every_row_trains(row: str, tmp_path: Path) -> None:
    result = train(job(row, tmp_path))
    metrics = result.metrics
    assert result.facts["updates"] == 4
    assert metrics["clean/mean/nll"] < 4.0 and 0.0 < metrics["noise5/drawn/pavpu"] < 1.0
    assert len(result.curve) == 2 and len(result.examples) == 6
    has_kl = row.startswith(("variational", "mcan-l", "mcan-w"))
    assert ("effective_kl_gradient" in metrics) == has_kl
    assert ("clean/attention/exact_mass" in metrics) == row.startswith(("marginal", "hard", "variational"))
    assert ("clean/attention/posterior_mass" in metrics) == row.startswith("variational")
    assert result.facts["drawn"] == ("dropout and attention" if row.startswith(("mcan-l", "mcan-w")) else "dropout")
    assert result.facts["nll_kind"] == ("exact" if "clean/attention/exact_mass" in metrics else "plug-in")
    json.dumps([result.metrics, result.facts, result.examples])


def test_rows_start_from_the_same_weights() -> None:
    corpus = load_corpus(small("soft")[0].corpus)
    for names in (("soft", "variational-enum"), ("mcan-soft", "mcan-wc")):
        one, other = (build_model(small(row)[0], corpus.vocabulary).state_dict() for row in names)
        assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_what_is_random_and_has_a_kl() -> None:
    corpus = load_corpus(small("soft")[0].corpus)
    models = {row: build_model(small(row)[0], corpus.vocabulary) for row in RECIPE.rows}
    assert [row for row in RECIPE.rows if is_random(models[row])] == [
        "mcan-lf", "mcan-lc", "mcan-wf", "mcan-wc", "mcan-wc-acting",
    ]  # fmt: skip
    assert sites_with_kl(models["variational-sample"]) == ("weights",)
    assert sites_with_kl(models["hard-sample"]) == ()
    assert set(sites_with_kl(models["mcan-wc"])) == {"words1", "regions1", "guided1"}


def test_a_question_only_network_does_not_see_the_picture() -> None:
    settings = small("question-only")[0]
    corpus = load_corpus(settings.corpus)
    model = build_model(settings, corpus.vocabulary)
    evaluator = VqaEvaluator(model, corpus, settings=settings)
    places = torch.arange(8)
    assert torch.equal(evaluator.answers(places).log_probs, evaluator.answers(places, 5.0).log_probs)
    seeing = VqaEvaluator(model, corpus, settings=replace(settings, sees_picture=True))
    assert not torch.equal(seeing.answers(places).log_probs, seeing.answers(places, 5.0).log_probs)


def test_a_run_is_resumed_and_not_continued_with_something_else(tmp_path: Path) -> None:
    first = train(job("soft", tmp_path))
    again = train(job("soft", tmp_path))
    assert {**first.metrics, "train_seconds": 0} == {**again.metrics, "train_seconds": 0}
    with pytest.raises(CheckpointError, match=r"belongs to another run:\n  task\."):
        train(job("soft", tmp_path, **{"regions.dropout": 0.1}))


def test_labels_are_drawn_anew_in_every_epoch() -> None:
    settings = small("soft")[0]
    corpus = load_corpus(settings.corpus)
    questions = [replace(one, answers=("red", "blue")) for one in corpus.questions["train"]]
    several = replace(corpus, questions={**corpus.questions, "train": questions})
    task = VqaTask(settings, several)
    torch.manual_seed(0)
    first, second = (torch.cat(list(task.batches(epoch))) for epoch in (0, 1))
    assert sorted(first[:, 0].tolist()) == list(range(80))
    labels = [dict(batch.tolist()) for batch in (first, second)]
    assert 10 < sum(labels[0][place] != labels[1][place] for place in range(80)) < 70


def test_unknown_answers_count_as_wrong_and_are_said() -> None:
    settings = small("marginal")[0]
    corpus = load_corpus(settings.corpus)
    strange = [replace(one, answers=("zebra",)) for one in corpus.questions["test"][:16]]
    plain = [replace(one, answers=("red",)) for one in corpus.questions["test"][16:]]
    changed = replace(corpus, questions={**corpus.questions, "test": [*strange, *plain]})
    assert "16 of test (counted as wrong)" in str(changed)
    model = build_model(settings, corpus.vocabulary)
    metrics = evaluate_model(model, changed, settings)
    assert metrics["unknown_answers"] == 0.5 and metrics["clean/mean/accuracy"] <= 0.5
    assert metrics["majority_accuracy"] in (0.0, 0.5)
    evaluator = VqaEvaluator(model, changed, settings=settings)
    made = evaluator.answers(torch.arange(32))
    assert float(evaluator.accuracy(made.places, made.log_probs.argmax(dim=-1))[:16].sum()) == 0.0
    expected = float(made.log_probs[16:, corpus.vocabulary.answers.number("red")].mean())
    assert metrics["clean/mean/nll"] == pytest.approx(-expected, rel=1e-6)


def test_attention_is_measured_against_gold() -> None:
    settings = small("soft")[0]
    corpus = load_corpus(settings.corpus)
    evaluator = VqaEvaluator(build_model(settings, corpus.vocabulary), corpus, settings=settings)
    made = evaluator.answers(torch.arange(32))
    perfect = torch.zeros_like(made.weights)
    for number, one in enumerate(evaluator.questions):
        perfect[number, list(one.gold) or [0]] = 1.0 / max(1, len(one.gold))
    found = attention_scores(evaluator, replace(made, weights=perfect))
    assert (found["mass"], found["hit"]) == (pytest.approx(1.0), 1.0)
    uniform = attention_scores(evaluator, replace(made, weights=torch.full_like(perfect, 1 / 25)))
    sizes = [len(one.gold) for one in evaluator.questions if one.gold]
    assert uniform["mass"] == pytest.approx(sum(sizes) / len(sizes) / 25)


def test_noise_reaches_the_posteriors_too() -> None:
    settings = small("variational-enum")[0]
    corpus = load_corpus(settings.corpus)
    metrics = evaluate_model(build_model(settings, corpus.vocabulary), corpus, settings)
    for name in ("posterior_entropy", "exact_entropy", "exact_mass"):
        assert metrics[f"noise5/attention/{name}"] != metrics[f"clean/attention/{name}"]
    evaluator = VqaEvaluator(build_model(settings, corpus.vocabulary), corpus, settings=settings)
    assert [len(one.words) for one in evaluator.inputs(torch.arange(32), 5.0)] == [32]
    noisy = evaluator.answers(torch.arange(32), 5.0)
    exact = attention_scores(evaluator, noisy, 5.0)
    assert exact["exact_entropy"] == pytest.approx(metrics["noise5/attention/exact_entropy"])


def test_noise_belongs_to_a_question_wherever_it_stands() -> None:
    settings = small("soft", **{"evaluation.batch_size": 8})[0]
    corpus = load_corpus(settings.corpus)
    evaluator = VqaEvaluator(build_model(settings, corpus.vocabulary), corpus, settings=settings)
    count = len(evaluator.questions)
    everything = torch.cat([one.regions for one in evaluator.inputs(torch.arange(count), 5.0)])
    some = torch.tensor([count - 1, 3, 11, 0, 17])
    chosen = torch.cat([one.regions for one in evaluator.inputs(some, 5.0)])
    torch.testing.assert_close(chosen, everything[some])
    clean = torch.cat([one.regions for one in evaluator.inputs(some, 0.0)])
    assert float((chosen - clean).abs().mean()) > 0.5


@pytest.mark.parametrize(("metric", "mode"), [("nll", "min"), ("accuracy", "max")])
def test_the_metric_that_selects_knows_its_direction(metric: str, mode: str, tmp_path: Path) -> None:
    seen: list[str] = []

    def watched(*_: Any, settings: Any, **__: Any) -> Any:
        seen.append(settings.select_mode)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(vqa, "train_to_end", watched)
        train(job("soft", tmp_path, **{"trainer.select_by": metric}))
    assert seen == [mode]
    with pytest.raises(ValueError, match=r"trainer\.select_by=bleu: a validation gives nll, accuracy"):
        train(job("soft", tmp_path, **{"trainer.select_by": "bleu"}))


def test_a_split_without_a_known_answer_is_told_before_training(tmp_path: Path) -> None:
    given = own_files(tmp_path)
    header, *lines = (tmp_path / "questions.tsv").read_text().splitlines()
    strange = [f"{line.rpartition(chr(9))[0]}\tanswer {number}" for number, line in enumerate(lines)]
    (tmp_path / "questions.tsv").write_text("\n".join([header, *strange]) + "\n")
    settings, _ = RECIPE.load(RECIPE.configs("marginal", "files"), {**SMALL, **given})
    with pytest.raises(ValueError, match="no question of valid, test has an answer that training knows"):
        load_corpus(settings.corpus)


def test_whitened_features_are_uncorrelated() -> None:
    torch.manual_seed(0)
    raw = torch.randn(500, 4) @ torch.tensor([[3.0, 1, 0, 0], [0, 2, 0, 0], [0, 0, 1, 1], [0, 0, 0, 1]]) + 5.0
    white = Whitening.of_regions(raw)(raw)
    covariance = torch.cov(white.T)
    assert float(white.mean(dim=0).abs().max()) < 1e-4
    assert float((covariance - covariance.diag().diag()).abs().max()) < 1e-4
    assert float(covariance.diag().min()) > 0.6 and float(covariance.diag().max()) < 1.0


def test_a_saved_network_answers(trained: Path) -> None:
    answerer = probattn.load(trained)
    assert isinstance(answerer, Answerer)
    made = scenes("test", 8)
    asked = [one.question for one in made.questions[:3]]
    images = [made.picture_name(one.scene) for one in made.questions[:3]]
    found = answerer.answer(asked, images, features=made.features, num_best=2)
    assert all(one.text in answerer.vocabulary.answers.numbers and one.p_value is None for one in found)
    corpus = load_corpus(answerer.settings.corpus, answerer.vocabulary)
    evaluator = VqaEvaluator(answerer.model, corpus, settings=answerer.settings)
    probs = evaluator.answers(torch.arange(3)).log_probs.exp()
    assert [one.probability for one in found] == pytest.approx(probs.max(dim=-1).values.tolist(), rel=1e-4)
    drawn = answerer.answer(["What colour is the Unicorn?"], images[:1], features=made.features, draws=4)
    assert drawn[0].unknown_words == ("unicorn",) and 0.0 <= drawn[0].p_value <= 1.0
    assert answerer.evaluate(corpus)["unknown_answers"] == corpus.num_unanswerable("test") / 32


def test_wrong_questions_are_named(trained: Path) -> None:
    answerer, features = probattn.load(trained), scenes("test", 2).features
    with pytest.raises(TypeError, match="put it into a list"):
        answerer.answer("what ?", ["test0.png"], features=features)
    with pytest.raises(ValueError, match="expected an image for each question, got 1 questions, 2 images"):
        answerer.answer(["what ?"], ["a", "b"], features=features)
    with pytest.raises(KeyError, match="no features of 1 picture"):
        answerer.answer(["what ?"], ["absent.png"], features=features)
    narrow = ImageFeatures(("a",), torch.zeros(1, 25, 3))
    with pytest.raises(ValueError, match="has 3 features a region, but the network reads"):
        answerer.answer(["what ?"], ["a"], features=narrow)
    with pytest.raises(ValueError, match="NaN or infinite features of 'a'"):
        ImageFeatures(("a",), torch.full((1, 25, 3), torch.nan))


def test_a_damaged_folder_is_named(trained: Path, tmp_path: Path) -> None:
    for name in ("answers.json", "whitening.safetensors"):
        folder = tmp_path / name
        folder.mkdir()
        for file in (trained / "model").iterdir():
            (folder / file.name).write_bytes(file.read_bytes()[:20] if file.name == name else file.read_bytes())
        with pytest.raises(CheckpointError, match="or was cut off"):
            probattn.load(folder)


def own_files(folder: Path) -> Mapping[str, Any]:
    made = scenes("train", 12)
    write_features(folder / "features.npz", made.features)
    lines = [f"{made.picture_name(one.scene)}\t{one.question}\t{one.answer}|{one.answer}" for one in made.questions]
    (folder / "questions.tsv").write_text("image\tquestion\tanswers\n" + "\n".join(lines) + "\n")
    return {
        "corpus.name": "files",
        "corpus.features": folder / "features.npz",
        "corpus.questions": folder / "questions.tsv",
    }


def test_files_of_ones_own(tmp_path: Path) -> None:
    given = own_files(tmp_path)
    settings, plain = RECIPE.load(RECIPE.configs("marginal", "files"), {**SMALL, **given})
    result = train(Run(settings, plain, tmp_path / "run", show_progress=False))
    assert result.facts["corpus"] == "files" and result.facts["train_questions"] == 40
    corpus = load_corpus(settings.corpus)
    pictures = [{one.picture for one in corpus.questions[split]} for split in ("train", "valid", "test")]
    assert [len(found) for found in pictures] == [10, 1, 1] and len(set.union(*pictures)) == 12
    own = load_corpus(replace(settings.corpus, test_questions=tmp_path / "questions.tsv"))
    assert [len(own.questions[split]) for split in ("train", "valid", "test")] == [44, 4, 48]
    (tmp_path / "questions.tsv").write_text(
        "image\tquestion\tanswers\nabsent.png\twhat ?\tcup\n" * 1 + "x.png\ty ?\tz\n" * 3
    )
    with pytest.raises(ValueError, match="leaves no questions for"):
        load_corpus(settings.corpus)


def test_questions_about_damaged_pictures_are_left_out_and_counted(tmp_path: Path) -> None:
    settings, _ = RECIPE.load(RECIPE.configs("marginal", "files"), {**SMALL, **own_files(tmp_path)})
    whole = read_features(tmp_path / "features.npz")
    kept = replace(whole, names=whole.names[1:], values=whole.values[1:], left_out=whole.names[:1])
    write_features(tmp_path / "features.npz", kept)
    corpus = load_corpus(settings.corpus)
    assert sum(len(asked) for asked in corpus.questions.values()) == 44 and corpus.unread == 4
    assert "; 4 about pictures that could not be read were left out" in str(corpus)
    write_features(tmp_path / "features.npz", replace(kept, left_out=()))
    with pytest.raises(KeyError, match=f"no features of 1 picture.*'{whole.names[0]}'"):
        load_corpus(settings.corpus)
    write_features(tmp_path / "features.npz", replace(whole, values=torch.zeros_like(whole.values)))
    with pytest.raises(ValueError, match="features.npz: all features are the same number; extract them again"):
        load_corpus(settings.corpus)


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ValueError, match="needs both corpus.features=FILE and corpus.questions=FILE"):
        CorpusSettings(name="files")
    with pytest.raises(ValueError, match="has its own features and questions; add corpus.name=files"):
        CorpusSettings(questions=Path("x"))
    with pytest.raises(ValueError, match=r"a share between 0 and 0.5, got 0.7"):
        CorpusSettings(held_out=0.7)


def test_the_report_has_tables_and_pictures(trained: Path, tmp_path: Path) -> None:
    results = [train(job("variational-enum", trained)), train(job("mcan-wc", tmp_path / "run"))]
    text = write_report("vqa", results, tmp_path)
    assert "majority" in text and "variational-enum" in text and "1.69" in text
    page = (tmp_path / "report.html").read_text()
    assert page.count("<image") >= 6 * 4 and "Gold regions are ringed" in page
    assert 'src="http' not in page and "<script" not in page


def test_pictures_of_a_report_are_upright_and_may_be_damaged(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    picture = image.new("RGB", (8, 4), (0, 0, 0))
    exif = image.Exif()
    exif[0x0112] = 6  # taken with the camera on its side
    (tmp_path / "deeper").mkdir()
    picture.save(tmp_path / "deeper" / "a[1].jpg", exif=exif)
    (tmp_path / "b.jpg").write_bytes(b"\xff\xd8 not a picture")
    source = picture_source({"corpus": "files", "pictures": str(tmp_path)})
    found = source("a[1].jpg")
    assert found is not None and found.shape == (8, 4, 3)
    assert source("b.jpg") is None and source("c.jpg") is None


def test_examples_are_of_all_types() -> None:
    assert _places(["a", "a", "a", "a", "b", "a", "c", "b", "a"]) == [0, 1, 2, 4, 6, 7]


@pytest.mark.parametrize(
    ("accuracy", "p_value", "verdict"),
    [(1.0, 0.01, "right, certain"), (0.0, 0.5, "wrong, uncertain"), (0.3, None, "wrong")],
)
def test_verdicts_are_the_papers_four_cases(accuracy: float, p_value: float | None, verdict: str) -> None:
    example = {"answer": "cup", "probability": 0.4, "accuracy": accuracy, "p_value": p_value}
    assert _verdict(example)[-1] == verdict


def test_the_command_answers(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_features(tmp_path / "f.npz", scenes("test", 2).features)
    start = ["answer", str(trained), "--features", str(tmp_path / "f.npz")]
    one = ["--image", "test0.png", "--question", "what colour is the seven ?"]
    titles: list[str] = []
    drawn = answer_command.attention_map
    monkeypatch.setattr(
        answer_command, "attention_map", lambda *given, title, **more: titles.append(title) or drawn(*given, **more)
    )
    cli.main([*start, *one, "--draws", "3", "--map", str(tmp_path / "map.svg")])
    shown, probability, p_value, *_ = capsys.readouterr().out.split("\t")
    assert titles == [f"{one[-1]}\n{shown} ({float(probability):.2f}, p = {p_value.removeprefix('p=')})"]
    assert (tmp_path / "map.svg").read_text().startswith("<svg")
    (tmp_path / "q.tsv").write_text("image\tquestion\tanswers\ntest1.png\twhat is the unicorn ?\tx\n")
    cli.main([*start, "--input", str(tmp_path / "q.tsv"), "--format", "json"])
    record = json.loads(capsys.readouterr().out)
    assert record["unknown_words"] == ["unicorn"] and len(record["weights"]) == 25
    assert sum(record["weights"]) == pytest.approx(1.0, abs=1e-3)
    (tmp_path / "open.tsv").write_text("image\tquestion\ntest1.png\twhat is left of the seven ?\n")
    (tmp_path / "open.jsonl").write_text('{"image": "test1.png", "question": "what is left of the seven ?"}\n')
    answers = []
    for name in ("open.tsv", "open.jsonl"):  # questions that nobody has answered
        cli.main([*start, "--input", str(tmp_path / name)])
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1] != ""
    for words, message in (
        ([*start, "--image", "test0.png"], "give either --image and --question, or --input"),
        ([*start, *one, "--draws", "1"], "--draws 0 or at least 2"),
        ([*start, *one, "--picture", "x.png"], "--picture is for --map"),
        ([*start, *one, "--map", str(tmp_path / "m.svg"), "--picture", str(tmp_path / "q.tsv")], "or it is damaged"),
        ([*start, "--image", "no.png", "--question", "what ?"], "no features of 1 picture"),
    ):
        with pytest.raises(SystemExit, match=message):
            cli.main(words)
